//! The newest report of each pod, for as long as the pod exists. One report of a pod is taken in each period.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use nudge_core::keys::{PodKey, PodUid};
use nudge_core::pods::PodState;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::hub::ReportRequest;
use nudge_protocol::{ConfigName, ConfigUid};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::settings::REPORT_PERIOD;

/// The maximum number of containers and webhooks of one report that are kept.
const MAX_CONTAINERS: usize = 64;
/// The maximum bytes of a text in a report that is kept.
const MAX_TEXT_BYTES: usize = 512;
/// The maximum lead of an agent's clock over this replica's.
const MAX_CLOCK_LEAD_SECONDS: i64 = 24 * 3600;

/// The report of a pod's agent.
#[derive(Clone, Debug)]
pub struct PodReport {
    /// The uid of the pod that sent the report.
    pub uid: PodUid,
    /// The agent's last report, cut to the limits.
    pub report: ReportRequest,
    /// The time when the report came.
    pub at: SystemTime,
    /// The time when the report was made, in seconds since 1970. The clock is the agent's, so all reports of a pod
    /// share it, whichever replica they reach. The time is later than that of the pod's condition, even if the clock
    /// was set back.
    pub(crate) stamp: i64,
    /// The time of the report that the pod's condition was made of when this report came.
    previous_stamp: Option<i64>,
}

impl PodReport {
    /// Returns whether another replica has since written the condition from a later report.
    pub(crate) fn is_superseded(&self, pod: &PodState) -> bool {
        self.was_overwritten(pod) && reported_at(pod) > Some(self.stamp)
    }

    /// Returns whether another replica has since written the condition from an earlier report.
    pub(crate) fn was_overwritten_by_earlier(&self, pod: &PodState) -> bool {
        self.was_overwritten(pod) && reported_at(pod) < Some(self.stamp)
    }

    /// Returns whether another replica has written the condition since this report came.
    fn was_overwritten(&self, pod: &PodState) -> bool {
        reported_at(pod).is_some_and(|stamp| Some(stamp) != self.previous_stamp && stamp != self.stamp)
    }
}

/// Returns the time of the report that the pod's condition was made of.
fn reported_at(pod: &PodState) -> Option<i64> {
    pod.report.as_ref()?.at
}

struct ReportEntry {
    report: Arc<PodReport>,
    taken_at: Instant,
    /// The newest report that came since.
    waiting: Option<ReportRequest>,
}

/// The reports of all pods.
#[derive(Default)]
pub(crate) struct Reports {
    by_pod: Mutex<HashMap<PodKey, ReportEntry>>,
}

impl Reports {
    /// Returns the newest report of the pod that this replica has taken.
    pub(crate) fn get(&self, pod: &PodKey, uid: &PodUid) -> Option<Arc<PodReport>> {
        self.by_pod.lock().get(pod).filter(|entry| entry.report.uid == *uid).map(|entry| Arc::clone(&entry.report))
    }

    /// Takes the report of the pod's agent, or keeps it waiting and returns the time when it may be taken. A newer
    /// report replaces one that waits.
    pub(crate) fn add(&self, pod: &PodState, report: ReportRequest, now: Instant) -> Option<Instant> {
        let report = bound_report(report, &pod.configs);
        let mut by_pod = self.by_pod.lock();
        if let Some(entry) = by_pod.get_mut(&pod.key()).filter(|entry| entry.report.uid == pod.uid)
            && now < entry.taken_at + REPORT_PERIOD
        {
            entry.waiting = Some(report);
            return Some(entry.taken_at + REPORT_PERIOD);
        }
        store(&mut by_pod, pod, report, now, SystemTime::now());
        None
    }

    /// Takes the waiting report of the pod. Returns `false` if another request has taken it.
    pub(crate) fn take_waiting(&self, pod: &PodState, now: Instant) -> bool {
        let mut by_pod = self.by_pod.lock();
        let entry = by_pod.get_mut(&pod.key());
        let entry = entry.filter(|entry| entry.report.uid == pod.uid && now >= entry.taken_at + REPORT_PERIOD);
        let Some(report) = entry.and_then(|entry| entry.waiting.take()) else { return false };
        store(&mut by_pod, pod, report, now, SystemTime::now());
        true
    }

    /// Takes a report that came at that time.
    #[cfg(test)]
    fn add_at(&self, pod: &PodState, report: ReportRequest, received_at: SystemTime) {
        store(&mut self.by_pod.lock(), pod, bound_report(report, &pod.configs), Instant::now(), received_at);
    }

