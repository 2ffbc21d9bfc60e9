//! The checks of workloads: whether a rollout restarts workloads, how soon they are checked again, and when checks that
//! fail end the rollout.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Reason, RolloutStage, VersionedConfig};
use nudge_core::keys::ConfigKey;
use nudge_core::restart::{
    ObjectReport, RETRY_SECONDS, RestartGoal, RestartReport, RolloutPart, is_restarting, objects_with_version,
    published_kinds,
};
use nudge_core::rollout::{Restarts, version_to_publish};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::time::Instant;

use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::{RestartCheck, RestartMemory};

/// The time between two checks. Workloads are not watched, because that would be all workloads of the cluster.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The waits after checks in a row that failed.
const CHECK_BACKOFF: Backoff = Backoff { first: CHECK_INTERVAL, longest: Duration::from_secs(30) };

/// Returns the time in whole seconds, because the times that it is compared with were stored so.
fn whole_second(time: &MicroTime) -> Timestamp {
    Timestamp::from_second(time.0.as_second()).unwrap_or(time.0)
}

impl Controller {
    /// Makes the next steps for the workloads that take a version by a restart, if the rollout has come that far.
    pub(crate) async fn restart(&self, key: &ConfigKey, config: &VersionedConfig) -> RestartCheck {
        let Some(status) = config.status.as_ref().filter(|status| is_restarting(Some(status))) else {
            self.memories.get(key, |memory| memory.restarts = RestartMemory::default());
            return RestartCheck::not_yet();
        };
        let rollout = &status.rollout;
        let is_return = rollout.stage != Some(RolloutStage::Restarting);
        // A rollout to another version than spec.version goes no further.
        let is_left =
            config.requested_version().is_some_and(|version| status.target_version.as_deref() != Some(version));
        if !is_return && is_left {
            return RestartCheck::not_yet();
        }
        let Some(version) = version_to_publish(status) else { return RestartCheck::without_workloads(Restarts::Done) };
        if is_return && status.internal.workloads_restart_time.is_none() {
            return RestartCheck::without_workloads(Restarts::Done);
        }
        let now = Timestamp::now();
        let last_progress = rollout.progress_time.as_ref().map_or(now, whole_second);
        let deadline_seconds = config.spec.rollout.progress_deadline_seconds;
        let goal = RestartGoal {
            key,
            config,
            status,
            version,
            published_objects: &published_kinds(status, version),
            objects: &objects_with_version(config, status, version),
            is_return,
            last_progress,
            deadline_seconds,
            now,
        };
        // Some workloads also read the published objects: they are restarted once these were written, or can't be. The
        // way back waits until its deadline.
        let is_overdue = is_return && now.duration_since(last_progress).as_secs() >= deadline_seconds.into();
        if !self.restarts_with(key, version, is_overdue) {
            return if is_return { RestartCheck::not_yet() } else { RestartCheck::without_workloads(Restarts::Done) };
        }
        let part = RolloutPart { stage: rollout.stage, version: Some(version.to_owned()) };
        let last = self.memories.restarts(key, &part, |memory| memory.last_check.clone());
        // The first check must find all workloads that existed when the version was published.
        if last.is_none() {
            self.workload_lists.outdate(&key.namespace);
        }
        let failures = match last {
            Some((checked_at, check)) if checked_at.elapsed() < check.wait => return check,
            last => last.and_then(|(_, check)| check.failures),
        };
        let check = match self.check_workloads(&goal, &part).await {
            Ok(check) => check,
            // A failure is reported, and keeps no decision waiting: not even the decision that the restarts take too
            // long.
            Err(error) => {
                let cause = FailureCause::of(&error);
                tracing::warn!(config = %key, error = chain(&error), "workloads not restarted; retrying");
                RestartCheck::failure(version, &cause, failures, deadline_seconds)
            }
        };
        let ended = Instant::now();
        self.memories.restarts(key, &part, |memory| memory.last_check = Some((ended, check.clone())));
        check
    }
}

