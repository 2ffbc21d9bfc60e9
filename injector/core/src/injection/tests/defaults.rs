//! The installation's defaults for agents of pods without such settings.

use super::*;

fn with(set: impl FnOnce(&mut AgentDefaults) -> Result<(), String>) -> InjectionSettings {
    let mut settings = settings();
    set(&mut settings.agent_defaults).unwrap();
    settings
}

fn agent(pod: &Value, settings: &InjectionSettings) -> Value {
    let (injected, _) = try_under(pod, &facts(), settings).unwrap();
    assert_eq!(try_under(&injected, &facts(), settings).unwrap().0, injected, "a second run changes nothing");
    injected["spec"]["initContainers"][0].clone()
}

fn sized(annotations: &Value, resources: &Value) -> Value {
    with_spec(annotations, &json!({"containers": [{"name": "app", "resources": resources}]}))
}

#[test]
fn they_hold_where_the_pod_has_no_annotation() {
    let port = with(|defaults| defaults.set_port("9100"));
    let listens = |annotations: &Value| variable(&agent(&pod(annotations), &port), "NUDGE_PORT").clone();
    assert_eq!((listens(&json!({})), listens(&json!({"agent-port": "9002"}))), (json!("9100"), json!("9002")));
    let (injected, _) = try_under(&pod(&json!({})), &facts(), &port).unwrap();
    let endpoint = variable(&injected["spec"]["containers"][0], "MY_CONFIG_ENDPOINT").clone();
    assert_eq!(endpoint, "https://$(NUDGE_POD_IP):9100/config");
    let declared = json!({"containers": [{"name": "app", "ports": [{"containerPort": 9100}]}]});
    let refused = try_under(&with_spec(&json!({}), &declared), &facts(), &port).unwrap_err();
    assert!(refused.contains("container app declares port 9100"), "{refused}");
    // The port may be in use on a node all the same.
    let on_node = json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"});
    let refused = try_under(&with_spec(&json!({}), &on_node), &facts(), &port).unwrap_err();
    assert!(refused.contains("where port 9100 may be taken; set annotation nudge.dev/agent-port"), "{refused}");

    let timeout = with(|defaults| defaults.set_start_timeout("2m"));
    let waits = |annotations: &Value| variable(&agent(&pod(annotations), &timeout), "NUDGE_START_TIMEOUT").clone();
    assert_eq!((waits(&json!({})), waits(&json!({"agent-start-timeout": "5s"}))), (json!("2m"), json!("5s")));
    let (_, warnings) = try_under(&pod(&json!({"configs": "later"})), &facts(), &timeout).unwrap();
    assert!(warnings.join("\n").contains("2m for each try (nudge.dev/agent-start-timeout)"), "{warnings:?}");
}

#[test]
fn resources_are_those_of_the_installation_and_keep_the_class_of_the_pod() {
    let burstable = json!({"requests": {"cpu": "100m"}});
    let guaranteed = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let cpu = |text: &str| with(|defaults| defaults.set_cpu(text));
    let requests = |annotations: &Value, resources: &Value, settings: &InjectionSettings, resource: &str| {
        agent(&sized(annotations, resources), settings)["resources"]["requests"][resource].clone()
    };
    let none = json!({});
    assert_eq!(requests(&none, &burstable, &cpu("20m"), "cpu"), "20m");
    assert_eq!(requests(&json!({"agent-cpu": "7m"}), &burstable, &cpu("20m"), "cpu"), "7m");
    // As a limit too, less would stop the agent in the middle of a handshake.
    assert_eq!(requests(&none, &guaranteed, &cpu("20m"), "cpu"), "50m");
    assert_eq!(requests(&none, &guaranteed, &cpu("80m"), "cpu"), "80m");
    let memory = with(|defaults| defaults.set_memory("64Mi"));
    assert_eq!(requests(&none, &burstable, &memory, "memory"), "64Mi");
    assert_eq!(requests(&json!({"mount-path": "/etc/shop"}), &burstable, &memory, "memory"), "72Mi");
    assert_eq!(requests(&json!({"agent-memory": "32Mi"}), &burstable, &memory, "memory"), "32Mi");
    assert_eq!(agent(&sized(&none, &none), &memory)["resources"], Value::Null, "a pod stays BestEffort");
}

#[test]
fn they_have_the_bounds_of_the_annotations() {
    let mut defaults = AgentDefaults::default();
    for refused in
        [defaults.set_cpu("8"), defaults.set_memory("1Mi"), defaults.set_port("80"), defaults.set_start_timeout("1h")]
    {
        assert!(refused.is_err());
    }
    assert_eq!(defaults, AgentDefaults::default());
}
