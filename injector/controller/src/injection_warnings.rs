//! The warnings of injection, which the leader records as Events: once for a workload, on one of its pods. The Jobs of
//! a namespace count as one workload.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nudge_api::Reason;
use nudge_core::event_record::EventRecord;
use nudge_core::owners::WorkloadId;
use nudge_core::pods::PodState;
use tokio::time::sleep;

use super::controller::Controller;

/// The time between two scans of pods.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of Events of one scan; the next scan continues.
const MAX_EVENTS_PER_SCAN: usize = 20;
/// The maximum age of a pod, in seconds. API servers keep Events for an hour; a new leader must not repeat them within
/// it.
const MAX_AGE_SECONDS: i64 = 3600;

/// The maximum age of a finished pod, in seconds: Jobs may be short.
const MAX_FINISHED_AGE_SECONDS: i64 = 60;
/// The time until an Event that could not be written is retried, in seconds: an admin may have to bind a role.
const RETRY_SECONDS: i64 = 60;
/// The maximum number of warnings that are remembered; beyond it no new one is recorded.
const MAX_REMEMBERED_WARNINGS: usize = 10_000;

/// The warnings of a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Warning {
    namespace: String,
    /// The workload, or the uid of a bare pod.
    subject: String,
    text: String,
}

/// The times of a warning that was recorded.
#[derive(Debug)]
struct WarningRecord {
    /// The second of the last pod with the warning.
    last_seen: i64,
    /// The second of the Event's retry, if its write failed.
    retry: Option<i64>,
}

/// The warnings that were recorded, each up to an hour after the last pod with it: pods of a CronJob come and go.
#[derive(Debug, Default)]
struct RecordedWarnings(HashMap<Warning, WarningRecord>);

fn warning(pod: &PodState) -> Option<Warning> {
    let subject = pod.workload.as_ref().map_or(pod.uid.as_str(), WorkloadId::as_str);
    Some(Warning { namespace: pod.namespace.clone(), subject: subject.to_owned(), text: pod.warnings.clone()? })
}

impl RecordedWarnings {
    /// Returns the pods that need an Event, which counts as written from now on.
    fn plan(&mut self, pods: Vec<Arc<PodState>>, now: i64) -> Vec<Arc<PodState>> {
        let mut newest: BTreeMap<Warning, Arc<PodState>> = BTreeMap::new();
        let is_younger = |pod: &PodState, max_age_seconds: i64| {
            pod.created.is_some_and(|created| now.saturating_sub(created) < max_age_seconds)
        };
        let counts =
            |pod: &PodState| !pod.is_terminating() && (!pod.is_finished() || is_younger(pod, MAX_FINISHED_AGE_SECONDS));
        for pod in pods.into_iter().filter(|pod| counts(pod)) {
            let Some(warning) = warning(&pod) else { continue };
            let newest_pod = newest.entry(warning).or_insert_with(|| Arc::clone(&pod));
            if (pod.created, &pod.name) > (newest_pod.created, &newest_pod.name) {
                *newest_pod = pod;
            }
        }
        for (warning, entry) in &mut self.0 {
            if newest.contains_key(warning) {
                entry.last_seen = now;
            }
        }
        self.0.retain(|_, entry| now.saturating_sub(entry.last_seen) < MAX_AGE_SECONDS);
        let is_due = |warning: &Warning| match self.0.get(warning) {
            None => true,
            Some(entry) => entry.retry.is_some_and(|retry| retry <= now),
        };
        newest.retain(|warning, pod| is_due(warning) && is_younger(pod, MAX_AGE_SECONDS));
        let mut plan = Vec::new();
        for (warning, pod) in newest {
            let has_room = self.0.len() < MAX_REMEMBERED_WARNINGS || self.0.contains_key(&warning);
            if plan.len() < MAX_EVENTS_PER_SCAN && has_room {
                self.0.insert(warning, WarningRecord { last_seen: now, retry: None });
                plan.push(pod);
            }
        }
        plan
    }

    /// Notes that the Event on this pod could not be written.
    fn note_failure(&mut self, pod: &PodState, now: i64) {
        if let Some(entry) = warning(pod).and_then(|warning| self.0.get_mut(&warning)) {
            entry.retry = Some(now.saturating_add(RETRY_SECONDS));
        }
    }
}