impl RestartCheck {
    /// Returns a check of no workloads, which the rollout takes for this state.
    pub(super) fn without_workloads(state: Restarts) -> Self {
        Self { state, report: None, failures: None, wait: CHECK_INTERVAL }
    }

    /// Returns a check that has not begun yet.
    pub(crate) fn not_yet() -> Self {
        Self::without_workloads(Restarts::Busy("the workloads to restart are not known yet".to_owned()))
    }

    /// Returns a check that failed at a call. Once checks have failed for `deadline_seconds`, that ends the rollout.
    pub(super) fn failure(
        version: &str,
        cause: &FailureCause,
        before: Option<(u32, Instant)>,
        deadline_seconds: u32,
    ) -> Self {
        let (count, since) = before.unwrap_or((0, Instant::now()));
        let count = count.saturating_add(1);
        let message = format!("workloads can't be restarted, because {}", cause.text);
        let reason = if cause.refused { Reason::Refused } else { Reason::NotRestarted };
        let reports = vec![ObjectReport::about_several(reason, message.clone())];
        let report = RestartReport { version: version.to_owned(), workloads: 0, done: false, reports };
        let state = if since.elapsed() >= Duration::from_secs(deadline_seconds.into()) {
            Restarts::Failed(format!("no progress within {deadline_seconds} s: {message}"))
        } else {
            Restarts::Busy(message)
        };
        Self {
            state,
            report: Some(report),
            failures: Some((count, since)),
            wait: CHECK_BACKOFF.jittered_wait(count, rand::random()),
        }
    }

    /// Returns when to check again, if workloads were checked.
    pub(crate) fn next_check(&self) -> Option<Duration> {
        let is_blocked = matches!(self.state, Restarts::Blocked(_));
        self.report.as_ref().map(|_| if is_blocked { Duration::from_secs(RETRY_SECONDS.into()) } else { self.wait })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nudge_cluster::index::Index;
    use nudge_core::keys::PodUid;
    use nudge_core::pods::{PodState, UpdateMode};
    use nudge_protocol::ConfigName;
    use serde_json::json;

    use super::*;
    use crate::fake_api_server::{FakeApiServer, controller_over};

    /// Returns the number of lists of a check in this stage, if version 2 is to be published.
    async fn count_lists(stage: &str, published: &str, by_restart: bool) -> usize {
        let server = Arc::<FakeApiServer>::default();
        let client = server.client(|_, _, _| (200, json!({"metadata": {}, "items": []})));
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let (current, target) = if stage == "Restarting" { ("1", "2") } else { ("2", "1") };
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {"version": "2", "objects": ["ConfigMap"]},
            "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "status": {"currentVersion": current, "targetVersion": target, "publishedVersion": published,
                "rollout": {"stage": stage}, "internal": {"workloadsRestartTime": "2026-01-01T00:00:00Z"}},
        }))
        .unwrap();
        index.put_config(config.clone());
        index.put_pod(PodState {
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            uid: PodUid::new("web").unwrap(),
            configs: vec![ConfigName::new("shop").unwrap()],
            update_mode: if by_restart { UpdateMode::ByRestart } else { UpdateMode::Live },
            ..PodState::default()
        });
        let controller = controller_over(client, index);
        let key = ConfigKey::parse("ns", "shop").unwrap();
        controller.note_published(&key, "2");
        let check = controller.restart(&key, &config).await;
        assert_eq!(check.report.map(|report| report.workloads), Some(0), "what the condition said before is gone");
        let calls = server.calls.lock();
        calls.iter().filter(|call| call.starts_with("GET /apis/apps/v1/namespaces/ns/")).count()
    }

    #[tokio::test]
    async fn workloads_are_listed_where_one_may_take_the_version_by_a_restart() {
        assert_eq!(count_lists("Restarting", "1", false).await, 0);
        assert!(count_lists("Restarting", "1", true).await >= 3);
        assert!(count_lists("Restarting", "2", false).await >= 3, "pods without an agent read what is published");
        assert!(count_lists("RollingBack", "1", false).await >= 3, "those that were restarted return");
    }
}
