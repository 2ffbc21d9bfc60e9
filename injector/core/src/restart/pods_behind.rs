//! The pods behind: pods with an agent that take a version only by a restart, and run another version. While there are
//! such pods, the version does not become current.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{PartKind, Reason, VersionedConfigStatus};
use nudge_protocol::plural::{agreeing, counted};

use super::elapsed::has_elapsed;
use super::object_report::ObjectReport;
use super::start_times::{StartState, StartTimes};
use super::workload::{ReplicaCounts, TargetedWorkload};
use crate::owners::{OwnerKind, WorkloadId};
use crate::pods::PodState;
use crate::rollout::{Restarts, is_same_content, version_to_publish};

/// The reasons of reports about restarts that may still succeed although nothing waits for them.
const NOT_WAITED_FOR: [Reason; 2] = [Reason::Unwell, Reason::TemplateChanged];

/// Returns whether a rolling update restarts this pod.
pub fn has_rolling_update(pod: &PodState) -> bool {
    pod.workload.as_ref().is_some_and(WorkloadId::is_rolling)
}

/// Counts, by workload, the pods that are or were Ready and do not run the version they should. On the way back, pods
/// that were never Ready count, too. Bare pods and pods of Jobs, which nothing restarts, do not count: they are
/// reported, and hold nothing up.
pub fn count_pods_behind(
    pods: &[Arc<PodState>],
    config: &str,
    status: &VersionedConfigStatus,
) -> BTreeMap<WorkloadId, usize> {
    let mut counts = BTreeMap::new();
    let Some(target) = version_to_publish(status) else { return counts };
    let is_return = status.rollout.is_return();
    let is_counted = |pod: &&Arc<PodState>| pod.is_by_restart() && pod.is_live();
    for pod in pods.iter().filter(is_counted) {
        let Some(workload) = pod.workload.as_ref().filter(|id| id.kind() != OwnerKind::Job) else { continue };
        let is_behind = match pod.runs(config) {
            Some(version) => (is_return || pod.was_ready()) && !is_same_content(status, version.as_str(), target),
            None => pod.was_ready(),
        };
        if is_behind {
            *counts.entry(workload.clone()).or_default() += 1;
        }
    }
    counts
}

/// The facts about pods whose agents take versions without a restart, for one config.
#[derive(Clone, Debug)]
pub struct LivePods<'a> {
    /// The name of the config.
    pub config: &'a str,
    /// The version that pods should run.
    pub version: &'a str,
    /// The kinds of objects that bring the version.
    pub objects: &'a [PartKind],
    /// The times since which new pods start with the version.
    pub start_times: StartTimes,
    /// The workloads whose pods read nothing at their start that the move changes.
    pub unaffected: &'a BTreeSet<WorkloadId>,
    /// The time when the stage began.
    pub since: Timestamp,
}

/// Adds the pods whose agents run the version, but whose containers have read older content at their start: the restart
/// was not possible, or has not reached them yet. Returns reports about the pods that no restart helps.
pub fn add_live_pods_behind(
    counts: &mut BTreeMap<WorkloadId, usize>,
    workloads: &[TargetedWorkload],
    pods: &[Arc<PodState>],
    live: &LivePods<'_>,
) -> Vec<ObjectReport> {
    let by_id: BTreeMap<WorkloadId, &TargetedWorkload> =
        workloads.iter().map(|targeted| (targeted.workload.id(), targeted)).collect();
    let mut reports: Vec<ObjectReport> = Vec::new();
    // The pods of workloads that were restarted in this stage, whose controllers know how many are outdated.
    let mut restarted: BTreeMap<&WorkloadId, usize> = BTreeMap::new();
    let is_counted = |pod: &&Arc<PodState>| !pod.is_by_restart() && pod.was_ready() && pod.is_live();
    for pod in pods.iter().filter(is_counted) {
        let is_affected = |id: &&WorkloadId| id.kind() != OwnerKind::Job && !live.unaffected.contains(*id);
        let Some(id) = pod.workload.as_ref().filter(is_affected) else { continue };
        let targeted = by_id.get(id);
        let has_digest = targeted.is_some_and(|targeted| targeted.workload.digest.as_ref() == Some(&targeted.digest));
        let is_restarted =
            targeted.and_then(|targeted| targeted.workload.mark()).is_some_and(|mark| mark.at >= live.since);
        match live.start_times.state_of(pod, live.config, live.objects) {
            StartState::ObjectLacksVersion { container, kind } => {
                *counts.entry(id.clone()).or_default() += 1;
                if !reports.iter().any(|report| report.object.as_ref() == Some(id)) {
                    let LivePods { config, version, .. } = live;
                    let message = format!(
                        "container {container} reads {kind} {config}, which does not hold version {version}; the conditions of config {config} \
                         say why"
                    );
                    reports.push(ObjectReport::new(Reason::NotPublished, id, message));
                }
            }
            // Times are not compared, because clocks differ.
            _ if has_digest && is_restarted && takes_by_restart(pod, live) => *restarted.entry(id).or_default() += 1,
            // The same content needs no restart.
            StartState::Older { .. } if !has_digest => *counts.entry(id.clone()).or_default() += 1,
            StartState::Older { .. } | StartState::Present => {}
        }
    }
    for (id, pods) in restarted {
        let replicas = by_id.get(id).and_then(|targeted| targeted.workload.replicas);
        let count = pods.min(replicas.map_or(usize::MAX, ReplicaCounts::outdated));
        if count > 0 {
            *counts.entry(id.clone()).or_default() += count;
        }
    }
    reports
}

