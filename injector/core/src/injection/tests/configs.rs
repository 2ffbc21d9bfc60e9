//! Which configs a pod gets.

use super::*;

#[test]
fn configs_are_the_config_maps_that_the_containers_reference() {
    let spec = json!({
        "initContainers": [{"name": "setup", "envFrom": [{"configMapRef": {"name": "web"}}]}],
        "containers": [
            {
                "name": "app",
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": "a"}}}],
                "envFrom": [{"configMapRef": {"name": "absent", "optional": true}}, {"secretRef": {"name": "secret"}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "p", "mountPath": "/p"}, {"name": "r", "mountPath": "/r"}],
            },
            {"name": "istio-proxy", "envFrom": [{"configMapRef": {"name": "mesh"}}]},
        ],
        "volumes": [
            {"name": "v", "configMap": {"name": "files"}},
            {"name": "unused", "configMap": {"name": "unused"}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
            {"name": "r", "configMap": {"name": "kube-root-ca.crt"}},
        ],
    });
    let mut pod = with_spec(&json!({}), &spec);
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    let request = read(&pod).unwrap().unwrap();
    assert_eq!(request.config_maps(), ["web", "absent", "shop", "files", "mesh"]);
    let configs = |facts: &Facts| {
        let (injected, _) = try_with(&pod, facts)?;
        Ok::<_, String>(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS").as_str().unwrap().to_owned())
    };
    let mut facts = facts();
    facts.configs.clear();
    facts.config_maps =
        ["web", "shop", "files", "mesh", "unused"].map(|name| (name.to_owned(), ReferencedConfigMap::default())).into();
    assert_eq!(configs(&facts).unwrap(), "web,shop,files");
    assert!(try_with(&pod, &facts).unwrap().1.concat().contains("ConfigMap absent does not exist"));
    let shop = facts.config_maps.remove("shop").unwrap();
    assert!(configs(&facts).unwrap_err().contains("use ConfigMap shop, which does not exist; create it first"));
    facts.config_maps.insert("shop".to_owned(), shop);
    facts.config_maps.get_mut("web").unwrap().owned = true;
    facts.config_maps.get_mut("files").unwrap().part = true;
    facts.configs.insert(ConfigName::new("absent").unwrap(), ResolvedConfig::default());
    assert_eq!(configs(&facts).unwrap(), "absent,shop");
    facts.config_maps.get_mut("shop").unwrap().immutable = true;
    facts.configs.clear();
    assert!(configs(&facts).unwrap_err().contains("name its configs with annotation nudge.dev/configs"));
    pod["metadata"]["annotations"]["nudge.dev/configs"] = json!("shop,later");
    let request = read(&pod).unwrap().unwrap();
    assert_eq!((request.config_maps().len(), request.configs().len()), (0, 2));
    let warnings = warned(&pod);
    assert!(
        warnings.contains("config later has no current version yet") && !warnings.contains("config shop"),
        "{warnings}"
    );
}

#[test]
fn more_parts_than_are_mounted_leave_a_config_out_as_a_whole() {
    let mut facts = facts();
    let part = |part| MountedPart { kind: PartKind::ConfigMap, name: format!("p{part}"), part };
    let many = |numbers: Vec<u32>| ResolvedConfig {
        version: Some("1".to_owned()),
        parts: numbers.into_iter().map(part).collect(),
    };
    facts.configs.insert(ConfigName::new("large").unwrap(), many((1..=31).collect()));
    facts.configs.insert(ConfigName::new("torn").unwrap(), many(vec![1, 3]));
    let pod = pod(&json!({"configs": "shop,large,torn"}));
    let (injected, warnings) = try_with(&pod, &facts).unwrap();
    let volumes = injected["spec"]["volumes"].as_array().unwrap();
    let parts = volumes.iter().filter(|volume| volume["name"].as_str().unwrap().starts_with("nudge-bootstrap-"));
    assert_eq!(parts.count(), 2);
    assert!(warnings.join("\n").contains("does not start with large"), "{warnings:?}");
}
