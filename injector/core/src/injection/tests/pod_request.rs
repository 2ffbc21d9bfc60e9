//! Requests of pods, and their refusals and warnings.

use super::*;

#[test]
fn a_pod_that_does_not_opt_in_is_not_injected() {
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
        read(&pod).map(|request| request.is_some()).map_err(|refusal| refusal.to_string())
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
fn containers_are_notified_as_annotated() {
    let spec = json!({
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "app"}, {"name": "web"}, {"name": "istio-proxy"}],
    });
    let agent_settings = |annotations: &Value| {
        let injected = injected(&with_spec(annotations, &spec));
        let agent = &injected["spec"]["initContainers"][0];
        let text = |name| variable(agent, name).as_str().unwrap_or_default().to_owned();
        (text("NUDGE_NOTIFY"), text("NUDGE_WEBHOOKS"), text("NUDGE_ACK"))
    };
    let notify = |annotations: &Value| agent_settings(annotations).0;
    assert_eq!(notify(&json!({})), "");
    assert_eq!(notify(&json!({"notify": "SIGHUP"})), "app=SIGHUP,proxy=SIGHUP,web=SIGHUP");
    assert_eq!(notify(&json!({"notify": "SIGHUP", "containers": "app, setup"})), "app=SIGHUP");
    assert_eq!(
        notify(&json!({"notify": "SIGHUP", "notify.web": "none", "notify.proxy": "webhook"})),
        "app=SIGHUP,proxy=webhook"
    );
    let hook = json!({"webhook.app": "http://127.0.0.1:8080/$(X)", "ack": "fetched"});
    assert_eq!(
        agent_settings(&hook),
        ("app=webhook".into(), "app=http://127.0.0.1:8080/$$(X)".into(), "fetched".into())
    );
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
fn containers_are_asked_as_annotated() {
    let spec = json!({
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "app"}, {"name": "istio-proxy"}],
    });
    let checks = |annotations: &Value| {
        let injected = injected(&with_spec(annotations, &spec));
        variable(&injected["spec"]["initContainers"][0], "NUDGE_CHECKS").as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(checks(&json!({"notify": "SIGHUP"})), "");
    let two = json!({"check.app": "http://127.0.0.1:8080/config-check", "check.proxy": "http://localhost/"});
    assert_eq!(checks(&two), "app=http://127.0.0.1:8080/config-check,proxy=http://localhost/");
    let away = json!({"check.app": "http://10.0.0.9:80/", "webhook-allow": "10.0.0.9:80"});
    assert_eq!(checks(&away), "app=http://10.0.0.9:80/");
    let refused = |annotations: &Value| refused(&with_spec(annotations, &spec));
    assert!(refused(&json!({"check.app": "http://10.0.0.9:80/"})).contains("nudge.dev/webhook-allow: 10.0.0.9:80"));
    let url = "http://127.0.0.1:8080/";
    assert!(refused(&json!({"check.setup": url})).contains("names init container setup, which ends"));
    assert!(refused(&json!({"check.api": url})).contains("names container \"api\", which this pod does not have"));
    assert!(refused(&json!({"check.istio-proxy": url})).contains("which another injector adds"));
}

