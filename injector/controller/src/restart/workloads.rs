//! One check of the workloads that take a version by a restart: lists them, and restarts one after another as
//! `nudge-core` decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use nudge_api::{ConditionType, PartKind, Reason, VersionedConfig, VersionedConfigStatus, find_condition};
use nudge_cluster::call::CallError;
use nudge_core::keys::ConfigKey;
use nudge_core::owners::WorkloadId;
use nudge_core::pods::{PodState, crashes};
use nudge_core::restart::{
    ConfigUses, ContentDigest, DIGEST_ANNOTATION, HealthBefore, LivePods, NextRestart, ObjectReport, PodRestarts,
    PodsBehind, RestartAttempts, RestartGoal, RestartReport, RestartSituation, RolloutPart, StartTimes,
    TargetedWorkload, UNDECIDED_MESSAGE, Workload, add_live_pods_behind, count_pods_behind, has_rolling_update,
    judge_pods_behind, next_restart,
};
use nudge_core::rollout::Restarts;

use super::template::refusal_report;
use crate::controller::Controller;
use crate::memory::RestartCheck;
use crate::publish::ObjectApi;

/// Returns whether pods were harmed and it is not known yet whether because of the version.
fn is_inconclusive(status: &VersionedConfigStatus) -> bool {
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    ready.is_some_and(|ready| ready.reason == Reason::Inconclusive.as_str())
}

impl Controller {
    /// Checks the workloads once, and makes the next steps.
    pub(super) async fn check_workloads(
        &self,
        goal: &RestartGoal<'_>,
        part: &RolloutPart,
    ) -> Result<RestartCheck, CallError> {
        let RestartGoal { key, version, .. } = *goal;
        let mut memory = self.memories.restarts(key, part, |memory| memory.attempts.clone());
        let mut report = RestartReport { version: version.to_owned(), workloads: 0, done: false, reports: Vec::new() };
        let state = self.restart_workloads(goal, &mut memory, &mut report).await;
        // The memory also has the restarts before an error.
        self.memories.restarts(key, part, |kept| kept.attempts = memory);
        let state = state?;
        report.done = state == Restarts::Done;
        Ok(RestartCheck { report: Some(report), ..RestartCheck::without_workloads(state) })
    }

    /// Makes the next steps: first for workloads, then for pods that no rolling update restarts. Judges at last whether
    /// all have the version.
    async fn restart_workloads(
        &self,
        goal: &RestartGoal<'_>,
        memory: &mut RestartAttempts,
        report: &mut RestartReport,
    ) -> Result<Restarts, CallError> {
        let RestartGoal { key, config, status, version, is_return, deadline_seconds, now, .. } = *goal;
        let since = goal.last_progress;
        let pods = self.index.subscribers(key);
        let mut pods_behind = count_pods_behind(&pods, key.name.as_str(), status);
        let takes_by_restart = |pod: &Arc<PodState>| pod.is_by_restart() || goal.is_partly_by_restart(pod);
        // On the way forward workloads are listed only if one may take the version by a restart.
        let must_list = is_return
            || !goal.agentless_objects().is_empty()
            || !memory.is_empty()
            || pods.iter().any(takes_by_restart);
        memory.unaffected.clear();
        let mut workloads = if must_list { self.restarted_workloads(goal, &pods, memory).await? } else { Vec::new() };
        memory.forget_refusals(now);
        memory.keep_workloads(workloads.iter().map(|targeted| &targeted.workload));
        let settle_seconds = config.spec.rollout.min_ready_seconds;
        self.count_restarts(key, &mut workloads, memory, since).await?;
        for TargetedWorkload { workload, .. } in &workloads {
            memory.observe(workload, settle_seconds, now);
        }
        // No further process gets a version that may have harmed pods.
        let is_undecided = !is_return && is_inconclusive(status);
        let next_step = |workloads: &[TargetedWorkload], attempts: &RestartAttempts| {
            let now = Timestamp::now();
            next_restart(&RestartSituation {
                workloads,
                behind: &pods_behind,
                is_return,
                is_undecided,
                since,
                deadline_seconds,
                settle_seconds,
                attempts,
                now,
            })
        };
        let (state, reports) = self.take_steps(key, &mut workloads, memory, next_step).await?;
        report.workloads = workloads.len();
        report.reports = reports;
        if state != Restarts::Done {
            return Ok(state);
        }
        let restarted_at =
            |workload: &Workload| workload.last_mark.as_ref().map(|mark| mark.at).filter(|at| *at >= since);
        let restart_times = workloads.iter().filter_map(|targeted| restarted_at(&targeted.workload));
        let last_progress = restart_times.chain(memory.last_progress(since)).max().unwrap_or(since);
        // All pods of a namespace are listed only for those that no rolling update restarts.
        let has_unmanaged_pods = !goal.agentless_objects().is_empty()
            || memory.has_groups()
            || pods.iter().any(|pod| takes_by_restart(pod) && !has_rolling_update(pod));
        let (state, groups) = if has_unmanaged_pods && is_undecided {
            (Restarts::Busy(UNDECIDED_MESSAGE.to_owned()), Vec::new())
        } else if has_unmanaged_pods {
            self.evict_pods(&RestartGoal { last_progress, ..*goal }, memory, report).await?
        } else {
            (Restarts::Done, Vec::new())
        };
        if state != Restarts::Done {
            return Ok(state);
        }
        if !is_return {
            let start_times = StartTimes::of(status, version);
            let unaffected = &memory.unaffected;
            let config = key.name.as_str();
            let live = LivePods { config, version, objects: goal.objects, start_times, unaffected, since };
            report.reports.extend(add_live_pods_behind(&mut pods_behind, &workloads, &pods, &live));
        }
        let restarted = workloads.iter().map(|targeted| &targeted.workload);
        let restarted = restarted.filter(|workload| restarted_at(workload).is_some()).map(Workload::id).collect();
        let pods_behind = PodsBehind {
            counts: &pods_behind,
            version,
            is_return,
            since: last_progress,
            deadline_seconds,
            restarted,
            groups: groups.into_iter().collect(),
            now,
        };
        Ok(judge_pods_behind(&pods_behind, &mut report.reports))
    }