    pub(crate) fn retain(&self, exists: impl Fn(&PodKey, &PodReport) -> bool) {
        self.by_pod.lock().retain(|pod, entry| exists(pod, &entry.report));
    }

    pub(crate) fn remove(&self, pod: &PodKey, uid: &PodUid) {
        let mut by_pod = self.by_pod.lock();
        if by_pod.get(pod).is_some_and(|entry| entry.report.uid == *uid) {
            by_pod.remove(pod);
        }
    }
}

fn store(
    by_pod: &mut HashMap<PodKey, ReportEntry>,
    pod: &PodState,
    report: ReportRequest,
    taken_at: Instant,
    received_at: SystemTime,
) {
    let key = pod.key();
    let now = received_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or_default();
    let time = if report.at > 0 { report.at.min(now.saturating_add(MAX_CLOCK_LEAD_SECONDS)) } else { now };
    let previous_stamp = reported_at(pod);
    // No report is older than the last one, even if the clock was set back.
    let last = by_pod.get(&key).map(|entry| &entry.report).filter(|last| last.uid == pod.uid).map(|last| last.stamp);
    let min = previous_stamp.map(|stamp| stamp.saturating_add(1));
    let stamp = last.max(min).unwrap_or(time).max(time);
    let report = Arc::new(PodReport { uid: pod.uid.clone(), report, at: received_at, stamp, previous_stamp });
    by_pod.insert(key, ReportEntry { report, taken_at, waiting: None });
}

/// Removes the parts of a report that exceed the limits, or concern configs that the pod does not use.
fn bound_report(mut report: ReportRequest, configs: &[ConfigName]) -> ReportRequest {
    clean_text(&mut report.agent);
    report.configs.retain(|config| configs.contains(&config.name));
    report.configs.truncate(configs.len());
    for config in &mut report.configs {
        config.uid = config.uid.take().and_then(|uid| {
            let mut text = String::from(uid);
            clean_text(&mut text);
            ConfigUid::new(text)
        });
        if let Some(problem) = &mut config.problem {
            clean_text(&mut problem.reason);
            clean_text(&mut problem.message);
        }
    }
    report.configs.shrink_to_fit();
    report.containers.truncate(MAX_CONTAINERS);
    for container in &mut report.containers {
        clean_text(&mut container.message);
    }
    report.containers.shrink_to_fit();
    report
}

fn clean_text(text: &mut String) {
    *text = one_line(text, MAX_TEXT_BYTES);
}

#[cfg(test)]
mod tests {
    use nudge_core::pods::{Report, ReportState};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_of_a_report_is_bounded() {
        let long = "é".repeat(5000);
        let config = |name: &str| json!({"name": name, "uid": long, "problem": {"reason": long, "message": long}});
        let container = json!({"name": "app", "notify": "none", "ack": "delivered", "outcome": "Failed", "message": long, "acknowledged": false});
        let report = json!({
            "agent": long,
            "configs": [config("shop"), config("other"), config("shop"), config("shop")],
            "containers": vec![container; 500],
        });
        let report = bound_report(serde_json::from_value(report).unwrap(), &[ConfigName::new("shop").unwrap()]);
        assert_eq!((report.configs.len(), report.containers.len()), (1, MAX_CONTAINERS));
        assert!(serde_json::to_string(&report).unwrap().len() < 64 * 1024);
        assert_eq!(report.agent.len(), MAX_TEXT_BYTES);
    }

    fn uid(uid: &str) -> PodUid {
        PodUid::new(uid).unwrap()
    }

    /// A pod whose condition is from a report of that second.
    fn state(reported_at: Option<i64>) -> PodState {
        PodState {
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            uid: uid("u"),
            report: reported_at.map(|at| Report {
                versions: Vec::new(),
                state: ReportState::Acknowledged,
                reasons: Vec::new(),
                at: Some(at),
            }),
            ..PodState::default()
        }
    }

    /// Returns a replica's memory of a report that came in second `at`, after a report of second `last`.
    fn came(at: u64, before: Option<i64>, last: Option<u64>) -> Arc<PodReport> {
        let reports = Reports::default();
        for second in last.into_iter().chain([at]) {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            reports.add_at(&state(before), ReportRequest::default(), time);
        }
        reports.get(&PodKey::new("ns", "web"), &uid("u")).unwrap()
    }

    #[test]
    fn an_old_report_that_waited_gives_way_to_what_another_replica_has_written() {
        let waited = came(100, Some(90), None);
        for (stands, superseded) in
            [(None, false), (Some(90), false), (Some(95), false), (Some(100), false), (Some(101), true)]
        {
            assert_eq!(waited.is_superseded(&state(stands)), superseded, "{stands:?}");
            assert_eq!(waited.was_overwritten_by_earlier(&state(stands)), stands == Some(95), "{stands:?}");
        }
    }

