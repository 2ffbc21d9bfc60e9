//! The report about an injected pod: its agent, where the files of each mount come from, and how each container takes
//! another version.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec, Volume, VolumeMount};
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::injection::{ContainerUptake, PodReads, is_part, volume_objects};
use nudge_core::versions::object_name;
use nudge_protocol::pod;
use nudge_protocol::settings::SEPARATOR;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::table::{or_none, table};
use crate::session::Session;

/// A pod with an agent, beside the template that it is made of.
struct InjectedPod {
    pod: Pod,
    before: PodSpec,
    /// The kinds of the objects that belong to each config of the pod.
    configs: BTreeMap<String, Vec<PartKind>>,
}

/// Returns the report about a pod of this template.
pub(super) async fn report(session: &Session, template: &Value, pod: Pod) -> Result<String, Failure> {
    let unusable = |_| Failure::new("the template is not one of pods");
    let template: PodTemplateSpec = serde_json::from_value(template.clone()).map_err(unusable)?;
    let before = template.spec.unwrap_or_default();
    let mut injected = InjectedPod { pod, before, configs: BTreeMap::new() };
    for name in injected.setting(pod::env::CONFIGS).split(SEPARATOR).filter(|name| !name.is_empty()) {
        // Without the right to read configs, they count as those that Nudge makes of ConfigMaps.
        let config = session.find_config(name).await.ok().flatten();
        injected.configs.insert(name.to_owned(), kinds_of(config));
    }
    Ok(injected.text())
}

/// Returns the kinds of the objects that belong to a config. Nudge makes a config that does not exist of a ConfigMap.
fn kinds_of(config: Option<VersionedConfig>) -> Vec<PartKind> {
    config.map_or_else(|| vec![PartKind::ConfigMap], |config| config.spec.objects)
}

impl InjectedPod {
    fn containers(&self) -> impl Iterator<Item = &Container> {
        let spec = self.pod.spec.iter();
        spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
    }

    fn agent(&self) -> Option<&Container> {
        self.containers().find(|container| container.name == pod::AGENT_CONTAINER)
    }

    /// Returns a setting of the agent; empty if it is not set.
    fn setting(&self, name: &str) -> String {
        let variables = self.agent().into_iter().flat_map(|agent| agent.env.iter().flatten());
        let mut values =
            variables.filter(|variable| variable.name == name).filter_map(|variable| variable.value.as_deref());
        values.next().unwrap_or_default().replace("$$", "$")
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.configs.keys().map(String::as_str).collect();
        let mut text = format!("Agent:     {}\nConfigs:   {}\n", self.agent_user(), or_none(Some(&names.join(", "))));
        let shares = |spec: Option<&PodSpec>| spec.and_then(|spec| spec.share_process_namespace) == Some(true);
        if shares(self.pod.spec.as_ref()) && !shares(Some(&self.before)) {
            text += "Processes: the containers share their processes, so no program is process 1\n";
        }
        let mounts = self.mount_rows();
        if !mounts.is_empty() {
            text = text + "\n" + &table(&["CONTAINER", "MOUNT", "OBJECT", "FILES"], &mounts);
        }
        text + "\n" + &table(&["CONTAINER", "CONFIG", "TAKES A VERSION BY"], &self.uptake_rows())
    }

    /// Describes the user and the capabilities of the agent.
    fn agent_user(&self) -> String {
        let context = self.agent().and_then(|agent| agent.security_context.as_ref());
        let user = context.and_then(|context| context.run_as_user);
        let added = context.and_then(|context| context.capabilities.as_ref()?.add.as_ref());
        let user = user.map_or_else(|| "the user of its image".to_owned(), |user| format!("user {user}"));
        match added.filter(|names| !names.is_empty()) {
            Some(names) => format!("runs as {user}, with capability {}", names.join(", ")),
            None => format!("runs as {user}, without capabilities"),
        }
    }

    /// Returns the containers of the template with what they became.
    fn pairs(&self) -> impl Iterator<Item = (&Container, &Container)> {
        let before = self.before.init_containers.iter().flatten().chain(&self.before.containers);
        before.filter_map(|before| Some((before, self.containers().find(|after| after.name == before.name)?)))
    }

    fn volume(&self, name: &str) -> Option<&Volume> {
        self.before.volumes.iter().flatten().find(|volume| volume.name == name)
    }

