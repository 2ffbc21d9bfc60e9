//! The environment of a container as a kubelet makes it: from its specification, in order, with all references
//! resolved.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// What a variable may refer to, as far as it had to be looked up.
pub(super) trait Lookup {
    /// Returns the value of a key of a ConfigMap (`configmaps`) or Secret (`secrets`); `None` if that or the object is
    /// not there.
    fn key(&self, resource: &str, name: &str, key: &str) -> Option<String>;
    /// Returns all keys of one; `None` if it is not there.
    fn all(&self, resource: &str, name: &str) -> Option<BTreeMap<String, String>>;
    /// Returns the text of a file of a volume; `None` if it is not there.
    fn file(&self, volume: &str, path: &str) -> Option<String>;
}

/// Variables in the order in which they were set; a later one of the same name wins.
pub(super) type Variables = BTreeMap<String, String>;

/// Returns the variables of `container`, over `services`: those that the services of the pod's namespace give it.
pub(super) fn variables(
    pod: &Value,
    container: &Value,
    services: Variables,
    lookup: &impl Lookup,
) -> Result<Variables> {
    let mut set = services;
    for from in container["envFrom"].as_array().into_iter().flatten() {
        let prefix = from["prefix"].as_str().unwrap_or_default();
        for (kind, resource) in [("configMapRef", "configmaps"), ("secretRef", "secrets")] {
            let Some(name) = from[kind]["name"].as_str() else { continue };
            match lookup.all(resource, name) {
                Some(all) => set.extend(all.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value))),
                None if from[kind]["optional"] == true => {}
                None => bail!("CreateContainerConfigError: {resource} {name} is not there"),
            }
        }
    }
    for one in container["env"].as_array().into_iter().flatten() {
        let name = one["name"].as_str().context("a variable without a name")?;
        let value = match one["value"].as_str() {
            Some(text) => Some(expand(text, &set)),
            None if one["valueFrom"].is_object() => {
                referred(pod, &one["valueFrom"], lookup).with_context(|| format!("variable {name}"))?
            }
            None => Some(String::new()),
        };
        if let Some(value) = value {
            set.insert(name.to_owned(), value);
        }
    }
    Ok(set)
}

fn referred(pod: &Value, from: &Value, lookup: &impl Lookup) -> Result<Option<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text is missing in the specification");
    if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
        return field(pod, path).map(Some);
    }
    for (kind, resource) in [("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")] {
        let reference = &from[kind];
        if reference.is_object() {
            let (name, key) = (text(&reference["name"])?, text(&reference["key"])?);
            let value = lookup.key(resource, &name, &key);
            ensure!(
                value.is_some() || reference["optional"] == true,
                "CreateContainerConfigError: no {key} in {resource} {name}"
            );
            return Ok(value);
        }
    }
    let reference = &from["fileKeyRef"];
    if reference.is_object() {
        let (volume, path, key) =
            (text(&reference["volumeName"])?, text(&reference["path"])?, text(&reference["key"])?);
        // As measured: without the file a container does not start, optional or not.
        let file = lookup.file(&volume, &path).with_context(|| format!("no file {path} in volume {volume}"))?;
        let value = of_file(&file, &key)?;
        ensure!(value.is_some() || reference["optional"] == true, "no {key} in {path} of volume {volume}");
        return Ok(value);
    }
    bail!("this kubelet knows no such source: {from}")
}

/// Returns a field by the downward API.
pub(super) fn field(pod: &Value, path: &str) -> Result<String> {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let place = map.split('.').fold(pod, |place, name| &place[name]);
        return Ok(place[key].as_str().unwrap_or_default().to_owned());
    }
    if path == "status.podIPs" {
        let ips = pod["status"]["podIPs"].as_array().into_iter().flatten().filter_map(|ip| ip["ip"].as_str());
        return Ok(ips.collect::<Vec<_>>().join(","));
    }
    ensure!(
        [
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.podIP",
            "status.hostIP"
        ]
        .contains(&path),
        "the downward API has no {path}"
    );
    let value = path.split('.').fold(pod, |place, name| &place[name]);
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// Returns one variable of an env file as the kubelet takes them: lines of `NAME='value'`.
fn of_file(text: &str, key: &str) -> Result<Option<String>> {
    let mut container_field = None;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, value) = line.split_once('=').with_context(|| format!("a line without '=': {line}"))?;
        let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
        let value = value.filter(|value| !value.is_empty() && !value.contains('\''));
        let value = value.with_context(|| format!("{name} does not stand in single quotes"))?;
        if name == key {
            container_field = Some(value.to_owned());
        }
    }
    Ok(container_field)
}

