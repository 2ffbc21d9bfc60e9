//! The facts about an injected pod, read from the whole object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::expectation::Expectation;
use nudge_protocol::hub::PodContainer;
use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::{ConfigName, ContainerName, labels, pod, settings};

use super::commands::{LastCommand, commands, restarts_in_place};
use super::hash::hash;
use super::pod_state::{AgentState, PodPhase, PodState, Readiness, Removal, UpdateMode};
use super::probe::{ProbeTimes, is_sidecar, subscribed};
use super::references::references;
use super::report::Report;
use super::restarts::{PodRestartHistory, RestartHistory, is_by_rule};
use crate::injection::{PodReads, Uptake, is_updated_by_rollout};
use crate::keys::PodUid;
use crate::owners::WorkloadId;

/// The maximum length of injection's warnings that is kept.
const MAX_WARNINGS_BYTES: usize = 1024;
/// The words of the scheduler about a node without a free port (`pkg/scheduler/framework/plugins/nodeports`).
const NO_FREE_PORTS: &str = "didn't have free ports";

/// Returns the condition of this type.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// Returns the facts about the pod; `None` without an agent's container.
pub fn pod_state(object: &Pod) -> Option<PodState> {
    let spec = object.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let agent = init.chain(&spec.containers).find(|container| container.name == pod::AGENT_CONTAINER)?;
    let meta = &object.metadata;
    let status = object.status.as_ref();
    let condition = |kind: &str| condition(object, kind);
    let all_statuses = status.into_iter().flat_map(statuses);
    let containers = containers(spec, &all_statuses.clone().collect::<Vec<_>>());
    let others = |status: &&ContainerStatus| status.name != pod::AGENT_CONTAINER;
    let users = |status: &&ContainerStatus| containers.iter().any(|container| container.name.as_str() == status.name);
    let users: Vec<&ContainerStatus> = all_statuses.clone().filter(others).filter(users).collect();
    let subscribed = subscribed(spec);
    let status_of = |container: &&Container| users.iter().copied().find(|status| status.name == container.name);
    let restarts_always = spec.restart_policy.as_deref().unwrap_or("Always") == "Always";
    let counted = subscribed.iter().copied().filter(|container| restarts_always || is_sidecar(container));
    let agent_status = all_statuses.clone().find(|status| status.name == pod::AGENT_CONTAINER);
    let last_command = commands(agent, agent_status);
    let history = |container| Some(RestartHistory::new(container, status_of(&container)?, &last_command));
    let is_resizing = condition("PodResizeInProgress").is_some_and(|resize| resize.status == "True");
    let restarts = PodRestartHistory::new(counted.filter_map(history).collect(), is_resizing);
    // While all containers are started again, the pod is Pending until its agent and its init containers have done
    // their work, if ever.
    let main = status.and_then(|status| status.container_statuses.as_ref());
    let in_place = restarts_in_place(agent);
    let is_restarting_in_place = in_place && main.into_iter().flatten().any(|status| status.restart_count > 0);
    let reads = PodReads::of(meta, spec);
    Some(PodState {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: PodUid::new(meta.uid.as_deref()?)?,
        // The API server sets it in every pod that is stored.
        service_account: spec.service_account_name.clone().unwrap_or_default(),
        agent: AgentState {
            version: meta.labels.as_ref().and_then(|map| map.get(labels::AGENT)).cloned().unwrap_or_default(),
            restarts: agent_status.map_or(0, |status| status.restart_count),
            last_command,
        },
        configs: configs(agent),
        workload: WorkloadId::of(meta),
        containers_hash: if containers.is_empty() { String::new() } else { hash(&containers) },
        containers,
        node: spec.node_name.clone().filter(|node| !node.is_empty()),
        lacks_port: condition("PodScheduled").is_some_and(lacks_port),
        readiness: readiness(condition("Ready"), condition("Initialized")),
        containers_ready: subscribed.iter().all(|container| status_of(container).is_some_and(|status| status.ready)),
        phase: match status.and_then(|status| status.phase.as_deref()) {
            Some("Succeeded" | "Failed") => PodPhase::Finished,
            Some("Running") => PodPhase::Running,
            Some("Pending") if is_restarting_in_place => PodPhase::Running,
            _ => PodPhase::Pending,
        },
        removal: match condition("DisruptionTarget") {
            _ if meta.deletion_timestamp.is_some() => Removal::Terminating,
            Some(target) if target.status == "True" => Removal::Disrupted,
            _ => Removal::None,
        },
        probes: ProbeTimes::of(spec),
        template: template(meta),
        labels: Arc::new(birth_labels(meta)),
        update_mode: match in_place {
            _ if is_updated_by_rollout(meta) => UpdateMode::ByRestart,
            true => UpdateMode::InPlace,
            false => UpdateMode::Live,
        },
        has_silent_takers: has_key_patterns(agent) && has_silent_takers(&reads),
        verify_seconds: verify_seconds(agent),
        created: meta.creation_timestamp.as_ref().map(|time| time.0.as_second()),
        restarts,
        warnings: meta.annotations.as_ref().and_then(|map| map.get(labels::WARNINGS)).cloned().map(bounded),
        report: condition(pod::CONDITION).and_then(Report::read),
        references: references(spec),
        reads,
        resource_version: meta.resource_version.clone().map(String::into_boxed_str),
    })
}

