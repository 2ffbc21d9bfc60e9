//! The plan for the pods of a namespace that have no agent: a pure function of the pods, the time and the memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use nudge_protocol::labels;

use crate::injection::opts_in;
use crate::owners::controlling_owner;

/// The interval of reports about the same pod.
const REPORT_INTERVAL: Duration = Duration::from_hours(1);
/// The maximum number of pods that one scan of a namespace reports; the next scan continues.
const MAX_REPORTS_PER_SCAN: usize = 20;
/// The period of attempts to evict that count towards the rate.
const EVICTION_RATE_WINDOW: Duration = Duration::from_mins(1);
/// How long evictions of an owner's pods are remembered.
const OWNER_MEMORY_TIME: Duration = Duration::from_hours(24);
/// The maximum number of pods, and of owners, that are remembered.
const MAX_REMEMBERED_ENTRIES: usize = 20_000;

/// The annotations of static pods, which a kubelet makes from files of its node.
const STATIC_POD_ANNOTATIONS: [&str; 2] = ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

/// A pod without an agent that has opted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentlessPod {
    /// The name of the pod.
    pub name: String,
    /// The uid, so that no later pod of the name is evicted.
    pub uid: String,
    /// The time of creation, in seconds since 1970.
    pub created_seconds: i64,
    /// The uid of the controller that would replace the pod. It is absent for a bare pod, and for a pod that would lose
    /// its work, such as a Job's.
    pub owner: Option<String>,
}

/// Returns the pod, if it opts in and should have an agent by now. Finished pods are not listed.
pub fn agentless_pod(meta: &ObjectMeta, now: i64, min_age: Duration) -> Option<AgentlessPod> {
    let label = |name: &str| meta.labels.as_ref().and_then(|map| map.get(name)).map(String::as_str);
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|map| map.get(name)).map(String::as_str);
    let is_static = STATIC_POD_ANNOTATIONS.into_iter().filter_map(annotation).any(|source| source != "api");
    let created_seconds = meta.creation_timestamp.as_ref()?.0.as_second();
    let is_old = now.saturating_sub(created_seconds) >= i64::try_from(min_age.as_secs()).unwrap_or(i64::MAX);
    let is_terminating = meta.deletion_timestamp.is_some();
    if !opts_in(meta) || label(labels::AGENT).is_some() || is_static || is_terminating || !is_old {
        return None;
    }
    let owner = controlling_owner(meta);
    Some(AgentlessPod {
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        created_seconds,
        owner: owner.filter(|owner| replaces(owner)).map(|owner| owner.uid.clone()),
    })
}

/// Returns whether the controller is one of Kubernetes' own that replace a pod. Others, such as workflows, may not.
fn replaces(owner: &OwnerReference) -> bool {
    match owner.api_version.split_once('/') {
        Some(("apps", _)) => matches!(owner.kind.as_str(), "ReplicaSet" | "StatefulSet" | "DaemonSet"),
        None => owner.kind == "ReplicationController",
        Some(_) => false,
    }
}

/// The outcome of an attempt to evict a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is terminating.
    Evicted,
    /// A `PodDisruptionBudget` forbids to evict the pod now, or the pod is gone or replaced.
    Refused,
    /// Nudge may evict no pod of this namespace.
    Forbidden,
}

/// The plan for the pods of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairPlan {
    /// The pods to evict.
    pub evict: Vec<AgentlessPod>,
    /// The pods to report, each with whether a newer pod of its owner has no agent either, which makes evictions
    /// useless.
    pub report: Vec<(AgentlessPod, bool)>,
}

/// The memory of the leader between scans. A new leader reports once more, and evicts one more pod of each workload.
#[derive(Debug, Default)]
pub struct RepairMemory {
    reported: HashMap<String, Instant>,
    /// The times of attempts to evict.
    attempts: VecDeque<Instant>,
    /// The owners of evicted pods, with the time of each owner's first eviction, also in seconds since 1970. The first
    /// one counts, because newer pods may be too young when the next one is evicted.
    owners: HashMap<String, (Instant, i64)>,
}

