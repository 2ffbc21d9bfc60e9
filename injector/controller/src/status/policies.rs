//! The status of policies. Only the leader writes it, beside all else: what can't be written is tried again later, and nothing waits for it.

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

/// The time between two looks at all policies.
const EVERY: Duration = Duration::from_secs(5);
/// Waits after failures in a row of one policy.
const BACKOFF: Backoff = Backoff { first: EVERY, longest: Duration::from_mins(5) };

/// How often in a row the status of a policy could not be written, and when to try again.
type Failures = HashMap<String, (u32, Instant)>;

/// Runs for ever, and writes what the status of each policy is to say, where that is something else.
pub async fn keep_policy_statuses(controller: Arc<Controller>) {
    let api: Api<RolloutPolicy> = Api::all(controller.client.clone());
    let mut failures = Failures::new();
    controller.index.synced().await;
    loop {
        failures = controller.write_policy_statuses(&api, &failures).await;
        sleep(EVERY).await;
    }
}

impl Controller {
    /// Writes once. Returns what failed.
    async fn write_policy_statuses(&self, api: &Api<RolloutPolicy>, failures: &Failures) -> Failures {
        let mut failed = Failures::new();
        for (policy, reach) in self.index.policies_with_reach() {
            let status = policy_status(&policy, reach, &Time(Timestamp::now()));
            if policy.status.as_ref() == Some(&status) {
                continue;
            }
            let name = policy.metadata.name.clone().unwrap_or_default();
            let before = failures.get(&name).copied();
            if let Some(before) = before.filter(|(_, retry)| *retry > Instant::now()) {
                failed.insert(name, before);
                continue;
            }
            let next = RolloutPolicy { status: Some(status), ..(*policy).clone() };
            let writing = || format!("writing the status of RolloutPolicy {name}");
            let written = call(writing, api.replace_status(&name, &written_by_us(), &next)).await;
            // It may be gone, or another one by now, which the watch shows.
            let is_other = |error: &CallError| matches!(error.code(), 404 | 409) && error.refusal().is_none();
            if let Some(error) = written.err().filter(|error| !is_other(error)) {
                let count = before.map_or(0, |(count, _)| count).saturating_add(1);
                let retry = Instant::now() + BACKOFF.jittered(count, rand::random());
                tracing::warn!(policy = name, error = chain(&error), "status of a policy not written; retrying");
                failed.insert(name, (count, retry));
            }
        }
        failed
    }
}
