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
    assert_eq!(request.config_maps, ["web", "absent", "shop", "files", "projected", "mesh"]);
    let configs = |facts: &InjectionFacts| {
        let (injected, _) = try_with(&pod, facts)?;
        Ok::<_, String>(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS").as_str().unwrap().to_owned())
    };
    let mut facts = facts();
    facts.configs.clear();
    facts.config_maps = ["web", "shop", "files", "mesh", "unused"].map(|name| (name.to_owned(), AS_CONFIG)).into();
    assert_eq!(configs(&facts).unwrap(), "web,shop,files");
    assert!(try_with(&pod, &facts).unwrap().1.concat().contains("ConfigMap absent does not exist"));
    let shop = facts.config_maps.remove("shop").unwrap();
    assert!(configs(&facts).unwrap_err().contains("use ConfigMap shop, which does not exist; create it first"));
    facts.config_maps.insert("shop".to_owned(), shop);
    let set = |facts: &mut InjectionFacts, name: &str, verdict| {
        facts.config_maps.insert(name.to_owned(), verdict);
    };
    set(&mut facts, "web", BaselineVerdict::Impossible);
    set(&mut facts, "files", BaselineVerdict::Impossible);
    facts.configs.insert(ConfigName::new("absent").unwrap(), ResolvedConfig::default());
    assert_eq!(configs(&facts).unwrap(), "absent,shop");
    set(&mut facts, "shop", BaselineVerdict::Unwanted);
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
    set(&mut facts, "shop", BaselineVerdict::Impossible);
    assert!(configs(&facts).unwrap_err().contains("name its configs with annotation nudge.dev/configs"));
    pod["metadata"]["annotations"]["nudge.dev/configs"] = json!("shop,later");
    let request = read(&pod).unwrap().unwrap();
    assert_eq!((request.config_maps.len(), request.configs().len()), (0, 2));
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
fn what_stays_ordinary_although_its_namespace_wants_it_is_said() {
    let ordinary = BaselineVerdict::Ordinary("it is immutable");
    let spec = json!({"containers": [{
        "name": "app",
        "envFrom": [{"configMapRef": {"name": "web"}}, {"secretRef": {"name": "keys"}}, {"secretRef": {"name": "other"}}],
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "istio-ca-root-cert", "key": "a"}}}],
    }]});
    let mut pod = with_spec(&json!({}), &spec);
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    let request = read(&pod).unwrap().unwrap();
    assert_eq!(request.config_maps, ["web", "istio-ca-root-cert"]);
    let mut facts = facts();
    facts.configs.clear();
    facts.config_maps = [("web".to_owned(), ordinary), ("istio-ca-root-cert".to_owned(), ordinary)].into();
    facts.secrets = [("keys".to_owned(), AS_CONFIG), ("other".to_owned(), BaselineVerdict::Impossible)].into();
    let (injected, warnings) = try_with(&pod, &facts).unwrap();
    assert_eq!(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS"), "keys", "a variable reads it");
    for name in ["ConfigMap web", "ConfigMap istio-ca-root-cert"] {
        let warning =
            format!("no config is made of {name}, because it is immutable; the pod reads it as it would without Nudge");
        assert!(warnings.contains(&warning), "{warnings:?}");
    }
    assert!(!warnings.concat().contains("other"), "{warnings:?}");
    facts.secrets.clear();
    let refusal = try_with(&pod, &facts).unwrap_err();
    assert!(
        refusal.contains("use no config: no config is made of ConfigMap web, because it is immutable"),
        "{refusal}"
    );
    // Where nothing wants it, a bundle is no news.
    facts.config_maps =
        [("web".to_owned(), AS_CONFIG), ("istio-ca-root-cert".to_owned(), BaselineVerdict::Unwanted)].into();
    let warnings = try_with(&pod, &facts).unwrap().1.concat();
    assert!(!warnings.contains("istio"), "{warnings}");
}

#[test]
fn a_config_of_one_name_has_both_objects_that_become_it() {
    let mounts = json!([{"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/s"}]);
    let mut pod = with_spec(
        &json!({}),
        &json!({
            "containers": [{"name": "app", "volumeMounts": mounts}],
            "volumes": [{"name": "m", "configMap": {"name": "web"}}, {"name": "s", "secret": {"secretName": "web"}}],
        }),
    );
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 1000});
    let mut facts = facts();
    facts.configs.clear();
    facts.config_maps = [("web".to_owned(), AS_CONFIG)].into();
    let volumes = |facts: &InjectionFacts| {
        let (injected, _) = try_with(&pod, facts).unwrap();
        let mounts = injected["spec"]["containers"][0]["volumeMounts"].as_array().unwrap().clone();
        assert_eq!(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS"), "web");
        ["/m", "/s"].map(|path| {
            let mount = mounts.iter().find(|mount| mount["mountPath"] == path).unwrap();
            mount["name"].as_str().unwrap().to_owned()
        })
    };
    assert_eq!(volumes(&facts), ["nudge-files-1", "s"]);
    facts.secrets = facts.config_maps.clone();
    assert_eq!(volumes(&facts), ["nudge-files-1", "nudge-files-2"]);
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
                "service account {account} of this pod may not get config shop, because spec.allowedServiceAccounts \
                 of VersionedConfig shop does not name it; add it there, or name other configs with annotation \
                 nudge.dev/configs"
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
