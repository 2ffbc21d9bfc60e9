//! What will block a version, as far as it can be foreseen.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, Explanation, PartKind, Reason, VersionedConfig, find_condition};
use nudge_core::config::{PlannedMove, VersionCandidate, foreseen_blocks};
use nudge_core::governance::sealed_digest;
use nudge_core::pods::PodState;
use nudge_core::rollout::{Now, SteadyTime, Subject, blocks_others};
use nudge_core::versions::is_nearly_full;
use serde::Serialize;

use super::cluster_facts::{ClusterFacts, MissingRight};
use super::planned_version::PlannedVersion;
use crate::attention::AttendedKind;

/// The reason of a right that the user lacks.
const FORBIDDEN: &str = "Forbidden";

/// A reason why a version will not begin or continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blocker {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// The time when it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until_time: Option<Time>,
}

impl From<Explanation> for Blocker {
    fn from(explanation: Explanation) -> Self {
        Self { reason: explanation.reason.as_str(), message: explanation.message, until_time: None }
    }
}

pub(super) struct ConfigPods<'a> {
    pub(super) live: &'a [&'a PodState],
    /// The pods that steps move.
    pub(super) by_steps: &'a [Subject],
}

/// Returns what will block the version. `restarts` says whether workloads are restarted.
pub(super) fn blockers(
    planned: &PlannedVersion,
    facts: &ClusterFacts,
    course: &PlannedMove,
    pods: &ConfigPods<'_>,
    restarts: bool,
    now: Timestamp,
) -> Vec<Blocker> {
    let config = &planned.config;
    let mut blockers: Vec<Blocker> = planned.faults.iter().cloned().map(Blocker::from).collect();
    blockers.extend(facts.missing_rights.iter().filter_map(|right| right.blocker(planned, restarts)));
    if matches!(course, PlannedMove::Nothing) {
        return blockers;
    }
    let sealed = planned.version.as_deref().and_then(|version| config.status.as_ref()?.version(version));
    let digest = sealed.map(sealed_digest);
    let version = planned.version.as_deref().unwrap_or_default();
    let candidate = VersionCandidate { version, digest: digest.as_deref(), approvals: &facts.approvals };
    let time = Time(now);
    let now = Now { time: &time, steady: SteadyTime(0) };
    let foreseen = foreseen_blocks(config, candidate, pods.by_steps, &facts.policies, now);
    blockers.extend(
        foreseen.into_iter().map(|block| Blocker { until_time: block.until.map(Time), ..Blocker::from(block.why) }),
    );
    blockers.extend(other_config(config, facts, pods.live).map(Blocker::from));
    let healthy = course.steps().last().map_or(0, |step| step.healthy);
    if !course.steps().is_empty() && !pods.by_steps.is_empty() && healthy == 0 {
        let message = "no pod of the config is healthy now, so none could show whether the version is good";
        blockers.push(Reason::NobodyToJudge.explained(message).into());
    }
    if sealed.is_none() && config.status.as_ref().is_some_and(is_nearly_full) && !config.spec.follows_text() {
        let message = "the config has almost as many versions as it can have; delete some with kubectl nudge delete";
        blockers.push(Reason::HistoryFull.explained(message).into());
    }
    let present = present_blocker(planned);
    if let Some(present) = present {
        // Nudge itself has seen more than can be foreseen.
        blockers.retain(|blocker| blocker.reason != present.reason);
        blockers.push(present);
    }
    blockers
}

impl MissingRight {
    fn blocker(&self, planned: &PlannedVersion, restarts: bool) -> Option<Blocker> {
        let config = &planned.config;
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let namespace = config.metadata.namespace.as_deref().unwrap_or_default();
        let by_nudge = |kind: AttendedKind, what: &str| {
            let message = format!("Nudge may not {what} namespace {namespace}; {}", kind.remedy(namespace));
            Some(Reason::NotAllowed.explained(message).into())
        };
        match self {
            Self::OfNudge(kind @ AttendedKind::Configs) => by_nudge(*kind, "look at the configs of"),
            Self::OfNudge(kind @ AttendedKind::Secrets) => {
                let version = planned.version.as_deref().and_then(|version| config.status.as_ref()?.version(version));
                let has_secret = match version {
                    Some(version) => version.parts.iter().any(|part| part.kind == PartKind::Secret),
                    None => planned.contents.as_ref().is_some_and(|kinds| kinds.contains_key(&PartKind::Secret)),
                };
                if has_secret { by_nudge(*kind, "read the Secrets of") } else { None }
            }
            Self::OfNudge(kind @ AttendedKind::Workloads) if restarts => by_nudge(*kind, "restart the workloads of"),
            Self::OfNudge(_) => None,
            Self::OfUser(right) => Some(Blocker {
                reason: FORBIDDEN,
                message: format!(
                    "you may not {} {} {name}, which requests the version; ask the namespace's admin for that right",
                    right.verb, right.resource
                ),
                until_time: None,
            }),
        }
    }
}

/// Returns the wait for another config of the same pods, which is being moved.
fn other_config(config: &VersionedConfig, facts: &ClusterFacts, pods: &[&PodState]) -> Option<Explanation> {
    let own = config.metadata.name.as_deref().unwrap_or_default();
    let shared: BTreeSet<(&str, &str)> = pods
        .iter()
        .flat_map(|pod| pod.configs.iter().map(|name| (name.as_str(), pod.service_account.as_str())))
        .filter(|(name, _)| *name != own)
        .collect();
    let is_first = |other: &&VersionedConfig| {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        other.status.as_ref().is_some_and(blocks_others)
            && shared.iter().any(|(config, account)| *config == name && other.spec.admits(account))
    };
    let other = facts.configs.iter().find(is_first)?.metadata.name.as_deref().unwrap_or_default();
    Some(Reason::WaitingFor.explained(format!("config {other}, which shares pods with this one, is moved first")))
}

/// Returns what Nudge says that blocks the version now, if the config requests it already.
fn present_blocker(planned: &PlannedVersion) -> Option<Blocker> {
    let config = &planned.config;
    let status = config.status.as_ref()?;
    let is_requested = planned.version.is_some() && planned.requested_version == planned.version;
    let is_fresh = status.observed_generation == config.metadata.generation;
    let find = |kind, value: &str| {
        find_condition(&status.conditions, kind)
            .filter(|condition| condition.status == value && is_requested && is_fresh)
    };
    let condition = find(ConditionType::Stalled, "True").or_else(|| find(ConditionType::Ready, "False"))?;
    let reason = Reason::named(&condition.reason);
    let is_progress = matches!(
        reason,
        Reason::Progressing
            | Reason::Baking
            | Reason::Publishing
            | Reason::Restarting
            | Reason::Leaving
            | Reason::RollingBack
            | Reason::Unknown
    );
    let until_time = status.rollout.gate.as_ref().and_then(|gate| gate.until_time.clone());
    (!is_progress).then(|| Blocker { reason: reason.as_str(), message: condition.message.clone(), until_time })
}
