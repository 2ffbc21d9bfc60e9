//! Evicts pods of controllers without rolling updates, one by one, and reports pods that nothing restarts.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{EvictParams, ObjectMeta};
use nudge_api::{Reason, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_core::keys::ConfigKey;
use nudge_core::owners::controlling_owner;
use nudge_core::pods::{condition, pod_state};
use nudge_core::restart::{
    Group, Holds, Memory, NextPod, Old, Report, RestartReport, Stale, next_pod, restarted_for, stale_pods,
};
use nudge_core::rollout::{Restarts as State, is_same, to_publish};

use super::controller::Controller;
use super::listings::PodController;
use super::restart::refusal;

/// Kinds of owners whose pods are restarted elsewhere, or never: those of Jobs run once.
const RESTARTED: [&str; 5] = ["Deployment", "StatefulSet", "DaemonSet", "Job", "Node"];

/// What restarts the pods of an owner.
#[derive(Clone, Copy)]
enum Owner {
    /// The index of its group.
    Group(usize),
    /// Something else.
    Restarted,
    /// Nothing that is known.
    Unknown,
}

impl Controller {
    /// The next step for pods, once all workloads are done; and the ids of the controllers whose pods are evicted.
    #[allow(clippy::too_many_arguments)] // all belong to one look
    pub(super) async fn restart_pods(
        &self,
        key: &ConfigKey,
        status: &VersionedConfigStatus,
        holds: Holds,
        since: Timestamp,
        deadline: u32,
        memory: &mut Memory,
        found: &mut RestartReport,
    ) -> Result<(State, Vec<String>), CallError> {
        // If nothing is published no pod is too old for it; what agents report counts all the same.
        let published = holds.since(status).unwrap_or(Timestamp::UNIX_EPOCH);
        let stale = Stale { published, since: status.internal.workloads_restart_time.as_ref().map(|time| time.0) };
        let (mut groups, loose) = self.unguided(key, status, holds).await?;
        // A group whose last pod was just evicted is remembered.
        memory.keep_groups(groups.iter().map(|group| group.id.as_str()));
        groups.retain(|group| !group.pods.is_empty());
        for group in &mut groups {
            group.before = memory.ready_before(&group.id, group.ready());
        }
        found.workloads += groups.len();
        found.reports.extend(stale_pods(&loose, stale));
        let state = loop {
            let refused = |id: &str| memory.refused_group(id).is_some();
            match next_pod(&groups, stale, since, deadline, refused, Timestamp::now()) {
                NextPod::Done => break State::Done,
                NextPod::Wait(message) => break State::Busy(message),
                NextPod::Failed(message) => break State::Failed(message),
                NextPod::Evict { group, pod } => {
                    let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                    let evicting = || format!("evicting Pod {}/{pod}", key.namespace);
                    match call(evicting, api.evict(&pod, &EvictParams::default())).await {
                        Ok(_) => {
                            self.metrics.restarted("evicted");
                            self.listings.changed(&key.namespace);
                            tracing::info!(config = %key, pod, "pod evicted");
                        }
                        Err(error) if error.code() == 404 => {}
                        Err(error) if error.code() == 429 => {
                            let progressed =
                                groups.iter().find(|it| it.id == group).map(|it| it.progressed(stale, since));
                            let waited = Timestamp::now().duration_since(progressed.unwrap_or(since));
                            if waited.as_secs() < i64::from(deadline) {
                                break State::Busy(format!(
                                    "a PodDisruptionBudget does not allow pod {pod} of {group} to be evicted now"
                                ));
                            }
                            let message = format!(
                                "a PodDisruptionBudget kept pod {pod} of {group} from being evicted for {deadline} s; delete it"
                            );
                            let report = Report::new(Reason::NotEvicted, &group, message);
                            memory.refuse_group(group, report);
                            continue;
                        }
                        Err(error) => {
                            let mut pods = groups.iter().filter(|it| it.id == group).flat_map(|it| &it.pods);
                            let agent = pods.any(|pod| pod.behind.is_some());
                            let report =
                                refusal(&error, &group, "restarted by evicting its pods", agent).ok_or(error)?;
                            self.metrics.restarted("refused");
                            memory.refuse_group(group, report);
                            continue;
                        }
                    }
                    break State::Busy(format!("a pod of {group} is being replaced"));
                }
            }
        };
        // On the way back the version that is left may have made them unwell.
        let unwell = |group: &Group| group.unwell().filter(|_| stale.since.is_none());
        let report = |group: &Group| memory.refused_group(&group.id).cloned().or_else(|| unwell(group));
        found.reports.extend(groups.iter().filter_map(report));
        Ok((state, groups.into_iter().map(|group| group.id).collect()))
    }

    /// Controllers without rolling updates, with their pods that take the config by a restart; and pods that nothing replaces.
    async fn unguided(
        &self,
        key: &ConfigKey,
        status: &VersionedConfigStatus,
        holds: Holds,
    ) -> Result<(Vec<Group>, Vec<Old>), CallError> {
        let uses = |meta: &ObjectMeta, spec: &PodSpec| restarted_for(meta, spec).takes(key.name.as_str(), holds);
        // What the agent reports that its pod started with.
        let behind = |pod: &Pod| {
            let state = pod_state(pod).filter(|pod| pod.by_restart)?;
            let (runs, target) = (state.runs(key.name.as_str()), to_publish(status)?);
            Some(runs.is_some_and(|runs| !is_same(status, runs.as_str(), target)))
        };
        let (mut groups, mut owners) = (Vec::new(), HashMap::new());
        for PodController { kind, meta, replicas } in
            self.listings.controllers(&self.client, &key.namespace).await?.iter()
        {
            let owner = match controlling_owner(meta).map(|owner| owner.kind.as_str()) {
                None => {
                    let id = format!("{kind}/{}", meta.name.as_deref().unwrap_or_default());
                    let replicas = usize::try_from(replicas.unwrap_or(1)).unwrap_or(0);
                    groups.push(Group { id, replicas, before: 0, pods: Vec::new() });
                    Owner::Group(groups.len() - 1)
                }
                Some("Deployment") => Owner::Restarted,
                Some(_) => Owner::Unknown,
            };
            owners.insert(meta.uid.clone().unwrap_or_default(), owner);
        }
        let mut loose = Vec::new();
        for pod in self.listings.pods(&self.client, &key.namespace).await?.iter() {
            let meta = &pod.metadata;
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let finished = matches!(phase, Some("Succeeded" | "Failed"));
            if finished || !pod.spec.as_ref().is_some_and(|spec| uses(meta, spec)) {
                continue;
            }
            let old = Old {
                name: meta.name.clone().unwrap_or_default(),
                created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
                ready: condition(pod, "Ready").is_some_and(|ready| ready.status == "True"),
                terminating: meta.deletion_timestamp.is_some(),
                behind: behind(pod),
            };
            let owner = match controlling_owner(meta) {
                // They end some day; until then they have the content that they started with.
                Some(owner) if owner.kind == "Job" && old.behind == Some(true) => Owner::Unknown,
                Some(owner) if RESTARTED.contains(&owner.kind.as_str()) => Owner::Restarted,
                Some(owner) => owners.get(&owner.uid).copied().unwrap_or(Owner::Unknown),
                None => Owner::Unknown,
            };
            match owner {
                Owner::Group(index) => groups[index].pods.push(old),
                Owner::Restarted => {}
                Owner::Unknown => loose.push(old),
            }
        }
        Ok((groups, loose))
    }
}
