//! Tells by Events what injection warned of, while this replica leads: once for a workload, on one of its pods. The Jobs of a namespace
//! count as one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use nudge_api::Reason;
use nudge_cluster::events::EventRecorder;
use nudge_cluster::index::Index;
use nudge_cluster::lease::Leadership;
use nudge_core::event_record::EventRecord;
use nudge_core::pods::PodState;
use tokio::time::sleep;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(5);
/// Events of one look; the others have their turn in the next.
const AT_ONCE: usize = 20;
/// How old a pod may be, in seconds. API servers keep Events for an hour, and a new leader shall not tell again what was told then.
const AGE: i64 = 3600;

/// How long after its start a pod is told of that has ended by then, in seconds: Jobs may be short.
const SHORT: i64 = 60;
/// How long until an Event is tried again that could not be written, in seconds: somebody may have to bind a role.
const RETRY: i64 = 60;
/// Most remarks that are remembered; beyond them no new one is made.
const MOST: usize = 10_000;

/// Who is told of, and what: the namespace; the workload, or a bare pod's uid; the warnings.
type Remark = (String, String, String);

/// A remark that was made.
#[derive(Debug)]
struct Made {
    /// In which second a pod had it last.
    seen: i64,
    /// Its Event could not be written, and is tried again in that second.
    again: Option<i64>,
}

/// What was told, up to an hour after the last pod with it: pods of a CronJob come and go.
#[derive(Debug, Default)]
struct Told(HashMap<Remark, Made>);

fn remark(pod: &PodState) -> Option<Remark> {
    let who = if pod.workload.is_empty() { pod.uid.as_str() } else { &pod.workload };
    Some((pod.namespace.clone(), who.to_owned(), pod.warnings.clone()?))
}

impl Told {
    /// The pods on which something is to be told, which counts as told from now on. Pure.
    fn plan(&mut self, pods: Vec<Arc<PodState>>, now: i64) -> Vec<Arc<PodState>> {
        let mut there: BTreeMap<Remark, Arc<PodState>> = BTreeMap::new();
        let is_there = |pod: &PodState| !pod.terminating && (!pod.finished || now.saturating_sub(pod.created) < SHORT);
        for pod in pods.into_iter().filter(|pod| is_there(pod)) {
            let Some(remark) = remark(&pod) else { continue };
            let newest = there.entry(remark).or_insert_with(|| Arc::clone(&pod));
            if (pod.created, &pod.name) > (newest.created, &newest.name) {
                *newest = pod;
            }
        }
        for (remark, made) in &mut self.0 {
            if there.contains_key(remark) {
                made.seen = now;
            }
        }
        self.0.retain(|_, made| now.saturating_sub(made.seen) < AGE);
        let is_due = |remark: &Remark| match self.0.get(remark) {
            None => true,
            Some(made) => made.again.is_some_and(|again| again <= now),
        };
        there.retain(|remark, pod| is_due(remark) && now.saturating_sub(pod.created) < AGE);
        let mut plan = Vec::new();
        for (remark, pod) in there {
            let has_room = self.0.len() < MOST || self.0.contains_key(&remark);
            if plan.len() < AT_ONCE && has_room {
                self.0.insert(remark, Made { seen: now, again: None });
                plan.push(pod);
            }
        }
        plan
    }

    /// The Event on this pod could not be written.
    fn failed(&mut self, pod: &PodState, now: i64) {
        if let Some(made) = remark(pod).and_then(|remark| self.0.get_mut(&remark)) {
            made.again = Some(now.saturating_add(RETRY));
        }
    }
}

