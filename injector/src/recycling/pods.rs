//! Pods that no rolling update restarts: those of bare ReplicaSets and ReplicationControllers are evicted one by one, all others only reported.
//! Pure.

use k8s_openapi::jiff::Timestamp;

use super::next::{Report, over};

/// Names that are listed in a sentence.
const NAMES: usize = 5;

/// A pod that uses what is published, without an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Old {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// It is Ready.
    pub ready: bool,
    /// It is being deleted.
    pub going: bool,
}

/// A controller without rolling updates, and its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Such as `ReplicaSet/web`.
    pub id: String,
    /// How many pods it is to have.
    pub replicas: usize,
    /// Its pods.
    pub pods: Vec<Old>,
}

/// Which pods have what was published before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// What is published now was written then; pods have whole seconds.
    pub published: Timestamp,
    /// On the way back: since when the version that is left can have been read.
    pub since: Option<Timestamp>,
}

impl Stale {
    fn is(self, pod: &Old) -> bool {
        pod.created.as_second() <= self.published.as_second()
            && self.since.is_none_or(|since| pod.created.as_second() >= since.as_second())
    }
}

/// What follows for the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPod {
    /// All have what is published, or are reported.
    Done,
    /// This pod of this group is evicted.
    Evict {
        /// The group.
        group: String,
        /// The pod.
        pod: String,
    },
    /// A new pod is on its way.
    Wait(String),
    /// A new pod did not come up.
    Failed(String),
}

/// Decides about the groups, one after another. `since` is when restarting last came forward, and `refused` are groups whose pods could not
/// be evicted.
pub fn next_pod(
    groups: &[Group],
    stale: Stale,
    since: Timestamp,
    deadline: u32,
    refused: impl Fn(&str) -> bool,
    now: Timestamp,
) -> NextPod {
    for group in groups.iter().filter(|group| !refused(&group.id)) {
        let id = &group.id;
        let (old, new): (Vec<&Old>, Vec<&Old>) = group.pods.iter().partition(|pod| stale.is(pod));
        let staying = |pod: &&&Old| !pod.going;
        let Some(victim) = old.iter().filter(staying).min_by_key(|pod| (pod.ready, &pod.name)) else {
            // The last one may still be on its way, if there ever was one to evict.
            let waits = new.iter().filter(staying).any(|pod| !pod.ready) || old.iter().any(|pod| pod.going);
            if waits && stale.since.is_none() {
                let made = new.iter().map(|pod| pod.created).max().unwrap_or(since).max(since);
                if over(made, deadline, now) {
                    return NextPod::Failed(format!("a new pod of {id} did not come up"));
                }
                return NextPod::Wait(format!("a pod of {id} is being replaced"));
            }
            continue;
        };
        let unready = new.iter().filter(staying).any(|pod| !pod.ready);
        let missing = group.pods.iter().filter(|pod| !pod.going).count() < group.replicas;
        if unready || missing || group.pods.iter().any(|pod| pod.going) {
            let made = new.iter().map(|pod| pod.created).max().unwrap_or(since).max(since);
            if over(made, deadline, now) && stale.since.is_none() {
                return NextPod::Failed(format!("a new pod of {id} did not come up"));
            }
            if !over(made, deadline, now) {
                return NextPod::Wait(format!("a pod of {id} is being replaced"));
            }
        }
        return NextPod::Evict { group: id.clone(), pod: victim.name.clone() };
    }
    NextPod::Done
}

/// Names the pods that only a person can restart.
pub fn stale_pods(pods: &[Old], stale: Stale) -> Option<Report> {
    let old: Vec<&str> = pods.iter().filter(|pod| stale.is(pod) && !pod.going).map(|pod| pod.name.as_str()).collect();
    (!old.is_empty()).then(|| {
        let more = if old.len() > NAMES { ", …" } else { "" };
        let names = old[..old.len().min(NAMES)].join(", ");
        Report::new(
            "Stale",
            format!(
                "{} pods that nothing restarts have read what was published before: {names}{more}; delete and create them",
                old.len()
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, created: i64) -> Old {
        Old { name: name.to_owned(), created: at(created), ready: true, going: false }
    }

    fn group(pods: Vec<Old>) -> [Group; 1] {
        [Group { id: "ReplicaSet/web".to_owned(), replicas: 2, pods }]
    }

    const STALE: Stale = Stale { published: Timestamp::UNIX_EPOCH, since: None };

    fn decide(pods: Vec<Old>, now: i64) -> NextPod {
        next_pod(&group(pods), Stale { published: at(100), ..STALE }, at(100), 60, |_| false, at(now))
    }

    #[test]
    fn one_pod_after_another() {
        let evicts = |name: &str| NextPod::Evict { group: "ReplicaSet/web".to_owned(), pod: name.to_owned() };
        assert_eq!(decide(vec![pod("a", 1), pod("b", 1)], 101), evicts("a"));
        // The replacement is not there yet, then not Ready yet.
        assert!(matches!(decide(vec![pod("b", 1)], 101), NextPod::Wait(_)));
        let going = Old { going: true, ..pod("a", 1) };
        assert!(matches!(decide(vec![going, pod("b", 1), pod("c", 101)], 102), NextPod::Wait(_)));
        let new = Old { ready: false, ..pod("c", 101) };
        assert!(matches!(decide(vec![pod("b", 1), new.clone()], 102), NextPod::Wait(_)));
        assert!(matches!(decide(vec![pod("b", 1), new.clone()], 161), NextPod::Failed(_)));
        assert_eq!(decide(vec![pod("b", 1), pod("c", 101)], 102), evicts("b"));
        assert!(matches!(decide(vec![pod("d", 102), new], 103), NextPod::Wait(_)));
        assert_eq!(decide(vec![pod("c", 101), pod("d", 102)], 103), NextPod::Done);
        // One that was not Ready before goes first, and nobody waits for it.
        assert_eq!(decide(vec![pod("a", 1), Old { ready: false, ..pod("b", 1) }], 101), evicts("b"));
    }

    #[test]
    fn on_the_way_back_only_pods_of_the_version_that_is_left_go_and_nothing_fails() {
        let stale = Stale { published: at(200), since: Some(at(100)) };
        let decide = |pods| next_pod(&group(pods), stale, at(200), 60, |_| false, at(900));
        assert_eq!(decide(vec![pod("a", 1), pod("b", 1)]), NextPod::Done);
        let broken = Old { ready: false, ..pod("b", 150) };
        assert!(matches!(decide(vec![pod("a", 1), broken]), NextPod::Evict { pod, .. } if pod == "b"));
    }

    #[test]
    fn groups_that_cannot_be_evicted_are_left_and_bare_pods_are_named() {
        let stale = Stale { published: at(100), ..STALE };
        assert_eq!(
            next_pod(&group(vec![pod("a", 1)]), stale, at(100), 60, |id| id == "ReplicaSet/web", at(101)),
            NextPod::Done
        );
        let pods: Vec<Old> = (0..7).map(|n| pod(&format!("p{n}"), 1)).collect();
        let report = stale_pods(&pods, stale).unwrap();
        assert!(report.sentence.starts_with("7 pods") && report.sentence.contains("p4, …"), "{}", report.sentence);
        assert_eq!(stale_pods(&[pod("new", 101)], stale), None);
    }
}
