//! The statuses of policies. Only the leader writes them, independently of all other work: a failed write is retried
//! later, and nothing waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::RolloutPolicy;
use nudge_cluster::call::{CallError, call};
use nudge_core::governance::policy_status;
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::time::{Instant, sleep};

use crate::controller::{Controller, written_by_us};

/// The time between two comparisons of all statuses.
const COMPARE_INTERVAL: Duration = Duration::from_secs(5);
/// The waits after failures in a row of one policy.
const WRITE_BACKOFF: Backoff = Backoff { first: COMPARE_INTERVAL, longest: Duration::from_mins(5) };

/// The failed writes of a policy's status in a row.
#[derive(Clone, Copy)]
struct WriteFailures {
    count: u32,
    retry_at: Instant,
}

/// The failed writes by the name of the policy.
type Failures = HashMap<String, WriteFailures>;

/// Runs for ever, and writes the status of each policy if it is to change.
pub async fn keep_policy_statuses(controller: Arc<Controller>) {
    let api: Api<RolloutPolicy> = Api::all(controller.client.clone());
    let mut failures = Failures::new();
    controller.index.wait_until_synced().await;
    loop {
        failures = controller.write_policy_statuses(&api, &failures).await;
        sleep(COMPARE_INTERVAL).await;
    }
}

impl Controller {
    /// Writes each status that is to change, once. Returns the writes that failed.
    async fn write_policy_statuses(&self, api: &Api<RolloutPolicy>, failures: &Failures) -> Failures {
        let mut failed = Failures::new();
        for (policy, reach) in self.index.policies_with_reach() {
            let status = policy_status(&policy, reach, &Time(Timestamp::now()));
            if policy.status.as_ref() == Some(&status) {
                continue;
            }
            let name = policy.metadata.name.clone().unwrap_or_default();
            let before = failures.get(&name).copied();
            if let Some(before) = before.filter(|before| before.retry_at > Instant::now()) {
                failed.insert(name, before);
                continue;
            }
            let next = RolloutPolicy { status: Some(status), ..(*policy).clone() };
            let writing = || format!("writing the status of RolloutPolicy {name}");
            let written = call(writing, api.replace_status(&name, &written_by_us(), &next)).await;
            // The policy may be gone, or have changed, which the watch shows.
            let is_outdated = |error: &CallError| matches!(error.code(), Some(404 | 409)) && error.refusal().is_none();
            if let Some(error) = written.err().filter(|error| !is_outdated(error)) {
                let count = before.map_or(0, |before| before.count).saturating_add(1);
                let retry_at = Instant::now() + WRITE_BACKOFF.jittered_wait(count, rand::random());
                tracing::warn!(policy = name, error = chain(&error), "status of a policy not written; retrying");
                failed.insert(name, WriteFailures { count, retry_at });
            }
        }
        failed
    }
}