/// Puts `$(NAME)` in, if there is such a variable; `$$` is one dollar sign.
pub(super) fn expand(text: &str, set: &Variables) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match set.get(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

/// Returns the variables that a kubelet sets for a service with a cluster IP: a service called `nudge` gives every pod
/// of its namespace `NUDGE_PORT`.
pub(super) fn of_service(name: &str, ip: &str, ports: &[(Option<String>, i32)]) -> Variables {
    let name = name.to_uppercase().replace('-', "_");
    let mut set = Variables::new();
    let Some((_, first)) = ports.first() else { return set };
    set.insert(format!("{name}_SERVICE_HOST"), ip.to_owned());
    set.insert(format!("{name}_SERVICE_PORT"), first.to_string());
    set.insert(format!("{name}_PORT"), format!("tcp://{ip}:{first}"));
    for (port_name, port) in ports {
        if let Some(port_name) = port_name {
            set.insert(format!("{name}_SERVICE_PORT_{}", port_name.to_uppercase().replace('-', "_")), port.to_string());
        }
        let prefix = format!("{name}_PORT_{port}_TCP");
        set.insert(prefix.clone(), format!("tcp://{ip}:{port}"));
        for (what, value) in [("PROTO", "tcp".to_owned()), ("PORT", port.to_string()), ("ADDR", ip.to_owned())] {
            set.insert(format!("{prefix}_{what}"), value);
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Nothing;

    impl Lookup for Nothing {
        fn key(&self, _: &str, _: &str, _: &str) -> Option<String> {
            None
        }
        fn all(&self, _: &str, _: &str) -> Option<BTreeMap<String, String>> {
            None
        }
        fn file(&self, _: &str, path: &str) -> Option<String> {
            (path == "env").then(|| "A='1'\nB='two'\n".to_owned())
        }
    }

    #[test]
    fn references_are_expanded_in_the_order_of_the_specification() {
        let pod = json!({"metadata": {"name": "web", "labels": {"app": "shop"}},
            "status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]}});
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let container = json!({"env": [
            {"name": "IP", "valueFrom": field("status.podIP")},
            {"name": "IPS", "valueFrom": field("status.podIPs")},
            {"name": "LABEL", "valueFrom": field("metadata.labels['app']")},
            {"name": "URL", "value": "https://$(IP):9001 $$(IP) $(LATER) $5"},
            {"name": "LATER", "value": "x"},
            {"name": "EMPTY"},
            {"name": "FILE", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "B"}}},
            {"name": "WEB_PORT", "value": "1"},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": true}}},
        ]});
        let services = of_service("web", "10.0.0.1", &[(Some("http".to_owned()), 80)]);
        let set = variables(&pod, &container, services, &Nothing).unwrap();
        assert_eq!(set["IPS"], "10.0.0.7,fd00::7");
        assert_eq!(set["URL"], "https://10.0.0.7:9001 $(IP) $(LATER) $5");
        assert_eq!((set["LABEL"].as_str(), set["EMPTY"].as_str(), set["FILE"].as_str()), ("shop", "", "two"));
        assert_eq!((set["WEB_PORT"].as_str(), set["WEB_SERVICE_HOST"].as_str()), ("1", "10.0.0.1"));
        assert!(!set.contains_key("NONE"));
    }

    #[test]
    fn what_a_kubelet_would_not_start_is_refused() {
        let refused = |from: Value| {
            let container = json!({"env": [{"name": "A", "valueFrom": from}]});
            variables(&json!({}), &container, Variables::new(), &Nothing).unwrap_err()
        };
        refused(json!({"configMapKeyRef": {"name": "m", "key": "k"}}));
        refused(json!({"fileKeyRef": {"volumeName": "v", "path": "missing", "key": "A", "optional": true}}));
        refused(json!({"fieldRef": {"fieldPath": "status.phase"}}));
        for bad in ["A=1", "A=\"1\"", "A=''", "A='it's'", "A"] {
            assert!(of_file(bad, "A").is_err(), "{bad}");
        }
    }
}
