//! The version of a config that continues only with approvals: its authors, and the user who requested it.

use std::collections::BTreeSet;
use std::sync::Arc;

use nudge_api::{Approval, PartKind, VersionStatus, VersionedConfig, VersionedConfigStatus};

use crate::governance::{
    ApprovalCandidate, Authors, EffectiveRules, KnownRequester, Policies, RuleOwner, sealed_digest,
};
use crate::keys::PartMeta;
use crate::requester::Requesters;
use crate::rollout::Now;
use crate::versions::{FactsByUid, Seals, authors, is_of_text};

/// The facts that identify the authors of a config's versions and the users who requested them.
#[derive(Clone, Copy)]
pub struct Provenance<'a> {
    /// The objects with the config's label.
    pub parts: &'a [Arc<PartMeta>],
    /// The facts about the contents of `parts`.
    pub facts: &'a FactsByUid,
    /// The seals of the config.
    pub seals: &'a Seals,
    /// The users who requested the contents of the spec.
    pub requesters: &'a Requesters,
}

/// A version that continues only with approvals.
pub(super) struct GatedVersion<'a> {
    config: &'a str,
    version: &'a VersionStatus,
    digest: String,
    authors: Authors,
    requester: KnownRequester<'a>,
    rule: RuleOwner,
    pub(super) needed: Approval,
    /// The objects that must be read to know the authors, if these matter.
    pub(super) unread: Vec<(PartKind, String)>,
}

impl GatedVersion<'_> {
    /// Returns the candidate whose approvals are counted.
    pub(super) fn candidate(&self) -> ApprovalCandidate<'_> {
        let Self { config, version, digest, authors, requester, rule, .. } = self;
        ApprovalCandidate { config, version: &version.version, digest, authors, requester: *requester, rule }
    }
}

/// Returns the version that the config should have, if it needs approvals.
pub(super) fn gated_version<'a>(
    aim: &str,
    config: &'a VersionedConfig,
    status: &'a VersionedConfigStatus,
    provenance: Provenance<'a>,
    policies: &Policies,
    now: Now<'_>,
) -> Option<GatedVersion<'a>> {
    let Provenance { parts, facts, seals, requesters } = provenance;
    let (needed, approval_owner) = needed_approval(aim, config, status, policies, now)?;
    let version = status.version(aim)?;
    let (authors, unread) = authors(version, parts, facts, seals);
    let authors = match authors {
        // The creators of its objects did not write it, so they do not matter, and one approval more is required
        // instead.
        Authors::Unknown if is_text(config, aim) => Authors::Known(BTreeSet::new()),
        authors => authors,
    };
    let unread = if needed.not_author { unread } else { Vec::new() };
    let named = config.spec.version.as_deref() == Some(aim);
    let requester = match requesters.current.as_ref().filter(|_| named) {
        Some(requester) => KnownRequester::User(&requester.user),
        None if named => KnownRequester::Unknown,
        None => KnownRequester::Nobody,
    };
    Some(GatedVersion {
        config: config.metadata.name.as_deref().unwrap_or_default(),
        version,
        digest: sealed_digest(version),
        authors,
        requester,
        rule: approval_owner,
        needed,
        unread,
    })
}

/// Returns the approval that the version needs, and the owner of the rule. The current version, the previous one, and a
/// version that all pods get at once need none.
pub(super) fn needed_approval(
    aim: &str,
    config: &VersionedConfig,
    status: &VersionedConfigStatus,
    policies: &Policies,
    now: Now<'_>,
) -> Option<(Approval, RuleOwner)> {
    let is_known =
        [&status.current_version, &status.previous_version].into_iter().flatten().any(|version| version == aim);
    let EffectiveRules { approval, approval_owner, .. } = EffectiveRules::of(&config.spec.rollout, policies);
    let needed = approval.filter(|_| !is_known && override_reason(config, aim, now).is_none())?;
    // Nobody knows who wrote a text: one of the approvers may be its author.
    let possible_author = u32::from(needed.not_author && is_text(config, aim));
    Some((Approval { required: needed.required.saturating_add(possible_author), ..needed }, approval_owner))
}

/// Returns whether the version is the text of the config's objects, or was made of one.
fn is_text(config: &VersionedConfig, version: &str) -> bool {
    is_of_text(version) || config.spec.follows_text()
}

/// Returns why this version should be assigned to all pods at once. An override that has expired has no effect.
pub(super) fn override_reason<'a>(config: &'a VersionedConfig, aim: &str, now: Now<'_>) -> Option<&'a str> {
    // Everybody who writes the text could request the version that an override names.
    let spec_override = config.spec.rollout.overridden.as_ref().filter(|_| !config.spec.follows_text());
    let spec_override = spec_override.filter(|spec| spec.assigns(aim, now.time.0))?;
    Some(&spec_override.reason)
}