#[test]
fn containers_are_notified_of_the_keys_that_they_read() {
    let spec = json!({
        "initContainers": [{"name": "setup"}],
        "containers": [{"name": "app"}, {"name": "web"}, {"name": "istio-proxy"}],
    });
    let keys = |annotations: &Value| {
        let injected = injected(&with_spec(annotations, &spec));
        variable(&injected["spec"]["initContainers"][0], "NUDGE_KEYS").as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(keys(&json!({"notify": "SIGHUP"})), "");
    let two = json!({"notify": "SIGHUP", "keys.app": "db.*, tls.crt", "keys.web": "*"});
    assert_eq!(keys(&two), "app=db.*,app=tls.crt,web=*");
    assert_eq!(keys(&json!({"webhook.app": "http://localhost/", "keys.app": "db.*"})), "app=db.*");
    let refused = |annotations: &Value| refused(&with_spec(annotations, &spec));
    let unnotified = "annotation nudge.dev/keys.app says which keys container app is notified of, and the agent does not notify \
                      app; set nudge.dev/notify.app to a signal or webhook, or remove the annotation";
    assert_eq!(refused(&json!({"keys.app": "db.*"})), unnotified);
    assert_eq!(refused(&json!({"notify": "SIGHUP", "notify.app": "none", "keys.app": "db.*"})), unnotified);
    assert_eq!(refused(&json!({"notify": "SIGHUP", "containers": "web", "keys.app": "db.*"})), unnotified);
    let with = |name: &str| json!({"notify": "SIGHUP", format!("keys.{name}"): "db.*"});
    assert!(refused(&with("setup")).contains("names init container setup, which ends"));
    assert!(refused(&with("api")).contains("names container \"api\", which this pod does not have"));
    assert!(refused(&with("istio-proxy")).contains("which another injector adds"));
    assert!(refused(&json!({"keys": "db.*"})).contains("did you mean nudge.dev/keys.CONTAINER?"));
}

#[test]
fn containers_show_what_is_annotated() {
    let spec = json!({
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "app"}, {"name": "istio-proxy"}],
    });
    let verify = |annotations: &Value| {
        let injected = injected(&with_spec(annotations, &spec));
        variable(&injected["spec"]["initContainers"][0], "NUDGE_VERIFY").as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(verify(&json!({"notify": "SIGHUP"})), "");
    let page = "http://localhost:9090/metrics newer a_timestamp ok a_success";
    let two = json!({"notify": "SIGHUP", "verify.app": page, "verify.proxy": "workers within 1m"});
    assert_eq!(verify(&two), format!("app={page},proxy=workers within 60000ms"));
    let away = json!({"webhook.app": "http://localhost/", "verify.app": "http://10.0.0.9:80/m#/a is mark", "webhook-allow": "10.0.0.9:80"});
    assert_eq!(verify(&away), "app=http://10.0.0.9:80/m#/a is mark");
    let refused = |annotations: &Value| refused(&with_spec(annotations, &spec));
    for (annotations, says) in [
        (
            json!({"notify": "SIGHUP", "verify.app": "http://10.0.0.9:80/ is mark"}),
            "nudge.dev/webhook-allow: 10.0.0.9:80",
        ),
        (json!({"notify": "SIGHUP", "verify.setup": "workers"}), "names init container setup, which ends"),
        (json!({"notify": "SIGHUP", "verify.api": "workers"}), "names container \"api\", which this pod does not have"),
        (json!({"notify": "SIGHUP", "verify.istio-proxy": "workers"}), "which another injector adds"),
        (json!({"verify.app": "workers"}), "the container is not notified; set nudge.dev/notify.app to a signal"),
        (json!({"notify": "SIGHUP", "notify.app": "none", "verify.app": "workers"}), "the container is not notified"),
        (json!({"notify": "SIGHUP", "containers": "proxy", "verify.app": "workers"}), "the container is not notified"),
        (json!({"webhook.app": "http://localhost/", "verify.app": "workers"}), "does not see its processes"),
        (json!({"notify.app": "webhook", "verify.app": page}), "set nudge.dev/webhook.app, or remove the annotation"),
        (json!({"notify": "rollout", "verify.app": page}), "nudge.dev/verify.app exclude each other"),
    ] {
        let refusal = refused(&annotations);
        assert!(refusal.contains(says), "{annotations}: {refusal}");
    }
}