impl RepairMemory {
    /// Makes a plan, and remembers the pods to report as reported; `note_attempt` takes the outcome of evictions. At
    /// most `per_minute` pods of all namespaces are evicted in a minute, the oldest first, and one pod of each owner in
    /// a scan: its replacement shows whether evictions help.
    pub fn plan(&mut self, mut pods: Vec<AgentlessPod>, now: Instant, per_minute: usize) -> RepairPlan {
        self.forget(now);
        pods.sort_by(|a, b| (a.created_seconds, &a.name).cmp(&(b.created_seconds, &b.name)));
        let in_vain: HashSet<String> =
            pods.iter().filter(|pod| self.is_replacement(pod)).filter_map(|pod| pod.owner.clone()).collect();
        let mut plan = RepairPlan::default();
        let mut owners = HashSet::new();
        for pod in pods {
            let vain = pod.owner.as_ref().is_some_and(|owner| in_vain.contains(owner));
            if self.is_due(&pod, now)
                && plan.report.len() < MAX_REPORTS_PER_SCAN
                && self.reported.len() < MAX_REMEMBERED_ENTRIES
            {
                self.reported.insert(pod.uid.clone(), now);
                plan.report.push((pod.clone(), vain));
            }
            let Some(owner) = pod.owner.clone() else { continue };
            let planned = plan.evict.len();
            let has_room =
                self.attempts.len() + planned < per_minute && self.owners.len() + planned < MAX_REMEMBERED_ENTRIES;
            if has_room && !vain && owners.insert(owner) {
                plan.evict.push(pod);
            }
        }
        plan
    }

    /// Remembers the outcome of an attempt, begun at `now`, to evict a pod. Refusals count towards the rate, so that
    /// refused attempts can't pile up. A namespace that forbids evictions does not reduce the rate of the other
    /// namespaces.
    pub fn note_attempt(&mut self, pod: &AgentlessPod, outcome: EvictionOutcome, now: Instant, unix: i64) {
        if outcome != EvictionOutcome::Forbidden {
            self.attempts.push_back(now);
        }
        if let (EvictionOutcome::Evicted, Some(owner)) = (outcome, &pod.owner) {
            self.owners.entry(owner.clone()).or_insert((now, unix));
        }
    }

    fn is_due(&self, pod: &AgentlessPod, now: Instant) -> bool {
        self.reported
            .get(&pod.uid)
            .is_none_or(|reported_at| now.saturating_duration_since(*reported_at) >= REPORT_INTERVAL)
    }

    /// Returns whether the pod was created after another one of its owner was evicted, so that replacements have no
    /// agent either.
    fn is_replacement(&self, pod: &AgentlessPod) -> bool {
        let evicted = pod.owner.as_ref().and_then(|owner| self.owners.get(owner));
        evicted.is_some_and(|(_, evicted)| pod.created_seconds >= *evicted)
    }

    fn forget(&mut self, now: Instant) {
        let since = |time: Instant| now.saturating_duration_since(time);
        self.reported.retain(|_, time| since(*time) < REPORT_INTERVAL);
        self.owners.retain(|_, (time, _)| since(*time) < OWNER_MEMORY_TIME);
        while self.attempts.front().is_some_and(|time| since(*time) >= EVICTION_RATE_WINDOW) {
            self.attempts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, created_seconds: i64, owner: Option<&str>) -> AgentlessPod {
        AgentlessPod { name: name.to_owned(), uid: name.to_owned(), created_seconds, owner: owner.map(str::to_owned) }
    }

    fn meta(changes: &Value) -> ObjectMeta {
        let mut meta = json!({
            "name": "web-1", "uid": "u", "creationTimestamp": "1970-01-01T00:01:40Z",
            "labels": {"nudge.dev/inject": "true"},
        });
        for (key, value) in changes.as_object().unwrap() {
            meta[key] = value.clone();
        }
        serde_json::from_value(meta).unwrap()
    }

    fn lacks(changes: &Value) -> Option<AgentlessPod> {
        agentless_pod(&meta(changes), 130, Duration::from_secs(30))
    }

    #[test]
    fn a_pod_that_opts_in_and_has_no_agent_counts() {
        assert_eq!(lacks(&json!({})), Some(AgentlessPod { uid: "u".to_owned(), ..pod("web-1", 100, None) }));
        let by_annotation = json!({"labels": {}, "annotations": {"nudge.dev/inject": "true"}});
        assert!(lacks(&by_annotation).is_some());
        let others = [
            json!({"labels": {}}),
            json!({"labels": {"nudge.dev/inject": "false"}}),
            json!({"annotations": {"nudge.dev/inject": "false"}}),
            json!({"labels": {"nudge.dev/inject": "true", "nudge.dev/agent": "0.1.0"}}),
            json!({"deletionTimestamp": "1970-01-01T00:02:00Z"}),
            json!({"creationTimestamp": "1970-01-01T00:01:41Z"}),
            json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
            json!({"annotations": {"kubernetes.io/config.source": "file"}}),
        ];
        for changes in others {
            assert_eq!(lacks(&changes), None, "{changes}");
        }
        assert!(lacks(&json!({"annotations": {"kubernetes.io/config.source": "api"}})).is_some());
    }

    #[test]
    fn only_a_pod_that_would_be_replaced_has_an_owner() {
        let of = |version: &str, kind: &str, controller: bool| {
            let owner = json!({"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": controller});
            lacks(&json!({"ownerReferences": [owner]})).unwrap().owner
        };
        for (version, kind) in [
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "DaemonSet"),
            ("v1", "ReplicationController"),
        ] {
            assert_eq!(of(version, kind, true).as_deref(), Some("o"), "{kind}");
            assert_eq!(of(version, kind, false), None, "{kind}");
        }
        for (version, kind) in [
            ("batch/v1", "Job"),
            ("argoproj.io/v1alpha1", "Workflow"),
            ("example.org/v1", "ReplicaSet"),
            ("v1", "Node"),
            ("v1", "ReplicaSet"),
        ] {
            assert_eq!(of(version, kind, true), None, "{version} {kind}");
        }
    }

