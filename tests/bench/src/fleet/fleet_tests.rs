//! The small form.

use nudge_tests::binary;
use nudge_tests::cluster::binaries::Binaries;

use super::*;

/// Times are not checked, because the machine runs other tests: it is enough that each measure ends, and reports its
/// values.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_fleet_is_measured() -> Result<()> {
    if Binaries::find()?.is_none_or(|found| found.kubectl.is_none()) {
        return Ok(());
    }
    let options = Options {
        pods: 0,
        configs: 0,
        namespaces: 0,
        dwell: 0,
        bake: 0,
        only: None,
        soak: None,
        small: true,
        reads: "cluster".to_owned(),
        folder: None,
        control_plane: ControlPlane::of(binary::injector()?),
        json: true,
        save: None,
    };
    let found: Value = serde_json::from_str(&Box::pin(measure(options)).await?.json()?)?;
    let measures = found["measures"].as_array().expect("there are measures");
    let value = |what: &str| {
        let entry = measures.iter().find(|row| row["measure"].as_str().is_some_and(|name| name.contains(what)));
        entry.unwrap_or_else(|| panic!("there is no row {what}"))["value"].as_f64()
    };
    for what in [
        "step 4 (100 pods): until the last pod is proven",
        "from the verdict until every agent has the old one",
        "from the verdict until every condition says so",
        "control, peak of a relist",
        "until the last is current",
        "until every pod is assigned, worst",
        "longest status",
        "processor, control",
    ] {
        assert!(value(what).is_some_and(|value| value > 0.0), "{what}");
    }
    assert!(value("1 config, 200 pods, a good version: cost: conditions written") >= Some(200.0));
    assert_eq!(value("pods skipped that acknowledged"), Some(0.0));
    for part in ["good", "bad", "many"] {
        let curve = |name: &str| found[part]["curves"][name].as_array().expect("there is a curve").clone();
        let most = |name: &str| curve(name).iter().filter_map(Value::as_u64).max();
        let (least, all) = match part {
            "good" => (200, 200),
            // It is refused when more than 30% have it, and half of them are to.
            "bad" => (61, 100),
            // Two configs have a bad one, which three of their pods get.
            _ => (180, 186),
        };
        let in_bounds = |count: Option<u64>| count.is_some_and(|count| (least..=all).contains(&count));
        assert!(curve("seconds").len() == 301 && in_bounds(most("taken")), "{part}: {:?}", most("taken"));
    }
    Ok(())
}