/// Runs for ever, and records warnings.
pub async fn record_warnings(controller: Arc<Controller>) {
    let index = &controller.index;
    index.wait_until_synced().await;
    let mut recorded = RecordedWarnings::default();
    loop {
        let mut pods = index.pods();
        pods.retain(|pod| pod.warnings.is_some() && index.is_enabled(&pod.namespace));
        let now = Timestamp::now().as_second();
        for pod in recorded.plan(pods, now) {
            let message = pod.warnings.as_deref().unwrap_or_default().replace('\n', "; ");
            let event = EventRecord::new(Reason::InjectionWarning, message);
            if !controller.events.record_on_pod(&pod.key(), pod.uid.as_str(), event).await {
                recorded.note_failure(&pod, now);
            }
        }
        sleep(SCAN_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use nudge_core::keys::PodUid;
    use nudge_core::pods::{PodPhase, Removal};

    use super::*;

    fn pod(name: &str, workload: &str, warnings: Option<&str>) -> Arc<PodState> {
        Arc::new(PodState {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: PodUid::new(&format!("uid-of-{name}")).unwrap(),
            workload: Some(workload).filter(|workload| !workload.is_empty()).map(Into::into),
            created: Some(1000),
            warnings: warnings.map(str::to_owned),
            ..PodState::default()
        })
    }

    fn names(recorded: &mut RecordedWarnings, pods: &[Arc<PodState>], now: i64) -> Vec<String> {
        recorded.plan(pods.to_vec(), now).iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn each_warning_is_recorded_once_for_a_workload_and_for_each_bare_pod() {
        let (mut recorded, web) = (RecordedWarnings::default(), "Deployment/web");
        let mut pods = vec![
            pod("web-1", web, Some("a")),
            pod("web-2", web, Some("a")),
            pod("web-3", web, Some("b")),
            pod("api-1", "Deployment/api", None),
            pod("bare-1", "", Some("a")),
            pod("bare-2", "", Some("a")),
        ];
        assert_eq!(names(&mut recorded, &pods, 1001), ["web-2", "web-3", "bare-1", "bare-2"]);
        assert!(names(&mut recorded, &pods, 1002).is_empty());
        // Another pod of the workload with the same warning changes nothing.
        pods.push(pod("web-4", web, Some("a")));
        assert!(names(&mut recorded, &pods, 1003).is_empty());
        // A recorded warning is remembered for an hour after its last pod.
        assert!(names(&mut recorded, &pods[3..4], 1004).is_empty());
        assert!(names(&mut recorded, &pods[..1], 1005).is_empty());
        assert!(names(&mut recorded, &pods[3..4], 1005 + MAX_AGE_SECONDS).is_empty() && recorded.0.is_empty());
        let young = Arc::new(PodState { created: Some(1005 + MAX_AGE_SECONDS), ..(*pods[0]).clone() });
        assert_eq!(names(&mut recorded, &[young], 1006 + MAX_AGE_SECONDS), ["web-1"]);
    }

    #[test]
    fn an_event_that_could_not_be_written_is_retried() {
        let (mut recorded, pods) = (RecordedWarnings::default(), [pod("web-1", "Deployment/web", Some("a"))]);
        assert_eq!(names(&mut recorded, &pods, 1001), ["web-1"]);
        recorded.note_failure(&pods[0], 1001);
        assert!(names(&mut recorded, &pods, 1000 + RETRY_SECONDS).is_empty());
        assert_eq!(names(&mut recorded, &pods, 1001 + RETRY_SECONDS), ["web-1"]);
        assert!(names(&mut recorded, &pods, 1002 + RETRY_SECONDS).is_empty());
    }

    #[test]
    fn the_number_of_remembered_warnings_has_a_bound() {
        let mut recorded = RecordedWarnings::default();
        let pods: Vec<_> =
            (0..=MAX_REMEMBERED_WARNINGS).map(|number| pod(&format!("p{number}"), "", Some("a"))).collect();
        let scans = i64::try_from(MAX_REMEMBERED_WARNINGS.div_ceil(MAX_EVENTS_PER_SCAN)).unwrap();
        let all: usize = (0..scans + 2).map(|second| names(&mut recorded, &pods, 1000 + second).len()).sum();
        assert_eq!((all, recorded.0.len()), (MAX_REMEMBERED_WARNINGS, MAX_REMEMBERED_WARNINGS));
    }

    #[test]
    fn old_pods_are_left_out_and_many_are_spread_over_scans() {
        let mut recorded = RecordedWarnings::default();
        assert!(names(&mut recorded, &[pod("old", "", Some("a"))], 1000 + MAX_AGE_SECONDS).is_empty());
        let pods: Vec<_> =
            (0..MAX_EVENTS_PER_SCAN * 2 + 5).map(|number| pod(&format!("p{number}"), "", Some("a"))).collect();
        let counts = [1, 2, 3, 4].map(|second| names(&mut recorded, &pods, 1000 + second).len());
        assert_eq!(counts, [MAX_EVENTS_PER_SCAN, MAX_EVENTS_PER_SCAN, 5, 0]);
    }

    #[test]
    fn terminating_and_finished_pods_are_left_out() {
        let terminating = |pod: Arc<PodState>| Arc::new(PodState { removal: Removal::Terminating, ..(*pod).clone() });
        let finished = |pod: Arc<PodState>| Arc::new(PodState { phase: PodPhase::Finished, ..(*pod).clone() });
        let pods = [terminating(pod("a", "", Some("w"))), finished(pod("b", "", Some("w")))];
        assert!(names(&mut RecordedWarnings::default(), &pods, 1000 + MAX_FINISHED_AGE_SECONDS).is_empty());
        assert_eq!(names(&mut RecordedWarnings::default(), &pods, 1001), ["b"], "a short Job");
    }
}