fn takes_by_restart(pod: &PodState, live: &LivePods<'_>) -> bool {
    pod.reads.fixed_reads(live.config, |kind| live.objects.contains(&kind)).next().is_some()
}

/// The situation after all restarts that are possible.
#[derive(Clone, Debug)]
pub struct PodsBehind<'a> {
    /// The numbers of pods by workload, from [`count_pods_behind`] and [`add_live_pods_behind`].
    pub counts: &'a BTreeMap<WorkloadId, usize>,
    /// The version that the pods should run.
    pub version: &'a str,
    /// Whether pods return from another version.
    pub is_return: bool,
    /// The time when the stage began, or a workload's restart last progressed.
    pub since: Timestamp,
    /// The deadline of the restarts, in seconds.
    pub deadline_seconds: u32,
    /// The workloads that were restarted since the stage began.
    pub restarted: BTreeSet<WorkloadId>,
    /// The controllers whose pods are evicted.
    pub groups: BTreeSet<WorkloadId>,
    /// The present time.
    pub now: Timestamp,
}

/// Decides whether the rollout waits, is blocked, or continues. On the way back nothing is blocked, and `reports` gets
/// another report instead.
pub fn judge_pods_behind(pods_behind: &PodsBehind<'_>, reports: &mut Vec<ObjectReport>) -> Restarts {
    let PodsBehind { version, is_return, .. } = *pods_behind;
    for (id, count) in pods_behind.counts {
        let report = reports.iter().find(|report| report.object.as_ref() == Some(id));
        let (pods, verb) = (format!("{} of {id}", counted(*count, "pod")), agreeing(*count, "does", "do"));
        let is_known = id.is_rolling() || pods_behind.groups.contains(id);
        // A workload that was not well before may still progress. On the way back only restarted workloads can.
        let may_progress = !is_return || pods_behind.restarted.contains(id) || pods_behind.groups.contains(id);
        let is_waited_for =
            is_known && may_progress && report.is_none_or(|report| NOT_WAITED_FOR.contains(&report.why.reason));
        if is_waited_for && !has_elapsed(pods_behind.since, pods_behind.deadline_seconds, pods_behind.now) {
            return Restarts::Busy(format!("{pods} {verb} not run version {version} yet"));
        }
        let cause = match report {
            Some(report) => report.why.message.clone(),
            None if is_known => format!("restart {id}"),
            None => format!("Nudge does not know how to restart {id}; restart it yourself"),
        };
        let message = format!("{pods} {verb} not run version {version}, because that needs a restart: {cause}");
        if !is_return {
            return Restarts::Blocked(message);
        }
        if report.is_none() {
            reports.push(ObjectReport::new(Reason::NotBack, id, message));
        }
    }
    Restarts::Done
}

#[cfg(test)]
mod tests {
    use nudge_protocol::{ConfigName, VersionName};
    use serde_json::json;

    use super::super::workload::Workload;
    use super::*;
    use crate::pods::{PodPhase, Readiness, Removal, Report, ReportState, UpdateMode, pod_state};