/// Returns whether containers of the agent's pod name the keys that they read.
fn has_key_patterns(agent: &Container) -> bool {
    agent.env.iter().flatten().any(|variable| variable.name == pod::env::KEYS)
}

/// Returns whether a container is not notified, and watches files that the agent keeps, or asks the agent.
fn has_silent_takers(reads: &PodReads) -> bool {
    let is_silent = |uptake: &Uptake| matches!(uptake, Uptake::WatchesFiles | Uptake::Asks);
    reads.uptakes(|_, _| true).iter().any(|uptake| is_silent(&uptake.uptake))
}

fn lacks_port(scheduled: &PodCondition) -> bool {
    scheduled.status == "False" && scheduled.message.as_deref().is_some_and(|message| message.contains(NO_FREE_PORTS))
}

/// Returns the warnings in one bounded text. Users who may write pods may write them, and they are shown on terminals.
fn bounded(mut warnings: String) -> String {
    warnings.retain(|letter| letter == '\n' || !letter.is_control());
    clip(warnings, MAX_WARNINGS_BYTES)
}

/// Returns whether the pod is Ready or has been: by the kubelet's own clock, a pod that never was is not Ready since
/// before it was initialized.
fn readiness(ready: Option<&PodCondition>, initialized: Option<&PodCondition>) -> Readiness {
    let time = |condition: &PodCondition| condition.last_transition_time.clone().map(|time| time.0);
    if ready.is_some_and(|ready| ready.status == "True") {
        return Readiness::Ready;
    }
    let initialized = initialized.filter(|initialized| initialized.status == "True").and_then(time);
    match ready.and_then(time).zip(initialized) {
        Some((unready, initialized)) if unready > initialized => Readiness::Lost { since: unready.as_second() },
        _ => Readiness::Never,
    }
}

/// Returns a setting in the agent's environment; empty if it is absent.
fn setting<'a>(agent: &'a Container, name: &str) -> &'a str {
    let variable = agent.env.iter().flatten().find(|variable| variable.name == name);
    variable.and_then(|variable| variable.value.as_deref()).unwrap_or_default()
}

/// Returns the longest time that the agent waits for what a container must show after its notification.
fn verify_seconds(agent: &Container) -> u32 {
    let items = setting(agent, pod::env::VERIFY).split(settings::SEPARATOR);
    let within = items.filter_map(|item| settings::parse_pair::<ContainerName, Expectation>(item).ok());
    let longest = within.map(|(_, expectation)| expectation.within).max().unwrap_or_default();
    u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)
}

/// Returns the configs in the agent's environment. A text that is not a name can only come from a hand-made pod, and is
/// left out.
fn configs(agent: &Container) -> Vec<ConfigName> {
    let list = setting(agent, pod::env::CONFIGS);
    let mut configs: Vec<ConfigName> = Vec::new();
    for name in list.split(',').filter_map(|name| ConfigName::new(name.trim()).ok()) {
        if !configs.contains(&name) && configs.len() < MAX_CONFIGS {
            configs.push(name);
        }
    }
    configs
}

/// Returns the label that distinguishes pods of one template of a workload from pods of another.
fn template(meta: &ObjectMeta) -> Option<String> {
    let label = |key: &str| meta.labels.as_ref()?.get(key).cloned();
    label("pod-template-hash").or_else(|| label("controller-revision-hash"))
}

