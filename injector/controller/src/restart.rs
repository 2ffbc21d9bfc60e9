//! Restarts the workloads that take a version by a restart: lists them, decides, and writes one template at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, ResourceExt as _};
use nudge_api::{
    ConditionType, Reason, RolloutStage, VersionedConfig, VersionedConfigStatus, WithoutAgent, find_condition,
};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::listing::each;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::{container_restarts, workload as workload_of};
use nudge_core::restart::{
    Behind, DIGEST, Kind, Look, Memory, Next, Part, PodRestarts, RESTARTED, RETRY_SECONDS, Report, RestartReport,
    Restarted, UNDECIDED, Workload, add_unnotified, behind, content_digest, judge, next, rolls,
};
use nudge_core::rollout::{Restarts as State, to_publish};
use nudge_protocol::bounded_text::clipped;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::controller::{Controller, FIELD_MANAGER};

/// How often workloads under restart are listed. They are not watched, because that would be all workloads of the cluster.
const LOOK: Duration = Duration::from_secs(1);
/// Longest part of the API server's message in a report, in bytes.
const MAX_REFUSAL_BYTES: usize = 200;

/// The result of one look.
pub(super) struct Restarting {
    /// For the rollout's next step.
    pub(super) state: State,
    /// For the condition; `None` where no workloads were listed.
    pub(super) found: Option<RestartReport>,
}

impl Restarting {
    fn not_looked(state: State) -> Self {
        Self { state, found: None }
    }

    /// Nobody looks now.
    pub(super) fn later() -> Self {
        Self::not_looked(State::Busy("workloads to restart have not been looked at".to_owned()))
    }

    /// When to look again: workloads are not watched.
    pub(super) fn again(&self) -> Option<Duration> {
        let held = matches!(self.state, State::Held(_));
        self.found.as_ref().map(|_| if held { Duration::from_secs(RETRY_SECONDS.into()) } else { LOOK })
    }
}

/// Whether workloads are restarted in this stage.
pub(super) fn restarts(status: Option<&VersionedConfigStatus>) -> bool {
    let stage = status.and_then(|status| status.rollout.stage);
    matches!(stage, Some(RolloutStage::Restarting | RolloutStage::Leaving | RolloutStage::RollingBack))
}

/// Whether pods were harmed and nobody knows yet whether the version is to blame.
fn is_inconclusive(status: &VersionedConfigStatus) -> bool {
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    ready.is_some_and(|ready| ready.reason == Reason::Inconclusive.as_str())
}

/// The time in whole seconds, because the times that it is compared with were stored so.
pub(super) fn whole_second(time: &MicroTime) -> Timestamp {
    Timestamp::from_second(time.0.as_second()).unwrap_or(time.0)
}

/// The report about a refusal that the next attempt would get too. `agent`: the object's pods have an agent.
pub(super) fn refusal(error: &CallError, id: &str, doing: &str, agent: bool) -> Option<Report> {
    let CallError::Api { source, .. } = error else { return None };
    let kube::Error::Api(status) = &**source else { return None };
    let text = clipped(status.message.clone(), MAX_REFUSAL_BYTES);
    let remedy = if agent {
        "restart it yourself, or remove the annotation nudge.dev/config-restarts from its template"
    } else {
        "set spec.withoutAgent to Ignore"
    };
    let (reason, message) = match status.code {
        403 if text.contains("cannot") => (
            Reason::NotAllowed,
            format!(
                "{id} can't be {doing}; bind ClusterRole nudge-restart in this namespace (RoleBinding for ServiceAccount \
                 nudge-system/nudge-injector; kubectl nudge enable NAMESPACE --restart), or {remedy}"
            ),
        ),
        400 | 403 | 422 => {
            (Reason::Refused, format!("{id} can't be {doing}, because the API server refuses it: {text}"))
        }
        _ => return None,
    };
    Some(Report::new(reason, id, message))
}

