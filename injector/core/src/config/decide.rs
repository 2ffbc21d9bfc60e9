//! The decision about a config: its next status and Events follow from the object, its parts, its pods and the time.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    Override, PartKind, Reason, ReleaseApproval, RolloutAnalysisSpec, RolloutAnalysisStatus, VersionedConfig,
    VersionedConfigStatus, clipped,
};

use super::conditions::{ConfigProgress, conflict_event, find_conflict, suspect_until, with_conditions};
use super::config_faults::config_faults;
use super::gated_version::{Provenance, gated_version, override_reason};
use super::measurable_condition::set_measurable;
use super::pod_counts::pod_counts;
use super::target_version::{desired_version, target_version};
use crate::event_record::EventRecord;
use crate::followed_objects::{forget_text, pace_gate};
use crate::governance::{Approvals, EffectiveRules, Policies, check_approvals, rules_gate, sealed_digest};
use crate::hub_health::HubAway;
use crate::identity::Identity;
use crate::keys::PartMeta;
use crate::requester::{Requester, Requesters};
use crate::rollout::{
    ClosedGate, Continuation, Effects, Evidence, MAX_RELEASES_BYTES, Millis, Neighbours, Now, Observation,
    PublishAttempt, Restarts, Rollout, RolloutChange, Subjects, fit_releases, newly_ended_releases, next,
    record_release, release_summary,
};
use crate::versions::{FactsByUid, Judging, Seals, Unjudged, take_inventory};

/// The facts about a config at one moment.
pub struct Observed<'a> {
    /// The config, with its last status.
    pub config: &'a VersionedConfig,
    /// The objects with the config's label.
    pub parts: &'a [Arc<PartMeta>],
    /// The facts about the contents of `parts`.
    pub facts: &'a FactsByUid,
    /// Whether the namespace's Secrets can be read.
    pub secrets_known: bool,
    /// The kinds with too many objects in the namespace to know all of them: an object that seems missing may exist.
    pub left_out: &'a [PartKind],
    /// The pods that use the config.
    pub pods: &'a Subjects,
    /// The times when other pods on the nodes of these pods failed.
    pub neighbours: &'a HashMap<String, Neighbours>,
    /// The other config that shares pods with this config and is moved first.
    pub waiting_for: Option<&'a str>,
    /// The measurements of the version that is on trial, or of no pods in a rehearsal.
    pub measured: Option<&'a RolloutAnalysisStatus>,
    /// The last attempt to publish a version.
    pub publish_attempt: Option<&'a PublishAttempt>,
    /// The rules and verdicts that judge versions before they are sealed.
    pub judging: Judging<'a>,
    /// The seals of this config.
    pub seals: &'a Seals,
    /// The policies of the namespace.
    pub policies: &'a Policies,
    /// The users who requested the contents of the spec.
    pub requesters: &'a Requesters,
    /// The decisions of users about versions of the config.
    pub approvals: &'a Approvals,
    /// The state of the workloads that are restarted.
    pub restart: &'a Restarts,
    /// The time that reports of pods wait in a hub replica.
    pub report_wait: Millis,
    /// The reason why reports of pods do not arrive.
    pub hub_away: Option<HubAway>,
    /// The present time.
    pub now: Now<'a>,
}

/// The decision about a config.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The status as it should be.
    pub status: VersionedConfigStatus,
    /// The objects whose content must be read before more can be decided.
    pub unread: Vec<(PartKind, String)>,
    /// The versions that must be judged before they are sealed; the one that `spec.version` names comes first.
    pub unjudged: Vec<Unjudged>,
    /// The pods whose numbers should be requested.
    pub question: Option<RolloutAnalysisSpec>,
    /// The Events to write.
    pub events: Vec<EventRecord>,
    /// The wait until the next decision about the config if nothing changes.
    pub recheck_after: Option<Millis>,
}

/// The wait until a spec with faults is checked again: its override may have a valid end by then.
const INVALID_SPEC_RECHECK_MILLIS: Millis = 3_600_000;
/// The maximum number of transitions of a rollout in one decision.
const MAX_TRANSITIONS: usize = 16;