    /// Restarts workloads as `next_step` decides, until one must be waited for.
    async fn take_steps(
        &self,
        key: &ConfigKey,
        workloads: &mut Vec<TargetedWorkload>,
        memory: &mut RestartAttempts,
        next_step: impl Fn(&[TargetedWorkload], &RestartAttempts) -> (NextRestart, Vec<ObjectReport>),
    ) -> Result<(Restarts, Vec<ObjectReport>), CallError> {
        loop {
            let (step, reports) = next_step(workloads, memory);
            match step {
                NextRestart::Restart { index, mark } => {
                    let id = workloads[index].workload.id();
                    match self.annotate(key, &workloads[index].workload, &mark).await {
                        Ok(Some(written)) => {
                            tracing::info!(config = %key, workload = id.as_str(), "workload restarted");
                            self.metrics.count_restart("restarted");
                            memory.note_restart(&written, &mark.digest);
                            workloads[index].workload = written;
                        }
                        // The workload was deleted.
                        Ok(None) => _ = workloads.remove(index),
                        Err(error) => {
                            let workload = &workloads[index].workload;
                            let advice = workload.uses.advice(key.name.as_str());
                            let report = refusal_report(&error, &id, "restarted", advice).ok_or(error)?;
                            self.metrics.count_restart("refused");
                            memory.note_refusal(workload, report);
                        }
                    }
                }
                NextRestart::Wait(message) => return Ok((Restarts::Busy(message), reports)),
                NextRestart::Failed(message) => return Ok((Restarts::Failed(message), reports)),
                NextRestart::Done => return Ok((Restarts::Done, reports)),
            }
        }
    }

