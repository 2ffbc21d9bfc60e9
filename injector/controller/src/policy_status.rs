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

use super::controller::{Controller, written_by_us};

/// How often policies are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// Waits after failures in a row of one policy.
const BACKOFF: Backoff = Backoff { first: EVERY, longest: Duration::from_mins(5) };

/// A status that could not be written.
#[derive(Clone, Copy)]
struct Failure {
    /// How often in a row.
    count: u32,
    /// When to try again.
    retry: Instant,
}

/// Runs for ever, and writes what the status of each policy is to say, where that is something else.
pub async fn keep_policy_statuses(controller: Arc<Controller>) {
    let api: Api<RolloutPolicy> = Api::all(controller.client.clone());
    let mut failures = HashMap::new();
    controller.index.synced().await;
    loop {
        failures = controller.write_policy_statuses(&api, &failures).await;
        sleep(EVERY).await;
    }
}

impl Controller {
    /// Writes once. Returns what failed.
    async fn write_policy_statuses(
        &self,
        api: &Api<RolloutPolicy>,
        failures: &HashMap<String, Failure>,
    ) -> HashMap<String, Failure> {
        let mut failed = HashMap::new();
        for (policy, reach) in self.index.policies_with_reach() {
            let status = policy_status(&policy, reach, &Time(Timestamp::now()));
            if policy.status.as_ref() == Some(&status) {
                continue;
            }
            let name = policy.metadata.name.clone().unwrap_or_default();
            let before = failures.get(&name).copied();
            if let Some(before) = before.filter(|before| before.retry > Instant::now()) {
                failed.insert(name, before);
                continue;
            }
            let next = RolloutPolicy { status: Some(status), ..(*policy).clone() };
            if let Err(error) = write(api, &name, &next).await {
                let count = before.map_or(0, |before| before.count).saturating_add(1);
                let retry = Instant::now() + BACKOFF.jittered(count, rand::random());
                tracing::warn!(policy = name, error = chain(&error), "status of a policy not written; retrying");
                failed.insert(name, Failure { count, retry });
            }
        }
        failed
    }
}

async fn write(api: &Api<RolloutPolicy>, name: &str, next: &RolloutPolicy) -> Result<(), CallError> {
    let writing = || format!("writing the status of RolloutPolicy {name}");
    match call(writing, api.replace_status(name, &written_by_us(), next)).await {
        // It is gone, or another one by now, which the watch shows.
        Err(error) if matches!(error.code(), 404 | 409) && error.refusal().is_none() => Ok(()),
        other => other.map(drop),
    }
}