/// Decides about the config in four phases: what there is, which version is requested and what withholds it, the
/// transitions of the rollout, and the conditions and Events, which describe the outcome. `evidence` is this leader's
/// evidence about the pods so far. Returns the decision, and the evidence if it is used.
pub fn decide(observed: &Observed<'_>, evidence: &Evidence) -> (Decision, Evidence) {
    let mut evidence = evidence.clone();
    let Observed { config, parts, facts, secrets_known, left_out, pods, judging, seals, now: clocks, .. } = *observed;
    let now = clocks.time;
    let before = config.status.clone().unwrap_or_default();
    let hidden = (!secrets_known).then_some(PartKind::Secret);
    let unseen: Vec<PartKind> = left_out.iter().copied().chain(hidden).collect();
    let named = config.requested_version();
    let fault = spec_fault(config, clocks);
    // 1. What there is.
    let mut inventory = take_inventory(&before, parts, facts, &unseen, named, &judging, seals, now);
    inventory.unjudged.sort_by_key(|unjudged| named != Some(unjudged.version.as_str()));
    let conflict = find_conflict(config, &inventory);
    let requested = target_version(config, &inventory, secrets_known);
    // The spec's fault alone may be the reason why the version is missing.
    let requested = requested.map_err(|cause| fault.as_ref().map_or(cause, |fault| fault.why.clone()));
    let generation = config.metadata.generation;

    let sealed = |version: &String| {
        let rules = judging.followed_by(version).map(|rules| format!(", and follows spec.validation (rules {rules})"));
        EventRecord::new(Reason::Sealed, format!("version {version} is complete{}", rules.unwrap_or_default()))
    };
    let mut events: Vec<EventRecord> = inventory.new.iter().map(sealed).collect();
    let mut status = VersionedConfigStatus {
        observed_generation: generation,
        desired_version: desired_version(config, &inventory).ok(),
        versions: inventory.sealed,
        invalid: inventory.invalid,
        ..before.clone()
    };
    (status.internal.identity, status.internal.retired) = (Some(Identity::of(config).to_string()), inventory.retired);
    if !config.spec.follows_text() {
        forget_text(&mut status);
    }
    let rollout = Rollout::from_status(&status, now);
    // 2. Which version is requested, and what withholds it.
    // While pods can't be moved to the requested version, they stay with the current one, or return to it.
    let aim = requested.as_ref().ok().or(status.current_version.as_ref()).cloned();
    let counted = aim.as_deref().map(|aim| count_approvals(aim, &status, observed)).unwrap_or_default();
    let fault_explanation = fault.as_ref().map(|fault| fault.why.clone());
    let counted = ApprovalCount { closed_gate: fault.or(counted.closed_gate), ..counted };
    // 3. The transitions of the rollout.
    let (rollout, effects) = match aim {
        Some(aim) => transitions(rollout, &mut evidence, &mut status, observed, &aim, &counted, &mut events),
        None => (rollout, Effects::default()),
    };
    if status.releases != before.releases {
        status.releases = fit_releases(status.releases, MAX_RELEASES_BYTES);
        let ended = newly_ended_releases(&before.releases, &status.releases);
        events.extend(ended.map(|release| EventRecord::new(Reason::Released, release_summary(release))));
    }
    let can_move = requested.is_ok();
    let (rollout, progress) = match requested {
        Ok(_) => {
            let progress = ConfigProgress::of(&rollout, &effects.continuation);
            (rollout, progress)
        }
        Err(explanation) => (rollout.waiting(), ConfigProgress::impossible(explanation)),
    };
    let recheck = fault_explanation.as_ref().map(|_| INVALID_SPEC_RECHECK_MILLIS);
    let progress = progress.with_fault(fault_explanation);
    let mut status = rollout.into_status(status);
    status.internal.yields = status.rollout.stage.is_some() && effects.continuation.yields();
    status.rollout.gate = match effects.continuation {
        Continuation::Blocked { gate, .. } if can_move => gate,
        _ => None,
    };
    status.internal.background = evidence.background(status.internal.background, clocks);
    // 4. The conditions and Events.
    status.pods = pod_counts(config, &status, pods);
    events.extend(progress.event(&before.conditions));
    events.extend(conflict_event(conflict.as_deref(), &before.conditions));
    let suspect = effects.suspicion.as_deref();
    events.extend(suspect.map(|message| EventRecord::warning(Reason::Suspect, message)));
    let mut status = with_conditions(status, &progress, conflict.as_deref(), suspect, generation, now);
    let analyses = set_measurable(config, &mut status, observed.measured, now);
    events.extend(analyses.event);
    let overridden_until = config.spec.rollout.overridden.as_ref().map(|spec_override| spec_override.until_time.0);
    let later = suspect_until(&status).into_iter().chain(overridden_until).filter_map(|until| clocks.until(until));
    let recheck_after = effects
        .reconcile_at
        .map(|reconcile_at| (reconcile_at - clocks.steady).max(0))
        .into_iter()
        .chain(later)
        .chain(recheck)
        .min();
    let unread = inventory.unread.into_iter().chain(counted.unread).collect();
    let unjudged = inventory.unjudged;
    let question = effects.question.or(analyses.question);
    (Decision { status, unread, unjudged, question, events, recheck_after }, evidence)
}

