//! What agents have reported, the newest of each pod, for as long as the pod is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use nudge_core::keys::{PodKey, PodUid};
use nudge_core::pods::PodState;
use nudge_protocol::ConfigName;
use nudge_protocol::bounded_text::clipped;
use nudge_protocol::hub::ReportRequest;

/// Most containers and webhooks of one report that are kept.
const MAX_CONTAINERS: usize = 64;
/// Longest text in a report that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// How far ahead of this replica's an agent's clock may be, in seconds.
const AHEAD: i64 = 24 * 3600;

/// One pod's report.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The pod's uid.
    pub uid: PodUid,
    /// What its agent reported last, without what is over bounds.
    pub report: ReportRequest,
    /// When it came.
    pub at: SystemTime,
    /// When it was made, in seconds since 1970 by the agent's clock, which all reports of a pod share, whichever replica they reach. Always
    /// later than the pod's condition was when it came, since clocks are set back.
    pub(super) stamp: i64,
    /// When the report was made that the pod's condition was from when this one came.
    before: Option<i64>,
}

impl Reported {
    /// Whether another replica has since written the condition from a later report.
    pub(super) fn is_superseded(&self, pod: &PodState) -> bool {
        self.was_overwritten(pod) && reported_at(pod) > Some(self.stamp)
    }

    /// Whether another replica has since written the condition from an earlier report.
    pub(super) fn was_overwritten_by_earlier(&self, pod: &PodState) -> bool {
        self.was_overwritten(pod) && reported_at(pod) < Some(self.stamp)
    }

    /// Whether another replica has written the condition since this report came.
    fn was_overwritten(&self, pod: &PodState) -> bool {
        reported_at(pod).is_some_and(|at| Some(at) != self.before && at != self.stamp)
    }
}

/// When the report was made that the pod's condition is from.
fn reported_at(pod: &PodState) -> Option<i64> {
    pod.report.as_ref()?.at
}

type Listener = Box<dyn Fn(&PodKey) + Send + Sync>;

/// The reports.
#[derive(Default)]
pub struct Reports {
    by_pod: Mutex<HashMap<PodKey, Arc<Reported>>>,
    listener: OnceLock<Listener>,
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, HashMap<PodKey, Arc<Reported>>> {
        self.by_pod.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `listener` for every report from now on. It must not block. Only the first call counts.
    pub fn listen(&self, listener: impl Fn(&PodKey) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// The newest report of the pod that this replica has.
    pub fn of(&self, pod: &PodKey, uid: &PodUid) -> Option<Arc<Reported>> {
        self.lock().get(pod).filter(|reported| reported.uid == *uid).cloned()
    }

    /// Keeps what the agent of `pod` has reported.
    pub(super) fn put(&self, pod: &PodState, report: ReportRequest) {
        self.put_at(pod, report, SystemTime::now());
    }

    fn put_at(&self, pod: &PodState, report: ReportRequest, at: SystemTime) {
        let key = pod.key();
        let report = bounded(report, &pod.configs);
        let now = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or_default();
        let made = if report.at > 0 { report.at.min(now.saturating_add(AHEAD)) } else { now };
        let before = reported_at(pod);
        {
            let mut by_pod = self.lock();
            // No report is older than the last one, even where the clock was set back.
            let last = by_pod.get(&key).filter(|last| last.uid == pod.uid).map(|last| last.stamp);
            let later = before.map(|before| before.saturating_add(1));
            let stamp = last.max(later).unwrap_or(made).max(made);
            by_pod.insert(key.clone(), Arc::new(Reported { uid: pod.uid.clone(), report, at, stamp, before }));
        }
        if let Some(listener) = self.listener.get() {
            listener(&key);
        }
    }

    pub(super) fn retain(&self, there: impl Fn(&PodKey, &Reported) -> bool) {
        self.lock().retain(|pod, reported| there(pod, reported));
    }

    pub(super) fn remove(&self, pod: &PodKey, uid: &PodUid) {
        let mut by_pod = self.lock();
        if by_pod.get(pod).is_some_and(|reported| reported.uid == *uid) {
            by_pod.remove(pod);
        }
    }
}

/// The report without what is over bounds, or about configs that the pod does not use.
fn bounded(mut report: ReportRequest, configs: &[ConfigName]) -> ReportRequest {
    cut(&mut report.agent);
    report.configs.retain(|config| configs.contains(&config.name));
    report.configs.truncate(configs.len());
    for config in &mut report.configs {
        cut(&mut config.uid);
        if let Some(problem) = &mut config.problem {
            cut(&mut problem.reason);
            cut(&mut problem.message);
        }
    }
    report.configs.shrink_to_fit();
    report.containers.truncate(MAX_CONTAINERS);
    for container in &mut report.containers {
        cut(&mut container.message);
    }
    report.containers.shrink_to_fit();
    report
}

fn cut(text: &mut String) {
    *text = clipped(std::mem::take(text), MAX_TEXT_BYTES);
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
        let report = bounded(serde_json::from_value(report).unwrap(), &[ConfigName::new("shop").unwrap()]);
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
                at: Some(at),
            }),
            ..PodState::default()
        }
    }

    /// What a replica remembers of a report that came in that second, and after one of `last` second.
    fn came(at: u64, before: Option<i64>, last: Option<u64>) -> Arc<Reported> {
        let reports = Reports::default();
        for second in last.into_iter().chain([at]) {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            reports.put_at(&state(before), ReportRequest::default(), time);
        }
        reports.of(&PodKey::new("ns", "web"), &uid("u")).unwrap()
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
            reports.put_at(&state(before), report, SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(clock));
            reports.of(&PodKey::new("ns", "web"), &uid("u")).unwrap()
        };
        // The first replica's clock is five seconds ahead, and its report waits while the second one's is written.
        let (first, second) = (of(100, 105, Some(90)), of(101, 100, Some(90)));
        assert_eq!((first.stamp, second.stamp), (100, 101));
        assert!(first.is_superseded(&state(Some(101))) && second.was_overwritten_by_earlier(&state(Some(100))));
        // The agent's clock was set back, or what stands there is of an agent that did not say when.
        assert_eq!(of(50, 100, Some(90)).stamp, 91);
        // It says anything.
        assert_eq!(of(i64::MAX, 100, None).stamp, 100 + AHEAD);
        assert_eq!(of(i64::MIN, 100, None).stamp, 100);
    }

    #[test]
    fn a_report_is_its_pods() {
        let (reports, pod) = (Reports::default(), PodKey::new("ns", "web"));
        reports.put(&state(None), ReportRequest::default());
        assert!(reports.of(&pod, &uid("u")).is_some() && reports.of(&pod, &uid("v")).is_none());
        reports.remove(&pod, &uid("v"));
        assert!(reports.of(&pod, &uid("u")).is_some());
        reports.retain(|_, reported| reported.uid.as_str() != "u");
        assert!(reports.of(&pod, &uid("u")).is_none());
    }
}
