//! The gate that holds the pod's containers back until the agent has their configuration.

use super::*;

/// The injected agent of a pod with this restart policy.
fn agent(policy: &str, native_sidecars: bool, annotations: &Value) -> (Value, String) {
    let mut facts = facts();
    facts.features.native_sidecars = native_sidecars;
    let pod = with_spec(annotations, &json!({"restartPolicy": policy}));
    let (injected, warnings) = try_with(&pod, &facts).unwrap();
    serde_json::from_value::<Pod>(injected.clone()).unwrap();
    assert_eq!(try_with(&injected, &facts).unwrap().0, injected, "a second run changes nothing");
    let list = if native_sidecars { "initContainers" } else { "containers" };
    (injected["spec"][list][0].clone(), warnings.join("\n"))
}

#[test]
fn a_pod_whose_restarts_count_waits_without_one() {
    for (policy, native_sidecars, waits_for_ever) in [
        ("Always", true, false),
        ("OnFailure", true, true),
        ("Never", true, true),
        ("Always", false, false),
        ("OnFailure", false, false),
        ("Never", false, false),
    ] {
        let (agent, _) = agent(policy, native_sidecars, &json!({}));
        let (hook, probe) = (&agent["lifecycle"]["postStart"]["exec"], &agent["startupProbe"]);
        if waits_for_ever {
            assert_eq!(hook, &Value::Null, "{policy}: a hook that ends without a configuration is a restart");
            assert_eq!(
                (&probe["failureThreshold"], &probe["periodSeconds"]),
                (&json!(i32::MAX), &json!(1)),
                "{policy}"
            );
            assert_eq!(probe["exec"]["command"][1], "wait-ready", "{policy}");
        } else {
            assert_eq!(hook["command"], json!(["/nudge-agent", "wait-ready"]), "{policy}");
            assert_eq!(probe, &Value::Null, "{policy}");
        }
    }
}

#[test]
fn a_start_timeout_is_said_to_have_no_effect_where_nothing_ends_the_wait() {
    let set = json!({"agent-start-timeout": "2m"});
    for policy in ["OnFailure", "Never"] {
        let (agent, warnings) = agent(policy, true, &set);
        assert_eq!(variable(&agent, "NUDGE_START_TIMEOUT"), &Value::Null, "{policy}");
        let expected =
            format!("annotation nudge.dev/agent-start-timeout has no effect: this pod has restartPolicy: {policy}");
        assert!(warnings.contains(&expected), "{warnings}");
        let late = agent_warnings(policy, &json!({"configs": "later", "agent-start-timeout": "2m"}));
        assert!(late.contains("config later has no current version yet: the start of the pod waits for it;"), "{late}");
    }
    let (agent, warnings) = agent("Never", false, &set);
    assert_eq!((variable(&agent, "NUDGE_START_TIMEOUT"), warnings.as_str()), (&json!("2m"), ""));
    assert!(agent_warnings("Always", &json!({"configs": "later"})).contains("waits for it, 30s for each try"));
}

fn agent_warnings(policy: &str, annotations: &Value) -> String {
    agent(policy, true, annotations).1
}