    /// Returns the workloads that take the config by a restart: by their templates, or by `pods`, which show the mounts
    /// that did not move.
    async fn restarted_workloads(
        &self,
        goal: &RestartGoal<'_>,
        pods: &[Arc<PodState>],
        memory: &mut RestartAttempts,
    ) -> Result<Vec<TargetedWorkload>, CallError> {
        let RestartGoal { key, is_return, .. } = *goal;
        let listed = self.workload_lists.workloads(&key.namespace).await?;
        let by_pods: BTreeSet<&WorkloadId> = pods
            .iter()
            .filter(|pod| pod.is_live() && goal.is_helped_by_restart(pod))
            .filter_map(|pod| pod.workload.as_ref())
            .collect();
        // A workload stays one while it is restarted, although it may have no pod at the moment.
        let is_being_restarted = |workload: &Workload| {
            let is_mounted = workload.uses.mounted.contains(key.name.as_str());
            is_mounted && workload.mark().is_some_and(|mark| mark.at >= goal.last_progress)
        };
        let is_affected = |workload: &&Workload| {
            let has_pods = workload.uses.has_live_agent && by_pods.contains(&workload.id());
            goal.is_taken_by(&workload.uses) || has_pods || is_being_restarted(workload)
        };
        let mut workloads: Vec<Workload> = listed.iter().filter(is_affected).cloned().collect();
        workloads.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        let names: BTreeSet<&String> = workloads.iter().flat_map(|workload| workload.uses.names()).collect();
        let find =
            |name: &String| Some((name.clone(), self.index.config(&ConfigKey::parse(&*key.namespace, name).ok()?)?));
        let configs: BTreeMap<String, Arc<VersionedConfig>> = names.into_iter().filter_map(find).collect();
        let config = |name: &str| configs.get(name).map(|config| &**config);
        self.read_contents(key, workloads.iter().map(|workload| &workload.uses), &config, memory).await?;
        let contents = &memory.contents;
        // Pods that were never restarted for a version started with the one before.
        let is_unaffected = |workload: &Workload| {
            !is_return && workload.digest.is_none() && goal.is_unaffected(&workload.uses, contents)
        };
        let unaffected = workloads.iter().filter(|workload| is_unaffected(workload)).map(Workload::id).collect();
        workloads.retain(|workload| !is_unaffected(workload));
        let targeted = workloads.into_iter().filter_map(|workload| TargetedWorkload::new(workload, contents, config));
        let targeted = targeted.collect();
        memory.unaffected = unaffected;
        Ok(targeted)
    }

    /// Reads the parts that decide whether pods with these uses read a key that changes.
    pub(super) async fn read_contents<'a, 'b>(
        &self,
        key: &ConfigKey,
        uses: impl Iterator<Item = &'a ConfigUses>,
        config: impl Fn(&str) -> Option<&'b VersionedConfig>,
        memory: &mut RestartAttempts,
    ) -> Result<(), CallError> {
        for uses in uses {
            for name in uses.names() {
                let Some(config) = config(name) else { continue };
                let Ok(of_config) = ConfigKey::parse(&*key.namespace, name) else { continue };
                for part in memory.contents.missing_parts(uses, name, config) {
                    let kind = part.object.kind;
                    // Of a Secret that is not read, all keys count.
                    if kind == PartKind::Secret && !self.index.may_read_secrets(&key.namespace) {
                        continue;
                    }
                    let api = ObjectApi { client: &self.client, namespace: &key.namespace, kind };
                    if let Some(object) = api.read(&part.object.name).await? {
                        memory.contents.add(part, object.content.values(), &self.seals(&of_config, config));
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts the restarts of containers in pods of workloads whose controllers would not notice.
    async fn count_restarts(
        &self,
        key: &ConfigKey,
        workloads: &mut [TargetedWorkload],
        memory: &RestartAttempts,
        since: Timestamp,
    ) -> Result<(), CallError> {
        let is_counted = |workload: &Workload| {
            let mark = workload.mark().filter(|mark| mark.at >= since && mark.before != HealthBefore::Unwell);
            workload.is_unprobed && mark.is_some() && !memory.has_settled(workload)
        };
        let counted =
            workloads.iter_mut().map(|targeted| &mut targeted.workload).filter(|workload| is_counted(workload));
        let mut counted: HashMap<WorkloadId, &mut Workload> =
            counted.map(|workload| (workload.id(), workload)).collect();
        if counted.is_empty() {
            return Ok(());
        }
        for workload in counted.values_mut() {
            workload.restarts = Some(PodRestarts::default());
        }
        for pod in self.workload_lists.pods(&key.namespace).await?.iter() {
            let owner = WorkloadId::of(&pod.metadata).and_then(|id| counted.get_mut(&id));
            if let Some(workload) = owner.filter(|workload| {
                workload.digest.as_ref().map(ContentDigest::as_str)
                    == pod.annotations().get(DIGEST_ANNOTATION).map(String::as_str)
            }) {
                workload.restarts.get_or_insert_default().add(crashes(pod, &workload.containers));
            }
        }
        Ok(())
    }
}