impl Controller {
    /// Makes the next steps for the workloads that take a version by a restart, if the rollout has come that far.
    pub(super) async fn restart(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<Restarting, CallError> {
        let Some(status) = config.status.as_ref().filter(|status| restarts(Some(status))) else {
            self.forget_restarts(key);
            return Ok(Restarting::later());
        };
        let rollout = &status.rollout;
        let back = rollout.stage != Some(RolloutStage::Restarting);
        // A rollout to another version than spec.current, or a paused one, goes no further.
        let left = config.spec.current.is_some() && config.spec.current != status.target;
        if !back && (left || config.spec.rollout.paused) {
            return Ok(Restarting::later());
        }
        let Some(version) = to_publish(status) else { return Ok(Restarting::not_looked(State::Done)) };
        // For workloads without an agent.
        let holds = status.published.as_deref() == Some(version) && config.spec.without_agent == WithoutAgent::Restart;
        // Some workloads also read the published ConfigMap: they are restarted once it was written, or can't be.
        let tried = self.looked(key).is_some_and(|(_, looked)| looked.version == version);
        if !tried || (back && rollout.workloads_restarted_at.is_none()) {
            return Ok(Restarting::not_looked(State::Done));
        }
        let now = Timestamp::now();
        let since = rollout.progressed_at.as_ref().map_or(now, whole_second);
        let deadline = config.spec.rollout.progress_deadline_seconds;
        let mut workloads = self.users(key, holds).await?;
        let pods = self.index.subscribers(key);
        let behind = behind(&pods, key.name.as_str(), status);
        let part = Part { stage: rollout.stage, version: Some(version.to_owned()) };
        let mut memory = self.restarts_so_far(key, &part);
        memory.forget_refusals(now);
        memory.keep_workloads(workloads.iter().map(|(workload, _)| workload));
        let settle = config.spec.rollout.min_ready_seconds;
        self.count_restarts(key, &mut workloads, &memory, since).await?;
        for (workload, _) in &workloads {
            memory.watch(workload, settle, now);
        }
        // No further process gets what pods were perhaps harmed by.
        let held = !back && is_inconclusive(status);
        let look = |workloads: &[(Workload, String)], memory: &Memory| {
            next(&Look {
                workloads,
                behind: &behind,
                back,
                held,
                since,
                deadline,
                settle,
                memory,
                now: Timestamp::now(),
            })
        };
        let steps = self.restart_all(key, &mut workloads, &mut memory, look).await;
        let mut found =
            RestartReport { version: version.to_owned(), workloads: workloads.len(), done: false, reports: Vec::new() };
        let state = match steps {
            Ok((State::Done, reports)) => {
                found.reports = reports;
                let marks = workloads.iter().filter_map(|(it, _)| Some((it.id(), it.restarted.as_ref()?.at)));
                let marks: Vec<(String, Timestamp)> = marks.filter(|(_, at)| *at >= since).collect();
                let since = marks.iter().map(|(_, at)| *at).chain(memory.progressed(since)).max().unwrap_or(since);
                // All pods of a namespace are listed only for those that no rolling update restarts.
                let loose = holds || memory.has_groups() || pods.iter().any(|pod| pod.by_restart && !rolls(pod));
                let evicted = if loose && held {
                    Ok((State::Busy(UNDECIDED.to_owned()), Vec::new()))
                } else if loose {
                    self.restart_pods(key, status, holds, since, deadline, &mut memory, &mut found).await
                } else {
                    Ok((State::Done, Vec::new()))
                };
                evicted.map(|(state, groups)| {
                    let mut behind = behind;
                    if let Some(published) = status.published_at.as_ref().filter(|_| !back) {
                        add_unnotified(&mut behind, &workloads, &pods, published.0, since);
                    }
                    let (restarted, groups) =
                        (marks.into_iter().map(|(id, _)| id).collect(), groups.into_iter().collect());
                    let behind = Behind { pods: &behind, version, back, since, deadline, restarted, groups, now };
                    if state == State::Done { judge(&behind, &mut found.reports) } else { state }
                })
            }
            Ok((state, reports)) => {
                found.reports = reports;
                Ok(state)
            }
            Err(error) => Err(error),
        };
        // Restarts before an error happened all the same.
        self.keep_restarts(key, part, memory);
        let state = state?;
        found.done = state == State::Done;
        Ok(Restarting { state, found: Some(found) })
    }

    /// Restarts workloads as `look` decides, until one must be waited for.
    async fn restart_all(
        &self,
        key: &ConfigKey,
        workloads: &mut Vec<(Workload, String)>,
        memory: &mut Memory,
        look: impl Fn(&[(Workload, String)], &Memory) -> (Next, Vec<Report>),
    ) -> Result<(State, Vec<Report>), CallError> {
        loop {
            let (step, reports) = look(workloads, memory);
            match step {
                Next::Restart { index, mark } => {
                    let id = workloads[index].0.id();
                    match self.annotate(key, &workloads[index].0, &mark).await {
                        Ok(Some(written)) => {
                            tracing::info!(config = %key, workload = id, "workload restarted");
                            self.metrics.restarted("restarted");
                            memory.restarted(&written, &mark.digest);
                            workloads[index].0 = written;
                        }
                        // It was deleted.
                        Ok(None) => _ = workloads.remove(index),
                        Err(error) => {
                            let workload = &workloads[index].0;
                            let agent = workload.uses.configs.contains(key.name.as_str());
                            let report = refusal(&error, &id, "restarted", agent).ok_or(error)?;
                            self.metrics.restarted("refused");
                            memory.refuse(workload, report);
                        }
                    }
                }
                Next::Wait(message) => return Ok((State::Busy(message), reports)),
                Next::Failed(message) => return Ok((State::Failed(message), reports)),
                Next::Done => return Ok((State::Done, reports)),
            }
        }
    }

    /// The workloads that take the config by a restart, each with the digest that its template should have.
    async fn users(&self, key: &ConfigKey, holds: bool) -> Result<Vec<(Workload, String)>, CallError> {
        let mut all = Vec::new();
        each::<Deployment>(&self.client, &key.namespace, |object| all.extend(Workload::of_deployment(&object))).await?;
        each::<StatefulSet>(&self.client, &key.namespace, |object| all.extend(Workload::of_stateful_set(&object)))
            .await?;
        each::<DaemonSet>(&self.client, &key.namespace, |object| all.extend(Workload::of_daemon_set(&object))).await?;
        all.retain(|workload| workload.uses.takes(key.name.as_str(), holds));
        all.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        let names: BTreeSet<&String> = all.iter().flat_map(|workload| workload.uses.names()).collect();
        let find =
            |name: &String| Some((name.clone(), self.index.config(&ConfigKey::parse(&*key.namespace, name).ok()?)?));
        let configs: BTreeMap<String, Arc<VersionedConfig>> = names.into_iter().filter_map(find).collect();
        let config = |name: &str| configs.get(name).map(|config| &**config);
        let with_digest = |workload: Workload| content_digest(&workload.uses, config).map(|digest| (workload, digest));
        Ok(all.into_iter().filter_map(with_digest).collect())
    }

    /// Counts how often containers were started again in pods of workloads whose controllers would not notice.
    async fn count_restarts(
        &self,
        key: &ConfigKey,
        workloads: &mut [(Workload, String)],
        memory: &Memory,
        since: Timestamp,
    ) -> Result<(), CallError> {
        let counted = |workload: &Workload| {
            let mark = workload.mark().filter(|mark| mark.at >= since && !mark.unwell);
            workload.unprobed && mark.is_some() && !memory.has_settled(workload)
        };
        let open = workloads.iter_mut().map(|(workload, _)| workload).filter(|workload| counted(workload));
        let mut open: HashMap<String, &mut Workload> = open.map(|workload| (workload.id(), workload)).collect();
        if open.is_empty() {
            return Ok(());
        }
        for workload in open.values_mut() {
            workload.restarts = Some(PodRestarts::default());
        }
        each::<Pod>(&self.client, &key.namespace, |pod| {
            let of = open.get_mut(&workload_of(&pod.metadata));
            if let Some(workload) = of.filter(|workload| workload.digest.as_ref() == pod.annotations().get(DIGEST)) {
                let restarts = container_restarts(&pod, &workload.containers);
                workload.restarts.get_or_insert_default().add(restarts);
            }
        })
        .await
    }

    /// Writes the digest into the workload's template. Returns the workload after that; `None` where it was deleted.
    async fn annotate(
        &self,
        key: &ConfigKey,
        workload: &Workload,
        mark: &Restarted,
    ) -> Result<Option<Workload>, CallError> {
        let patch = json!({
            "metadata": {"annotations": {RESTARTED: mark.text()}},
            "spec": {"template": {"metadata": {"annotations": {DIGEST: mark.digest}}}},
        });
        let name = &workload.name;
        match workload.kind {
            Kind::Deployment => {
                self.patched::<Deployment, _>(key, name, &patch, |it| Workload::of_deployment(&it)).await
            }
            Kind::StatefulSet => {
                self.patched::<StatefulSet, _>(key, name, &patch, |it| Workload::of_stateful_set(&it)).await
            }
            Kind::DaemonSet => self.patched::<DaemonSet, _>(key, name, &patch, |it| Workload::of_daemon_set(&it)).await,
        }
    }

    /// Patches an object; `None` where it was deleted.
    pub(super) async fn patched<K, T>(
        &self,
        key: &ConfigKey,
        name: &str,
        patch: &serde_json::Value,
        read: impl Fn(K) -> Option<T>,
    ) -> Result<Option<T>, CallError>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patching = || format!("patching {} {}/{name}", K::kind(&()), key.namespace);
        match call(patching, api.patch(name, &params, &Patch::Merge(patch))).await {
            Ok(written) => Ok(read(written)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}
