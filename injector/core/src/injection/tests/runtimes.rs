//! Warnings about runtimes that catch signals by themselves.

use super::*;

fn warnings(container: &Value, notify: &str) -> String {
    let mut pod = pod(&json!({"notify": notify, "agent-run-as-user": "5"}));
    let own = &mut pod["spec"]["containers"][0];
    own["securityContext"] = json!({"runAsUser": 5});
    for (key, value) in container.as_object().unwrap() {
        own[key] = value.clone();
    }
    warned(&pod)
}

#[test]
fn a_runtime_that_ends_on_the_signal_is_a_warning() {
    for (container, notify, expected) in [
        (
            json!({"command": ["/usr/bin/java", "-jar", "shop.jar"]}),
            "SIGHUP",
            "container app runs java, which ends on SIGHUP unless",
        ),
        (json!({"args": ["java", "Main"]}), "SIGHUP", "container app runs java, which ends on SIGHUP"),
        (
            json!({"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}]}),
            "SIGHUP",
            "runs java, which ends on SIGHUP",
        ),
        (json!({"command": ["java"]}), "SIGUSR2", "uses SIGUSR2 itself and crashes"),
        (json!({"command": ["ruby3.1", "app.rb"]}), "SIGUSR1", "runs ruby, which ends on SIGUSR1"),
        (json!({"command": ["php8.2", "worker.php"]}), "SIGUSR2", "runs php, which ends on SIGUSR2"),
        (
            json!({"command": ["node", "app.mjs"]}),
            "SIGUSR1",
            "starts its debugger on SIGUSR1; set nudge.dev/notify to SIGUSR2",
        ),
    ] {
        let warnings = warnings(&container, notify);
        assert!(warnings.contains(expected), "{container} {notify}: {warnings}");
        assert!(warnings.len() < 256, "the API server cuts longer ones: {warnings}");
    }
}

#[test]
fn what_does_not_end_on_it_or_is_not_shown_is_none() {
    for (container, notify) in [
        (json!({"command": ["java"]}), "SIGUSR1"),
        (json!({"command": ["java"]}), "webhook"),
        (json!({"command": ["node"]}), "SIGUSR2"),
        (json!({"command": ["php-fpm8.2"]}), "SIGUSR2"),
        (json!({"command": ["python3", "java"]}), "SIGHUP"),
        (json!({}), "SIGHUP"),
    ] {
        assert_eq!(warnings(&container, notify), "", "{container} {notify}");
    }
}
