//! Containers that are restarted in place: variables, the agent's rule, and refusals.

use serde_json::{Value, json};

use super::*;

fn new() -> InjectionFacts {
    let features = Features { native_sidecars: true, env_files: true, restart_in_place: true, ipv6: false };
    InjectionFacts { features, ..facts() }
}

fn agent(pod: &Value) -> &Value {
    &pod["spec"]["initContainers"][0]
}

fn refusal(annotations: &Value, spec: &Value) -> String {
    try_with(&with_spec(annotations, spec), &new()).unwrap_err()
}

#[test]
fn named_keys_are_variables_from_a_volume_that_the_agent_alone_mounts() {
    let spec = json!({"containers": [{"name": "app", "env": [{"name": "OWN", "value": "$(LIVES)"}]}, {"name": "web"}]});
    let asks = with_spec(&json!({"env.app": "LIVES, GREETING"}), &spec);
    let (pod, _) = try_with(&asks, &new()).unwrap();
    let [app, web] = [&pod["spec"]["containers"][0], &pod["spec"]["containers"][1]];
    for key in ["LIVES", "GREETING"] {
        let reference = json!({"fileKeyRef": {"volumeName": "nudge-variables", "path": "app", "key": key}});
        assert_eq!((variable(app, key), variable(web, key)), (&reference, &Value::Null));
    }
    assert_eq!(app["env"].as_array().unwrap().last().unwrap()["name"], "OWN", "it can refer to them");
    let mounts = |container: &Value| -> Vec<String> {
        let mounts = container["volumeMounts"].as_array().unwrap().iter();
        mounts.filter_map(|mount| mount["name"].as_str().map(str::to_owned)).collect()
    };
    let of = "nudge-variables".to_owned();
    assert!(mounts(agent(&pod)).contains(&of) && !mounts(app).contains(&of) && !mounts(web).contains(&of));
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["name"] == of.as_str() && volume["emptyDir"]["medium"] == "Memory"));
    let settings = ["NUDGE_NOTIFY", "NUDGE_VARIABLES", "NUDGE_VARIABLES_DIR"].map(|name| variable(agent(&pod), name));
    assert_eq!(settings, ["app=in-place", "app=LIVES,app=GREETING", "/run/nudge/variables"]);
    let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    assert_eq!((&agent(&pod)["restartPolicyRules"], &agent(&pod)["restartPolicy"]), (&rule, &json!("Always")));
    assert_eq!(try_with(&pod, &new()).unwrap().0, pod, "again");
    // Without the annotation nothing of it stays.
    let mut without = pod;
    without["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/env.app");
    let (without, _) = try_with(&without, &new()).unwrap();
    let text = without.to_string();
    assert!(!text.contains("nudge-variables") && !text.contains("restartPolicyRules"), "{text}");
}

#[test]
fn all_running_containers_are_restarted_without_variables() {
    let pod = try_with(&pod(&json!({"notify": "in-place"})), &new()).unwrap().0;
    assert_eq!(variable(agent(&pod), "NUDGE_NOTIFY"), "app=in-place");
    assert_eq!(variable(agent(&pod), "NUDGE_VARIABLES"), &Value::Null);
    assert!(agent(&pod)["restartPolicyRules"].is_array() && !pod.to_string().contains("nudge-variables"));
    let (other, _) = try_with(&super::pod(&json!({"notify": "SIGHUP"})), &new()).unwrap();
    assert!(agent(&other)["restartPolicyRules"].is_null());
}

