//! The decision about a source: it waits, makes a version, requests it, or reports why it can't.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    Activate, ConditionType, ConfigSource, ConfigSourceStatus, Explanation, Reason, VersionState, VersionedConfig,
    VersionedConfigStatus, WaitingContent, condition, set_condition,
};
use nudge_protocol::labels;

use super::debounced_version::{DebouncedVersion, after};
use super::periods::{debounce, min_period};
use super::retention::{decide_retention, note_gone};
use super::source_faults::source_faults;
use super::source_snapshot::{Act, SourceDecision, SourceSnapshot, Upstream};
use super::version_manager::version_manager;
use crate::requester::noted_retry_time;
use crate::versions::{is_nearly_full, is_of_source};

/// The maximum number of failed versions that a source remembers.
const MAX_FAILED_VERSIONS: usize = 8;
/// The maximum time from the objects of a version to its seal. After that, the objects are created again.
const SEALING_TIMEOUT: Duration = Duration::from_secs(30);

/// The state of a source after a decision.
enum SourceOutcome {
    /// The content has not been read yet, or is still changing, which is not reported because it may be frequent.
    Quiet { until: Option<Timestamp> },
    /// The content waits for something that ends by itself.
    Waits { version: String, why: Explanation, until: Option<Timestamp> },
    /// The source has to act.
    Acts(Act),
    /// The source has nothing to do.
    Done(Explanation),
    /// The source can't continue.
    Blocked(Explanation),
}

/// Decides the next act of a source.
pub fn decide(observed: &SourceSnapshot<'_>) -> SourceDecision {
    let SourceSnapshot { source, upstream, now, .. } = *observed;
    let before = source.status.clone().unwrap_or_default();
    let mut status = ConfigSourceStatus { observed_generation: source.metadata.generation, ..before };
    note_failure(&mut status, observed.config.and_then(|config| config.status.as_ref()));
    note_gone(&mut status, &upstream, now);
    let (retention_act, due) = decide_retention(observed, &status);
    let outcome = find_outcome(observed, &status);
    let waited = status.waiting.take();
    let mut act = retention_act;
    let mut recheck_at = due;
    match outcome {
        SourceOutcome::Quiet { until } => {
            status.waiting = waited;
            return SourceDecision { status: with_first_condition(status, observed), act, recheck_at: until.or(due) };
        }
        SourceOutcome::Acts(next) => {
            // The status reports the outcome of the act later.
            status.waiting = waited;
            act = act.or(Some(next));
        }
        SourceOutcome::Waits { version, why: explanation, until } => {
            let start_time = waited.map_or(Time(now), |waited| waited.start_time);
            conclude(&mut status, observed, false, &explanation);
            status.waiting = Some(WaitingContent { version, start_time, reason: explanation.reason });
            recheck_at = until.or(due);
        }
        SourceOutcome::Done(ref explanation) | SourceOutcome::Blocked(ref explanation) => {
            status.synced = sync_request(source).map(str::to_owned);
            conclude(&mut status, observed, matches!(outcome, SourceOutcome::Done(_)), explanation);
        }
    }
    if let Upstream::Content(newest) = upstream {
        status.observed_version = Some(newest.version.clone());
    }
    SourceDecision { status, act, recheck_at }
}