    /// Returns a scan whose evictions all have this outcome.
    fn scan(
        memory: &mut RepairMemory,
        pods: Vec<AgentlessPod>,
        (now, unix): (Instant, i64),
        rate: usize,
        end: EvictionOutcome,
    ) -> RepairPlan {
        let plan = memory.plan(pods, now, rate);
        for pod in &plan.evict {
            memory.note_attempt(pod, end, now, unix);
        }
        plan
    }

    fn names(plan: &RepairPlan) -> (Vec<&str>, Vec<(&str, bool)>) {
        let evict = plan.evict.iter().map(|pod| pod.name.as_str()).collect();
        (evict, plan.report.iter().map(|(pod, vain)| (pod.name.as_str(), *vain)).collect())
    }

    #[test]
    fn a_pod_is_reported_once_an_hour() {
        let (mut memory, now) = (RepairMemory::default(), Instant::now());
        let pods = || vec![pod("bare", 1, None)];
        assert_eq!(names(&memory.plan(pods(), now, 9)), (vec![], vec![("bare", false)]));
        let almost = now + REPORT_INTERVAL.saturating_sub(Duration::from_secs(1));
        assert_eq!(memory.plan(pods(), almost, 9), RepairPlan::default());
        assert_eq!(memory.plan(pods(), now + REPORT_INTERVAL, 9).report.len(), 1);
    }

    #[test]
    fn the_oldest_are_evicted_first_within_the_rate() {
        for end in [EvictionOutcome::Evicted, EvictionOutcome::Refused] {
            let (mut memory, now) = (RepairMemory::default(), Instant::now());
            let after = |seconds: u64| (now + Duration::from_secs(seconds), 100 + i64::try_from(seconds).unwrap());
            let pods =
                || vec![pod("c", 3, Some("z")), pod("a", 1, Some("y")), pod("b", 2, Some("x")), pod("bare", 0, None)];
            assert_eq!(names(&scan(&mut memory, pods(), after(0), 2, end)).0, ["a", "b"]);
            assert!(scan(&mut memory, pods(), after(59), 2, end).evict.is_empty());
            assert_eq!(names(&scan(&mut memory, vec![pod("c", 3, Some("z"))], after(60), 2, end)).0, ["c"]);
            assert!(scan(&mut memory, pods(), after(180), 0, end).evict.is_empty());
        }
    }

    #[test]
    fn a_namespace_that_forbids_evictions_costs_nothing_of_the_rate() {
        let (mut memory, now) = (RepairMemory::default(), Instant::now());
        assert_eq!(
            scan(&mut memory, vec![pod("a", 1, Some("x"))], (now, 100), 1, EvictionOutcome::Forbidden).evict.len(),
            1
        );
        assert_eq!(
            scan(&mut memory, vec![pod("b", 1, Some("y"))], (now, 100), 1, EvictionOutcome::Evicted).evict.len(),
            1
        );
        assert!(memory.plan(vec![pod("c", 1, Some("z"))], now, 1).evict.is_empty());
    }