/// Returns why no version begins or continues while the spec has faults that escaped the webhook. Running versions are
/// still judged, and rolled back if they are bad.
fn spec_fault(config: &VersionedConfig, now: Now<'_>) -> Option<ClosedGate> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let fault = config_faults(name, &config.spec, Override::reader_time(now.time.0)).into_iter().next()?;
    let message = clipped(format!("no version begins or continues until this is corrected: {}", fault.message));
    Some(ClosedGate { why: fault.reason.explained(message), recheck_at: None, ends_at: None, keeps_message: false })
}

/// The count of the approvals that a version needs.
#[derive(Clone, Debug, Default, PartialEq)]
struct ApprovalCount {
    /// The approvals that let the version continue.
    approvals: Vec<ReleaseApproval>,
    /// The reason why the version may not continue.
    closed_gate: Option<ClosedGate>,
    /// The objects that must be read to know who made the version.
    unread: Vec<(PartKind, String)>,
}

/// Counts the approvals of the version that the config should have. A version needs none if it is or was current, or if
/// all pods get it at once.
fn count_approvals(aim: &str, status: &VersionedConfigStatus, observed: &Observed<'_>) -> ApprovalCount {
    let Observed { config, parts, facts, seals, requesters, policies, approvals, now, .. } = *observed;
    let provenance = Provenance { parts, facts, seals, requesters };
    let Some(version) = gated_version(aim, config, status, provenance, policies, now) else {
        return ApprovalCount::default();
    };
    let (approvals, closed_gate) = match check_approvals(&version.needed, version.candidate(), approvals, now) {
        Ok(approvals) => (approvals, None),
        Err(gate) => (Vec::new(), Some(gate)),
    };
    ApprovalCount { approvals, closed_gate, unread: version.unread }
}

/// Makes transitions towards `aim` until there is something to wait for.
fn transitions(
    mut rollout: Rollout,
    evidence: &mut Evidence,
    status: &mut VersionedConfigStatus,
    observed: &Observed<'_>,
    aim: &str,
    counted: &ApprovalCount,
    events: &mut Vec<EventRecord>,
) -> (Rollout, Effects) {
    let config = observed.config;
    let Requesters { current, overridden, retry } = observed.requesters;
    let of_aim = |requester: &Option<Requester>| requester.clone().filter(|_| config.requested_version() == Some(aim));
    let requesters = Requesters { current: of_aim(current), overridden: overridden.clone(), retry: of_aim(retry) };
    let pace = pace_gate(config, status, observed.requesters.retry_time().as_ref(), observed.now);
    let text = status.internal.text.clone().filter(|text| config.spec.follows_text() && text.version == aim);
    let mut releases = std::mem::take(&mut status.releases);
    let digest = status.version(aim).map(sealed_digest).unwrap_or_default();
    let rules = EffectiveRules::of(&config.spec.rollout, observed.policies);
    let closed_gate = counted.closed_gate.clone().or_else(|| rules_gate(&rules, observed.now));
    let closed_gate = closed_gate.or(pace);
    let seen = Observation {
        now: observed.now,
        spec: &config.spec.rollout,
        generation: config.metadata.generation.unwrap_or_default(),
        requested: aim,
        follows_text: config.spec.follows_text(),
        text_managers: text.as_ref().map(|text| text.managers.as_slice()).unwrap_or_default(),
        spec_version: config.requested_version(),
        digest: &digest,
        override_reason: override_reason(config, aim, observed.now),
        requesters: &requesters,
        pods: observed.pods.by_steps(),
        neighbours: observed.neighbours,
        background: status.internal.background.as_ref(),
        waiting_for: observed.waiting_for,
        closed_gate: closed_gate.as_ref(),
        approvals: &counted.approvals,
        measured: observed.measured,
        has_objects: !config.spec.objects.is_empty(),
        publish_attempt: observed.publish_attempt,
        current_since: current_since(status),
        restart: observed.restart,
        report_wait: observed.report_wait,
        hub_away: observed.hub_away,
    };
    // Further transitions follow in the next decision.
    let mut last = Effects { reconcile_at: Some(observed.now.steady), ..Effects::default() };
    for _ in 0..MAX_TRANSITIONS {
        let before = rollout.clone();
        let (next, mut effects) = next(rollout, evidence, &seen);
        rollout = next;
        releases = record_release(releases, RolloutChange { before: &before, after: &rollout }, &effects, &seen);
        events.extend(effects.event.take());
        if effects.continuation != Continuation::AtOnce {
            last = effects;
            break;
        }
    }
    status.releases = releases;
    (rollout, last)
}

/// Returns the time since which workloads may have been restarted with the current version: when it was published, or
/// otherwise when it was sealed.
fn current_since(status: &VersionedConfigStatus) -> Option<&Time> {
    let current = status.current_version.as_deref()?;
    let published = status.publish_time.as_ref().filter(|_| status.published_version.as_deref() == Some(current));
    published.or_else(|| status.version(current)?.seal_time.as_ref())
}
