//! What to do about the pods of a namespace that have no agent. Pure: what was seen, the time, and what is remembered in; what to do out.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use kube::core::ObjectMeta;
use nudge_protocol::labels;
use tokio::time::Instant;

/// How often a pod is told of.
const TELL_AGAIN: Duration = Duration::from_hours(1);
/// Pods that are told of in one look at a namespace; the others have their turn in the next.
const TOLD_AT_ONCE: usize = 20;
/// The time for which evictions are counted.
const MINUTE: Duration = Duration::from_mins(1);
/// How long it is remembered that a pod of an owner was evicted.
const OWNERS: Duration = Duration::from_hours(24);
/// Pods and owners that are remembered, of each kind.
const REMEMBERED: usize = 20_000;

/// The kubelet's pods, made from files of its node: the API server only shows them.
const STATIC: [&str; 2] = ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

/// A pod without an agent that has opted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lacking {
    pub(super) name: String,
    pub(super) uid: String,
    /// In seconds since 1970.
    pub(super) created: i64,
    /// The uid of the controller that would make it anew; absent for a bare pod, and for one of a Job, whose work would be lost.
    pub(super) owner: Option<String>,
}

/// Whether the pod opts in and should have an agent by now, and what matters of it. Finished pods are not listed.
pub(super) fn lacking(meta: &ObjectMeta, now: i64, age: Duration) -> Option<Lacking> {
    let label = |name: &str| meta.labels.as_ref().and_then(|map| map.get(name)).map(String::as_str);
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|map| map.get(name)).map(String::as_str);
    let opts_in = annotation(labels::INJECT).or_else(|| label(labels::INJECT)) == Some("true");
    let is_static = STATIC.into_iter().filter_map(annotation).any(|source| source != "api");
    let created = meta.creation_timestamp.as_ref()?.0.as_second();
    let is_old = now.saturating_sub(created) >= i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
    let is_going = meta.deletion_timestamp.is_some();
    if !opts_in || label(labels::AGENT).is_some() || is_static || is_going || !is_old {
        return None;
    }
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    Some(Lacking {
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        created,
        owner: owner.filter(|owner| owner.kind != "Job").map(|owner| owner.uid.clone()),
    })
}

/// What to do about the pods of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be evicted.
    pub(super) evict: Vec<Lacking>,
    /// To be told of. Whether a pod made since has no agent either, so that evicting does not help.
    pub(super) tell: Vec<(Lacking, bool)>,
}

/// What is remembered between looks, by the leader alone: a new one tells once more, and evicts one pod more of each workload.
#[derive(Debug, Default)]
pub(super) struct Memory {
    told: HashMap<String, Instant>,
    evicted: VecDeque<Instant>,
    /// Owners of evicted pods, and when that was, also in seconds since 1970.
    owners: HashMap<String, (Instant, i64)>,
}

impl Memory {
    /// Plans, and remembers what is planned as done. At most `per_minute` pods of all namespaces are evicted in a minute; oldest first.
    pub(super) fn plan(&mut self, mut pods: Vec<Lacking>, now: Instant, unix: i64, per_minute: usize) -> Plan {
        self.forget(now);
        pods.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut plan = Plan::default();
        for pod in pods {
            let vain = pod.owner.as_ref().is_some_and(|owner| self.made_since(owner, pod.created));
            if self.is_told_at(&pod, now) && plan.tell.len() < TOLD_AT_ONCE && self.told.len() < REMEMBERED {
                self.told.insert(pod.uid.clone(), now);
                plan.tell.push((pod.clone(), vain));
            }
            let Some(owner) = pod.owner.clone() else { continue };
            let room = self.evicted.len() < per_minute && self.owners.len() < REMEMBERED;
            if room && !vain {
                self.evicted.push_back(now);
                self.owners.entry(owner).or_insert((now, unix));
                plan.evict.push(pod);
            }
        }
        plan
    }

    /// The eviction did not come about. It counts for the rate, so that refusals don't turn into a storm.
    pub(super) fn not_evicted(&mut self, pod: &Lacking) {
        // Another pod of that owner may have been; then the next one made is looked at a little later.
        pod.owner.as_ref().and_then(|owner| self.owners.remove(owner));
    }

    fn is_told_at(&self, pod: &Lacking, now: Instant) -> bool {
        self.told.get(&pod.uid).is_none_or(|at| now.saturating_duration_since(*at) >= TELL_AGAIN)
    }

