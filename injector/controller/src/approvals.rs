//! Whose approvals may count: each user who has decided about the version is asked for at the API server, whether that user still may approve.
//!
//! A rollout waits for no answer. Where one is missing the version waits, and the answer brings the config back into the queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use nudge_api::{ConditionType, Reason, VersionApproval, VersionedConfig, find_condition};
use nudge_core::governance::{Approvals, Effective, Given, groups_of};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use tokio::time::{sleep, timeout};

use super::approvers::{Approver, Approvers};
use super::controller::Controller;
use super::locked::locked;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// When to ask again where there was no answer, while something moves.
const REST: Duration = Duration::from_secs(5);
/// Most users who are asked for, of one version. Where more have decided, none is counted.
const MOST: usize = 64;

/// A decision that admission has seen, and its user.
struct Seen {
    approval: Arc<VersionApproval>,
    approver: Approver,
}

impl Controller {
    /// What users have decided about the version that the config is to have, where that matters. Waits for answers about their rights only
    /// while nothing moves.
    pub(super) async fn approvals(self: &Arc<Self>, key: &ConfigKey, config: &VersionedConfig) -> Approvals {
        if !self.awaits_approval(key, config) {
            locked(&self.approvers).rest(key);
            return Approvals::default();
        }
        let Ok(seen) = self.seen_approvals(key, config) else { return self.known_approvals(key, config) };
        let stale: BTreeSet<Approver> = {
            let approvers = locked(&self.approvers);
            seen.iter().map(|one| &one.approver).filter(|one| !approvers.is_fresh(one)).cloned().collect()
        };
        if stale.is_empty() {
            locked(&self.approvers).rest(key);
            return self.known_approvals(key, config);
        }
        if config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()) {
            self.begin_asking(key, stale);
        } else {
            let _ = self.ask_rights(stale).await;
        }
        self.known_approvals(key, config)
    }

    /// Whether approvals decide about what the config does next.
    fn awaits_approval(&self, key: &ConfigKey, config: &VersionedConfig) -> bool {
        let current = config.status.as_ref().and_then(|status| status.current_version.as_ref());
        let rests = current.is_some() && config.spec.version.as_ref().is_none_or(|asked| Some(asked) == current);
        !rests && self.needs_approval(key, config)
    }

    /// Whether versions of the config need approval, by its own rule or by that of a policy.
    pub(super) fn needs_approval(&self, key: &ConfigKey, config: &VersionedConfig) -> bool {
        Effective::of(&config.spec.rollout, &self.index.policies(&key.namespace)).approval.is_some()
    }

    /// The same as `approvals` by what is in memory.
    pub(super) fn known_approvals(&self, key: &ConfigKey, config: &VersionedConfig) -> Approvals {
        if !self.awaits_approval(key, config) {
            return Approvals::default();
        }
        let seen = match self.seen_approvals(key, config) {
            Ok(seen) => seen,
            Err(why) => return Approvals { incomplete: Some(why), ..Approvals::default() },
        };
        let approvers = locked(&self.approvers);
        let given =
            seen.iter().filter_map(|Seen { approval, approver }| given(approval, approver, &approvers)).collect();
        let left = approvers.awaited(key, Instant::now()).filter(|_| goes_on(config));
        let awaited = left.map(|left| self.steady() + i64::try_from(left.as_millis()).unwrap_or(0));
        Approvals { given, incomplete: None, awaited }
    }

    /// The user who has decided, with the groups that admission has signed for this decision.
    fn approver(&self, key: &ConfigKey, approval: &VersionApproval) -> Option<Approver> {
        let groups = groups_of(&self.content_key, approval)?;
        Some(Approver { config: key.clone(), user: approval.spec.approver.clone(), groups })
    }

    /// One decision that admission has signed, with what is in memory of the user's right.
    pub(super) fn decision(&self, key: &ConfigKey, approval: &VersionApproval) -> Option<Given> {
        given(approval, &self.approver(key, approval)?, &locked(&self.approvers))
    }

    /// Why what users have decided about the version that is asked for can't be counted, if so.
    pub(super) fn uncounted(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<String> {
        self.seen_approvals(key, config).err()
    }

    /// What admission has seen users decide about the version that is asked for; about all of them where none is.
    fn seen_approvals(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<Vec<Seen>, String> {
        let all = self.index.approvals(key)?;
        let version = config.spec.version.as_deref().or_else(|| config.status.as_ref()?.current_version.as_deref());
        let about = all.into_iter().filter(|one| version.is_none_or(|version| one.spec.version == version));
        let seen = about.filter_map(|approval| {
            let approver = self.approver(key, &approval)?;
            Some(Seen { approval, approver })
        });
        let seen: Vec<Seen> = seen.collect();
        let users: BTreeSet<&Approver> = seen.iter().map(|one| &one.approver).collect();
        if users.len() > MOST {
            return Err(format!(
                "{} users have decided about it, and Nudge counts {MOST}; delete some VersionApprovals",
                users.len()
            ));
        }
        Ok(seen)
    }

    /// Asks beside the rollout, once at a time for each config.
    fn begin_asking(self: &Arc<Self>, key: &ConfigKey, stale: BTreeSet<Approver>) {
        if !locked(&self.approvers).begin(key, Instant::now()) {
            return;
        }
        let (controller, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move {
            let all = controller.ask_rights(stale).await;
            if !all {
                // An API server that refuses at once must not be asked all the time.
                sleep(REST).await;
            }
            locked(&controller.approvers).end(&key, all);
            controller.queue.add(key, Duration::ZERO);
        });
    }

    /// Asks the API server about these users. Those about whom it does not answer stay as they are known, for a while. Returns whether all is
    /// known now.
    async fn ask_rights(&self, users: BTreeSet<Approver>) -> bool {
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let asked = users.into_iter().map(|approver| {
            let api = &api;
            async move {
                let review = review(&approver);
                let answer = timeout(PATIENCE, api.create(&PostParams::default(), &review)).await;
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
        let answers = join_all(asked).await;
        let mut approvers = locked(&self.approvers);
        answers.into_iter().fold(true, |all, answer| match answer {
            Some((approver, may)) => approvers.keep(approver, may) && all,
            None => false,
        })
    }
}

/// The decision of this user, with what is known of the user's right.
fn given(approval: &VersionApproval, approver: &Approver, approvers: &Approvers) -> Option<Given> {
    let spec = &approval.spec;
    Some(Given {
        version: spec.version.clone(),
        digest: spec.digest.clone(),
        user: spec.approver.clone(),
        decision: spec.decision,
        reason: spec.reason.clone(),
        at: approval.metadata.creation_timestamp.clone()?,
        may: approvers.may(approver),
        could: approvers.could(approver),
    })
}

/// Whether the config is moved, and does not say that it awaits approval.
fn goes_on(config: &VersionedConfig) -> bool {
    let Some(status) = config.status.as_ref().filter(|status| status.rollout.stage.is_some()) else { return false };
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    ready.is_none_or(|ready| ready.reason != Reason::AwaitingApproval.as_str())
}

fn review(Approver { config, user, groups }: &Approver) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups.clone()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("approve".to_owned()),
                group: Some("nudge.dev".to_owned()),
                version: Some("*".to_owned()),
                resource: Some("versionedconfigs".to_owned()),
                namespace: Some(config.namespace.clone()),
                name: Some(config.name.to_string()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use hyper::http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use nudge_cluster::index::Index;
    use nudge_core::governance::approver_groups;
    use nudge_protocol::labels::APPROVER_GROUPS;
    use ring::hmac;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::metrics::RolloutMetrics;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_not_asked_all_the_time() {
        let asked: Arc<Mutex<usize>> = Arc::default();
        let count = Arc::clone(&asked);
        let service = service_fn(move |_: Request<Body>| {
            let count = Arc::clone(&count);
            async move {
                *count.lock().unwrap() += 1;
                let text = br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403}"#;
                Ok::<_, Infallible>(Response::builder().status(403).body(Body::from(text.to_vec())).unwrap())
            }
        });
        let hmac_key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let spec = json!({"configName": "shop", "version": "3", "digest": "d", "decision": "Approve", "reason": "r", "approver": "bob"});
        let made = "2026-01-01T00:00:00Z".parse().unwrap();
        let note = approver_groups(&hmac_key, "ns", &serde_json::from_value(spec.clone()).unwrap(), &[], made);
        let approval = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval",
            "metadata": {"name": "one", "namespace": "ns", "annotations": {APPROVER_GROUPS: note}, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
        });
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        index.put_approval(serde_json::from_value(approval).unwrap());
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let controller = Arc::new(Controller::new(client, index, hmac_key, "a", silence, RolloutMetrics::default()));
        let config: Value = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "ns"},
            "spec": {"version": "3", "rollout": {"approval": {}}},
            "status": {"currentVersion": "2", "targetVersion": "3", "rollout": {"stage": "Moving"}, "internal": {"revision": 1}},
        });
        let (key, config) = (ConfigKey::parse("ns", "shop").unwrap(), serde_json::from_value(config).unwrap());
        for _ in 0..100 {
            let approvals = controller.approvals(&key, &config).await;
            assert_eq!(approvals.given[0].may, None);
            sleep(REST / 50).await;
        }
        assert!((1..=3).contains(&*asked.lock().unwrap()), "{asked:?}");
    }
}