#[test]
fn where_a_pod_cannot_be_restarted_in_place_it_is_refused_with_the_remedy() {
    let restart = json!({"notify": "in-place"});
    for (annotations, spec, says) in [
        (&restart, json!({"restartPolicy": "OnFailure"}), "restartPolicy: OnFailure"),
        (&restart, json!({"restartPolicy": "Never"}), "restartPolicy: Never"),
        (
            &restart,
            json!({"containers": [{"name": "app", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}),
            "container app has a rule RestartAllContainers",
        ),
        (
            &restart,
            json!({"containers": [{"name": "app"}, {"name": "seeds", "restartPolicy": "Never"}]}),
            "container seeds has restartPolicy: Never",
        ),
        (
            &json!({"env.app": "LIVES"}),
            json!({"containers": [{"name": "app", "env": [{"name": "LIVES", "value": "1"}]}]}),
            "container app sets variable LIVES itself",
        ),
        (
            &json!({"env.web": "LIVES", "containers": "app"}),
            json!({"containers": [{"name": "app"}, {"name": "web"}]}),
            "names container web, which does not use the agent",
        ),
    ] {
        let refusal = refusal(annotations, &spec);
        assert!(refusal.contains(says), "{refusal}");
    }
    let mut job = pod(&restart);
    job["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]);
    let said = try_with(&job, &new()).unwrap_err();
    assert!(said.contains("belongs to a Job, whose work would begin again"), "{said}");
    for features in [Features { restart_in_place: false, ..new().features }, Features::default()] {
        let said = try_with(&pod(&restart), &InjectionFacts { features, ..facts() }).unwrap_err();
        for part in ["container app", "notify: in-place", "Kubernetes 1.36", "nudge.dev/notify: rollout"] {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn a_restart_that_one_container_requests_is_for_its_pod() {
    let two = json!({"containers": [{"name": "app"}, {"name": "web"}]});
    let hook = "http://localhost:1/";
    let (one, both) = ("app=in-place", "app=in-place,web=in-place");
    for (annotations, notify, decides, ignored) in [
        (json!({"notify.app": "in-place"}), one, "", &[][..]),
        (json!({"notify.app": "in-place", "notify.web": "none"}), one, "", &[]),
        (json!({"notify.app": "in-place", "notify.web": "SIGHUP"}), both, "notify.app: in-place", &["notify.web"]),
        (json!({"notify": "SIGHUP", "notify.app": "in-place"}), both, "notify.app: in-place", &["notify"]),
        (json!({"env.app": "LIVES", "webhook.web": hook}), both, "env.app", &["webhook.web"]),
        (json!({"notify": "in-place", "webhook.app": hook}), both, "notify: in-place", &["webhook.app"]),
        (
            json!({"notify": "in-place", "notify.app": "SIGHUP", "notify.web": "SIGHUP"}),
            both,
            "notify: in-place",
            &["notify.app", "notify.web"],
        ),
    ] {
        let (pod, warnings) = try_with(&with_spec(&annotations, &two), &new()).unwrap();
        let expected = ignored.iter().map(|name| {
            format!(
                "annotation nudge.dev/{name} has no effect: nudge.dev/{decides} decides for all containers of the pod, which are restarted \
                 in place; remove one of the two"
            )
        });
        assert_eq!(warnings, expected.collect::<Vec<_>>(), "{annotations}");
        assert_eq!(variable(agent(&pod), "NUDGE_NOTIFY"), notify, "{annotations}");
        assert_eq!(variable(agent(&pod), "NUDGE_WEBHOOKS"), &Value::Null, "{annotations}");
        assert!(agent(&pod)["restartPolicyRules"].is_array() && pod["spec"]["shareProcessNamespace"].is_null());
    }
}

#[test]
fn a_restart_excludes_what_it_would_make_pointless() {
    let two = json!({"containers": [{"name": "app"}, {"name": "web"}]});
    for (annotations, says) in [
        (json!({"env.app": "LIVES", "notify.app": "SIGHUP"}), "a variable changes only by a restart"),
        (json!({"env.app": "LIVES", "notify": "SIGHUP"}), "a variable changes only by a restart"),
        (
            json!({"env.app": "LIVES", "notify.app": "none"}),
            "a variable changes only by a restart, and container app is left alone",
        ),
        (json!({"notify": "in-place", "check.app": "http://localhost:1/"}), "are not asked about it"),
        (
            json!({"notify.app": "in-place", "notify.web": "SIGHUP", "check.web": "http://localhost:1/"}),
            "are not asked",
        ),
        (json!({"notify": "in-place", "notify.app": "rollout"}), "exclude each other"),
        (json!({"env.app": "LIVES", "notify.web": "rollout"}), "exclude each other"),
        (json!({"env.api": "LIVES"}), "which this pod does not have"),
        (json!({"env.app": "lives.max"}), "each of which becomes a variable of its name"),
        (json!({"env.app": "MY_CONFIG_TOKEN"}), "not beginning with a digit, NUDGE_ or MY_CONFIG_"),
    ] {
        let refusal = refusal(&annotations, &two);
        assert!(refusal.contains(says), "{annotations}: {refusal}");
    }
    let many = |from: usize, to: usize| (from..to).map(|n| format!("V{n}")).collect::<Vec<_>>().join(",");
    let said = refusal(&json!({"env.app": many(0, 200), "env.web": many(0, 57)}), &two);
    assert!(said.contains("request 257 variables from configs, and a pod can have at most 256"), "{said}");
}
