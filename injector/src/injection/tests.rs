//! What injection makes of typical pods, and what it refuses.

use k8s_openapi::api::core::v1::Pod;
use nudge_protocol::{ConfigName, pod as names};
use serde_json::{Value, json};

use super::*;
use crate::api::PartKind;

pub(super) fn settings() -> InjectionSettings {
    InjectionSettings {
        agent_image: "example.com/nudge-agent:1".to_owned(),
        agent_kill_image: "example.com/nudge-agent-kill:1".to_owned(),
        image_pull_policy: None,
        image_pull_secrets: vec!["pull".to_owned()],
        hub: "https://nudge-hub.nudge-system.svc".to_owned(),
        foreign_containers: vec!["istio-proxy".to_owned(), "istio-init".to_owned()],
    }
}

pub(super) fn facts() -> Facts {
    let part = |kind, name: &str, part| MountedPart { kind, name: name.to_owned(), part };
    let parts = vec![part(PartKind::ConfigMap, "shop-1.0.0", 1), part(PartKind::Secret, "shop-keys-1", 2)];
    let shop = ResolvedConfig { version: Some("1.0.0".to_owned()), parts };
    Facts {
        features: Features { native_sidecars: true, ..Features::default() },
        hub_ca: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
        configs: [(ConfigName::new("shop").unwrap(), shop)].into(),
        maps: [("shop".to_owned(), PlainMap::default()), ("web".to_owned(), PlainMap::default())].into(),
        limits: Vec::new(),
    }
}

/// A pod with one container `app` that opts in with config `shop`, and these annotations.
pub(super) fn pod(annotations: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-", "annotations": {"nudge.dev/inject": "true", "nudge.dev/configs": "shop"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    });
    for (name, value) in annotations.as_object().unwrap() {
        pod["metadata"]["annotations"][format!("nudge.dev/{name}")] = value.clone();
    }
    pod
}

pub(super) fn try_with(pod: &Value, facts: &Facts) -> Result<(Value, Vec<String>), String> {
    let sentence = |refusal: Refusal| refusal.to_string();
    let wanted = read(pod).map_err(sentence)?.ok_or("does not opt in")?;
    let injection = inject(pod, &wanted, facts, &settings()).map_err(sentence)?;
    let mut injected = pod.clone();
    json_patch::patch(&mut injected, &injection.patch).unwrap();
    Ok((injected, injection.warnings))
}

pub(super) fn injected(pod: &Value) -> Value {
    try_with(pod, &facts()).unwrap().0
}

fn warned(pod: &Value) -> String {
    try_with(pod, &facts()).unwrap().1.join("\n")
}

fn refused(pod: &Value) -> String {
    try_with(pod, &facts()).unwrap_err()
}

fn with_spec(annotations: &Value, spec: &Value) -> Value {
    let mut pod = pod(annotations);
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

pub(super) fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let all = container["env"].as_array().unwrap();
    all.iter().find(|variable| variable["name"] == name).map_or(&Value::Null, |variable| match &variable["value"] {
        Value::Null => &variable["valueFrom"],
        value => value,
    })
}

