//! Objects that several scenarios make.

use serde_json::{Value, json};

use crate::space::ScenarioNamespace;

/// The user of the examples' images.
pub(crate) const APP: i64 = 10001;

/// Returns versions of a config, each one ConfigMap, and the config, of which the first is current.
pub(crate) fn config(name: &str, versions: &[(&str, Value)], rollout: &Value) -> String {
    list(config_maps(name, versions).into_iter().chain([versioned(name, versions[0].0, rollout)]))
}

/// Returns the same of a config that keeps the ConfigMap of its name at the current version.
pub(crate) fn published_config(name: &str, versions: &[(&str, Value)], rollout: &Value) -> String {
    let mut config = versioned(name, versions[0].0, rollout);
    config["spec"]["objects"] = json!(["ConfigMap"]);
    list(config_maps(name, versions).into_iter().chain([config]))
}

fn config_maps(name: &str, versions: &[(&str, Value)]) -> Vec<Value> {
    let part = |(version, data): &(&str, Value)| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": version_of(name, version), "immutable": true, "data": data});
    versions.iter().map(part).collect()
}

/// Returns the same of Secrets.
pub(crate) fn secret_config(name: &str, versions: &[(&str, Value)], rollout: &Value) -> String {
    let part = |version: &str, data: &Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": version_of(name, version), "immutable": true, "stringData": data});
    let parts = versions.iter().map(|(version, data)| part(version, data));
    list(parts.chain([versioned(name, versions[0].0, rollout)]))
}

fn version_of(config: &str, version: &str) -> Value {
    json!({"name": format!("{config}-{version}"), "labels": {"nudge.dev/config": config, "nudge.dev/version": version}})
}

fn versioned(name: &str, version: &str, rollout: &Value) -> Value {
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
        "spec": {"version": version, "rollout": rollout},
    })
}

/// Several objects to apply.
pub(crate) fn list(items: impl IntoIterator<Item = Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items.into_iter().collect::<Vec<_>>()}).to_string()
}

/// Returns a ConfigMap that is no version.
pub(crate) fn plain(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// Returns a container `app` of the shell example's image that runs another script.
pub(crate) fn shell(home: &ScenarioNamespace<'_>, script: &str) -> Value {
    json!({"name": "app", "image": home.place.image("nudge-example-shell:0.1.0"), "command": ["sh", "-c", script]})
}

/// Returns a container `app` of the webhook example's image that runs another Python program.
pub(crate) fn python(home: &ScenarioNamespace<'_>, program: &str) -> Value {
    json!({"name": "app", "image": home.place.image("nudge-example-webhook:0.1.0"), "command": ["python3", "-c", program]})
}

/// Reads `MODE` and the files below `/etc/app/FOLDER`, at its start and when it is notified, and serves what it has:
/// how often each value occurs.
const HOLDER: &str = r#"
import collections, glob, http.server, os, signal

def read(*_):
    global held
    values = [open(path).read() for path in sorted(glob.glob("/etc/app/*/*"))]
    counts = collections.Counter([os.environ.get("MODE", "unset"), *values])
    held = ", ".join(f"{count} {value}" for value, count in counts.items())

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(held.encode())

    def log_message(self, *_):
        pass

signal.signal(signal.SIGHUP, read)
read()
http.server.HTTPServer(("", 8080), Handler).serve_forever()
"#;

/// Returns a container `app` that serves what it has read, at its start and on SIGHUP, at port 8080.
pub(crate) fn holder(home: &ScenarioNamespace<'_>) -> Value {
    let mut container = python(home, HOLDER);
    container["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1});
    container
}

/// Returns a pod, or the template of one, that does not opt in. Its label `app` has its name.
pub(crate) fn template(name: &str, container: &Value) -> Value {
    json!({
        "metadata": {"labels": {"app": name}, "annotations": {}},
        "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": APP, "runAsGroup": APP}, "containers": [container],
        },
    })
}

/// Returns the same that opts in, with these annotations, of which `nudge.dev/` is left out.
pub(crate) fn opted_in(name: &str, container: &Value, annotations: &[(&str, &str)]) -> Value {
    let mut template = template(name, container);
    template["metadata"]["labels"]["nudge.dev/inject"] = "true".into();
    for (key, value) in annotations {
        template["metadata"]["annotations"][format!("nudge.dev/{key}")] = (*value).into();
    }
    template
}

/// Returns a bare pod of a template.
pub(crate) fn pod(template: Value) -> Value {
    let mut pod = template;
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = pod["metadata"]["labels"]["app"].clone();
    pod
}

/// Returns a Deployment of a template.
pub(crate) fn deployment(template: &Value, replicas: i32) -> Value {
    let app = &template["metadata"]["labels"]["app"];
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template},
    })
}
