//! The room for the values as files.

use proptest::prelude::*;

use super::*;

/// Size of the volume and the agent's memory, of a pod whose config has this many keys and bytes.
fn sizes(annotations: &Value, keys: u32, bytes: u64) -> (String, String) {
    let mut facts = facts();
    let shop = facts.configs.get_mut(&ConfigName::new("shop").unwrap()).unwrap();
    (shop.keys, shop.bytes) = (keys, bytes);
    let mut annotations = annotations.clone();
    annotations["mount-path"] = json!("/etc/shop");
    let app = json!([{"name": "app", "image": "app", "resources": {"requests": {"cpu": "1"}}}]);
    let (injected, _) = try_with(&with_spec(&annotations, &json!({"containers": app})), &facts).unwrap();
    assert_eq!(try_with(&injected, &facts).unwrap().0, injected, "a second run changes nothing");
    let volumes = injected["spec"]["volumes"].as_array().unwrap();
    let files = volumes.iter().find(|volume| volume["name"] == "nudge-files").unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let agent = &injected["spec"]["initContainers"][0];
    (text(&files["emptyDir"]["sizeLimit"]), text(&agent["resources"]["limits"]["memory"]))
}

#[test]
fn files_have_room_by_their_number_and_their_bytes() {
    let none = json!({});
    let check = json!({"check.app": "http://127.0.0.1:8080/"});
    for (annotations, keys, bytes, expected) in [
        (&none, 0, 0, ("16Mi", "40Mi")),
        (&none, 100, 100_000, ("16Mi", "40Mi")),
        (&none, 3_000, 3_000, ("59Mi", "91Mi")),
        (&check, 3_000, 3_000, ("88Mi", "124Mi")),
        (&none, 5_000, 5_000, ("81Mi", "113Mi")),
        (&none, 10, 3 << 20, ("16Mi", "40Mi")),
        (&none, u32::MAX, u64::MAX, ("86Mi", "118Mi")),
        (&json!({"agent-memory": "64Mi"}), 5_000, 5_000, ("81Mi", "64Mi")),
    ] {
        let (size, memory) = sizes(annotations, keys, bytes);
        assert_eq!((&*size, &*memory), expected, "{keys} keys of {bytes} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_version_and_the_next_fit_into_the_pages_of_the_volume(keys in 0_u32..8192, bytes in 0_u64..3 << 20) {
        let (size, _) = sizes(&json!({}), keys, bytes);
        let pages = size.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() << 8;
        prop_assert!(2 * (u64::from(keys) + bytes.div_ceil(4096)) <= pages, "{}", size);
    }
}
