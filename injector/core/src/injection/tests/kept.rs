//! The fields of a pod that injection keeps, also of a pod that was injected before.

use super::*;

#[test]
fn a_mirror_pod_stays_as_it_is() {
    let mut pod = pod(&json!({}));
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("0123");
    assert_eq!(read(&pod), Ok(None));
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
fn variables_that_only_look_like_ours_stay() {
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
fn changed_annotations_change_an_earlier_injection() {
    let first = injected(&pod(&json!({"mount-path": "/etc/a", "agent-port": "9002"})));
    let mut second = first.clone();
    second["metadata"]["annotations"]["nudge.dev/mount-path"] = json!("/etc/b");
    second["metadata"]["annotations"]["nudge.dev/agent-port"] = json!("9003");
    let again = injected(&second);
    assert_eq!(again["spec"], injected(&pod(&json!({"mount-path": "/etc/b", "agent-port": "9003"})))["spec"]);
    second["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/mount-path");
    second["metadata"]["annotations"].as_object_mut().unwrap().remove("nudge.dev/agent-port");
    assert_eq!(injected(&second)["spec"], injected(&pod(&json!({})))["spec"]);
}

#[test]
fn a_removed_annotation_removes_what_it_added() {
    let mut pod = injected(&pod(&json!({"mount-path": "/etc/a", "notify": "SIGHUP", "webhook-allow": "10.0.0.9:80"})));
    for (annotation, added) in
        [("mount-path", "nudge-files"), ("notify", "KILL"), ("webhook-allow", "NUDGE_WEBHOOK_ALLOW")]
    {
        assert!(pod["spec"].to_string().contains(added));
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove(&format!("nudge.dev/{annotation}"));
        pod = injected(&pod);
        assert!(!pod["spec"].to_string().contains(added), "{added}");
    }
}

#[test]
fn an_image_or_resources_that_others_changed_stay_until_the_agent_changes() {
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
