//! Decides which pods get which condition, and when: after a report, after a change without one, or because the agent
//! is silent.

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::index::Index;
use nudge_core::keys::PodKey;
use nudge_core::pods::{PodState, Report};
use nudge_protocol::hub::ReportRequest;
use tokio::time::{Instant, sleep_until};

use super::condition::{self, Priority};
use super::condition_writer::ConditionWriter;
use super::reports::Reports;
use super::write_order::PendingWrite;
use super::write_queue::WriteQueue;
use super::writer::{BEHIND_REPLICA_DELAY, WritePlan, write_all};
use crate::callers::{Authentication, PollSlots, Session};
use crate::contents::{AgentCopy, ContentStore, config_views};
use crate::metrics::Metrics;
use crate::reply::PollRefusal;
use crate::settings::Settings;

/// The delay of a condition that a better condition is likely to follow. It is longer than the interval of the pod's
/// reports.
const PASSING_DELAY: Duration = Duration::from_millis(2500);

/// The parts of the hub that take reports, and plan the conditions of pods.
pub(crate) struct PodConditions {
    pub(crate) index: Arc<Index>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Metrics,
    pub(crate) authentication: Arc<Authentication>,
    pub(crate) contents: Arc<ContentStore>,
    pub(crate) poll_slots: Arc<PollSlots>,
    pub(crate) reports: Reports,
    pub(crate) queue: WriteQueue,
    pub(crate) writer: Arc<dyn ConditionWriter>,
}

impl PodConditions {
    /// Takes a report, or lets it wait for its time. Returns when it, or a newer one of the pod, is taken.
    pub(crate) async fn take_report(&self, session: &Session, report: ReportRequest) -> Result<(), PollRefusal> {
        let mut pod = self.authentication.pod(&session.caller)?.state;
        if let Some(time) = self.reports.add(&pod, report, Instant::now()) {
            drop(pod);
            sleep_until(time).await;
            pod = self.authentication.pod(&session.caller)?.state;
            if !self.reports.take_waiting(&pod, Instant::now()) {
                return Ok(());
            }
        }
        self.metrics.count_report();
        match self.condition(&pod) {
            Some(condition) if has_condition(&pod, &condition) => {}
            Some(condition) => {
                let priority = condition::priority(&condition, pod.report.as_ref());
                let delay = if priority == Priority::Passing { PASSING_DELAY } else { Duration::ZERO };
                self.queue.add(PendingWrite::new(&pod, priority == Priority::Urgent), delay);
            }
            None => self.queue.add(PendingWrite::new(&pod, false), BEHIND_REPLICA_DELAY),
        }
        Ok(())
    }

    /// Returns the condition that the pod should have after its agent's reports to this replica.
    fn condition(&self, pod: &PodState) -> Option<Report> {
        let key = pod.key();
        let report = self.reports.get(&key, &pod.uid)?;
        // A replica whose watch is silent may not know the newest state.
        if self.index.silent_watch_in(&pod.namespace, self.settings.max_watch_silence).is_some() {
            return None;
        }
        let copy = |name: &_| AgentCopy::reported(&report.report, name);
        let views = config_views(&self.index, &self.contents, pod, copy).views;
        condition::judge(pod, &views, &report.report, report.stamp)
    }

    /// Decides which condition of a pod is written.
    fn plan(&self, key: &PodKey) -> WritePlan {
        let Some(entry) = self.index.pod(key).filter(|_| self.index.is_enabled(&key.namespace)) else {
            return WritePlan::Nothing;
        };
        let pod = entry.state;
        let report = self.reports.get(key, &pod.uid);
        if report.as_ref().is_some_and(|report| report.is_superseded(&pod)) {
            return WritePlan::Nothing;
        }
        let condition = match self.condition(&pod) {
            Some(condition) => condition,
            None if report.is_some() => return WritePlan::Later,
            None if self.is_without_contact(&pod) => condition::without_contact(&pod),
            None => return WritePlan::Nothing,
        };
        if has_condition(&pod, &condition) { WritePlan::Nothing } else { WritePlan::Write(pod, condition) }
    }

    /// Returns whether the pod's agent has reported neither to this replica nor to another one, which would have
    /// written a condition.
    // The caller makes sure that this replica has no report.
    fn is_without_contact(&self, pod: &PodState) -> bool {
        let now = jiff::Timestamp::now().as_second();
        let age = |created| Duration::from_secs(u64::try_from(now.saturating_sub(created)).unwrap_or(0));
        let is_old = pod.created.is_none_or(|created| age(created) > self.settings.contact_timeout);
        let has_poll = self.poll_slots.has_poll(pod.uid.as_str());
        pod.report.is_none() && pod.is_live() && !has_poll && is_old
    }

    /// Plans the condition `NoContact` for pods whose agent has not reported for a while. Only the leader does so,
    /// every 30 s or so.
    pub(crate) fn mark_silent_pods(&self) {
        for pod in self.index.pods() {
            let is_enabled = self.index.is_enabled(&pod.namespace);
            if is_enabled && self.is_without_contact(&pod) && self.reports.get(&pod.key(), &pod.uid).is_none() {
                self.enqueue(&pod);
            }
        }
    }

    /// Writes pod conditions until dropped.
    pub(crate) async fn write_all(&self) {
        write_all(&self.queue, &self.writer, &self.metrics, |key| self.plan(key)).await;
    }

    /// Removes reports of pods that are gone. Plans again a condition that another replica has overwritten because of
    /// an earlier report. Also plans again a condition that shows no success: it may be about a version that was
    /// assigned only for a moment, and no report follows.
    pub(crate) fn recheck_reports(&self) {
        self.reports.retain(|key, report| {
            let pod = self.index.pod(key).map(|entry| entry.state).filter(|pod| pod.uid == report.uid);
            if let Some(pod) = &pod {
                let is_acknowledged = |condition: &Report| condition.state.is_success();
                if report.was_overwritten_by_earlier(pod) {
                    self.enqueue(pod);
                } else if !pod.report.as_ref().is_none_or(is_acknowledged) {
                    self.queue.add(PendingWrite::new(pod, false), PASSING_DELAY);
                }
            }
            pod.is_some()
        });
    }

    /// Has the pod's condition planned in its turn.
    pub(crate) fn enqueue(&self, pod: &PodState) {
        self.queue.add(PendingWrite::new(pod, false), Duration::ZERO);
    }
}

/// Returns whether the pod has this condition already.
fn has_condition(pod: &PodState, condition: &Report) -> bool {
    pod.report.as_ref().is_some_and(|report| report.is_same(condition))
}
