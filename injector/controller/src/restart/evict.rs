//! Evictions of pods of controllers without rolling updates, one by one, and reports about pods that nothing restarts.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::EvictParams;
use nudge_api::Reason;
use nudge_cluster::call::{CallError, call};
use nudge_core::owners::{WorkloadId, controlling_owner};
use nudge_core::pods::{condition, pod_state};
use nudge_core::restart::{
    ConfigUses, NextEviction, ObjectReport, PodGroup, ReplaceablePod, RestartAttempts, RestartGoal, RestartReport,
    Staleness, StartState, StartTimes, next_eviction, report_stale_pods, restart_uses,
};
use nudge_core::rollout::{Restarts, is_same_content, version_to_publish};

use super::template::refusal_report;
use crate::controller::Controller;
use crate::memory::PodController;

/// The kinds of owners whose pods are restarted by other code, or never: those of Jobs run once.
const OTHER_OWNERS: [&str; 5] = ["Deployment", "StatefulSet", "DaemonSet", "Job", "Node"];

/// The one that restarts the pods of an owner.
#[derive(Clone, Copy)]
enum Restarter {
    /// Evictions: the index of the group.
    Group(usize),
    /// Other code.
    Other,
    /// Nobody that is known.
    Unknown,
}

impl Controller {
    /// Makes the next step for pods, once all workloads are done. Returns the state, and the ids of the controllers
    /// whose pods are evicted.
    pub(super) async fn evict_pods(
        &self,
        goal: &RestartGoal<'_>,
        memory: &mut RestartAttempts,
        report: &mut RestartReport,
    ) -> Result<(Restarts, Vec<WorkloadId>), CallError> {
        let RestartGoal { key, status, published_objects, last_progress: since, deadline_seconds, .. } = *goal;
        // If nothing is published no pod is too old for it, but the reports of agents count.
        let times = published_objects.iter().filter_map(|kind| Some(kind.publish_time(status)?.0));
        let published = times.max().unwrap_or(Timestamp::UNIX_EPOCH);
        let stale = Staleness { published, since: status.internal.workloads_restart_time.as_ref().map(|time| time.0) };
        let (mut groups, unmanaged_pods) = self.replaceable_groups(goal, memory).await?;
        // A group whose last pod was just evicted is remembered.
        memory.keep_groups(groups.iter().map(|group| &group.id));
        groups.retain(|group| !group.pods.is_empty());
        for group in &mut groups {
            group.before = memory.ready_before(&group.id, group.count_ready());
        }
        report.workloads += groups.len();
        report.reports.extend(report_stale_pods(&unmanaged_pods, stale));
        let state = loop {
            let refused = |id: &WorkloadId| memory.group_refusal(id).is_some();
            match next_eviction(&groups, stale, since, deadline_seconds, refused, Timestamp::now()) {
                NextEviction::Done => break Restarts::Done,
                NextEviction::Wait(message) => break Restarts::Busy(message),
                NextEviction::Failed(message) => break Restarts::Failed(message),
                NextEviction::Evict { group, pod } => {
                    let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                    let is_evicted = |other: &&PodGroup| other.id == group;
                    let evicting = || format!("evicting Pod {}/{pod}", key.namespace);
                    match call(evicting, api.evict(&pod, &EvictParams::default())).await {
                        Ok(_) => {
                            self.metrics.count_restart("evicted");
                            self.workload_lists.outdate(&key.namespace);
                            tracing::info!(config = %key, pod, "pod evicted");
                        }
                        Err(error) if error.code() == Some(404) => {}
                        Err(error) if error.code() == Some(429) => {
                            let progressed =
                                groups.iter().find(is_evicted).map(|group| group.last_progress(stale, since));
                            let waited = Timestamp::now().duration_since(progressed.unwrap_or(since));
                            if waited.as_secs() < i64::from(deadline_seconds) {
                                break Restarts::Busy(format!(
                                    "a PodDisruptionBudget does not allow pod {pod} of {group} to be evicted now"
                                ));
                            }
                            let message = format!(
                                "a PodDisruptionBudget kept pod {pod} of {group} from being evicted for {deadline_seconds} s; delete it"
                            );
                            let report = ObjectReport::new(Reason::NotEvicted, &group, message);
                            memory.note_group_refusal(group, report);
                            continue;
                        }
                        Err(error) => {
                            let mut pods = groups.iter().filter(is_evicted).flat_map(|group| &group.pods);
                            let has_agent = pods.any(|pod| pod.behind.is_some());
                            let advice =
                                if has_agent { "restart it yourself" } else { "set spec.agentlessPolicy to Ignore" };
                            let done = "restarted by evicting its pods";
                            let report = refusal_report(&error, &group, done, advice).ok_or(error)?;
                            self.metrics.count_restart("refused");
                            memory.note_group_refusal(group, report);
                            continue;
                        }
                    }
                    break Restarts::Busy(format!("a pod of {group} is being replaced"));
                }
            }
        };
        // On the way back, the version that is left may have made the group unwell.
        let unwell = |group: &PodGroup| group.unwell_report().filter(|_| stale.since.is_none());
        let group_report = |group: &PodGroup| memory.group_refusal(&group.id).cloned().or_else(|| unwell(group));
        report.reports.extend(groups.iter().filter_map(group_report));
        Ok((state, groups.into_iter().map(|group| group.id).collect()))
    }