/// Returns the labels that selectors of steps are compared with. Injection notes the labels that the pod is created
/// with: later labels, such as the role that an operator gives it, move no pod to another version.
fn birth_labels(meta: &ObjectMeta) -> BTreeMap<String, String> {
    let annotation = meta.annotations.as_ref().and_then(|map| map.get(labels::BIRTH_LABELS));
    let annotation = annotation.and_then(|text| serde_json::from_str(text).ok());
    annotation.or_else(|| meta.labels.clone()).unwrap_or_default()
}

/// Returns the statuses of all containers. The names of a pod's containers differ, those of init containers included.
fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> + Clone {
    status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
}

/// Returns how often these containers of a pod crashed. A restart that meets a restart rule of its container is none.
pub fn crashes(pod: &Pod, names: &BTreeSet<String>) -> i32 {
    let spec = pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let status_of = |name: &str| pod.status.iter().flat_map(statuses).find(|status| status.name == name);
    let history =
        |container: &Container| Some(RestartHistory::new(container, status_of(&container.name)?, &LastCommand::None));
    let histories = spec.filter(|container| names.contains(&container.name)).filter_map(history);
    PodRestartHistory::new(histories.collect(), false).sums().crashes
}

fn containers(spec: &PodSpec, statuses: &[&ContainerStatus]) -> Vec<PodContainer> {
    let restarts_always = spec.restart_policy.as_deref().unwrap_or("Always") == "Always";
    let never = spec.restart_policy.as_deref() == Some("Never");
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let sidecars = sidecars.map(|container| (container, true));
    let others = spec.containers.iter().map(|container| (container, false)).chain(sidecars);
    others
        .filter(|(container, _)| container.name != pod::AGENT_CONTAINER)
        .filter_map(|(container, sidecar)| {
            let name = ContainerName::new(&container.name).ok()?;
            let status = statuses.iter().find(|status| status.name == container.name);
            let id = status.and_then(|status| status.container_id.as_deref()).unwrap_or_default();
            let id = id.rsplit_once("://").map_or(id, |(_, id)| id);
            let terminated = status.and_then(|status| status.state.as_ref()?.terminated.as_ref());
            // A sidecar is started again after any exit, and is ended with its pod.
            let restarts = sidecar || restarts_always;
            let is_last =
                |termination| !restarts && !is_by_rule(container, termination) && (never || termination.exit_code == 0);
            let ended = terminated.is_some_and(is_last);
            let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            Some(PodContainer { name, id: if is_id { id.to_owned() } else { String::new() }, ended })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::RestartSums;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn sample() -> serde_json::Value {
        json!({
            "metadata": {
                "name": "web-7d4b-x", "namespace": "shop", "uid": "u1",
                "labels": {"pod-template-hash": "7d4b", "nudge.dev/agent": "0.1.0"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b", "uid": "r", "controller": true}],
            },
            "spec": {
                "serviceAccountName": "app",
                "initContainers": [{"name": "nudge-agent", "env": [{"name": "NUDGE_CONFIGS", "value": "shop, keys,shop,NOT A NAME"}]}],
                "containers": [{"name": "app", "envFrom": [{"configMapRef": {"name": "plain"}}]}, {"name": "log"}],
                "volumes": [{"name": "a", "configMap": {"name": "shop-1"}},
                            {"name": "b", "projected": {"sources": [{"secret": {"name": "keys-7"}}]}}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {"name": "app", "containerID": format!("containerd://{}", "a".repeat(64)), "restartCount": 2,
                     "image": "", "imageID": "", "ready": true},
                    {"name": "nudge-agent", "restartCount": 9, "image": "", "imageID": "", "ready": true}],
            },
        })
    }

    #[test]
    fn a_container_that_takes_versions_silently_is_known_where_another_names_its_keys() {
        let watches = |env: serde_json::Value, mounts: serde_json::Value| {
            let mut sample = sample();
            let spec = &mut sample["spec"];
            spec["initContainers"][0]["env"].as_array_mut().unwrap().extend(env.as_array().unwrap().clone());
            spec["containers"][1]["volumeMounts"] = mounts;
            pod_state(&pod(sample)).unwrap().has_silent_takers
        };
        let env = json!([{"name": "NUDGE_NOTIFY", "value": "app=SIGHUP"}, {"name": "NUDGE_KEYS", "value": "app=db.*"}]);
        let share = json!([{"name": "nudge-share", "mountPath": "/run/nudge"}]);
        let files = json!([share[0], {"name": "nudge-files", "mountPath": "/etc/shop"}]);
        assert!(!watches(env.clone(), json!([])), "it has neither files nor the endpoint");
        assert!(watches(env.clone(), share), "it asks the agent");
        assert!(watches(env.clone(), files.clone()));
        assert!(!watches(json!([env[0]]), files), "no container names its keys");
    }

    #[test]
    fn what_matters_is_taken() {
        let state = pod_state(&pod(sample())).unwrap();
        assert_eq!(state.configs.iter().map(ConfigName::as_str).collect::<Vec<_>>(), ["shop", "keys"]);
        assert_eq!((state.workload_name(), state.service_account.as_str()), ("Deployment/web", "app"));
        assert_eq!((state.readiness, state.phase, state.removal), (Readiness::Ready, PodPhase::Running, Removal::None));
        assert_eq!(state.restarts.sums().crashes, 2);
        assert_eq!(state.containers.len(), 2);
        assert_eq!((state.containers[0].id.len(), state.containers[1].id.as_str()), (64, ""));
        let names: Vec<&str> = state.references.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["plain", "shop-1", "keys-7"]);
    }

    /// The statuses that a kubelet of 1.36 writes, in order.
    #[test]
    fn a_restart_in_place_is_followed_from_the_command_to_a_crash() {
        let at = |second: u32| format!("2026-11-23T12:00:{second:02}Z");
        let runs = |second| json!({"running": {"startedAt": at(second)}});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let ended = |code: i32, from, to| json!({"terminated": {"exitCode": code, "reason": "Error", "startedAt": at(from), "finishedAt": at(to)}});
        let removed = json!({"terminated": {"exitCode": 137, "reason": "RestartingAllContainers"}});
        let seen = |phase: &str, agent: [&serde_json::Value; 2], app: [&serde_json::Value; 2], restarts: [i32; 2]| {
            let mut changed = sample();
            changed["spec"]["initContainers"][0]["env"] = json!([{"name": "NUDGE_NOTIFY", "value": "app=in-place"}]);
            changed["status"]["phase"] = json!(phase);
            for (of, [state, last], restarts) in [(1, agent, restarts[0]), (0, app, restarts[1])] {
                let status = &mut changed["status"]["containerStatuses"][of];
                (status["state"], status["lastState"]) = (state.clone(), last.clone());
                status["restartCount"] = json!(restarts);
            }
            pod_state(&pod(changed)).unwrap()
        };
        let (none, removing) = (json!({}), waits("RestartingAllContainers"));
        let (commanded, crashed) = (ended(88, 3, 4), ended(1, 6, 7));
        let mut before = seen("Running", [&runs(3), &none], [&runs(3), &none], [0, 0]);
        for (state, expected) in [
            (seen("Running", [&runs(3), &none], [&runs(3), &none], [0, 0]), ((false, false), (0, 0), false)),
            (seen("Running", [&commanded, &none], [&runs(3), &none], [0, 0]), ((true, true), (0, 0), false)),
            (seen("Running", [&removing, &removed], [&removing, &removed], [1, 1]), ((true, true), (0, 1), false)),
            (
                seen("Pending", [&runs(6), &removed], [&waits("PodInitializing"), &removed], [1, 1]),
                ((true, false), (0, 1), false),
            ),
            (
                seen("Pending", [&ended(3, 6, 6), &removed], [&waits("PodInitializing"), &removed], [1, 1]),
                ((false, false), (0, 1), false),
            ),
            (seen("Running", [&runs(6), &removed], [&runs(6), &removed], [1, 1]), ((true, false), (0, 1), false)),
            (seen("Running", [&runs(6), &removed], [&runs(7), &crashed], [1, 2]), ((true, false), (1, 1), true)),
        ] {
            let state = state.after(&before);
            assert_eq!(state.phase, PodPhase::Running);
            let RestartSums { crashes, ordered, last_crash } = state.restarts.sums();
            let command = match &state.agent.last_command {
                LastCommand::None => (false, false),
                LastCommand::Restarting => (true, true),
                LastCommand::RunningSince(_) => (true, false),
            };
            assert_eq!((command, (crashes, ordered), last_crash.is_some()), expected);
            before = state;
        }
        // The other container has restarts, but is not restarted in place.
        let mut other = sample();
        other["status"]["phase"] = json!("Pending");
        assert_eq!(pod_state(&pod(other)).unwrap().phase, PodPhase::Pending);
    }

    #[test]
    fn a_started_container_changes_the_hash_and_a_condition_does_not() {
        let one = pod_state(&pod(sample())).unwrap();
        let mut changed = sample();
        changed["status"]["conditions"] = json!([]);
        assert_eq!(one.containers_hash, pod_state(&pod(changed)).unwrap().containers_hash);
        let mut changed = sample();
        changed["status"]["containerStatuses"][0]["containerID"] = json!(format!("containerd://{}", "b".repeat(64)));
        assert_ne!(one.containers_hash, pod_state(&pod(changed)).unwrap().containers_hash);
    }

    #[test]
    fn the_users_native_sidecars_are_containers_and_never_end() {
        let mut other = sample();
        other["spec"]["restartPolicy"] = json!("Never");
        let init = other["spec"]["initContainers"].as_array_mut().unwrap();
        init[0]["restartPolicy"] = json!("Always");
        init.push(json!({"name": "proxy", "restartPolicy": "Always"}));
        init.push(json!({"name": "migrate"}));
        let ended = |name: &str, id: &str| {
            json!({"name": name, "containerID": format!("containerd://{}", id.repeat(64)), "restartCount": 3, "image": "",
                   "imageID": "", "ready": false, "state": {"terminated": {"exitCode": 0}}})
        };
        other["status"]["initContainerStatuses"] =
            json!([ended("nudge-agent", "c"), ended("proxy", "d"), ended("migrate", "e")]);
        other["status"]["containerStatuses"][0] = ended("app", "a");
        let names = ["app".to_owned(), "proxy".to_owned()].into();
        assert_eq!(crashes(&pod(other.clone()), &names), 6, "neither the agent nor what ends");
        let mut by_rule = other.clone();
        by_rule["spec"]["containers"][0]["restartPolicyRules"] =
            json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        by_rule["status"]["containerStatuses"][0]["lastState"]["terminated"] = json!({"exitCode": 42});
        assert_eq!(crashes(&pod(by_rule.clone()), &names), 3, "a rule orders the restarts of app");
        by_rule["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] = json!(1);
        assert_eq!(crashes(&pod(by_rule), &names), 6);
        let state = pod_state(&pod(other)).unwrap();
        let seen: Vec<_> = state.containers.iter().map(|one| (one.name.as_str(), one.id.get(..1), one.ended)).collect();
        assert_eq!(seen, [("app", Some("a"), true), ("log", None, false), ("proxy", Some("d"), false)]);
        assert_eq!(state.restarts.sums().crashes, 3, "of the one that is started again");
    }

    #[test]
    fn a_pod_that_no_node_has_a_port_for_differs_from_others_that_wait() {
        for (status, message, lacks) in [
            (
                "False",
                "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't have free ports for the requested pod ports.",
                true,
            ),
            ("False", "0/1 nodes are available: 1 Insufficient cpu.", false),
            ("True", "1 node(s) didn't have free ports for the requested pod ports.", false),
        ] {
            let mut waiting = sample();
            waiting["status"]["conditions"] =
                json!([{"type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message}]);
            assert_eq!(pod_state(&pod(waiting)).unwrap().lacks_port, lacks, "{message}");
        }
        assert!(!pod_state(&pod(sample())).unwrap().lacks_port);
    }

    #[test]
    fn a_pod_without_an_agent_does_not_matter() {
        let mut other = sample();
        other["spec"]["initContainers"] = json!([]);
        assert!(pod_state(&pod(other)).is_none());
    }

    #[test]
    fn an_ephemeral_container_is_neither_an_agent_nor_an_application() {
        let mut debugged = sample();
        debugged["spec"]["ephemeralContainers"] = json!([
            {"name": "debugger", "image": "a", "envFrom": [{"secretRef": {"name": "other"}}]},
            {"name": "nudge-agent", "image": "a", "env": [{"name": "NUDGE_CONFIGS", "value": "other"}]},
        ]);
        debugged["status"]["ephemeralContainerStatuses"] = json!([
            {"name": "debugger", "restartCount": 7, "image": "", "imageID": "", "ready": false,
             "containerID": format!("containerd://{}", "e".repeat(64)), "state": {"terminated": {"exitCode": 1}}},
        ]);
        assert_eq!(pod_state(&pod(debugged.clone())), pod_state(&pod(sample())));
        debugged["spec"]["initContainers"] = json!([]);
        assert!(pod_state(&pod(debugged)).is_none());
    }

    #[test]
    fn owners_other_than_deployments_stand_for_themselves() {
        let mut other = sample();
        other["metadata"]["labels"] = json!({});
        assert_eq!(pod_state(&pod(other.clone())).unwrap().workload_name(), "ReplicaSet/web-7d4b");
        other["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(pod_state(&pod(other)).unwrap().workload, None);
    }
}
