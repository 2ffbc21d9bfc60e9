//! Restarts the workloads that take a version by a restart: lists them, decides, and writes one template at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, ResourceExt as _};
use nudge_api::{
    AgentlessPolicy, ConditionType, Reason, RolloutStage, VersionedConfig, VersionedConfigStatus, find_condition,
};
use nudge_cluster::call::{CallError, call};
use nudge_core::keys::ConfigKey;
use nudge_core::owners::workload as workload_of;
use nudge_core::pods::crashes;
use nudge_core::restart::{
    Behind, DIGEST, Holds, Kind, Look, Memory, Next, Part, PodRestarts, RESTARTED, Report, RestartReport, Restarted,
    UNDECIDED, Workload, add_unnotified, behind, content_digest, judge, next, rolls,
};
use nudge_core::rollout::{Restarts as State, to_publish};
use nudge_protocol::bounded_text::clipped;
use nudge_protocol::error_chain::chain;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::cause::Cause;
use super::controller::{Controller, FIELD_MANAGER};
use super::restarting::Restarting;

/// Longest part of the API server's message in a report, in bytes.
const MAX_REFUSAL_BYTES: usize = 200;

/// Whether workloads are restarted in this stage.
pub(super) fn restarts(status: Option<&VersionedConfigStatus>) -> bool {
    let stage = status.and_then(|status| status.rollout.stage);
    matches!(
        stage,
        Some(RolloutStage::Restarting | RolloutStage::Leaving | RolloutStage::Returning | RolloutStage::RollingBack)
    )
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
        "restart it yourself, or set another nudge.dev/notify than rollout in its template"
    } else {
        "set spec.agentlessPolicy to Ignore"
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
    pub(super) async fn restart(&self, key: &ConfigKey, config: &VersionedConfig) -> Restarting {
        let Some(status) = config.status.as_ref().filter(|status| restarts(Some(status))) else {
            self.memories.forget_restarts(key);
            return Restarting::later();
        };
        let rollout = &status.rollout;
        let back = rollout.stage != Some(RolloutStage::Restarting);
        // A rollout to another version than spec.version goes no further.
        let left = config.spec.version.is_some() && config.spec.version != status.target_version;
        if !back && left {
            return Restarting::later();
        }
        let Some(version) = to_publish(status) else { return Restarting::not_looked(State::Done) };
        // For workloads without an agent.
        let restarted = config.spec.agentless_policy == AgentlessPolicy::Restart;
        let holds = if restarted { Holds::of(status, version) } else { Holds::default() };
        if back && status.internal.workloads_restart_time.is_none() {
            return Restarting::not_looked(State::Done);
        }
        let now = Timestamp::now();
        let since = rollout.progress_time.as_ref().map_or(now, whole_second);
        let deadline = config.spec.rollout.progress_deadline_seconds;
        // Some workloads also read what is published: they are restarted once it was written, or can't be. The way back waits up to its deadline.
        let overdue = back && now.duration_since(since).as_secs() >= deadline.into();
        if !self.restarts_with(key, version, overdue) {
            return if back { Restarting::later() } else { Restarting::not_looked(State::Done) };
        }
        let part = Part { stage: rollout.stage, version: Some(version.to_owned()) };
        let last = self.memories.restarting(key, &part);
        // The first look must find all workloads that were there when the version was published.
        if last.is_none() {
            self.listings.changed(&key.namespace);
        }
        let failing = match last {
            Some((at, restarting)) if at.elapsed() < restarting.wait => return restarting,
            last => last.and_then(|(_, restarting)| restarting.failing),
        };
        let restarting = match self.restart_now(key, config, status, (version, holds), (&part, since, now)).await {
            Ok(restarting) => restarting,
            // What failed is said, and keeps no decision waiting: not even the one that it takes too long.
            Err(error) => {
                let cause = Cause::of(&error, true);
                tracing::warn!(config = %key, error = chain(&error), "workloads not restarted; retrying");
                Restarting::failed(version, &cause, failing, deadline)
            }
        };
        self.memories.keep_restarting(key, &part, restarting.clone());
        restarting
    }

    /// One look at the workloads, with the next steps.
    async fn restart_now(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        status: &VersionedConfigStatus,
        (version, holds): (&str, Holds),
        (part, since, now): (&Part, Timestamp, Timestamp),
    ) -> Result<Restarting, CallError> {
        let back = status.rollout.stage != Some(RolloutStage::Restarting);
        let deadline = config.spec.rollout.progress_deadline_seconds;
        let pods = self.index.subscribers(key);
        let behind = behind(&pods, key.name.as_str(), status);
        let mut memory = self.memories.restarts_so_far(key, part);
        // On the way forward workloads are listed only where one may take the version by a restart.
        let any = back || holds.any() || !memory.is_empty() || pods.iter().any(|pod| pod.by_restart);
        let mut workloads = if any { self.users(key, holds).await? } else { Vec::new() };
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
                let loose = holds.any() || memory.has_groups() || pods.iter().any(|pod| pod.by_restart && !rolls(pod));
                let evicted = if loose && held {
                    Ok((State::Busy(UNDECIDED.to_owned()), Vec::new()))
                } else if loose {
                    self.restart_pods(key, status, holds, since, deadline, &mut memory, &mut found).await
                } else {
                    Ok((State::Done, Vec::new()))
                };
                evicted.map(|(state, groups)| {
                    let mut behind = behind;
                    if let Some(published) = holds.since(status).filter(|_| !back) {
                        add_unnotified(&mut behind, &workloads, &pods, published, since);
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
        self.memories.keep_restarts(key, part, memory);
        let state = state?;
        found.done = state == State::Done;
        Ok(Restarting { found: Some(found), ..Restarting::not_looked(state) })
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
    async fn users(&self, key: &ConfigKey, holds: Holds) -> Result<Vec<(Workload, String)>, CallError> {
        let all = self.listings.workloads(&self.client, &key.namespace).await?;
        let takes = |workload: &&Workload| workload.uses.takes(key.name.as_str(), holds);
        let mut all: Vec<Workload> = all.iter().filter(takes).cloned().collect();
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
        for pod in self.listings.pods(&self.client, &key.namespace).await?.iter() {
            let of = open.get_mut(&workload_of(&pod.metadata));
            if let Some(workload) = of.filter(|workload| workload.digest.as_ref() == pod.annotations().get(DIGEST)) {
                workload.restarts.get_or_insert_default().add(crashes(pod, &workload.containers));
            }
        }
        Ok(())
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
    async fn patched<K, T>(
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
        let patched = call(patching, api.patch(name, &params, &Patch::Merge(patch))).await;
        self.listings.changed(&key.namespace);
        match patched {
            Ok(written) => Ok(read(written)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use hyper::http;
    use kube::Client;
    use kube::client::Body;
    use nudge_cluster::index::Index;
    use nudge_core::keys::PodUid;
    use nudge_core::pods::PodState;
    use nudge_protocol::ConfigName;
    use ring::hmac;
    use tower::service_fn;

    use super::*;
    use crate::RolloutMetrics;
    use crate::locked::locked;

    /// How many lists a look takes in this stage, where version 2 is to be published.
    async fn lists(stage: &str, published: &str, by_restart: bool) -> usize {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&paths);
        let service = service_fn(move |request: http::Request<Body>| {
            locked(&requests).push(request.uri().path().to_owned());
            let list = json!({"metadata": {}, "items": []}).to_string();
            async { Ok::<_, http::Error>(http::Response::new(Body::from(list.into_bytes()))) }
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let (current, target) = if stage == "Restarting" { ("1", "2") } else { ("2", "1") };
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {"version": "2", "objects": ["ConfigMap"]},
            "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "status": {"currentVersion": current, "targetVersion": target, "publishedVersion": published,
                "rollout": {"stage": stage}, "internal": {"workloadsRestartTime": "2026-01-01T00:00:00Z"}},
        }))
        .unwrap();
        index.put_config(config.clone());
        index.put_pod(PodState {
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            uid: PodUid::new("web").unwrap(),
            configs: vec![ConfigName::new("shop").unwrap()],
            by_restart,
            ..PodState::default()
        });
        let content_key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let controller = Controller::new(client, index, content_key, "a", silence, RolloutMetrics::default());
        let key = ConfigKey::parse("ns", "shop").unwrap();
        controller.note_published(&key, "2");
        let restarting = controller.restart(&key, &config).await;
        assert_eq!(restarting.found.map(|found| found.workloads), Some(0), "what the condition said before is gone");
        let paths = locked(&paths);
        paths.iter().filter(|path| path.starts_with("/apis/apps/v1/namespaces/ns/")).count()
    }

    #[tokio::test]
    async fn workloads_are_listed_where_one_may_take_the_version_by_a_restart() {
        assert_eq!(lists("Restarting", "1", false).await, 0);
        assert!(lists("Restarting", "1", true).await >= 3);
        assert!(lists("Restarting", "2", false).await >= 3, "pods without an agent read what is published");
        assert!(lists("RollingBack", "1", false).await >= 3, "those that were restarted return");
    }
}
