//! What agents have reported, the newest of each pod, for as long as the pod is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use nudge_protocol::ConfigName;
use nudge_protocol::hub::ReportRequest;

use crate::text::clip;
use crate::world::PodKey;

/// Most containers and web hooks of one report that are kept.
const MAX_CONTAINERS: usize = 64;
/// Longest text in a report that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// One pod's report.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The pod's uid.
    pub uid: String,
    /// What its agent said last, without what is over bounds.
    pub report: ReportRequest,
    /// When it came.
    pub at: SystemTime,
}

type Listener = Box<dyn Fn(&PodKey) + Send + Sync>;

/// See the module's text.
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
    pub fn of(&self, pod: &PodKey, uid: &str) -> Option<Arc<Reported>> {
        self.lock().get(pod).filter(|reported| reported.uid == uid).cloned()
    }

    pub(super) fn put(&self, pod: &PodKey, uid: &str, report: ReportRequest, configs: &[ConfigName]) {
        let report = bounded(report, configs);
        let reported = Reported { uid: uid.to_owned(), report, at: SystemTime::now() };
        self.lock().insert(pod.clone(), Arc::new(reported));
        if let Some(listener) = self.listener.get() {
            listener(pod);
        }
    }

    pub(super) fn retain(&self, there: impl Fn(&PodKey, &str) -> bool) {
        self.lock().retain(|pod, reported| there(pod, &reported.uid));
    }

    pub(super) fn remove(&self, pod: &PodKey, uid: &str) {
        let mut by_pod = self.lock();
        if by_pod.get(pod).is_some_and(|reported| reported.uid == uid) {
            by_pod.remove(pod);
        }
    }
}

/// The report without what no agent of ours says.
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
    clip(text, MAX_TEXT_BYTES);
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_report_is_its_pods() {
        let (reports, pod) = (Reports::default(), PodKey::new("ns", "web"));
        reports.put(&pod, "u", ReportRequest::default(), &[]);
        assert!(reports.of(&pod, "u").is_some() && reports.of(&pod, "v").is_none());
        reports.remove(&pod, "v");
        assert!(reports.of(&pod, "u").is_some());
        reports.retain(|_, uid| uid != "u");
        assert!(reports.of(&pod, "u").is_none());
    }
}