    fn status(stage: &str) -> VersionedConfigStatus {
        let version = |name: &str, digest: &str| {
            json!({"version": name, "state": "Available", "keys": 1, "bytes": 1,
                "parts": [{"kind": "Secret", "name": format!("shop-{name}"), "uid": name, "digest": digest}]})
        };
        serde_json::from_value(json!({
            "currentVersion": "1", "targetVersion": "2", "rollout": {"stage": stage},
            "versions": [version("1", "a"), version("2", "b"), version("0", "b")],
        }))
        .unwrap()
    }

    fn pod(workload: &str, runs: Option<&str>) -> PodState {
        let report = runs.map(|runs| Report {
            versions: vec![(ConfigName::new("shop").unwrap(), VersionName::new(runs).ok())],
            state: ReportState::Acknowledged,
            reasons: Vec::new(),
            at: None,
        });
        PodState {
            workload: Some(workload).filter(|workload| !workload.is_empty()).map(WorkloadId::from),
            update_mode: UpdateMode::ByRestart,
            readiness: Readiness::Ready,
            report,
            ..PodState::default()
        }
    }

    fn found(stage: &str, pods: &[PodState]) -> Vec<(WorkloadId, usize)> {
        let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
        count_pods_behind(&pods, "shop", &status(stage)).into_iter().collect()
    }

    #[test]
    fn ready_pods_that_started_with_other_content_are_behind() {
        let web = |runs| pod("Deployment/web", runs);
        let one = |count| vec![("Deployment/web".into(), count)];
        assert_eq!(found("Restarting", &[web(Some("1")), web(Some("2")), web(None)]), one(2));
        assert_eq!(found("Restarting", &[web(Some("2")), web(Some("0"))]), [], "the same content is the same");
        assert_eq!(found("Moving", &[web(Some("1"))]), [], "it is not their turn");
        assert_eq!(found("RollingBack", &[web(Some("1")), web(Some("2"))]), one(1));
        let never_ready = PodState { readiness: Readiness::Never, ..web(Some("2")) };
        for stage in ["Leaving", "Returning"] {
            assert_eq!(found(stage, std::slice::from_ref(&never_ready)), one(1), "one that crashes with what is left");
        }
        let others = [
            PodState { update_mode: UpdateMode::Live, ..web(Some("1")) },
            PodState { readiness: Readiness::Never, ..web(Some("1")) },
            PodState { removal: Removal::Terminating, ..web(Some("1")) },
            PodState { phase: PodPhase::Finished, ..web(Some("1")) },
            pod("", Some("1")),
            pod("Job", Some("1")),
        ];
        assert_eq!(found("Restarting", &others), []);
    }