/// Returns the outcome of the decision: the first one that applies.
fn find_outcome(observed: &SourceSnapshot<'_>, status: &ConfigSourceStatus) -> SourceOutcome {
    let SourceSnapshot { source, upstream, config, now, .. } = *observed;
    let name = source.config();
    if source.spec.suspend {
        let message =
            format!("the source is suspended; resume it with kubectl nudge source resume {}", own_name(source));
        return SourceOutcome::Blocked(Reason::Suspended.explained(message));
    }
    if let Some(fault) = source_faults(own_name(source), &source.spec).into_iter().next() {
        return SourceOutcome::Blocked(fault);
    }
    if let Some(rival) = observed.rival {
        let message =
            format!("source {rival} is older and makes the versions of config {name}; delete or suspend one of them");
        return SourceOutcome::Blocked(Reason::ConfigTaken.explained(message));
    }
    let newest = match upstream {
        Upstream::Unknown => return SourceOutcome::Quiet { until: None },
        Upstream::Refused(explanation) => return SourceOutcome::Blocked(with_last_version(explanation, status)),
        Upstream::Content(newest) => newest,
    };
    if let Some(trouble) = observed.trouble {
        return SourceOutcome::Blocked(trouble.clone());
    }
    let Some(config) = config else { return SourceOutcome::Acts(Act::CreateConfig) };
    let version = newest.version.as_str();
    let config_status = config.status.as_ref();
    let is_sealed = is_sealed(observed, version);
    let is_requested = config.spec.version.as_deref() == Some(version);
    let is_automatic = source.spec.activate == Activate::Automatic;
    // A version that a user has requested is not delayed.
    let is_sync_requested = sync_request(source).is_some_and(|request| status.synced.as_deref() != Some(request));
    let failure =
        config_status.and_then(|status| status.rollout.failure.as_ref()).filter(|failure| failure.version == version);
    // The failure stays until the rollout begins again.
    if is_requested && failure.is_some_and(|failure| noted_retry_time(config) == failure.retry_time) {
        if is_sync_requested && is_sealed {
            return SourceOutcome::Acts(Act::Retry(version.to_owned()));
        }
        return SourceOutcome::Blocked(failed_version(source, version));
    }
    if is_requested && is_sealed {
        return SourceOutcome::Done(Reason::Activated.explained(format!("config {name} requests version {version}")));
    }
    if is_sealed && !is_automatic {
        let message = format!("version {version} is made; make it current with kubectl nudge use {name} {version}");
        return SourceOutcome::Done(Reason::Made.explained(message));
    }
    let settles_at = newest.settles_at(debounce(source));
    if settles_at > now && !is_sync_requested {
        return SourceOutcome::Quiet { until: Some(settles_at) };
    }
    if let Some(explanation) = rule_refusal(observed, version) {
        return SourceOutcome::Blocked(explanation);
    }
    if status.failed_versions.iter().any(|failed| failed == version) && !is_sync_requested {
        return SourceOutcome::Blocked(failed_version(source, version));
    }
    if let Some(other) = version_manager(&config.metadata).filter(|_| is_automatic && !is_requested) {
        return SourceOutcome::Blocked(explain_conflict(source, other));
    }
    // A version that this source has just made is sealed first, and then requested.
    let is_own = status.version.as_deref() == Some(version);
    let sealing_end = status.make_time.as_ref().map(|made| after(made.0, SEALING_TIMEOUT));
    if let Some(until) = sealing_end.filter(|until| is_own && !is_sealed && now < *until) {
        let explanation = Reason::Progressing.explained(format!("version {version} is made, and is being sealed"));
        return SourceOutcome::Waits { version: version.to_owned(), why: explanation, until: Some(until) };
    }
    if let Some(message) = rollout_message(config) {
        let explanation = Reason::Progressing.explained(message);
        return SourceOutcome::Waits { version: version.to_owned(), why: explanation, until: None };
    }
    let earliest = status.make_time.as_ref().filter(|_| !is_own).map(|made| after(made.0, min_period(source)));
    if let Some(until) = earliest.filter(|&until| until > now && !is_sync_requested) {
        let message =
            format!("version {version} waits for spec.minPeriodSeconds, which is {}", source.spec.min_period_seconds);
        return SourceOutcome::Waits {
            version: version.to_owned(),
            why: Reason::TooSoon.explained(message),
            until: Some(until),
        };
    }
    if is_sealed {
        return SourceOutcome::Acts(Act::Activate(version.to_owned()));
    }
    if config_status.is_some_and(|status| status.version(version).is_none() && is_nearly_full(status)) {
        let message =
            format!("config {name} has almost as many versions as it can have; delete some with kubectl nudge delete");
        return SourceOutcome::Blocked(Reason::HistoryFull.explained(message));
    }
    SourceOutcome::Acts(Act::Make)
}

/// Returns whether the version is sealed and its objects exist. A version whose objects are gone is made again.
fn is_sealed(observed: &SourceSnapshot<'_>, version: &str) -> bool {
    let sealed = observed.config.and_then(|config| config.status.as_ref()?.version(version));
    sealed.is_some_and(|sealed| sealed.state != VersionState::Broken)
}

/// Returns the refusal of the content by the config's rules: before the content became a version, by admission, or at
/// sealing. A sealed version is not judged again.
fn rule_refusal(observed: &SourceSnapshot<'_>, version: &str) -> Option<Explanation> {
    if is_sealed(observed, version) {
        return None;
    }
    let sealing = || {
        let invalid = &observed.config?.status.as_ref()?.invalid;
        let invalid = invalid.iter().find(|invalid| invalid.version == version)?;
        Some(invalid.reason.explained(format!(
            "version {version} breaks a rule of spec.validation: {}; correct the content, or change the rules",
            invalid.message
        )))
    };
    // Admission has refused the objects of the version.
    let admission = || observed.trouble.filter(|trouble| trouble.reason == Reason::Invalid).cloned();
    observed.refusal.cloned().or_else(sealing).or_else(admission)
}