/// Runs for ever; tells while `leadership` says so. `replica` is named in Events.
pub async fn tell_warnings(client: Client, index: Arc<Index>, mut leadership: Leadership, replica: String) {
    let events = EventRecorder::new(client, &replica);
    while leadership.wait_for(|leads| *leads).await.is_ok() {
        let telling = async {
            index.synced().await;
            let mut told = Told::default();
            loop {
                let mut pods = index.pods();
                pods.retain(|pod| pod.warnings.is_some() && index.is_enabled(&pod.namespace));
                let now = Timestamp::now().as_second();
                for pod in told.plan(pods, now) {
                    let message = pod.warnings.as_deref().unwrap_or_default().replace('\n', "; ");
                    let event = EventRecord::new(Reason::InjectionWarning, message);
                    if !events.record_on_pod(&pod.key(), pod.uid.as_str(), event).await {
                        told.failed(&pod, now);
                    }
                }
                sleep(EVERY).await;
            }
        };
        tokio::select! {
            () = telling => {}
            _ = leadership.wait_for(|leads| !*leads) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use nudge_core::keys::PodUid;

    use super::*;

    fn pod(name: &str, workload: &str, warnings: Option<&str>) -> Arc<PodState> {
        Arc::new(PodState {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: PodUid::new(&format!("uid-of-{name}")).unwrap(),
            workload: workload.to_owned(),
            created: 1000,
            warnings: warnings.map(str::to_owned),
            ..PodState::default()
        })
    }

    fn names(told: &mut Told, pods: &[Arc<PodState>], now: i64) -> Vec<String> {
        told.plan(pods.to_vec(), now).iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn each_warning_is_told_once_for_a_workload_and_for_each_bare_pod() {
        let (mut told, web) = (Told::default(), "Deployment/web");
        let mut pods = vec![
            pod("web-1", web, Some("a")),
            pod("web-2", web, Some("a")),
            pod("web-3", web, Some("b")),
            pod("api-1", "Deployment/api", None),
            pod("bare-1", "", Some("a")),
            pod("bare-2", "", Some("a")),
        ];
        assert_eq!(names(&mut told, &pods, 1001), ["web-2", "web-3", "bare-1", "bare-2"]);
        assert!(names(&mut told, &pods, 1002).is_empty());
        // Another pod of it with the same is nothing new.
        pods.push(pod("web-4", web, Some("a")));
        assert!(names(&mut told, &pods, 1003).is_empty());
        // Of what is gone it is remembered for an hour.
        assert!(names(&mut told, &pods[3..4], 1004).is_empty());
        assert!(names(&mut told, &pods[..1], 1005).is_empty());
        assert!(names(&mut told, &pods[3..4], 1005 + AGE).is_empty() && told.0.is_empty());
        let young = Arc::new(PodState { created: 1005 + AGE, ..(*pods[0]).clone() });
        assert_eq!(names(&mut told, &[young], 1006 + AGE), ["web-1"]);
    }

    #[test]
    fn an_event_that_could_not_be_written_comes_later() {
        let (mut told, pods) = (Told::default(), [pod("web-1", "Deployment/web", Some("a"))]);
        assert_eq!(names(&mut told, &pods, 1001), ["web-1"]);
        told.failed(&pods[0], 1001);
        assert!(names(&mut told, &pods, 1000 + RETRY).is_empty());
        assert_eq!(names(&mut told, &pods, 1001 + RETRY), ["web-1"]);
        assert!(names(&mut told, &pods, 1002 + RETRY).is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut told = Told::default();
        let pods: Vec<_> = (0..=MOST).map(|number| pod(&format!("p{number}"), "", Some("a"))).collect();
        let looks = i64::try_from(MOST.div_ceil(AT_ONCE)).unwrap();
        let all: usize = (0..looks + 2).map(|second| names(&mut told, &pods, 1000 + second).len()).sum();
        assert_eq!((all, told.0.len()), (MOST, MOST));
    }

    #[test]
    fn a_new_leader_does_not_tell_of_old_pods_and_many_come_bit_by_bit() {
        let mut told = Told::default();
        assert!(names(&mut told, &[pod("old", "", Some("a"))], 1000 + AGE).is_empty());
        let pods: Vec<_> = (0..AT_ONCE * 2 + 5).map(|number| pod(&format!("p{number}"), "", Some("a"))).collect();
        let counts = [1, 2, 3, 4].map(|second| names(&mut told, &pods, 1000 + second).len());
        assert_eq!(counts, [AT_ONCE, AT_ONCE, 5, 0]);
    }

    #[test]
    fn pods_that_go_or_have_ended_are_not_told_of() {
        let terminating = |pod: Arc<PodState>| Arc::new(PodState { terminating: true, ..(*pod).clone() });
        let finished = |pod: Arc<PodState>| Arc::new(PodState { finished: true, ..(*pod).clone() });
        let pods = [terminating(pod("a", "", Some("w"))), finished(pod("b", "", Some("w")))];
        assert!(names(&mut Told::default(), &pods, 1000 + SHORT).is_empty());
        assert_eq!(names(&mut Told::default(), &pods, 1001), ["b"], "a Job that was short");
    }
}
