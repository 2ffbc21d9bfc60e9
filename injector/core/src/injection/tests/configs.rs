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
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "projected", "optional": true}}]}},
            {"name": "r", "configMap": {"name": "kube-root-ca.crt"}},
        ],
    });
    let mut pod = with_spec(&json!({}), &spec);
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    let request = read(&pod).unwrap().unwrap();
    assert_eq!(request.config_maps(), ["web", "absent", "shop", "files", "projected", "mesh"]);
    let configs = |facts: &InjectionFacts| {
        let (injected, _) = try_with(&pod, facts)?;
        Ok::<_, String>(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS").as_str().unwrap().to_owned())
    };
    let mut facts = facts();
    facts.configs.clear();
    let labelled = ReferencedConfigMap { baseline: true, ..ReferencedConfigMap::default() };
    facts.config_maps = ["web", "shop", "files", "mesh", "unused"].map(|name| (name.to_owned(), labelled)).into();
    assert_eq!(configs(&facts).unwrap(), "web,shop,files");
    assert!(try_with(&pod, &facts).unwrap().1.concat().contains("ConfigMap absent does not exist"));
    let shop = facts.config_maps.remove("shop").unwrap();
    assert!(configs(&facts).unwrap_err().contains("use ConfigMap shop, which does not exist; create it first"));
    facts.config_maps.insert("shop".to_owned(), shop);
    facts.config_maps.get_mut("web").unwrap().owned = true;
    facts.config_maps.get_mut("files").unwrap().part = true;
    facts.configs.insert(ConfigName::new("absent").unwrap(), ResolvedConfig::default());
    assert_eq!(configs(&facts).unwrap(), "absent,shop");
    facts.config_maps.get_mut("shop").unwrap().baseline = false;
    assert_eq!(configs(&facts).unwrap(), "absent");
    let warnings = try_with(&pod, &facts).unwrap().1.join("\n");
    assert!(warnings.contains("do not become configs by themselves: shop"), "{warnings}");
    facts.configs.clear();
    let refusal = configs(&facts).unwrap_err();
    assert!(
        refusal.contains(
            "(shop) is to become one, set its label nudge.dev/baseline: \"true\" or run kubectl nudge baseline shop"
        ),
        "{refusal}"
    );
    facts.config_maps.get_mut("shop").unwrap().immutable = true;
    assert!(configs(&facts).unwrap_err().contains("name its configs with annotation nudge.dev/configs"));
    pod["metadata"]["annotations"]["nudge.dev/configs"] = json!("shop,later");
    let request = read(&pod).unwrap().unwrap();
    assert_eq!((request.config_maps().len(), request.configs().len()), (0, 2));
    let warnings = warned(&pod);
    assert!(
        warnings.contains("config later has no current version yet") && !warnings.contains("config shop"),
        "{warnings}"
    );
    assert!(
        warnings.contains("if ConfigMap later is to become this config, set its label nudge.dev/baseline"),
        "{warnings}"
    );
}

#[test]
fn a_pod_whose_service_account_does_not_subscribe_is_refused() {
    let mut facts = facts();
    facts.configs.get_mut(&ConfigName::new("shop").unwrap()).unwrap().closed = true;
    let refused = |spec: &Value| try_with(&with_spec(&json!({}), spec), &facts).unwrap_err();
    for (spec, account) in [
        (json!({}), "default"),
        (json!({"serviceAccountName": ""}), "default"),
        (json!({"serviceAccountName": "web"}), "web"),
        (json!({"serviceAccount": "web"}), "web"),
    ] {
        assert_eq!(
            refused(&spec),
            format!(
                "service account {account} of this pod may not get config shop, because spec.allowedServiceAccounts of VersionedConfig shop does not \
                 name it; add it there, use another service account, or name other configs with annotation nudge.dev/configs"
            )
        );
    }
    // Nor by the ConfigMap that its container uses.
    let mut pod = with_spec(
        &json!({}),
        &json!({"containers": [{"name": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]}]}),
    );
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    assert!(try_with(&pod, &facts).unwrap_err().contains("may not get config shop"));
}

#[test]
fn containers_of_other_injectors_are_out_of_reach_unless_the_installation_allows_it() {
    let spec = json!({"containers": [{"name": "app"}, {"name": "istio-proxy"}]});
    for annotations in [
        json!({"containers": "app,istio-proxy"}),
        json!({"notify.istio-proxy": "SIGHUP"}),
        json!({"webhook.istio-proxy": "http://127.0.0.1:1/"}),
    ] {
        let pod = with_spec(&annotations, &spec);
        let refusal = try_with(&pod, &facts()).unwrap_err();
        assert!(refusal.contains("names container istio-proxy, which another injector adds"), "{refusal}");
        let request = read(&pod).unwrap().unwrap();
        let allowed = InjectionSettings { foreign_containers_allowed: true, ..settings() };
        inject(&pod, &request, &facts(), &allowed).unwrap();
    }
}

#[test]
fn values_are_mounted_neither_over_nor_within_a_service_accounts_token() {
    let spec = |path: &str| {
        json!({
            "containers": [{"name": "app", "volumeMounts": [{"name": "t", "mountPath": path}]}],
            "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        })
    };
    let mounted = |path: &str, at: &str| try_with(&with_spec(&json!({"mount-path": at}), &spec(path)), &facts());
    for (path, at) in
        [("/tokens", "/tokens"), ("/tokens/a", "/tokens"), ("/tokens/", "/tokens/a"), ("/x/..//tokens", "/tokens/a/b")]
    {
        assert!(mounted(path, at).unwrap_err().contains("container app mounts a volume at"), "{path} {at}");
    }
    assert!(mounted("/tokens", "/srv").is_ok());
}

#[test]
fn more_parts_than_are_mounted_leave_a_config_out_as_a_whole() {
    let mut facts = facts();
    let part = |part| MountedPart { kind: PartKind::ConfigMap, name: format!("p{part}"), part, digest: None };
    let many = |numbers: Vec<u32>| ResolvedConfig {
        version: Some("1".to_owned()),
        parts: numbers.into_iter().map(part).collect(),
        ..ResolvedConfig::default()
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