    #[test]
    fn a_new_report_never_gives_way_to_what_stood_there_when_it_came() {
        // The clock of the replica that wrote it is far ahead.
        let new = came(100, Some(500), None);
        assert!(new.stamp == 501 && !new.is_superseded(&state(Some(500))) && !new.is_superseded(&state(Some(501))));
        // The own clock was set back.
        let new = came(100, None, Some(500));
        assert!(new.stamp == 500 && !new.is_superseded(&state(Some(500))));
        assert!(new.is_superseded(&state(Some(501))));
    }

    #[test]
    fn the_agents_clock_gives_the_order_where_those_of_replicas_differ() {
        let of = |made: i64, clock: u64, before: Option<i64>| {
            let (reports, report) = (Reports::default(), ReportRequest { at: made, ..ReportRequest::default() });
            reports.add_at(&state(before), report, SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(clock));
            reports.get(&PodKey::new("ns", "web"), &uid("u")).unwrap()
        };
        // The first replica's clock is five seconds ahead, and its report waits while the second one's is written.
        let (first, second) = (of(100, 105, Some(90)), of(101, 100, Some(90)));
        assert_eq!((first.stamp, second.stamp), (100, 101));
        assert!(first.is_superseded(&state(Some(101))) && second.was_overwritten_by_earlier(&state(Some(100))));
        // The agent's clock was set back.
        assert_eq!(of(50, 100, Some(90)).stamp, 91);
        // An agent may claim any time.
        assert_eq!(of(i64::MAX, 100, None).stamp, 100 + MAX_CLOCK_LEAD_SECONDS);
        assert_eq!(of(i64::MIN, 100, None).stamp, 100);
    }

    #[test]
    fn a_report_is_its_pods() {
        let (reports, pod) = (Reports::default(), PodKey::new("ns", "web"));
        reports.add(&state(None), ReportRequest::default(), Instant::now());
        assert!(reports.get(&pod, &uid("u")).is_some() && reports.get(&pod, &uid("v")).is_none());
        reports.remove(&pod, &uid("v"));
        assert!(reports.get(&pod, &uid("u")).is_some());
        reports.retain(|_, reported| reported.uid.as_str() != "u");
        assert!(reports.get(&pod, &uid("u")).is_none());
    }

    #[test]
    fn of_a_flood_the_newest_is_taken_every_two_seconds() {
        let (reports, now) = (Reports::default(), Instant::now());
        let of = |agent: usize| ReportRequest { agent: agent.to_string(), ..ReportRequest::default() };
        let kept = || reports.get(&PodKey::new("ns", "web"), &uid("u")).unwrap().report.agent.clone();
        assert_eq!(reports.add(&state(None), of(0), now), None);
        for number in 1..1000 {
            assert_eq!(reports.add(&state(None), of(number), now), Some(now + REPORT_PERIOD));
        }
        assert_eq!(kept(), "0");
        assert!(!reports.take_waiting(&state(None), now + REPORT_PERIOD / 2), "not before its time");
        assert!(reports.take_waiting(&state(None), now + REPORT_PERIOD));
        assert_eq!(kept(), "999");
        assert!(!reports.take_waiting(&state(None), now + REPORT_PERIOD), "each once");
        assert_eq!(reports.add(&state(None), of(1), now + REPORT_PERIOD), Some(now + 2 * REPORT_PERIOD));
        // Another pod of this name has its own time.
        let other = PodState { uid: uid("v"), ..state(None) };
        assert_eq!(reports.add(&other, of(2), now + REPORT_PERIOD), None);
        assert!(
            !reports.take_waiting(&other, now + 3 * REPORT_PERIOD)
                && !reports.take_waiting(&state(None), now + 3 * REPORT_PERIOD)
        );
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_is_kept() {
        let bad = "\u{1b}[2J\u{202e}x\n";
        let report = json!({
            "agent": bad,
            "configs": [{"name": "shop", "uid": bad, "problem": {"reason": bad, "message": bad}}],
            "containers": [{"name": "app", "notify": "none", "ack": "delivered", "outcome": "Failed", "message": bad, "acknowledged": false}],
        });
        let report = bound_report(serde_json::from_value(report).unwrap(), &[ConfigName::new("shop").unwrap()]);
        let text = format!("{report:?}");
        assert!(!text.contains("u{1b}") && !text.contains("u{202e}") && !text.contains("\\n"), "{text}");
        assert_eq!(report.containers[0].message, " [2J x ");
    }
}
