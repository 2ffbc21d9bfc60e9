//! Warnings about containers that do not take a version while they run.

use super::*;

/// The warnings of a pod with this container, which opts in with these annotations.
fn warnings(annotations: &Value, container: &Value, volumes: &Value) -> String {
    let mut app = json!({"name": "app", "image": "app"});
    app.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut pod = with_spec(annotations, &json!({"containers": [app], "volumes": volumes}));
    pod["spec"]["securityContext"] = json!({"runAsUser": 5});
    warned(&pod)
}

#[test]
fn a_container_that_is_notified_and_reads_an_object_of_that_name_is_warned_of() {
    let volumes = json!([
        {"name": "shop", "configMap": {"name": "shop"}},
        {"name": "both", "projected": {"sources": [{"secret": {"name": "x"}}, {"configMap": {"name": "shop"}}]}},
        {"name": "other", "configMap": {"name": "other"}},
    ]);
    let mounts = |volume: &str| json!({"volumeMounts": [{"name": volume, "mountPath": "/etc/shop"}]});
    let sub = json!({"volumeMounts": [{"name": "shop", "mountPath": "/etc/shop.conf", "subPath": "shop.conf"}]});
    let from = json!({"envFrom": [{"configMapRef": {"name": "shop"}}]});
    let key = json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": "a"}}}]});
    let minute = "the ConfigMap by a mount that did not move, which is not in its spec.objects";
    let never = "the ConfigMap by subPath, which is not in its spec.objects";
    let variables = "the ConfigMap by variables, which is not in its spec.objects";
    for (annotations, container, expected) in [
        (json!({"notify": "SIGHUP"}), mounts("shop"), Some(minute)),
        (json!({"notify": "webhook"}), mounts("shop"), Some(minute)),
        (json!({"notify.app": "SIGUSR1"}), mounts("both"), Some(minute)),
        (json!({"notify": "SIGHUP"}), sub.clone(), Some(never)),
        (json!({"notify": "SIGHUP"}), from.clone(), Some(variables)),
        (json!({"notify": "SIGHUP"}), key.clone(), Some(variables)),
        (json!({"notify": "SIGHUP"}), mounts("other"), None),
        (json!({"notify": "SIGHUP"}), json!({}), None),
        (json!({"notify": "SIGHUP", "mount-path": "/etc/live"}), mounts("shop"), None),
        (json!({"notify": "SIGHUP", "ack": "fetched"}), mounts("shop"), None),
        (json!({}), mounts("shop"), None),
        (json!({"notify": "rollout"}), mounts("shop"), None),
        (json!({"notify": "none"}), key, None),
    ] {
        let text = warnings(&annotations, &container, &volumes);
        match expected {
            Some(expected) => {
                assert!(text.contains("container app") && text.contains(expected), "{annotations} {container}: {text}");
                assert!(text.contains("MY_CONFIG_ENDPOINT") && text.contains("nudge.dev/mount-path"), "{text}");
                assert!(text.lines().all(|line| line.len() < 256), "the API server cuts longer ones: {text}");
            }
            None => assert_eq!(text, "", "{annotations} {container}"),
        }
    }
}

#[test]
fn a_container_that_takes_versions_only_by_a_restart_is_warned_of() {
    let mut facts = facts();
    for config in facts.configs.values_mut() {
        config.objects = vec![PartKind::ConfigMap];
    }
    let volumes = json!([{"name": "shop", "configMap": {"name": "shop"}}]);
    let from = json!([{"configMapRef": {"name": "shop"}}]);
    let mounts = json!([{"name": "shop", "mountPath": "/etc/shop"}]);
    let warnings = |annotations: Value, app: Value| {
        let mut pod = with_spec(&annotations, &json!({"containers": [app], "volumes": volumes}));
        pod["spec"]["securityContext"] = json!({"runAsUser": 5});
        try_with(&pod, &facts).unwrap().1.join("\n")
    };
    let by_variables = || json!({"name": "app", "image": "app", "envFrom": from});
    let expected = "container app takes config shop only by a restart: it reads the ConfigMap by variables; set nudge.dev/notify.app: none \
                    to leave it out";
    for annotations in [json!({"notify": "SIGHUP"}), json!({"notify": "SIGHUP", "ack": "fetched"})] {
        assert_eq!(warnings(annotations, by_variables()), expected);
    }
    for annotations in [json!({}), json!({"notify": "none"}), json!({"notify": "rollout"})] {
        assert_eq!(warnings(annotations, by_variables()), "");
    }
    // No workload owns the pod.
    let unmoved = warnings(json!({}), json!({"name": "app", "image": "app", "volumeMounts": mounts}));
    let expected = "container app takes config shop only by a restart: it reads the ConfigMap by a mount that did not move (no \
                    workload owns this pod)";
    assert_eq!(unmoved, expected);
}

#[test]
fn the_name_of_a_container_is_shown_shortened() {
    let volumes = json!([{"name": "shop", "configMap": {"name": "shop"}}]);
    let long = json!({"name": "a".repeat(300), "volumeMounts": [{"name": "shop", "mountPath": "/etc/shop"}]});
    let text = warnings(&json!({"notify": "webhook"}), &long, &volumes);
    let warning = text.lines().find(|line| line.contains("is notified of config")).unwrap();
    assert!(warning.len() < 300, "{warning}");
}

#[test]
fn a_restart_in_place_comes_before_the_published_config_map_changes() {
    let mut facts = facts();
    facts.features.restart_in_place = true;
    let volumes = json!([{"name": "shop", "configMap": {"name": "shop"}}]);
    let app = json!([{"name": "app", "image": "app", "volumeMounts": [{"name": "shop", "mountPath": "/etc/shop"}]}]);
    let warnings = |annotations: &Value| {
        let pod = with_spec(annotations, &json!({"containers": app, "volumes": volumes}));
        try_with(&pod, &facts).unwrap().1.join("\n")
    };
    let warned = warnings(&json!({"notify": "in-place"}));
    assert!(warned.contains("reads the ConfigMap by a mount that did not move"), "{warned}");
    // The container starts with variables of the version.
    let variables = warnings(&json!({"env.app": "GREETING"}));
    assert!(!variables.contains("is notified of config"), "{variables}");
}