#[test]
fn wrong_values_are_refused_with_name_value_and_what_is_allowed() {
    for (name, value, allowed) in [
        ("configs", "Shop", "DNS name"),
        ("notify", "SIGKILL", "SIGUSR1, SIGUSR2, SIGHUP, webhook, in-place, none, rollout"),
        ("notify.app", "", "SIGUSR1, SIGUSR2, SIGHUP, webhook, in-place, none, rollout"),
        ("webhook.app", "https://127.0.0.1/", "http://"),
        ("check.app", "https://127.0.0.1/", "http://"),
        ("check.app", "http://example.com/", "names are not looked up"),
        ("verify.app", "http://localhost/healthz", "it can be true before the notification"),
        ("verify.app", "http://localhost/healthz is 200", "it can be true before the notification"),
        ("verify.app", "http://localhost/m newer a{b=1}", "without labels"),
        ("verify.app", "soon", "write URL newer METRIC"),
        ("verify.app", "workers within 1h", "1s to 5m"),
        ("webhook-allow", "example.com:80", "names are not looked up"),
        ("keys.app", "db/*", "separated by commas, such as \"db.*, tls.crt\"; key pattern"),
        ("agent-port", "80", "1024 to 65535"),
        ("mount-path", "/run/nudge/x", "belongs to the agent"),
        ("ack", "seen", "delivered, fetched"),
        ("agent-run-as-user", "0", "KILL"),
        ("agent-cpu", "8", "1m to 4"),
        ("agent-memory", "1Mi", "16Mi to 1Gi"),
        ("agent-start-timeout", "1h", "1s to 10m"),
    ] {
        let refusal = refused(&pod(&json!({name: value})));
        let begin = format!("annotation nudge.dev/{name}: {value:?} is not allowed: ");
        assert!(refusal.starts_with(&begin) && refusal.contains(allowed), "{refusal}");
    }
    for annotations in [json!({"restart": "never"}), json!({"notify": "rollout", "check.app": "http://localhost/"})] {
        assert!(refused(&pod(&annotations)).contains("exclude each other"), "{annotations}");
    }
    for annotations in [
        json!({"notify": "rollout", "notify.app": "none"}),
        json!({"notify": "none", "notify.app": "rollout"}),
        json!({"notify": "none", "notify.app": "SIGHUP"}),
    ] {
        injected(&pod(&annotations));
    }
}