    /// A Ready pod of `Deployment/web` that was created at this second, and reads the ConfigMap by variables.
    fn reader(created: i64) -> PodState {
        let agent = json!({"name": "nudge-agent", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]});
        let app = json!({"name": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]});
        let object = json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"containers": [agent, app]}});
        let read = pod_state(&serde_json::from_value(object).unwrap()).unwrap();
        PodState {
            update_mode: UpdateMode::Live,
            created: Some(created),
            reads: read.reads,
            ..pod("Deployment/web", Some("2"))
        }
    }

    fn found_live(workloads: &[Workload], pods: &[Arc<PodState>], published: &str) -> (usize, Vec<ObjectReport>) {
        let at = |second| Timestamp::from_second(second).unwrap();
        let status: VersionedConfigStatus =
            serde_json::from_value(json!({"publishedVersion": published, "publishTime": "1970-01-01T00:01:40Z"}))
                .unwrap();
        let live = LivePods {
            config: "shop",
            version: "2",
            objects: &[PartKind::ConfigMap],
            start_times: StartTimes::of(&status, "2"),
            unaffected: &["Deployment/unaffected".into()].into(),
            since: at(100),
        };
        let workloads: Vec<_> = workloads
            .iter()
            .map(|workload| TargetedWorkload {
                workload: workload.clone(),
                digest: "new".into(),
                whole: "whole".into(),
            })
            .collect();
        let mut counts = BTreeMap::new();
        let reports = add_live_pods_behind(&mut counts, &workloads, pods, &live);
        (counts.into_values().sum(), reports)
    }

    #[test]
    fn pods_with_older_variables_are_behind_whatever_their_agent_says() {
        let never_ready = PodState { readiness: Readiness::Never, ..reader(10) };
        let pods = [reader(10), reader(100), reader(101), never_ready].map(Arc::new);
        let found = |workload: Workload| found_live(&[workload], &pods, "2").0;
        let web = super::super::tests::workload("web");
        assert_eq!(found(web.clone()), 2, "no right to restart it");
        let has = |digest: &str, second| {
            let last_mark = Some(super::super::tests::mark(second, digest));
            Workload { digest: Some(digest.into()), last_mark, ..web.clone() }
        };
        assert_eq!([found(has("old", 50)), found(has("new", 50))], [2, 0], "the same content needs no restart");
        assert_eq!(found(has("new", 101)), 3, "its status is about the template before");
        let replicas = |updated| Some(ReplicaCounts { total: 3, updated, ready: 3, available: 3 });
        let [paused, partition, done] =
            [0, 2, 3].map(|updated| Workload { replicas: replicas(updated), ..has("new", 101) });
        assert_eq!([found(paused), found(partition), found(done)], [3, 1, 0]);
        assert_eq!(found_live(&[], &pods, "2").0, 2, "nobody knows how to restart it");
        let unaffected = PodState { workload: Some("Deployment/unaffected".into()), ..reader(10) };
        assert_eq!(found_live(&[], &[Arc::new(unaffected)], "2").0, 0, "it reads keys that stay the same");
        let plain = [PodState { reads: crate::injection::PodReads::default(), ..reader(10) }].map(Arc::new);
        assert_eq!(found_live(&[web], &plain, "2").0, 0, "nothing is read at the start");
    }

    #[test]
    fn readers_of_an_object_without_the_version_are_behind_and_no_restart_helps() {
        let pods = [reader(10), reader(500)].map(Arc::new);
        let (count, reports) = found_live(&[super::super::tests::workload("web")], &pods, "1");
        assert_eq!((count, reports.len(), reports[0].why.reason), (2, 1, Reason::NotPublished));
        assert!(
            reports[0].why.message.starts_with("container app reads ConfigMap shop, which does not hold version 2")
        );
    }

    fn judged(id: &str, report: Option<Reason>, is_return: bool, now: i64) -> (Restarts, Vec<ObjectReport>) {
        let at = |second| Timestamp::from_second(second).unwrap();
        let counts = [(id.into(), 2)].into();
        let mut reports: Vec<ObjectReport> = report
            .map(|reason| ObjectReport::new(reason, &id.into(), format!("{id} is {reason}")))
            .into_iter()
            .collect();
        let (groups, restarted) = (["ReplicaSet/own".into()].into(), ["Deployment/web".into()].into());
        let behind = PodsBehind {
            counts: &counts,
            version: "2",
            is_return,
            since: at(100),
            deadline_seconds: 60,
            restarted,
            groups,
            now: at(now),
        };
        (judge_pods_behind(&behind, &mut reports), reports)
    }

    #[test]
    fn the_rollout_is_blocked_with_the_reason() {
        let blocked = |id, report, now| match judged(id, report, false, now).0 {
            Restarts::Blocked(message) => message,
            other => format!("{other:?}"),
        };
        let message = blocked("Deployment/web", Some(Reason::NotAllowed), 101);
        assert!(message.contains("2 pods of Deployment/web do not run version 2"), "{message}");
        assert!(message.ends_with("Deployment/web is NotAllowed"), "{message}");
        // A restarted workload has its deadline; so has one that was not well before.
        for report in [None, Some(Reason::Unwell), Some(Reason::TemplateChanged)] {
            assert!(blocked("Deployment/web", report, 159).starts_with("Busy"));
            assert!(blocked("ReplicaSet/own", report, 159).starts_with("Busy"));
            assert!(blocked("Deployment/web", report, 160).contains("because that needs a restart"));
        }
        assert!(blocked("CloneSet/web", None, 101).contains("Nudge does not know how to restart CloneSet/web"));
    }

    #[test]
    fn on_the_way_back_it_is_reported_and_nothing_is_held() {
        assert!(matches!(judged("Deployment/web", None, true, 101).0, Restarts::Busy(_)));
        let (state, reports) = judged("Deployment/web", None, true, 160);
        assert_eq!((state, reports[0].why.reason), (Restarts::Done, Reason::NotBack));
        let (state, reports) = judged("Deployment/other", None, true, 101);
        assert_eq!((state, reports[0].why.reason), (Restarts::Done, Reason::NotBack), "nothing restarts it");
        let (state, reports) = judged("Deployment/web", Some(Reason::NotAllowed), true, 101);
        assert_eq!((state, reports.len()), (Restarts::Done, 1));
    }
}