/// Returns a message about the rollout of the config: nothing may interrupt it.
fn rollout_message(config: &VersionedConfig) -> Option<String> {
    let status = config.status.as_ref()?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if status.rollout.stage.is_some() {
        let target = status.target_version.as_deref().unwrap_or("another version");
        return Some(format!("config {name} is being moved to {target}; the newest content comes next"));
    }
    // The controller has not seen the last change of the spec.
    let is_observed = status.observed_generation == config.metadata.generation;
    (!is_observed).then(|| format!("config {name} is being looked at; the newest content comes next"))
}

/// Notes that a version of the source failed.
fn note_failure(status: &mut ConfigSourceStatus, config: Option<&VersionedConfigStatus>) {
    let Some(failure) = config.and_then(|config| config.rollout.failure.as_ref()) else { return };
    if is_of_source(&failure.version) && !status.failed_versions.contains(&failure.version) {
        status.failed_versions.push(failure.version.clone());
        let surplus = status.failed_versions.len().saturating_sub(MAX_FAILED_VERSIONS);
        status.failed_versions.drain(..surplus);
    }
}

/// Returns the explanation why there is no content now. It adds that the last version stays, if there is a last
/// version.
fn with_last_version(explanation: &Explanation, status: &ConfigSourceStatus) -> Explanation {
    let keeps_version =
        matches!(explanation.reason, Reason::SourceGone | Reason::FetchFailed) && status.version.is_some();
    let suffix = if keeps_version { "; the last version stays as it is" } else { "" };
    explanation.reason.explained(format!("{}{suffix}", explanation.message))
}

fn failed_version(source: &ConfigSource, version: &str) -> Explanation {
    let config = source.config();
    let name = own_name(source);
    Reason::Failed.explained(format!(
        "version {version} of config {config} failed and is not tried again; change the data, or try it again with kubectl nudge source \
         sync {name}"
    ))
}

/// Returns the explanation that somebody else sets `spec.version`.
pub fn explain_conflict(source: &ConfigSource, other: &str) -> Explanation {
    let config = source.config();
    let name = own_name(source);
    Reason::FieldConflict.explained(format!(
        "spec.version of config {config} is set by {other}; give it back to the source with kubectl nudge source resume {name}"
    ))
}

fn own_name(source: &ConfigSource) -> &str {
    source.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the request of `kubectl nudge source sync`, if the source has the annotation.
fn sync_request(source: &ConfigSource) -> Option<&str> {
    source.metadata.annotations.as_ref()?.get(labels::SYNC).map(String::as_str)
}

/// Returns the status, with a first condition if it has none although the content was read.
fn with_first_condition(mut status: ConfigSourceStatus, observed: &SourceSnapshot<'_>) -> ConfigSourceStatus {
    if status.conditions.is_empty() && matches!(observed.upstream, Upstream::Content(_)) {
        let message = "the data was read, and must stay unchanged for a while";
        conclude(&mut status, observed, false, &Reason::Settling.explained(message));
    }
    status
}

fn conclude(status: &mut ConfigSourceStatus, observed: &SourceSnapshot<'_>, ready: bool, explanation: &Explanation) {
    let generation = observed.source.metadata.generation;
    let now = Time(observed.now);
    let refused = if let Upstream::Refused(explanation) = observed.upstream {
        Some(with_last_version(explanation, status))
    } else {
        None
    };
    let mut set = |kind, value, explanation: &Explanation| {
        set_condition(
            &mut status.conditions,
            condition(kind, value, explanation.reason, &*explanation.message, generation, &now),
        );
    };
    match (observed.upstream, &refused) {
        (_, Some(refusal)) => set(ConditionType::Fetched, false, refusal),
        (Upstream::Unknown | Upstream::Refused(_), None) => {}
        (Upstream::Content(_), None) => {
            set(ConditionType::Fetched, true, &Reason::Fetched.explained("the content was read"));
        }
    }
    if let Upstream::Content(DebouncedVersion { version, .. }) = observed.upstream {
        if let Some(refusal) = rule_refusal(observed, version) {
            set(ConditionType::Valid, false, &refusal);
        } else if is_sealed(observed, version) {
            set(ConditionType::Valid, true, &Reason::Sealed.explained(format!("version {version} is sealed")));
        }
    }
    set(ConditionType::Ready, ready, explanation);
    set(ConditionType::Stalled, !ready && explanation.reason.facts().needs_action, explanation);
}