#[test]
fn a_pod_that_does_not_opt_in_is_none_of_ours() {
    assert_eq!(read(&json!({"metadata": {}, "spec": {"containers": [{"name": "nudge-agent"}]}})), Ok(None));
    let by = |annotation: Option<&str>, label: Option<&str>| {
        let mut pod = pod(&json!({"inject": annotation}));
        if annotation.is_none() {
            pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/inject");
        }
        pod["metadata"]["labels"] = json!({});
        if let Some(label) = label {
            pod["metadata"]["labels"]["nudge.dev/inject"] = json!(label);
        }
        read(&pod).map(|wanted| wanted.is_some()).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(by(Some("true"), None), Ok(true));
    assert_eq!(by(None, Some("true")), Ok(true));
    assert_eq!(by(Some("false"), Some("true")), Ok(false));
    assert_eq!(by(Some("true"), Some("false")), Ok(true));
    assert_eq!(by(None, Some("false")), Ok(false));
    let refusal = by(Some("yes"), None).unwrap_err();
    assert_eq!(refusal, r#"annotation nudge.dev/inject: "yes" is not allowed: write "true" or "false""#);
}

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
    let parts = agent["volumeMounts"].as_array().unwrap().iter().map(|mount| mount["mountPath"].as_str().unwrap());
    let parts: Vec<&str> = parts.filter(|path| path.starts_with("/run/nudge/bootstrap")).collect();
    assert_eq!(parts, ["/run/nudge/bootstrap/shop/1.0.0/1", "/run/nudge/bootstrap/shop/1.0.0/2"]);
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
fn addresses_of_ipv6_stand_in_brackets_and_env_files_hold_the_token() {
    let mut facts = facts();
    facts.features.ipv6 = true;
    let pod = pod(&json!({"port": "9002"}));
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
fn who_runs_the_agent_follows_from_whom_it_signals() {
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
    let quiet = String::new;
    assert_eq!(run(&json!({}), None, None, None), (false, 65532, false, quiet()));
    assert_eq!(run(&json!({"notify": "webhook"}), Some(7), None, None), (false, 65532, false, quiet()));
    assert_eq!(run(&all, Some(1000), None, None), (false, 1000, true, quiet()));
    assert_eq!(run(&one, None, Some(7), None), (false, 7, true, quiet()));
    assert_eq!(run(&all, Some(7), None, Some(7)), (false, 7, true, quiet()));
    for (uids, why) in [
        ((None, Some(7), None), "user of container web is not known"),
        ((None, Some(7), Some(0)), "container web runs as root"),
        ((Some(7), Some(8), None), "several users"),
    ] {
        let (kill, uid, shared, warnings) = run(&all, uids.0, uids.1, uids.2);
        assert!(kill && uid == 65532 && shared, "{why}");
        assert!(warnings.contains(why) && warnings.contains("restricted"), "{warnings}");
        assert!(warnings.len() < 256, "the API server cuts longer ones: {warnings}");
    }
    let own = json!({"notify": "SIGHUP", "run-as-user": "1000"});
    assert_eq!(run(&own, Some(1000), None, None), (false, 1000, true, quiet()));
    let (kill, uid, _, warnings) = run(&own, None, Some(7), None);
    assert!(!kill && uid == 1000);
    assert!(
        warnings.contains("container app runs as user 7")
            && warnings.contains("container web can be signalled only if"),
        "{warnings}"
    );
}

#[test]
fn who_is_told_and_how() {
    let spec = json!({
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "app"}, {"name": "web"}, {"name": "istio-proxy"}],
    });
    let told = |annotations: &Value| {
        let injected = injected(&with_spec(annotations, &spec));
        let agent = &injected["spec"]["initContainers"][0];
        let text = |name| variable(agent, name).as_str().unwrap_or_default().to_owned();
        (text("NUDGE_NOTIFY"), text("NUDGE_WEBHOOKS"), text("NUDGE_ACK"))
    };
    let notify = |annotations: &Value| told(annotations).0;
    assert_eq!(notify(&json!({})), "");
    assert_eq!(notify(&json!({"notify": "SIGHUP"})), "app=SIGHUP,proxy=SIGHUP,web=SIGHUP");
    assert_eq!(notify(&json!({"notify": "SIGHUP", "containers": "app, setup"})), "app=SIGHUP");
    assert_eq!(
        notify(&json!({"notify": "SIGHUP", "notify.web": "none", "notify.proxy": "webhook"})),
        "app=SIGHUP,proxy=webhook"
    );
    assert_eq!(notify(&json!({"notify.istio-proxy": "SIGHUP"})), "istio-proxy=SIGHUP");
    let hook = json!({"webhook.app": "http://127.0.0.1:8080/$(X)", "ack": "fetched"});
    assert_eq!(told(&hook), ("app=webhook".into(), "app=http://127.0.0.1:8080/$$(X)".into(), "fetched".into()));
    let refused = |annotations: &Value| refused(&with_spec(annotations, &spec));
    assert!(refused(&json!({"notify.setup": "SIGHUP"})).contains("names init container setup, which ends"));
    let other = refused(&json!({"notify.api": "SIGHUP"}));
    assert_eq!(
        other,
        "annotation nudge.dev/notify.api names container \"api\", which this pod does not have; it has setup, proxy, app, web, istio-proxy"
    );
    assert!(refused(&json!({"notify": "SIGHUP", "webhook.app": "http://localhost:1/"})).contains("exclude each other"));
    assert!(refused(&json!({"webhook.app": "http://10.0.0.9:80/"})).contains("nudge.dev/webhook-allow: 10.0.0.9:80"));
    assert_eq!(notify(&json!({"webhook.app": "http://10.0.0.9:80/", "webhook-allow": "10.0.0.9:80"})), "app=webhook");
    assert!(refused(&json!({"containers": "app,,"})).contains("names container \"\""));
}

#[test]
fn wrong_values_are_refused_with_name_value_and_what_is_allowed() {
    for (name, value, allowed) in [
        ("configs", "Shop", "DNS name"),
        ("config-restarts", "maybe", "\"true\" or \"false\""),
        ("config-restarts", "in-place", "not there yet"),
        ("notify", "SIGKILL", "SIGUSR1, SIGUSR2, SIGHUP, webhook, none"),
        ("notify.app", "", "SIGUSR1, SIGUSR2, SIGHUP, webhook, none"),
        ("webhook.app", "https://127.0.0.1/", "http://"),
        ("webhook-allow", "example.com:80", "names are not looked up"),
        ("port", "80", "1024 to 65535"),
        ("mount-path", "/run/nudge/x", "the agent's own"),
        ("ack", "seen", "delivered, fetched"),
        ("run-as-user", "0", "KILL"),
        ("cpu", "8", "1m to 4"),
        ("memory", "1Mi", "16Mi to 1Gi"),
        ("start-timeout", "1h", "1s to 10m"),
        ("refresh", "on", "\"true\" or \"false\""),
    ] {
        let refusal = refused(&pod(&json!({name: value})));
        let begin = format!("annotation nudge.dev/{name}: {value:?} is not allowed: ");
        assert!(refusal.starts_with(&begin) && refusal.contains(allowed), "{refusal}");
    }
    for annotations in [
        json!({"refresh": "true"}),
        json!({"config-restarts": "true", "notify": "SIGHUP"}),
        json!({"config-restarts": "true", "notify.app": "webhook"}),
        json!({"config-restarts": "true", "webhook.app": "http://localhost/"}),
    ] {
        assert!(refused(&pod(&annotations)).contains("exclude each other"), "{annotations}");
    }
    for annotations in [
        json!({"refresh": "false"}),
        json!({"config-restarts": "true", "notify": "none"}),
        json!({"config-restarts": "false", "notify": "SIGHUP"}),
    ] {
        injected(&pod(&annotations));
    }
}

#[test]
fn mistyped_names_are_warned_of() {
    let warnings = warned(&pod(&json!({"notfy": "SIGHUP", "webhook": "http://localhost/", "config-digest": "x"})));
    assert!(warnings.contains("annotation nudge.dev/notfy is not known; did you mean nudge.dev/notify?"), "{warnings}");
    assert!(
        warnings.contains("did you mean nudge.dev/webhook.CONTAINER?") && !warnings.contains("digest"),
        "{warnings}"
    );
}

#[test]
fn what_stands_in_the_way_is_refused_with_a_way_out() {
    for (annotations, spec, sentence) in [
        (json!({}), json!({"os": {"name": "windows"}}), "Linux only"),
        (json!({}), json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "Linux only"),
        (json!({}), json!({"hostNetwork": true}), "nudge.dev/port"),
        (
            json!({}),
            json!({"containers": [{"name": "app", "ports": [{"containerPort": 9001}]}]}),
            "container app declares port 9001",
        ),
        (json!({"notify": "SIGHUP"}), json!({"shareProcessNamespace": false}), "shareProcessNamespace: false"),
        (
            json!({}),
            json!({"containers": [{"name": "app", "volumeMounts": [{"name": "x", "mountPath": "/run/nudge/"}]}]}),
            "mount it elsewhere",
        ),
        (
            json!({"mount-path": "/etc/x"}),
            json!({"containers": [{"name": "app", "volumeMounts": [{"name": "x", "mountPath": "/etc/x"}]}]}),
            "nudge.dev/mount-path",
        ),
        (
            json!({}),
            json!({"containers": [{"name": "app", "env": [{"name": "NUDGE_POD_IP", "value": "x"}]}]}),
            "NUDGE_POD_IP",
        ),
    ] {
        let refusal = refused(&with_spec(&annotations, &spec));
        assert!(refusal.contains(sentence), "{refusal}");
    }
    let udp = json!({"containers": [{"name": "app", "ports": [{"containerPort": 9001, "protocol": "UDP"}]}]});
    injected(&with_spec(&json!({}), &udp));
    injected(&with_spec(&json!({}), &json!({"shareProcessNamespace": false})));
}

#[test]
fn on_the_nodes_network_the_port_is_declared_and_dns_warned_of() {
    let spec = json!({"hostNetwork": true, "hostPID": true, "dnsPolicy": "ClusterFirst"});
    let pod = with_spec(&json!({"port": "9400", "notify": "SIGHUP"}), &spec);
    let (injected, warnings) = try_with(&pod, &facts()).unwrap();
    assert_eq!(
        injected["spec"]["initContainers"][0]["ports"],
        json!([{"containerPort": 9400, "hostPort": 9400, "protocol": "TCP"}])
    );
    assert!(injected["spec"].get("shareProcessNamespace").is_none());
    assert!(warnings.join("\n").contains("ClusterFirstWithHostNet"));
    let spec = json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"});
    assert_eq!(warned(&with_spec(&json!({"port": "9400"}), &spec)), "");
    assert!(warned(&with_spec(&json!({}), &json!({"dnsPolicy": "None"}))).contains("dnsPolicy: None"));
}

#[test]
fn configs_come_from_what_the_containers_use() {
    let spec = json!({
        "initContainers": [{"name": "setup", "envFrom": [{"configMapRef": {"name": "web"}}]}],
        "containers": [
            {
                "name": "app",
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "shop", "key": "a"}}}],
                "envFrom": [{"configMapRef": {"name": "gone"}}, {"secretRef": {"name": "secret"}}],
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
    let wanted = read(&pod).unwrap().unwrap();
    assert_eq!(wanted.maps(), ["web", "gone", "shop", "files", "mesh"]);
    let configs = |facts: &Facts| {
        let (injected, _) = try_with(&pod, facts)?;
        Ok::<_, String>(variable(&injected["spec"]["initContainers"][0], "NUDGE_CONFIGS").as_str().unwrap().to_owned())
    };
    let mut facts = facts();
    facts.configs.clear();
    facts.maps = ["web", "shop", "files", "mesh", "unused"].map(|name| (name.to_owned(), PlainMap::default())).into();
    assert_eq!(configs(&facts).unwrap(), "web,shop,files");
    facts.maps.get_mut("web").unwrap().owned = true;
    facts.maps.get_mut("files").unwrap().version = true;
    facts.configs.insert(ConfigName::new("gone").unwrap(), ResolvedConfig::default());
    assert_eq!(configs(&facts).unwrap(), "gone,shop");
    facts.maps.get_mut("shop").unwrap().immutable = true;
    facts.configs.clear();
    assert!(configs(&facts).unwrap_err().contains("say with annotation nudge.dev/configs"));
    pod["metadata"]["annotations"]["nudge.dev/configs"] = json!("shop,later");
    let wanted = read(&pod).unwrap().unwrap();
    assert_eq!((wanted.maps().len(), wanted.configs().len()), (0, 2));
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

#[test]
fn the_users_own_variables_stay() {
    let own =
        json!([{"name": "URL", "value": "$(MY_CONFIG_ENDPOINT)/x"}, {"name": "MY_CONFIG_CERT", "value": "/mine"}]);
    let pod = with_spec(&json!({}), &json!({"containers": [{"name": "app", "env": own}]}));
    let (injected, warnings) = try_with(&pod, &facts()).unwrap();
    let all = injected["spec"]["containers"][0]["env"].as_array().unwrap();
    let names: Vec<&str> = all.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["NUDGE_POD_IP", "MY_CONFIG_ENDPOINT", "MY_CONFIG_TOKEN_FILE", "MY_CONFIG_CONTAINER", "URL", "MY_CONFIG_CERT"]
    );
    assert!(warnings.join("\n").contains("container app sets MY_CONFIG_CERT itself"));
    assert_eq!(try_with(&injected, &facts()).unwrap().0, injected);
}

#[test]
fn what_looks_like_ours_but_is_the_users_stays_too() {
    let own = json!([
        {"name": "A", "value": "1"}, {"name": "MY_CONFIG_CONTAINER", "value": "app"}, {"name": "MY_CONFIG_CERT", "value": "/run/nudge/ca.crt"},
    ]);
    let web = json!([{"name": "MY_CONFIG_CONTAINER", "value": "web"}, {"name": "NUDGE_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    let spec = json!({"containers": [{"name": "app", "env": own}, {"name": "web", "env": web}]});
    let once = injected(&with_spec(&json!({"containers": "app"}), &spec));
    let all = once["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!((all.len(), &all[3..]), (6, &own.as_array().unwrap()[..]));
    assert_eq!(once["spec"]["containers"][1]["env"], web);
    assert_eq!(injected(&once), once);
}

#[test]
fn another_wish_changes_what_an_earlier_run_put_in() {
    let first = injected(&pod(&json!({"mount-path": "/etc/a", "port": "9002"})));
    let mut second = first.clone();
    second["metadata"]["annotations"]["nudge.dev/mount-path"] = json!("/etc/b");
    second["metadata"]["annotations"]["nudge.dev/port"] = json!("9003");
    let again = injected(&second);
    assert_eq!(again["spec"], injected(&pod(&json!({"mount-path": "/etc/b", "port": "9003"})))["spec"]);
    second["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/mount-path");
    second["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/port");
    assert_eq!(injected(&second)["spec"], injected(&pod(&json!({})))["spec"]);
}

#[test]
fn what_is_not_wanted_any_more_goes() {
    let mut pod = injected(&pod(&json!({"mount-path": "/etc/a", "notify": "SIGHUP", "webhook-allow": "10.0.0.9:80"})));
    for (annotation, gone) in
        [("mount-path", "nudge-files"), ("notify", "KILL"), ("webhook-allow", "NUDGE_WEBHOOK_ALLOW")]
    {
        assert!(pod["spec"].to_string().contains(gone));
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove(&format!("nudge.dev/{annotation}"));
        pod = injected(&pod);
        assert!(!pod["spec"].to_string().contains(gone), "{gone}");
    }
}

#[test]
fn an_image_or_amounts_that_others_changed_stay_and_another_agent_does_not() {
    let mut pod = injected(&pod(&json!({})));
    pod["spec"]["initContainers"][0]["image"] = json!("mirror.example.com/nudge-agent:1");
    pod["spec"]["initContainers"][0]["resources"] = json!({"requests": {"memory": "64Mi"}});
    assert_eq!(injected(&pod), pod);
    pod["metadata"]["labels"]["nudge.dev/agent"] = json!("0.0.1");
    assert_eq!(injected(&pod)["spec"]["initContainers"][0]["image"], "example.com/nudge-agent:1");
}

#[test]
fn unknown_fields_are_kept() {
    let mut pod = pod(&json!({}));
    pod["spec"]["newField"] = json!({"deep": [1]});
    pod["spec"]["containers"][0]["newer"] = json!("x");
    let injected = injected(&pod);
    assert_eq!(injected["spec"]["newField"], pod["spec"]["newField"]);
    assert_eq!(injected["spec"]["containers"][0]["newer"], "x");
}