    /// Returns the controllers without rolling updates, with their pods that take the config by a restart, and the pods
    /// that nothing replaces.
    async fn replaceable_groups(
        &self,
        goal: &RestartGoal<'_>,
        memory: &mut RestartAttempts,
    ) -> Result<(Vec<PodGroup>, Vec<ReplaceablePod>), CallError> {
        let RestartGoal { key, config, status, .. } = *goal;
        let name = key.name.as_str();
        let uses = |pod: &Pod| pod.spec.as_ref().map(|spec| restart_uses(&pod.metadata, spec));
        let start_times = StartTimes::of(status, goal.version);
        // Whether the agent reports that its pod started with another content, or what the pod reads at its start shows
        // it.
        let is_behind = |pod: &Pod| {
            let state = pod_state(pod)?;
            if !state.is_by_restart() {
                let start = start_times.state_of(&state, name, goal.objects);
                return (!goal.is_return).then_some(matches!(start, StartState::Older { .. }));
            }
            let (version, target) = (state.runs(key.name.as_str()), version_to_publish(status)?);
            Some(version.is_some_and(|version| !is_same_content(status, version.as_str(), target)))
        };
        let (mut groups, mut owners) = (Vec::new(), HashMap::new());
        for PodController { kind, meta, replicas } in self.workload_lists.controllers(&key.namespace).await?.iter() {
            let owner = match controlling_owner(meta).map(|owner| owner.kind.as_str()) {
                None => {
                    let id = WorkloadId::new(kind, meta.name.as_deref().unwrap_or_default());
                    let replicas = usize::try_from(replicas.unwrap_or(1)).unwrap_or(0);
                    groups.push(PodGroup { id, replicas, before: 0, pods: Vec::new() });
                    Restarter::Group(groups.len() - 1)
                }
                Some("Deployment") => Restarter::Other,
                Some(_) => Restarter::Unknown,
            };
            owners.insert(meta.uid.clone().unwrap_or_default(), owner);
        }
        let mut unmanaged_pods = Vec::new();
        let pods = self.workload_lists.pods(&key.namespace).await?;
        let is_finished = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let candidates: Vec<(&Pod, ConfigUses)> = pods
            .iter()
            .filter(|pod| !is_finished(pod))
            .filter_map(|pod| Some((pod, uses(pod)?)))
            .filter(|(_, uses)| goal.is_taken_by(uses))
            .collect();
        let own_config = |other: &str| (other == name).then_some(config);
        self.read_contents(key, candidates.iter().map(|(_, uses)| uses), own_config, memory).await?;
        let (mut unaffected, mut affected) = (HashSet::new(), HashSet::new());
        for (pod, uses) in candidates {
            let meta = &pod.metadata;
            if goal.is_unaffected(&uses, &memory.contents) {
                unaffected.extend(WorkloadId::of(meta));
                continue;
            }
            affected.extend(WorkloadId::of(meta));
            let replaceable = ReplaceablePod {
                name: meta.name.clone().unwrap_or_default(),
                created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
                ready: condition(pod, "Ready").is_some_and(|ready| ready.status == "True"),
                terminating: meta.deletion_timestamp.is_some(),
                behind: is_behind(pod),
            };
            let owner = match controlling_owner(meta) {
                // Pods of a Job keep the content that they started with until they end.
                Some(owner) if owner.kind == "Job" && replaceable.behind == Some(true) => Restarter::Unknown,
                Some(owner) if OTHER_OWNERS.contains(&owner.kind.as_str()) => Restarter::Other,
                Some(owner) => owners.get(&owner.uid).copied().unwrap_or(Restarter::Unknown),
                None => Restarter::Unknown,
            };
            match owner {
                Restarter::Group(index) => groups[index].pods.push(replaceable),
                Restarter::Other => {}
                Restarter::Unknown => unmanaged_pods.push(replaceable),
            }
        }
        memory.unaffected.extend(unaffected.difference(&affected).cloned());
        Ok((groups, unmanaged_pods))
    }
}
