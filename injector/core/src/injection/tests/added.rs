//! The additions of injection to a pod that opts in.

use super::*;

#[test]
fn the_plain_case() {
    let injected = injected(&pod(&json!({})));
    assert_eq!(injected["metadata"]["labels"]["nudge.dev/agent"], env!("CARGO_PKG_VERSION"));
    let agent = &injected["spec"]["initContainers"][0];
    assert_eq!(agent["name"], names::AGENT_CONTAINER);
    assert_eq!((&agent["image"], &agent["restartPolicy"]), (&json!("example.com/nudge-agent:1"), &json!("Always")));
    assert_eq!(agent["lifecycle"]["postStart"]["exec"]["command"], json!(["/nudge-agent", "wait-ready"]));
    assert_eq!(agent["securityContext"]["runAsUser"], 65532);
    assert_eq!(agent["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert!(agent.get("resources").is_none() && agent.get("ports").is_none() && agent.get("imagePullPolicy").is_none());
    for (name, value) in [
        ("NUDGE_CONFIGS", json!("shop")),
        ("NUDGE_NOTIFY", Value::Null),
        ("NUDGE_PORT", json!("9001")),
        ("NUDGE_HUB", json!("https://nudge-hub.nudge-system.svc")),
        ("NUDGE_HUB_CA", json!(facts().hub_ca)),
        ("NUDGE_HUB_TOKEN_FILE", json!("/var/run/secrets/kubernetes.io/serviceaccount/token")),
        ("NUDGE_BOOTSTRAP_DIR", json!("/run/nudge/bootstrap")),
        ("NUDGE_POD_IPS", json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIPs"}})),
    ] {
        assert_eq!(variable(agent, name), &value, "{name}");
    }
    assert!(agent["env"].as_array().unwrap().iter().all(|variable| variable["value"] != ""));
    // The token alone: users of the namespace may write its ConfigMaps.
    let hub = injected["spec"]["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "nudge-hub");
    assert_eq!(hub.unwrap()["projected"]["sources"].as_array().unwrap().len(), 1, "{hub:?}");
    let parts = agent["volumeMounts"].as_array().unwrap().iter().map(|mount| mount["mountPath"].as_str().unwrap());
    let parts: Vec<&str> = parts.filter(|path| path.starts_with("/run/nudge/bootstrap")).collect();
    assert_eq!(parts, ["/run/nudge/bootstrap/shop/1.0.0/1", "/run/nudge/bootstrap/shop/1.0.0/2.secret"]);
    let app = &injected["spec"]["containers"][0];
    assert_eq!(variable(app, "MY_CONFIG_ENDPOINT"), "https://$(NUDGE_POD_IP):9001/config");
    assert_eq!(variable(app, "MY_CONFIG_TOKEN_FILE"), "/run/nudge/token");
    assert_eq!(variable(app, "MY_CONFIG_CERT"), "/run/nudge/ca.crt");
    assert_eq!(variable(app, "MY_CONFIG_CONTAINER"), "app");
    assert_eq!(app["volumeMounts"], json!([{"name": "nudge-share", "mountPath": "/run/nudge", "readOnly": true}]));
    assert_eq!(injected["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    assert!(injected["spec"].get("shareProcessNamespace").is_none());
    serde_json::from_value::<Pod>(injected).unwrap();
}

#[test]
fn the_secret_volumes_are_the_agents_alone() {
    let injected = injected(&pod(&json!({"mount-path": "/etc/shop", "notify": "SIGHUP"})));
    for container in injected["spec"]["containers"].as_array().unwrap() {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mut names: Vec<&str> = mounts.iter().map(|mount| mount["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["nudge-files", "nudge-share"]);
        assert!(mounts.iter().all(|mount| mount["readOnly"] == true));
    }
    let agent = &injected["spec"]["initContainers"][0];
    assert_eq!(variable(agent, "NUDGE_MOUNT_PATH"), "/run/nudge/files");
    assert!(
        agent["volumeMounts"]
            .as_array()
            .unwrap()
            .contains(&json!({"name": "nudge-files", "mountPath": "/run/nudge/files"}))
    );
}

#[test]
fn ipv6_addresses_are_in_brackets_and_env_files_hold_the_token() {
    let mut facts = facts();
    facts.features.ipv6 = true;
    let pod = pod(&json!({"agent-port": "9002"}));
    let (injected, _) = try_with(&pod, &facts).unwrap();
    assert_eq!(
        variable(&injected["spec"]["containers"][0], "MY_CONFIG_ENDPOINT"),
        "https://[$(NUDGE_POD_IP)]:9002/config"
    );
    facts.features.env_files = true;
    let (injected, _) = try_with(&pod, &facts).unwrap();
    let app = &injected["spec"]["containers"][0];
    let file = |key: &str| json!({"fileKeyRef": {"volumeName": "nudge-share", "path": "env", "key": key}});
    assert_eq!(variable(app, "MY_CONFIG_ENDPOINT"), &file("MY_CONFIG_ENDPOINT"));
    assert_eq!(variable(app, "MY_CONFIG_TOKEN"), &file("MY_CONFIG_TOKEN"));
    assert_eq!(variable(app, "NUDGE_POD_IP"), &Value::Null);
    serde_json::from_value::<Pod>(injected).unwrap();
}

#[test]
fn legacy_mode_has_an_ordinary_container_and_leaves_init_containers_alone() {
    let mut facts = facts();
    facts.features.native_sidecars = false;
    let spec = json!({"initContainers": [{"name": "setup"}], "restartPolicy": "Never"});
    let pod = with_spec(&json!({"notify": "webhook"}), &spec);
    let (injected, _) = try_with(&pod, &facts).unwrap();
    assert_eq!(injected["spec"]["initContainers"], json!([{"name": "setup"}]));
    let agent = &injected["spec"]["containers"][0];
    assert_eq!((&agent["name"], agent.get("restartPolicy")), (&json!("nudge-agent"), None));
    assert_eq!(variable(agent, "NUDGE_END_WITH_CONTAINERS"), "true");
    assert_eq!(variable(agent, "NUDGE_NOTIFY"), "app=webhook");
    let (again, _) = try_with(&injected, &facts).unwrap();
    assert_eq!(again, injected);
    let mut job = pod.clone();
    job["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]);
    assert!(try_with(&job, &facts).unwrap_err().contains("belongs to a Job"));
    assert!(try_with(&job, &self::facts()).is_ok());
    let mut named = pod;
    named["metadata"]["annotations"]["nudge.dev/containers"] = json!("app,setup");
    assert!(try_with(&named, &facts).unwrap_err().contains("names init container setup"));
    named["spec"]["restartPolicy"] = json!("Always");
    named["metadata"]["annotations"]["nudge.dev/containers"] = json!("app");
    let (injected, _) = try_with(&named, &facts).unwrap();
    assert_eq!(variable(&injected["spec"]["containers"][0], "NUDGE_END_WITH_CONTAINERS"), &Value::Null);
}

#[test]
fn the_agents_user_follows_from_the_signalled_containers() {
    let context = |uid: Option<i64>| json!({"runAsUser": uid});
    let run = |annotations: &Value, of_pod: Option<i64>, app: Option<i64>, web: Option<i64>| {
        let containers =
            json!([{"name": "app", "securityContext": context(app)}, {"name": "web", "securityContext": context(web)}]);
        let pod = with_spec(annotations, &json!({"containers": containers, "securityContext": context(of_pod)}));
        let (injected, warnings) = try_with(&pod, &facts()).unwrap();
        let agent = &injected["spec"]["initContainers"][0];
        let kill = agent["securityContext"]["capabilities"]["add"] == json!(["KILL"]);
        assert_eq!(kill, agent["image"].as_str().unwrap().contains("kill"));
        assert_eq!(agent["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        let shared = injected["spec"]["shareProcessNamespace"] == true;
        (kill, agent["securityContext"]["runAsUser"].as_i64().unwrap(), shared, warnings.join("\n"))
    };
    let all = json!({"notify": "SIGHUP"});
    let one = json!({"notify.app": "SIGUSR1"});
    let no_warning = String::new;
    assert_eq!(run(&json!({}), None, None, None), (false, 65532, false, no_warning()));
    assert_eq!(run(&json!({"notify": "webhook"}), Some(7), None, None), (false, 65532, false, no_warning()));
    assert_eq!(run(&all, Some(1000), None, None), (false, 1000, true, no_warning()));
    assert_eq!(run(&one, None, Some(7), None), (false, 7, true, no_warning()));
    assert_eq!(run(&all, Some(7), None, Some(7)), (false, 7, true, no_warning()));
    for (uids, reason) in [
        ((None, Some(7), None), "user of container web is not known"),
        ((None, Some(7), Some(0)), "container web runs as root"),
        ((Some(7), Some(8), None), "several users"),
    ] {
        let (kill, uid, shared, warnings) = run(&all, uids.0, uids.1, uids.2);
        assert!(kill && uid == 65532 && shared, "{reason}");
        assert!(warnings.contains(reason) && warnings.contains("restricted"), "{warnings}");
        assert!(warnings.len() < 256, "the API server cuts longer ones: {warnings}");
    }
    let own = json!({"notify": "SIGHUP", "agent-run-as-user": "1000"});
    assert_eq!(run(&own, Some(1000), None, None), (false, 1000, true, no_warning()));
    let (kill, uid, _, warnings) = run(&own, None, Some(7), None);
    assert!(!kill && uid == 1000);
    assert!(
        warnings.contains("container app runs as user 7")
            && warnings.contains("container web can be signalled only if"),
        "{warnings}"
    );
}

#[test]
fn with_the_nodes_network_the_port_is_declared_and_dns_is_a_warning() {
    let spec = json!({"hostNetwork": true, "hostPID": true, "dnsPolicy": "ClusterFirst"});
    let pod = with_spec(&json!({"agent-port": "9400", "notify": "SIGHUP"}), &spec);
    let (injected, warnings) = try_with(&pod, &facts()).unwrap();
    assert_eq!(
        injected["spec"]["initContainers"][0]["ports"],
        json!([{"containerPort": 9400, "hostPort": 9400, "protocol": "TCP"}])
    );
    assert!(injected["spec"].get("shareProcessNamespace").is_none());
    assert!(warnings.join("\n").contains("ClusterFirstWithHostNet"));
    let spec = json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"});
    assert_eq!(warned(&with_spec(&json!({"agent-port": "9400"}), &spec)), "");
    assert!(warned(&with_spec(&json!({}), &json!({"dnsPolicy": "None"}))).contains("dnsPolicy: None"));
}

#[test]
fn a_deployment_on_the_nodes_network_learns_how_its_rolling_update_does_not_hang() {
    let warnings = |owner: Value, host: bool| {
        let spec = json!({"hostNetwork": host, "dnsPolicy": "ClusterFirstWithHostNet"});
        let mut pod = with_spec(&json!({"agent-port": "9400"}), &spec);
        pod["metadata"]["namespace"] = json!("team");
        pod["metadata"]["ownerReferences"] = owner;
        pod["metadata"]["labels"] = json!({"pod-template-hash": "7d4b"});
        warned(&pod)
    };
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
    let text = warnings(owner("ReplicaSet", "web-7d4b"), true);
    let command = r#"run kubectl patch deployment web -n team -p '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'"#;
    assert!(text.contains("port 9400") && text.ends_with(command) && text.len() < 256, "{text}");
    let odd = warnings(owner("ReplicaSet", "web; reboot-7d4b"), true);
    assert!(odd.contains("port 9400") && !odd.contains("kubectl") && !odd.contains("reboot"), "{odd}");
    for other in [warnings(owner("DaemonSet", "web"), true), warnings(owner("StatefulSet", "web"), true)] {
        assert_eq!(other, "", "these replace a pod on its node");
    }
    assert_eq!(warnings(json!([]), true), "");
    assert_eq!(warnings(owner("ReplicaSet", "web-7d4b"), false), "");
}

#[test]
fn the_labels_at_creation_are_noted_where_a_step_of_a_config_of_the_pod_has_a_selector() {
    let mut pod = pod(&json!({}));
    pod["metadata"]["labels"] = json!({"zone": "a"});
    let noted = |facts: &InjectionFacts, pod: &Value| {
        let (injected, _) = try_with(pod, facts).unwrap();
        let (again, _) = try_with(&injected, facts).unwrap();
        assert_eq!(injected, again, "a second run changes nothing");
        injected["metadata"]["annotations"].get("nudge.dev/birth-labels").cloned()
    };
    let mut facts = facts();
    let other = ResolvedConfig { selects: true, ..ResolvedConfig::default() };
    facts.configs.insert(ConfigName::new("other").unwrap(), other);
    assert_eq!(noted(&facts, &pod), None, "the pod does not get that config");
    facts.configs.get_mut(&ConfigName::new("shop").unwrap()).unwrap().selects = true;
    assert_eq!(noted(&facts, &pod), Some(json!(r#"{"zone":"a"}"#)));
    pod["metadata"]["annotations"]["nudge.dev/birth-labels"] = json!(r#"{"zone":"b"}"#);
    assert_eq!(noted(&facts, &pod), Some(json!(r#"{"zone":"a"}"#)), "a pod can't choose other ones");
}