#[test]
fn a_rolling_update_that_one_container_requests_is_for_its_pod() {
    let spec = json!({"containers": [{"name": "app"}, {"name": "web"}]});
    for (annotations, says) in [
        (
            json!({"notify.app": "rollout", "notify.web": "in-place"}),
            "annotations nudge.dev/notify.app: rollout and nudge.dev/notify.web: in-place exclude each other: another version either replaces this pod by a \
             rolling update of its workload, or its containers are restarted in place; choose one for all of its containers",
        ),
        (
            json!({"notify.app": "rollout", "env.web": "LIVES"}),
            "annotations nudge.dev/notify.app: rollout and nudge.dev/env.web exclude each other",
        ),
        (
            json!({"notify.app": "rollout", "notify.web": "SIGHUP", "check.web": "http://localhost/"}),
            "annotations nudge.dev/notify.app: rollout and nudge.dev/check.web exclude each other",
        ),
    ] {
        let refusal = refused(&with_spec(&annotations, &spec));
        assert!(refusal.contains(says), "{annotations}: {refusal}");
    }
    let hook = "http://localhost/";
    for (annotations, decides, ignored) in [
        (json!({"notify.app": "rollout", "notify.web": "none"}), "", &[][..]),
        (json!({"notify.app": "rollout", "notify.web": "SIGHUP"}), "notify.app", &["notify.web"]),
        (json!({"notify": "rollout", "notify.web": "SIGHUP"}), "notify", &["notify.web"]),
        (json!({"notify": "SIGHUP", "notify.web": "rollout"}), "notify.web", &["notify"]),
        (json!({"notify": "rollout", "webhook.web": hook}), "notify", &["webhook.web"]),
        (json!({"notify": "rollout", "keys.web": "db.*"}), "notify", &["keys.web"]),
        (json!({"notify.web": "rollout", "webhook.web": hook}), "notify.web", &["webhook.web"]),
        (json!({"notify": "rollout", "notify.web": "webhook", "webhook.web": hook}), "notify", &["webhook.web"]),
        (
            json!({"notify": "SIGHUP", "notify.app": "rollout", "notify.web": "SIGUSR1"}),
            "notify.app",
            &["notify", "notify.web"],
        ),
    ] {
        let (pod, warnings) = try_with(&with_spec(&annotations, &spec), &facts()).unwrap();
        let expected = ignored.iter().map(|name| {
            format!(
                "annotation nudge.dev/{name} has no effect: nudge.dev/{decides}: rollout decides for all containers of the pod, which are \
                 replaced by a rolling update; remove one of the two"
            )
        });
        assert_eq!(warnings, expected.collect::<Vec<_>>(), "{annotations}");
        let agent = &pod["spec"]["initContainers"][0];
        for setting in ["NUDGE_NOTIFY", "NUDGE_WEBHOOKS", "NUDGE_KEYS"] {
            assert_eq!(variable(agent, setting), &Value::Null, "{annotations}");
        }
        assert_eq!((&agent["restartPolicyRules"], &pod["spec"]["shareProcessNamespace"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn keys_that_are_not_known_are_refused_or_warned_of() {
    let mut mistyped = pod(&json!({"notfy": "SIGHUP", "config-digest": "x", "restarted-at": "now"}));
    mistyped["metadata"]["labels"] = json!({"nudge.dev/configs": "shop"});
    let version = env!("CARGO_PKG_VERSION");
    let [notfy, configs] = [
        format!("annotation nudge.dev/notfy is not known to Nudge {version}; did you mean nudge.dev/notify?"),
        format!("label nudge.dev/configs is not known to Nudge {version}; set it as an annotation"),
    ];
    assert_eq!(refused(&mistyped), format!("{notfy}; {configs}"));
    let lenient = InjectionSettings { unknown_keys: UnknownKeys::Warn, ..settings() };
    let (injected, warnings) = try_under(&mistyped, &facts(), &lenient).unwrap();
    assert_eq!(warnings, [notfy.clone(), configs.clone()]);
    assert_eq!(injected["metadata"]["annotations"]["nudge.dev/warnings"], format!("{notfy}\n{configs}"));
}

#[test]
fn what_stands_in_the_way_is_refused_with_a_remedy() {
    for (annotations, spec, message) in [
        (json!({}), json!({"os": {"name": "windows"}}), "Linux only"),
        (json!({}), json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "Linux only"),
        (json!({}), json!({"hostNetwork": true}), "nudge.dev/agent-port"),
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
        assert!(refusal.contains(message), "{refusal}");
    }
    let udp = json!({"containers": [{"name": "app", "ports": [{"containerPort": 9001, "protocol": "UDP"}]}]});
    injected(&with_spec(&json!({}), &udp));
    injected(&with_spec(&json!({}), &json!({"shareProcessNamespace": false})));
}

#[test]
fn bounds_are_kept_at_admission() {
    let containers = |count: usize| -> Vec<Value> {
        (0..count).map(|number| json!({"name": format!("c{number}"), "image": "app"})).collect()
    };
    let urls = |base: &str, count: usize| {
        let mut pod = with_spec(&json!({}), &json!({"containers": containers(count)}));
        for number in 0..count {
            pod["metadata"]["annotations"][format!("nudge.dev/{base}.c{number}")] = json!("http://127.0.0.1:8080/");
        }
        pod
    };
    let patterns = |count: usize| {
        let keys: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
        let half = count / 2;
        with_spec(
            &json!({"notify": "SIGHUP", "keys.c0": keys[..half].join(","), "keys.c1": keys[half..].join(",")}),
            &json!({"containers": containers(2)}),
        )
    };
    injected(&patterns(64));
    assert!(refused(&patterns(65)).contains("request 65 patterns of keys, and a pod can have at most 64"));
    for (base, what) in [("webhook", "webhooks"), ("check", "checks")] {
        injected(&urls(base, 16));
        assert!(refused(&urls(base, 17)).contains(&format!("request 17 {what}, and a pod can have at most 16")));
    }
    let maps = |count: usize| {
        let from: Vec<Value> =
            (0..count).map(|number| json!({"configMapRef": {"name": format!("m{number}")}})).collect();
        let mut pod = with_spec(&json!({}), &json!({"containers": [{"name": "app", "image": "app", "envFrom": from}]}));
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/configs");
        read(&pod).map(|request| request.unwrap().config_maps.len()).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(maps(64), Ok(64));
    assert!(maps(65).unwrap_err().contains("name its configs with annotation nudge.dev/configs"));
}