    /// Returns a row for each mount of a volume with ConfigMaps or Secrets.
    fn mount_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (before, after) in self.pairs() {
            for mount in before.volume_mounts.iter().flatten() {
                let objects: Vec<(PartKind, &str)> = self
                    .volume(&mount.name)
                    .into_iter()
                    .flat_map(volume_objects)
                    .map(|object| (object.kind, object.name))
                    .collect();
                if !objects.is_empty() {
                    let names: Vec<String> = objects.iter().map(|(kind, name)| object_name(*kind, name)).collect();
                    let files = self.files(mount, after, &objects);
                    rows.push(vec![before.name.clone(), mount.mount_path.clone(), names.join(", "), files]);
                }
            }
        }
        rows
    }

    /// Describes where the files of a mount come from.
    fn files(&self, mount: &VolumeMount, after: &Container, objects: &[(PartKind, &str)]) -> String {
        if is_moved(mount, after) {
            let files = "move to the agent: those of the version that the pod is assigned";
            return if is_part(mount) { format!("{files} at its start, because of subPath") } else { files.to_owned() };
        }
        if !objects.iter().any(|(kind, name)| self.owns(*kind, name)) {
            return "stay: the object is not of a config of the pod".to_owned();
        }
        match objects.iter().find_map(|(_, name)| self.cause(&after.name, name)) {
            Some(cause) => format!("stay: {cause}"),
            None => "stay as the kubelet writes them".to_owned(),
        }
    }

    /// Returns why mounts of the object in the container stay, as the warning of injection says it.
    fn cause(&self, container: &str, config: &str) -> Option<&str> {
        let warnings = self.pod.metadata.annotations.as_ref()?.get(nudge_protocol::labels::WARNINGS)?;
        let about = format!("container {container} takes config {config} only by a restart: ");
        let line = warnings.lines().find(|line| line.starts_with(&about))?;
        let (_, cause) = line.strip_suffix(')')?.split_once(" that did not move (")?;
        Some(cause)
    }

    /// Returns whether the object belongs to a config of the pod.
    fn owns(&self, kind: PartKind, name: &str) -> bool {
        self.configs.get(name).is_some_and(|kinds| kinds.contains(&kind))
    }

    /// Returns a row for each container and each config that it takes.
    fn uptake_rows(&self) -> Vec<Vec<String>> {
        let default = PodSpec::default();
        let reads = PodReads::of_each_container(&self.pod.metadata, self.pod.spec.as_ref().unwrap_or(&default));
        let uptakes = reads.uptakes(|config, kind| self.owns(kind, config.as_str()));
        let mut rows = Vec::new();
        for container in self.containers().filter(|container| container.name != pod::AGENT_CONTAINER) {
            let mut of_container = uptakes.iter().filter(|uptake| uptake.container == container.name).peekable();
            if of_container.peek().is_none() {
                let way = if self.ends_at_start(&container.name) {
                    "its start: an init container"
                } else {
                    "nothing: it does not use the agent"
                };
                rows.push(vec![container.name.clone(), or_none(None), way.to_owned()]);
            }
            let row = |uptake: &ContainerUptake<'_>| {
                vec![container.name.clone(), uptake.config.to_string(), uptake.describe(&self.pod.metadata)]
            };
            rows.extend(of_container.map(row));
        }
        rows
    }

    /// Returns whether the container ends before the main containers start.
    fn ends_at_start(&self, name: &str) -> bool {
        let init_containers = self.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        init_containers.into_iter().any(|init| init.name == name && init.restart_policy.as_deref() != Some("Always"))
    }
}

/// Returns whether the mount of the template is one of another volume now.
fn is_moved(mount: &VolumeMount, after: &Container) -> bool {
    let mut mounts = after.volume_mounts.iter().flatten();
    mounts.any(|other| other.mount_path == mount.mount_path && other.name != mount.name)
}

#[cfg(test)]
mod tests {
    use nudge_core::injection::{AgentDefaults, Features, InjectionSettings, UnknownKeys};
    use nudge_core::injection::{InjectionFacts, ResolvedConfig, inject, read};
    use nudge_protocol::ConfigName;
    use serde_json::json;

    use super::*;

