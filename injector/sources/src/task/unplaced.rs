//! A source without a running task: the limit of sources is reached, or the task panicked.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConditionType, Explanation, condition, set_condition};
use nudge_cluster::turns::Turn;
use tokio::time::timeout;

use super::{API_BACKOFF, Task};
use crate::server_polls::panic_explanation;

impl Task {
    /// Makes the task write its whole status again, because another task may have written the stored status.
    pub(crate) fn rewrite_status(mut self) -> Self {
        self.stored_status = None;
        self
    }

    /// Reports the panic in the status. Then waits for `pause`, or until the spec changes.
    pub(crate) async fn report_panic(mut self, pause: Duration) {
        self.report_idle(&panic_explanation()).await;
        let generation = self.source.metadata.generation;
        let changed = self.receiver.wait_for(|current| current.source.metadata.generation != generation);
        let _ = timeout(pause, changed).await;
    }

    /// Waits for a place among all sources. Meanwhile, the status says that the source waits.
    pub(super) async fn wait_for_place(&mut self) -> Option<Turn> {
        loop {
            match self.sources.budget.reserve_source(&self.namespace) {
                Ok(place) => return Some(place),
                Err(cause) => self.report_idle(&cause).await,
            }
            if let Ok(Err(_)) =
                timeout(API_BACKOFF.jittered_wait(u32::MAX, rand::random()), self.receiver.changed()).await
            {
                return None;
            }
            self.receive();
        }
    }

    /// Writes the reason why no task follows the source into its conditions. Leaves the rest of the status as it is.
    async fn report_idle(&mut self, explanation: &Explanation) {
        let (generation, now) = (self.source.metadata.generation, Time(Timestamp::now()));
        let status = self.source.status.get_or_insert_default();
        for (kind, value) in
            [(ConditionType::Ready, false), (ConditionType::Stalled, explanation.reason.facts().needs_action)]
        {
            let new_condition = condition(kind, value, explanation.reason, &*explanation.message, generation, &now);
            set_condition(&mut status.conditions, new_condition);
        }
        self.write_status().await;
    }
}
