//! The approvals that count: those of users who have decided about the version and may approve, as far as that is
//! known.
//!
//! A rollout waits for no answer about a right. If an answer is missing the version waits, and the answer brings the
//! config back into the queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use nudge_api::{ConditionType, Reason, VersionApproval, VersionedConfig, find_condition};
use nudge_core::governance::{Approvals, EffectiveRules, Right, UserDecision, read_approver_groups};
use nudge_core::keys::ConfigKey;

use crate::controller::Controller;
use crate::memory::{Approver, ApproverRights};

/// The maximum number of users of one version whose rights are reviewed. If more have decided, none is counted.
const MAX_APPROVERS: usize = 64;

/// The decisions that admission has signed, with their users.
type SignedApprovals = Vec<(Arc<VersionApproval>, Approver)>;

impl Controller {
    /// Returns users' decisions about the requested version, if they matter. Waits for answers about the users' rights
    /// only while nothing moves.
    pub(crate) async fn approvals(self: &Arc<Self>, key: &ConfigKey, config: &VersionedConfig) -> Approvals {
        if !self.awaits_approval(key, config) {
            self.memories.get(key, |memory| memory.rights_review.settle());
            return Approvals::default();
        }
        let Ok(signed) = self.signed_approvals(key, config) else { return self.known_approvals(key, config) };
        let stale: BTreeSet<Approver> = {
            let rights = self.approver_rights.lock();
            let approvers = signed.iter().map(|(_, approver)| approver);
            approvers.filter(|approver| !rights.is_recent(approver)).cloned().collect()
        };
        if stale.is_empty() {
            self.memories.get(key, |memory| memory.rights_review.settle());
            return self.known_approvals(key, config);
        }
        if config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()) {
            self.begin_review(key, stale);
        } else {
            self.review_rights(stale).await;
        }
        self.known_approvals(key, config)
    }

    /// Returns whether the config's next step waits for approvals.
    fn awaits_approval(&self, key: &ConfigKey, config: &VersionedConfig) -> bool {
        let current = config.status.as_ref().and_then(|status| status.current_version.as_deref());
        let is_at_rest = current.is_some() && config.requested_version().is_none_or(|version| Some(version) == current);
        !is_at_rest && self.needs_approval(key, config)
    }

    /// Returns whether versions of the config need approval, by its own rule or by a policy.
    pub(crate) fn needs_approval(&self, key: &ConfigKey, config: &VersionedConfig) -> bool {
        EffectiveRules::of(&config.spec.rollout, &self.index.policies(&key.namespace)).approval.is_some()
    }

    /// Returns users' decisions, from memory alone.
    pub(crate) fn known_approvals(&self, key: &ConfigKey, config: &VersionedConfig) -> Approvals {
        if !self.awaits_approval(key, config) {
            return Approvals::default();
        }
        let signed = match self.signed_approvals(key, config) {
            Ok(signed) => signed,
            Err(cause) => return Approvals { incomplete: Some(cause), ..Approvals::default() },
        };
        let rights = self.approver_rights.lock();
        let decisions =
            signed.iter().filter_map(|(approval, approver)| decision(approval, approver, &rights)).collect();
        let wait = self.memories.get(key, |memory| memory.rights_review.silent_for(Instant::now())).flatten();
        let wait = wait.filter(|_| continues(config));
        let awaited = wait.map(|wait| self.steady() + i64::try_from(wait.as_millis()).unwrap_or(0));
        Approvals { decisions, incomplete: None, awaited }
    }

    /// Returns the user who has decided, with the groups that admission has signed for this decision.
    fn approver(&self, key: &ConfigKey, approval: &VersionApproval) -> Option<Approver> {
        let groups = read_approver_groups(&self.keys.note, approval)?;
        Some(Approver { config: key.clone(), user: approval.spec.approver.clone(), groups })
    }

    /// Returns a decision that admission has signed, with the user's right as far as memory has it.
    pub(crate) fn approval_decision(&self, key: &ConfigKey, approval: &VersionApproval) -> Option<UserDecision> {
        decision(approval, &self.approver(key, approval)?, &self.approver_rights.lock())
    }

    /// Returns the signed decisions about the requested version, or about all versions if none is; or why they
    /// can't be counted.
    pub(crate) fn signed_approvals(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
    ) -> Result<SignedApprovals, String> {
        let approvals = self.index.approvals(key)?;
        let version = config.requested_version().or_else(|| config.status.as_ref()?.current_version.as_deref());
        let signed_fields =
            approvals.into_iter().filter(|approval| version.is_none_or(|version| approval.spec.version == version));
        let signed = signed_fields.filter_map(|approval| {
            let approver = self.approver(key, &approval)?;
            Some((approval, approver))
        });
        let signed: SignedApprovals = signed.collect();
        let users: BTreeSet<&Approver> = signed.iter().map(|(_, approver)| approver).collect();
        if users.len() > MAX_APPROVERS {
            return Err(format!(
                "{} users have decided about it, and at most {MAX_APPROVERS} count; delete some VersionApprovals",
                users.len()
            ));
        }
        Ok(signed)
    }
}

/// Returns the decision of a user, with the user's right as far as it is known.
fn decision(approval: &VersionApproval, approver: &Approver, rights: &ApproverRights) -> Option<UserDecision> {
    let spec = &approval.spec;
    Some(UserDecision {
        version: spec.version.clone(),
        digest: spec.digest.clone(),
        user: spec.approver.clone(),
        decision: spec.decision,
        reason: spec.reason.clone(),
        at: approval.metadata.creation_timestamp.clone()?,
        right: Right::of(rights.may_approve(approver), rights.could_approve(approver)),
    })
}

/// Returns whether the config is moved, and does not say that it awaits approval.
fn continues(config: &VersionedConfig) -> bool {
    let Some(status) = config.status.as_ref().filter(|status| status.rollout.stage.is_some()) else { return false };
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    ready.is_none_or(|ready| ready.reason != Reason::AwaitingApproval.as_str())
}