    /// Whether the pod was made after one of its owner had been evicted: then those that are made have no agent either.
    fn made_since(&self, owner: &str, created: i64) -> bool {
        self.owners.get(owner).is_some_and(|(_, evicted)| created >= *evicted)
    }

    fn forget(&mut self, now: Instant) {
        let since = |at: Instant| now.saturating_duration_since(at);
        self.told.retain(|_, at| since(*at) < TELL_AGAIN);
        self.owners.retain(|_, (at, _)| since(*at) < OWNERS);
        while self.evicted.front().is_some_and(|at| since(*at) >= MINUTE) {
            self.evicted.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, created: i64, owner: Option<&str>) -> Lacking {
        Lacking { name: name.to_owned(), uid: name.to_owned(), created, owner: owner.map(str::to_owned) }
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

    fn lacks(changes: &Value) -> Option<Lacking> {
        lacking(&meta(changes), 130, Duration::from_secs(30))
    }

    #[test]
    fn a_pod_that_opts_in_and_has_no_agent_counts() {
        assert_eq!(lacks(&json!({})), Some(Lacking { uid: "u".to_owned(), ..pod("web-1", 100, None) }));
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
    fn only_who_would_be_made_anew_has_an_owner() {
        let owner = |kind: &str, controller: bool| json!({"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": controller}]});
        let of = |changes: &Value| lacks(changes).unwrap().owner;
        assert_eq!(of(&owner("ReplicaSet", true)).as_deref(), Some("o"));
        assert_eq!(of(&owner("ReplicaSet", false)), None);
        assert_eq!(of(&owner("Job", true)), None);
    }

    fn names(plan: &Plan) -> (Vec<&str>, Vec<(&str, bool)>) {
        let evict = plan.evict.iter().map(|pod| pod.name.as_str()).collect();
        (evict, plan.tell.iter().map(|(pod, vain)| (pod.name.as_str(), *vain)).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_told_of_once_an_hour() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let pods = || vec![pod("bare", 1, None)];
        assert_eq!(names(&memory.plan(pods(), now, 100, 9)), (vec![], vec![("bare", false)]));
        let almost = now + TELL_AGAIN - Duration::from_secs(1);
        assert_eq!(memory.plan(pods(), almost, 3700, 9), Plan::default());
        assert_eq!(memory.plan(pods(), now + TELL_AGAIN, 3700, 9).tell.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_go_first_and_so_many_a_minute() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let pods =
            || vec![pod("c", 3, Some("x")), pod("a", 1, Some("y")), pod("b", 2, Some("x")), pod("bare", 0, None)];
        assert_eq!(names(&memory.plan(pods(), now, 100, 2)).0, ["a", "b"]);
        assert!(memory.plan(pods(), now + Duration::from_secs(59), 159, 2).evict.is_empty());
        assert_eq!(names(&memory.plan(vec![pod("c", 3, Some("x"))], now + MINUTE, 160, 2)).0, ["c"]);
        assert!(memory.plan(pods(), now + MINUTE * 3, 280, 0).evict.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_whose_new_pods_have_no_agent_either_is_left_alone_and_told_so() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        assert_eq!(memory.plan(vec![pod("old", 1, Some("x"))], now, 100, 9).evict.len(), 1);
        let plan = memory.plan(vec![pod("new", 101, Some("x")), pod("other", 1, Some("x"))], now + MINUTE, 160, 9);
        assert_eq!(names(&plan), (vec!["other"], vec![("other", false), ("new", true)]));
        memory.not_evicted(&pod("other", 1, Some("x")));
        assert_eq!(memory.plan(vec![pod("new", 101, Some("x"))], now + MINUTE * 2, 220, 9).evict.len(), 1);
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_in_any_minute(
            looks in proptest::collection::vec((0_u64..50, 0_usize..8), 1..40), rate in 0_usize..5,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _guard = runtime.enter();
            let (mut memory, begin) = (Memory::default(), Instant::now());
            let (mut at, mut done, mut count) = (0, Vec::new(), 0);
            for (wait, pods) in looks {
                at += wait;
                let pods = (0..pods).map(|_| { count += 1; pod(&count.to_string(), 1, Some(&count.to_string())) }).collect();
                let plan = memory.plan(pods, begin + Duration::from_secs(at), 100, rate);
                done.extend(plan.evict.iter().map(|_| at));
            }
            for begin in &done {
                let within = done.iter().filter(|at| (*begin..begin + 60).contains(*at)).count();
                prop_assert!(within <= rate, "{within} in a minute");
            }
        }
    }
}
