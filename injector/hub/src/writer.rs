//! Writes pod conditions: the newest of each pod, a few at the same time and at a bounded rate, only where it is not there already. Namespaces
//! take turns.
//!
//! Several replicas may have reports of one pod; the last one counts. Each write is bound to the resourceVersion that it was decided on:
//! where the pod has changed since, the API server refuses it, and it is decided again.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use nudge_core::keys::PodKey;
use nudge_core::pods::{PodState, Report};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use nudge_protocol::pod::CONDITION;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::metrics::{ConditionResult, Metrics};
use super::turns::Turns;

/// Who owns the conditions that the hub writes.
const MANAGER: &str = "nudge-hub";
/// Writes at the same time.
const AT_ONCE: usize = 8;
/// How long one write may take.
const WRITE: Duration = Duration::from_secs(10);
/// Waits after refusals: somebody may have to bind a role.
const REFUSED: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(16) };
/// Waits until it is decided again about a pod that has changed meanwhile: the watch has to bring the change.
const CHANGED: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_millis(6400) };
/// Waits after failures that may pass.
const UNAVAILABLE: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(64) };
/// How long until a pod is looked at again whose agent knows more than this replica.
pub(super) const LATER: Duration = Duration::from_secs(5);

/// Times in an object.
const TIME: &str = "%Y-%m-%dT%H:%M:%SZ";

/// Why a condition was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The pod is gone.
    #[error("the pod is gone")]
    Gone,
    /// The pod has changed since, or it is another one.
    #[error("the pod has changed since")]
    Changed,
    /// Nudge may not, or the pod is not valid for another reason.
    #[error("the API server refuses the condition")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// It may work later.
    #[error("the condition can't be written now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Writes conditions: to the API server, or a stand-in.
pub trait ConditionWriter: Send + Sync + 'static {
    /// Writes `condition` to the status of `pod`, unless the pod has changed, or another pod has its name by now.
    fn write<'a>(&'a self, pod: &'a PodState, condition: &'a Report) -> BoxFuture<'a, Result<(), WriteError>>;
}

/// Writes to the API server.
pub struct KubeConditions {
    client: Client,
}

impl KubeConditions {
    /// Writes by `client`, which needs the right to patch `pods/status`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl ConditionWriter for KubeConditions {
    fn write<'a>(&'a self, pod: &'a PodState, condition: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
            let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let patch = Patch::Strategic(patch(pod, condition));
            match api.patch_status(&pod.name, &parameters, &patch).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => Err(WriteError::Gone),
                Err(kube::Error::Api(status)) if status.code == 409 => Err(WriteError::Changed),
                Err(kube::Error::Api(status)) if matches!(status.code, 400..=428) => {
                    Err(WriteError::Refused(kube::Error::Api(status).into()))
                }
                Err(error) => Err(WriteError::Unavailable(error.into())),
            }
        })
    }
}

/// A strategic merge patch: conditions of other types stay, and uid and resourceVersion make sure of the pod.
fn patch(pod: &PodState, condition: &Report) -> serde_json::Value {
    let mut own = json!({
        "type": CONDITION, "status": condition.status(), "reason": condition.reason(), "message": condition.message(),
    });
    if pod.report.as_ref().is_none_or(|report| report.status() != condition.status()) {
        own["lastTransitionTime"] = json!(jiff::Timestamp::now().strftime(TIME).to_string());
    }
    if let Some(at) = condition.at.and_then(|second| jiff::Timestamp::from_second(second).ok()) {
        own["lastProbeTime"] = json!(at.strftime(TIME).to_string());
    }
    let mut metadata = json!({"uid": pod.uid.as_str()});
    if let Some(version) = &pod.version.0 {
        metadata["resourceVersion"] = json!(version);
    }
    json!({"metadata": metadata, "status": {"conditions": [own]}})
}

/// What to do about a pod's condition.
#[derive(Debug)]
pub(super) enum Plan {
    /// It is as it should be, or this replica knows nothing of it.
    Nothing,
    /// Write this.
    Write(Arc<PodState>, Report),
    /// Look again later: the agent, which does not repeat its report, knows more than this replica.
    Later,
}