    #[test]
    fn one_pod_of_an_owner_is_evicted_in_a_scan() {
        let (mut memory, now) = (RepairMemory::default(), Instant::now());
        let pods = || vec![pod("a", 1, Some("x")), pod("b", 2, Some("x")), pod("c", 3, Some("y"))];
        assert_eq!(names(&scan(&mut memory, pods(), (now, 100), 9, EvictionOutcome::Evicted)).0, ["a", "c"]);
        let rest = vec![pod("b", 2, Some("x"))];
        assert_eq!(names(&scan(&mut memory, rest, (now, 101), 9, EvictionOutcome::Evicted)).0, ["b"]);
    }

    #[test]
    fn a_workload_whose_new_pods_have_no_agent_either_is_only_reported() {
        let (mut memory, now) = (RepairMemory::default(), Instant::now());
        let old = vec![pod("old", 1, Some("x"))];
        assert_eq!(scan(&mut memory, old, (now, 100), 9, EvictionOutcome::Evicted).evict.len(), 1);
        let pods = || vec![pod("new", 101, Some("x")), pod("other", 1, Some("x")), pod("else", 101, Some("y"))];
        let plan = memory.plan(pods(), now + EVICTION_RATE_WINDOW, 9);
        assert_eq!(names(&plan), (vec!["else"], vec![("other", true), ("else", false), ("new", true)]));
    }

    #[test]
    fn a_refusal_does_not_hide_that_another_pod_was_evicted() {
        for end in [EvictionOutcome::Refused, EvictionOutcome::Forbidden] {
            let (mut memory, now) = (RepairMemory::default(), Instant::now());
            let one = |name: &str, created_seconds| vec![pod(name, created_seconds, Some("x"))];
            assert_eq!(scan(&mut memory, one("a", 1), (now, 100), 9, EvictionOutcome::Evicted).evict.len(), 1);
            assert_eq!(scan(&mut memory, one("b", 1), (now, 100), 9, end).evict.len(), 1);
            assert!(memory.plan(one("new", 101), now + EVICTION_RATE_WINDOW, 9).evict.is_empty(), "{end:?}");
        }
    }

    #[test]
    fn a_refusal_alone_does_not_show_that_evicting_is_in_vain() {
        let (mut memory, now) = (RepairMemory::default(), Instant::now());
        let one = |name: &str, created_seconds| vec![pod(name, created_seconds, Some("x"))];
        assert_eq!(scan(&mut memory, one("a", 1), (now, 100), 9, EvictionOutcome::Refused).evict.len(), 1);
        assert_eq!(
            names(&memory.plan(one("new", 101), now + EVICTION_RATE_WINDOW, 9)),
            (vec!["new"], vec![("new", false)])
        );
    }

    #[test]
    fn pods_too_young_to_count_at_the_next_eviction_still_show_that_it_is_in_vain() {
        let (mut memory, now) = (RepairMemory::default(), Instant::now());
        let one = |name: &str, created_seconds| vec![pod(name, created_seconds, Some("x"))];
        assert_eq!(scan(&mut memory, one("a", 1), (now, 100), 9, EvictionOutcome::Evicted).evict.len(), 1);
        assert_eq!(scan(&mut memory, one("b", 1), (now, 110), 9, EvictionOutcome::Evicted).evict.len(), 1);
        assert!(memory.plan(one("new", 101), now, 9).evict.is_empty());
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_in_any_minute(
            scans in proptest::collection::vec((0_u64..50, 0_usize..8), 1..40), rate in 0_usize..5,
        ) {
            let (mut memory, begin) = (RepairMemory::default(), Instant::now());
            let (mut at, mut done, mut count) = (0, Vec::new(), 0);
            for (wait, pods) in scans {
                at += wait;
                let pods = (0..pods).map(|_| { count += 1; pod(&count.to_string(), 1, Some(&count.to_string())) }).collect();
                let plan = scan(&mut memory, pods, (begin + Duration::from_secs(at), 100), rate, EvictionOutcome::Evicted);
                done.extend(plan.evict.iter().map(|_| at));
            }
            for begin in &done {
                let within = done.iter().filter(|at| (*begin..begin + 60).contains(*at)).count();
                prop_assert!(within <= rate, "{within} in a minute");
            }
        }
    }
}
