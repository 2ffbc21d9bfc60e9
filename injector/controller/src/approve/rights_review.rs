//! Reviews of the rights of approvers: the API server is asked whether each user who has decided about a version still
//! may approve.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use nudge_cluster::rights::resource_right;
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use tokio::time::{sleep, timeout};

use crate::controller::Controller;
use crate::memory::Approver;

/// The time that one answer may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);
/// The time until the next review after one without all answers, while something moves.
const REVIEW_RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Controller {
    /// Begins a review in parallel to the rollout, if the config has no review under way.
    pub(super) fn begin_review(self: &Arc<Self>, key: &ConfigKey, stale: BTreeSet<Approver>) {
        if !self.memories.change(key, |memory| memory.rights_review.begin(Instant::now())) {
            return;
        }
        let (controller, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move {
            let complete = controller.review_rights(stale).await;
            if !complete {
                // An API server that refuses at once must not be asked all the time.
                sleep(REVIEW_RETRY_INTERVAL).await;
            }
            controller.memories.get(&key, |memory| memory.rights_review.finish(complete));
            controller.queue.add(key, Duration::ZERO);
        });
    }

    /// Asks the API server about these users. If it does not answer, the last answer counts for a while. Returns
    /// whether all is known now.
    pub(super) async fn review_rights(&self, users: BTreeSet<Approver>) -> bool {
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let reviews = users.into_iter().map(|approver| {
            let api = &api;
            async move {
                let review_object = review(&approver);
                let answer = timeout(REVIEW_TIMEOUT, api.create(&PostParams::default(), &review_object)).await;
                match answer {
                    Ok(Ok(answer)) => Some((approver, answer.status.is_some_and(|status| status.allowed))),
                    Ok(Err(error)) => {
                        tracing::warn!(config = %approver.config, error = chain(&error), "right of an approver not reviewed; retrying");
                        None
                    }
                    Err(_) => {
                        tracing::warn!(config = %approver.config, "right of an approver not reviewed in time; retrying");
                        None
                    }
                }
            }
        });
        let answers = join_all(reviews).await;
        let mut rights = self.approver_rights.lock();
        answers.into_iter().fold(true, |complete, answer| match answer {
            Some((approver, may)) => rights.keep(approver, may) && complete,
            None => false,
        })
    }
}

/// Returns the question about a user's right.
fn review(Approver { config, user, groups }: &Approver) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups.clone()),
            resource_attributes: Some(resource_right(
                &config.namespace,
                ("approve", "nudge.dev", "versionedconfigs"),
                Some(config.name.as_str()),
            )),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use nudge_cluster::index::Index;
    use nudge_core::derived_keys::Keys;
    use nudge_core::governance::{Right, sign_approver_groups};
    use nudge_protocol::labels::APPROVER_GROUPS;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api_server::{FakeApiServer, controller_over, status};

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_not_asked_all_the_time() {
        let server = Arc::<FakeApiServer>::default();
        let client = server.client(|_, _, _| (403, status(403)));
        let keys = Keys::of_root(b"key");
        let spec = json!({"configName": "shop", "version": "3", "digest": "d", "decision": "Approve", "reason": "r", "approver": "bob"});
        let made = "2026-01-01T00:00:00Z".parse().unwrap();
        let note = sign_approver_groups(&keys.note, "ns", &serde_json::from_value(spec.clone()).unwrap(), &[], made);
        let approval = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval",
            "metadata": {"name": "one", "namespace": "ns", "annotations": {APPROVER_GROUPS: note}, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        index.put_approval(serde_json::from_value(approval).unwrap());
        let controller = Arc::new(controller_over(client, index));
        let config: Value = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "ns"},
            "spec": {"version": "3", "rollout": {"approval": {}}},
            "status": {"currentVersion": "2", "targetVersion": "3", "rollout": {"stage": "Moving"}, "internal": {"revision": 1}},
        });
        let (key, config) = (ConfigKey::parse("ns", "shop").unwrap(), serde_json::from_value(config).unwrap());
        for _ in 0..100 {
            let approvals = controller.approvals(&key, &config).await;
            assert!(matches!(approvals.decisions[0].right, Right::Unanswered { .. }));
            sleep(REVIEW_RETRY_INTERVAL / 50).await;
        }
        let asked = server.calls.lock().len();
        assert!((1..=3).contains(&asked), "{asked}");
    }
}
