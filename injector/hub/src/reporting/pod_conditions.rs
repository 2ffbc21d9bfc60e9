//! Which pods get which condition, and when: by a report, by what changes without one, or because the agent is silent.

use std::sync::Arc;
use std::time::Duration;

use nudge_cluster::index::Index;
use nudge_core::keys::PodKey;
use nudge_core::pods::{PodState, Report, ReportState};
use nudge_protocol::hub::ReportRequest;
use tokio::time::{Instant, sleep_until};

use super::condition::{self, Pace};
use super::condition_writer::ConditionWriter;
use super::reports::Reports;
use super::write_order::PendingWrite;
use super::write_queue::WriteQueue;
use super::writer::{BEHIND_REPLICA_DELAY, WritePlan, write_all};
use crate::callers::{Authentication, PollSlots, Session};
use crate::contents::{AgentCopy, ContentStore, config_views};
use crate::metrics::Metrics;
use crate::reply::Refusal;
use crate::settings::Settings;

/// How long a condition waits that a better one is likely to follow: longer than until the pod's next report is taken.
const PASSING: Duration = Duration::from_millis(2500);

/// Takes reports, and plans the conditions of pods.
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
    /// Takes a report, or lets it wait for its time: returns when it, or a newer one of the pod, is taken.
    pub(crate) async fn report(&self, session: &Session, report: ReportRequest) -> Result<(), Refusal> {
        let mut pod = self.authentication.pod(&session.caller)?.state;
        if let Some(time) = self.reports.put(&pod, report, Instant::now()) {
            drop(pod);
            sleep_until(time).await;
            pod = self.authentication.pod(&session.caller)?.state;
            if !self.reports.take(&pod, Instant::now()) {
                return Ok(());
            }
        }
        self.metrics.reported();
        match self.condition(&pod) {
            Some(condition) if stands_in(&condition, &pod) => {}
            Some(condition) => {
                let pace = condition::pace(&condition, pod.report.as_ref());
                let delay = if pace == Pace::Passing { PASSING } else { Duration::ZERO };
                self.queue.add(PendingWrite::new(&pod, pace == Pace::Urgent), delay);
            }
            None => self.queue.add(PendingWrite::new(&pod, false), BEHIND_REPLICA_DELAY),
        }
        Ok(())
    }

    /// Returns the condition that the pod should have by what its agent has reported to this replica.
    fn condition(&self, pod: &PodState) -> Option<Report> {
        let key = pod.key();
        let report = self.reports.get(&key, &pod.uid)?;
        // A replica whose watch is silent may not know the newest.
        if self.index.silent_watch_in(&pod.namespace, self.settings.stale).is_some() {
            return None;
        }
        let copy = |name: &_| AgentCopy::reported(&report.report, name);
        let views = config_views(&self.index, &self.contents, pod, copy).views;
        condition::judge(pod, &views, &report.report, report.stamp)
    }

    /// Decides what is written of a pod.
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
        if stands_in(&condition, &pod) { WritePlan::Nothing } else { WritePlan::Write(pod, condition) }
    }

    /// Returns whether the pod's agent has reported neither to this replica nor to another one, which would have written a condition.
    fn is_without_contact(&self, pod: &PodState) -> bool {
        let now = jiff::Timestamp::now().as_second();
        let age = Duration::from_secs(u64::try_from(now.saturating_sub(pod.created)).unwrap_or(0));
        let polls = self.poll_slots.has(pod.uid.as_str());
        pod.report.is_none() && !pod.finished && !pod.terminating && !polls && age > self.settings.contact
    }

    /// Plans the condition `NoContact` for pods whose agent has not reported for a while. For the leader alone, every 30 s or so.
    pub(crate) fn sweep(&self) {
        for pod in self.index.pods() {
            let key = pod.key();
            let enabled = self.index.is_enabled(&pod.namespace);
            if enabled && self.is_without_contact(&pod) && self.reports.get(&key, &pod.uid).is_none() {
                self.look_at(&pod);
            }
        }
    }

    /// Writes pod conditions until dropped.
    pub(crate) async fn write_all(&self) {
        write_all(&self.queue, &self.writer, &self.metrics, |key| self.plan(key)).await;
    }

    /// Removes reports of pods that are gone. Where another replica has overwritten a condition by an earlier report, it is written again; and
    /// one that shows no success is looked at again, because it may be of what was assigned for a moment only, and no report follows.
    pub(crate) fn tend_reports(&self) {
        self.reports.retain(|key, report| {
            let pod = self.index.pod(key).map(|entry| entry.state).filter(|pod| pod.uid == report.uid);
            if let Some(pod) = &pod {
                let succeeds = |condition: &Report| condition.state == ReportState::Acknowledged;
                if report.was_overwritten_by_earlier(pod) {
                    self.look_at(pod);
                } else if !pod.report.as_ref().is_none_or(succeeds) {
                    self.queue.add(PendingWrite::new(pod, false), PASSING);
                }
            }
            pod.is_some()
        });
    }

    /// Has the pod's condition looked at in its turn.
    pub(crate) fn look_at(&self, pod: &PodState) {
        self.queue.add(PendingWrite::new(pod, false), Duration::ZERO);
    }
}

/// Returns whether the pod has this condition already.
fn stands_in(condition: &Report, pod: &PodState) -> bool {
    pod.report.as_ref().is_some_and(|report| report.is_same(condition))
}