    /// Returns the report about a pod that core injects. Config `web` has its ConfigMap.
    fn report_of(annotations: &Value, spec: &Value) -> String {
        let mut metadata =
            json!({"generateName": "web-", "labels": {"nudge.dev/inject": "true"}, "annotations": annotations});
        metadata["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]);
        let mut raw = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let settings = InjectionSettings {
            agent_image: "agent".to_owned(),
            agent_kill_image: "agent-kill".to_owned(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            hub: "https://hub".to_owned(),
            foreign_containers: Vec::new(),
            foreign_containers_allowed: false,
            agent_defaults: AgentDefaults::default(),
            unknown_keys: UnknownKeys::Refuse,
        };
        let config = ResolvedConfig { objects: vec![PartKind::ConfigMap], ..ResolvedConfig::default() };
        let facts = InjectionFacts {
            features: Features { native_sidecars: true, ..Features::default() },
            configs: [(ConfigName::new("web").unwrap(), config)].into(),
            ..InjectionFacts::default()
        };
        let request = read(&raw).unwrap().unwrap();
        let injection = inject(&raw, &request, &facts, &settings).unwrap();
        json_patch::patch(&mut raw, &injection.patch).unwrap();
        let before = serde_json::from_value(spec.clone()).unwrap();
        let mut injected = InjectedPod { pod: serde_json::from_value(raw).unwrap(), before, configs: BTreeMap::new() };
        assert_eq!(injected.setting(pod::env::CONFIGS), "web");
        injected.configs.insert("web".to_owned(), kinds_of(None));
        injected.text()
    }

    #[test]
    fn the_report_says_what_moves_and_who_is_notified() {
        let spec = json!({
            "securityContext": {"runAsUser": 101},
            "initContainers": [{"name": "init", "image": "x", "volumeMounts": [{"name": "web", "mountPath": "/etc/init"}]}],
            "containers": [
                {"name": "app", "image": "x", "volumeMounts": [
                    {"name": "web", "mountPath": "/etc/web"}, {"name": "mixed", "mountPath": "/etc/mixed"},
                    {"name": "keys", "mountPath": "/etc/keys"}, {"name": "web", "mountPath": "/etc/one", "subPath": "one"}]},
                {"name": "shell", "image": "x", "volumeMounts": [{"name": "web", "mountPath": "/etc/web"}]},
                {"name": "job", "image": "x", "envFrom": [{"configMapRef": {"name": "web"}}]},
            ],
            "volumes": [
                {"name": "web", "configMap": {"name": "web"}}, {"name": "keys", "secret": {"secretName": "keys"}},
                {"name": "mixed", "projected": {"sources": [{"configMap": {"name": "web"}}, {"downwardAPI": {}}]}},
            ],
        });
        let text = report_of(&json!({"nudge.dev/notify.app": "SIGHUP"}), &spec);
        let expected = "\
Agent:     runs as user 101, without capabilities
Configs:   web
Processes: the containers share their processes, so no program is process 1

CONTAINER   MOUNT        OBJECT          FILES
init        /etc/init    ConfigMap web   move to the agent: those of the version that the pod is assigned
app         /etc/web     ConfigMap web   move to the agent: those of the version that the pod is assigned
app         /etc/mixed   ConfigMap web   stay: the volume has more than objects of the pod's configs
app         /etc/keys    Secret keys     stay: the object is not of a config of the pod
app         /etc/one     ConfigMap web   move to the agent: those of the version that the pod is assigned at its start, because of subPath
shell       /etc/web     ConfigMap web   move to the agent: those of the version that the pod is assigned

CONTAINER   CONFIG   TAKES A VERSION BY
init        <none>   its start: an init container
app         web      a restart, because it reads a file by subPath
shell       web      its files, which it watches
job         web      a restart, because it reads the ConfigMap by variables
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn each_of_many_containers_is_named() {
        let container = |number: usize| json!({"name": format!("c{number}"), "image": "x", "volumeMounts": [{"name": "web", "mountPath": "/etc/web"}]});
        let containers: Vec<Value> = (0..300).map(container).collect();
        let volumes = json!([{"name": "web", "configMap": {"name": "web"}}]);
        let text = report_of(
            &json!({"nudge.dev/notify.c299": "webhook"}),
            &json!({"containers": containers, "volumes": volumes}),
        );
        let row =
            |name: &str| text.lines().rfind(|line| line.split(' ').next() == Some(name)).unwrap_or_default().to_owned();
        assert!(row("c298").ends_with(" its files, which it watches") && row("c299").ends_with(" webhook"), "{text}");
    }

    #[test]
    fn other_ways_are_named_as_well() {
        let spec = json!({
            "containers": [{"name": "app", "image": "x", "volumeMounts": [{"name": "web", "mountPath": "/etc/web"}]}, {"name": "side", "image": "x"}],
            "volumes": [{"name": "web", "configMap": {"name": "web"}}],
        });
        let way = |annotations: Value| {
            let text = report_of(&annotations, &spec);
            let row =
                text.lines().rev().find_map(|line| line.strip_prefix("app         web      ")).unwrap().to_owned();
            (row, text)
        };
        let mixed = json!({
            "containers": [{"name": "app", "image": "x", "volumeMounts": [{"name": "mixed", "mountPath": "/etc/mixed"}]}],
            "volumes": [{"name": "mixed", "projected": {"sources": [{"configMap": {"name": "web"}}, {"downwardAPI": {}}]}}],
        });
        let text = report_of(&json!({"nudge.dev/notify.app": "SIGHUP"}), &mixed);
        assert!(text.contains("stay: the volume has more than objects of the pod's configs\n"), "{text}");
        assert!(text.contains("a restart, because it reads the ConfigMap by a mount that did not move\n"), "{text}");
        let webhook =
            json!({"nudge.dev/notify.app": "webhook", "nudge.dev/webhook.app": "http://127.0.0.1:8080/changed"});
        assert_eq!(way(webhook).0, "webhook");
        let verified = json!({"nudge.dev/notify.app": "SIGHUP", "nudge.dev/verify.app": "workers within 45s"});
        assert_eq!(way(verified).0, "SIGHUP, verified by workers");
        assert_eq!(way(json!({"nudge.dev/notify": "none"})).0, "itself (notify: none)");
        assert_eq!(way(json!({"nudge.dev/notify": "rollout"})).0, "a restart, because its pod has notify: rollout");
        let (signal, text) = way(json!({"nudge.dev/notify": "SIGHUP", "nudge.dev/containers": "app"}));
        assert_eq!(signal, "SIGHUP");
        assert!(text.contains("with capability KILL") && text.contains("side        <none>   nothing: "), "{text}");
    }
}