/// How long until a failed write is tried again; `None` where the pod is gone. It never gives up otherwise, since the agent does not repeat
/// a report that was taken.
fn pause(error: &WriteError, failures: u32) -> Option<Duration> {
    match error {
        WriteError::Gone => None,
        WriteError::Changed => Some(CHANGED.wait(failures.saturating_add(1))),
        WriteError::Refused(_) => Some(REFUSED.wait(failures.saturating_add(1))),
        WriteError::Unavailable(_) => Some(UNAVAILABLE.wait(failures.saturating_add(1))),
    }
}

/// The pods whose condition may have to be written.
#[derive(Default)]
pub(super) struct Queue {
    turns: Mutex<Turns>,
    more: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the pod due after `delay`, unless it is due earlier.
    pub(super) fn add(&self, pod: &PodKey, delay: Duration) {
        self.put(pod, delay, 0);
    }

    fn put(&self, pod: &PodKey, delay: Duration, failures: u32) {
        self.lock().add(pod, Instant::now() + delay, failures);
        self.more.notify_one();
    }

    /// Waits for the next pod that is due.
    async fn next(&self) -> (PodKey, u32) {
        loop {
            let earliest = {
                let mut turns = self.lock();
                if let Some(next) = turns.next(Instant::now()) {
                    return next;
                }
                turns.earliest()
            };
            match earliest {
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.more.notified() => {}
                },
                None => self.more.notified().await,
            }
        }
    }

    /// Writes until dropped, by what `plan` says. What can't be written is tried again until `plan` says otherwise.
    pub(super) async fn write_all(
        &self,
        writer: &Arc<dyn ConditionWriter>,
        per_second: u32,
        metrics: &Metrics,
        plan: impl Fn(&PodKey) -> Plan,
    ) {
        let gap = Duration::from_secs(1) / per_second.max(1);
        let mut begin = Instant::now();
        let mut running = FuturesUnordered::new();
        // Pods that are being written, and whether one became due meanwhile.
        let mut busy: HashMap<PodKey, bool> = HashMap::new();
        loop {
            let next = async {
                sleep_until(begin).await;
                self.next().await
            };
            let (key, failures) = tokio::select! {
                Some((key, failures, written)) = running.next() => {
                    let again = busy.remove(&key).unwrap_or_default();
                    self.wrote(&key, failures, written, metrics);
                    if again {
                        self.add(&key, Duration::ZERO);
                    }
                    continue;
                }
                next = next, if busy.len() < AT_ONCE => next,
            };
            if let Some(again) = busy.get_mut(&key) {
                *again = true;
                continue;
            }
            match plan(&key) {
                Plan::Nothing => {}
                Plan::Later => self.put(&key, LATER, failures),
                Plan::Write(pod, condition) => {
                    busy.insert(key.clone(), false);
                    begin = Instant::now() + gap;
                    running.push(async move {
                        let written = timeout(WRITE, writer.write(&pod, &condition)).await;
                        let late = |_| Err(WriteError::Unavailable("no answer in time".into()));
                        (key, failures, written.unwrap_or_else(late))
                    });
                }
            }
        }
    }

    /// Takes the result of a write.
    fn wrote(&self, key: &PodKey, failures: u32, written: Result<(), WriteError>, metrics: &Metrics) {
        let Err(error) = written else { return metrics.condition(ConditionResult::Written) };
        metrics.condition(match error {
            WriteError::Gone | WriteError::Refused(_) => ConditionResult::Refused,
            WriteError::Changed => ConditionResult::Changed,
            WriteError::Unavailable(_) => ConditionResult::Unavailable,
        });
        tracing::debug!(namespace = key.namespace, pod = key.name, error = chain(&error), "pod condition not written");
        if let Some(pause) = pause(&error, failures) {
            self.put(key, pause, failures.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::Reason;
    use nudge_core::keys::PodUid;
    use nudge_core::pods::ReportState;

    use super::*;

    #[derive(Default)]
    struct FakeWriter {
        written: Mutex<Vec<(String, Duration)>>,
        failures: Mutex<u32>,
        refuses: bool,
        started: Option<Instant>,
    }

    impl ConditionWriter for FakeWriter {
        fn write<'a>(&'a self, pod: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
            Box::pin(async move {
                let mut failures = self.failures.lock().unwrap();
                if *failures > 0 {
                    *failures -= 1;
                    if self.refuses {
                        return Err(WriteError::Refused("403".into()));
                    }
                    return Err(WriteError::Unavailable("down".into()));
                }
                let elapsed = self.started.unwrap().elapsed();
                self.written.lock().unwrap().push((pod.name.clone(), elapsed));
                Ok(())
            })
        }
    }

    fn condition() -> Report {
        Report { versions: Vec::new(), state: ReportState::Acknowledged, at: None }
    }

    async fn run(queue: &Queue, api: &Arc<FakeWriter>, seconds: u64) -> Vec<(String, u64)> {
        let writer: Arc<dyn ConditionWriter> = api.clone();
        let plan = |key: &PodKey| {
            let pod = PodState { name: key.name.clone(), ..PodState::default() };
            match key.name.as_str() {
                "same" => Plan::Nothing,
                "behind" if api.started.unwrap().elapsed() < Duration::from_secs(12) => Plan::Later,
                _ => Plan::Write(Arc::new(pod), condition()),
            }
        };
        let metrics = Metrics::default();
        let writing = queue.write_all(&writer, 10, &metrics, plan);
        let _ = timeout(Duration::from_secs(seconds), writing).await;
        let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap();
        api.written.lock().unwrap().iter().map(|(pod, at)| (pod.clone(), millis(at))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_pod_is_written_once_at_a_bounded_rate() {
        let (queue, writer) =
            (Queue::default(), Arc::new(FakeWriter { started: Some(Instant::now()), ..FakeWriter::default() }));
        for _ in 0..3 {
            for pod in ["a", "b", "same", "c"] {
                queue.add(&PodKey::new("ns", pod), Duration::ZERO);
            }
        }
        queue.add(&PodKey::new("ns", "late"), Duration::from_secs(2));
        let written = run(&queue, &writer, 10).await;
        let pods: Vec<&str> = written.iter().map(|(pod, _)| pod.as_str()).collect();
        assert_eq!(pods, ["a", "b", "c", "late"]);
        assert!(written[2].1 >= 200 && (2000..2100).contains(&written[3].1), "{written:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_outlived_and_a_later_wish_comes_at_its_own_time() {
        let writer = FakeWriter { started: Some(Instant::now()), failures: Mutex::new(3), ..FakeWriter::default() };
        let (queue, writer) = (Queue::default(), Arc::new(writer));
        queue.add(&PodKey::new("ns", "a"), Duration::from_mins(10));
        queue.add(&PodKey::new("ns", "a"), Duration::ZERO);
        let written = run(&queue, &writer, 60).await;
        assert_eq!(written.len(), 1);
        assert!(written[0].1 >= 7000, "{written:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_long_is_tried_again_and_so_is_what_cannot_be_judged() {
        for (refuses, failures, earliest) in [(true, 2, 180), (false, 12, 320)] {
            let started = Some(Instant::now());
            let writer =
                Arc::new(FakeWriter { started, failures: Mutex::new(failures), refuses, ..FakeWriter::default() });
            let queue = Queue::default();
            queue.add(&PodKey::new("ns", "a"), Duration::ZERO);
            let written = run(&queue, &writer, 600).await;
            assert_eq!(written.len(), 1);
            assert!(written[0].1 >= earliest * 1000, "{written:?}");
        }
        let (queue, writer) =
            (Queue::default(), Arc::new(FakeWriter { started: Some(Instant::now()), ..FakeWriter::default() }));
        queue.add(&PodKey::new("ns", "behind"), LATER);
        let written = run(&queue, &writer, 60).await;
        assert_eq!(written.len(), 1);
        assert!((12_000..20_000).contains(&written[0].1), "{written:?}");
        let longest = |error| pause(&error, u32::MAX).unwrap();
        assert!(longest(WriteError::Refused("403".into())) < Duration::from_mins(20));
        assert_eq!(longest(WriteError::Unavailable("down".into())), Duration::from_secs(64));
        assert!(longest(WriteError::Changed) < Duration::from_secs(10));
        assert_eq!(pause(&WriteError::Gone, 0), None);
    }

    /// An API server that takes a second for each write.
    #[derive(Default)]
    struct Slow {
        running: Mutex<Vec<String>>,
        most: Mutex<usize>,
        written: Mutex<Vec<String>>,
        conflicts: Mutex<u32>,
    }

    impl ConditionWriter for Slow {
        fn write<'a>(&'a self, pod: &'a PodState, _: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
            Box::pin(async move {
                {
                    let mut running = self.running.lock().unwrap();
                    assert!(!running.contains(&pod.name), "{} is written twice at once", pod.name);
                    running.push(pod.name.clone());
                    let mut most = self.most.lock().unwrap();
                    *most = running.len().max(*most);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.running.lock().unwrap().retain(|name| *name != pod.name);
                let mut conflicts = self.conflicts.lock().unwrap();
                if *conflicts > 0 {
                    *conflicts -= 1;
                    return Err(WriteError::Changed);
                }
                self.written.lock().unwrap().push(pod.name.clone());
                Ok(())
            })
        }
    }

    /// Writes these pods, and the first one again while it is written.
    async fn slowly(pods: usize, conflicts: u32, seconds: u64) -> (usize, Vec<String>) {
        let slow = Arc::new(Slow { conflicts: Mutex::new(conflicts), ..Slow::default() });
        let (queue, writer): (_, Arc<dyn ConditionWriter>) = (Queue::default(), slow.clone());
        (0..pods).for_each(|number| queue.add(&PodKey::new("ns", format!("{number:03}")), Duration::ZERO));
        queue.add(&PodKey::new("ns", "000"), Duration::ZERO);
        let again = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            queue.add(&PodKey::new("ns", "000"), Duration::ZERO);
            std::future::pending::<()>().await;
        };
        let plan = |key: &PodKey| {
            let pod = PodState { name: key.name.clone(), ..PodState::default() };
            Plan::Write(Arc::new(pod), condition())
        };
        let metrics = Metrics::default();
        let writing = queue.write_all(&writer, 50, &metrics, plan);
        let _ = timeout(Duration::from_secs(seconds), futures::future::join(writing, again)).await;
        let (most, written) = (*slow.most.lock().unwrap(), slow.written.lock().unwrap().clone());
        (most, written)
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_are_written_at_once_and_each_pod_once_at_a_time() {
        let (most, written) = slowly(79, 0, 11).await;
        assert_eq!((most, written.len()), (AT_ONCE, 80));
        assert_eq!(written.iter().filter(|name| *name == "000").count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_has_changed_is_decided_again() {
        let (_, written) = slowly(1, 3, 20).await;
        assert!(!written.is_empty(), "it is written in the end");
    }

    #[test]
    fn the_time_of_transition_changes_with_the_status_only() {
        let pod = |state: ReportState| PodState {
            uid: PodUid::new("u").unwrap(),
            report: Some(Report { state, ..condition() }),
            ..PodState::default()
        };
        let [same, other] = [ReportState::Acknowledged, ReportState::of(Reason::Pending.explained("m"))].map(pod);
        let time = |pod: &PodState| patch(pod, &condition())["status"]["conditions"][0]["lastTransitionTime"].clone();
        assert!(time(&same).is_null() && time(&other).is_string());
        assert!(time(&PodState::default()).as_str().unwrap().ends_with('Z'));
        assert_eq!(patch(&same, &condition())["metadata"], json!({"uid": "u"}));
    }

    #[test]
    fn a_write_is_of_one_version_of_the_pod_and_says_when_the_report_came() {
        let version = nudge_core::pods::ObjectVersion(Some("7".into()));
        let pod = PodState { uid: PodUid::new("u").unwrap(), version, ..PodState::default() };
        let made = patch(&pod, &Report { at: Some(1_700_000_000), ..condition() });
        assert_eq!(made["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(made["status"]["conditions"][0]["lastProbeTime"], "2023-11-14T22:13:20Z");
        assert!(patch(&pod, &condition())["status"]["conditions"][0].get("lastProbeTime").is_none());
    }
}
