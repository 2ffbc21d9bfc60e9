//! What a source does next: wait, make a version, ask for it, or say why it can't.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    Activate, ConditionType, ConfigSource, ConfigSourceStatus, Explanation, Reason, VersionState, VersionedConfig,
    VersionedConfigStatus, WaitingContent, condition, set_condition,
};
use nudge_protocol::labels;

use super::debounce::{Newest, after};
use super::holder::holder;
use super::observed::{Act, Decision, Observed, Upstream};
use super::period::{debounce, min_period};
use super::retention::{note_gone, retained};
use super::source_faults::source_faults;
use crate::requester::noted_retry;
use crate::versions::{is_nearly_full, is_of_source};

/// The maximum of failed versions that a source remembers.
const MAX_FAILED: usize = 8;

/// What the source has come to.
enum SourceOutcome {
    /// Nothing is known yet, or the object is still changing, which is not reported because it may be frequent.
    Quiet { until: Option<Timestamp> },
    /// The content waits for something that ends by itself.
    Waits { version: String, why: Explanation, until: Option<Timestamp> },
    /// Something is to be done.
    Acts(Act),
    /// Nothing is left to do.
    Done(Explanation),
    /// The source can't go on.
    Blocked(Explanation),
}

/// Decides.
pub fn decide(observed: &Observed<'_>) -> Decision {
    let Observed { source, upstream, now, .. } = *observed;
    let before = source.status.clone().unwrap_or_default();
    let mut status = ConfigSourceStatus { observed_generation: source.metadata.generation, ..before };
    note_failure(&mut status, observed.config.and_then(|config| config.status.as_ref()));
    note_gone(&mut status, &upstream, now);
    let (retained, due) = retained(observed, &status);
    let outcome = outcome(observed, &status);
    let waited = status.waiting.take();
    let (mut act, mut again) = (retained, due);
    match outcome {
        SourceOutcome::Quiet { until } => {
            (status.waiting, again) = (waited, until.or(due));
            return Decision { status: first_words(status, observed), act, again };
        }
        SourceOutcome::Acts(next) => {
            // Its outcome is what there is to say.
            status.waiting = waited;
            act = act.or(Some(next));
        }
        SourceOutcome::Waits { version, why, until } => {
            let start_time = waited.map_or(Time(now), |waited| waited.start_time);
            conclude(&mut status, observed, false, &why);
            status.waiting = Some(WaitingContent { version, start_time, reason: why.reason });
            again = until.or(due);
        }
        SourceOutcome::Done(why) => {
            status.synced = sync_asked(source).map(str::to_owned);
            conclude(&mut status, observed, true, &why);
        }
        SourceOutcome::Blocked(why) => {
            status.synced = sync_asked(source).map(str::to_owned);
            conclude(&mut status, observed, false, &why);
        }
    }
    if let Upstream::Content(newest) = upstream {
        status.observed_version = Some(newest.version.clone());
    }
    Decision { status, act, again }
}

fn outcome(observed: &Observed<'_>, status: &ConfigSourceStatus) -> SourceOutcome {
    let Observed { source, upstream, config, now, .. } = *observed;
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
        Upstream::Refused(why) => return SourceOutcome::Blocked(with_last(why, status)),
        Upstream::Content(newest) => newest,
    };
    if let Some(trouble) = observed.trouble {
        return SourceOutcome::Blocked(trouble.clone());
    }
    let Some(config) = config else { return SourceOutcome::Acts(Act::CreateConfig) };
    let version = newest.version.as_str();
    let known = config.status.as_ref();
    let is_sealed = is_sealed(observed, version);
    let wanted = config.spec.version.as_deref() == Some(version);
    let automatic = source.spec.activate == Activate::Automatic;
    // What was asked for by hand is not put off.
    let asked = sync_asked(source).is_some_and(|asked| status.synced.as_deref() != Some(asked));
    let failure = known.and_then(|known| known.rollout.failure.as_ref()).filter(|failure| failure.version == version);
    // Until the rollout begins again, the failure stays.
    if wanted && failure.is_some_and(|failure| noted_retry(config) == failure.retry_time) {
        if asked && is_sealed {
            return SourceOutcome::Acts(Act::Retry(version.to_owned()));
        }
        return SourceOutcome::Blocked(failed(source, version));
    }
    if wanted && is_sealed {
        return SourceOutcome::Done(Reason::Activated.explained(format!("config {name} asks for version {version}")));
    }
    if is_sealed && !automatic {
        let message = format!("version {version} is made; make it current with kubectl nudge use {name} {version}");
        return SourceOutcome::Done(Reason::Made.explained(message));
    }
    let settles = newest.settles_at(debounce(source));
    if settles > now && !asked {
        return SourceOutcome::Quiet { until: Some(settles) };
    }
    if let Some(why) = invalid(observed, version) {
        return SourceOutcome::Blocked(why);
    }
    if status.failed_versions.iter().any(|failed| failed == version) && !asked {
        return SourceOutcome::Blocked(failed(source, version));
    }
    if let Some(other) = holder(&config.metadata).filter(|_| automatic && !wanted) {
        return SourceOutcome::Blocked(held_by(source, other));
    }
    // It was made by this source a moment ago: it is to be sealed, and then asked for.
    let own = status.version.as_deref() == Some(version);
    if own && !is_sealed && made_just_now(status, now) {
        let until = status.make_time.as_ref().map(|made| after(made.0, SEALING_TIMEOUT));
        let why = Reason::Progressing.explained(format!("version {version} is made, and is being sealed"));
        return SourceOutcome::Waits { version: version.to_owned(), why, until };
    }
    if let Some(message) = under_way(config) {
        let why = Reason::Progressing.explained(message);
        return SourceOutcome::Waits { version: version.to_owned(), why, until: None };
    }
    let earliest = status.make_time.as_ref().filter(|_| !own).map(|made| after(made.0, min_period(source)));
    if let Some(until) = earliest.filter(|&until| until > now && !asked) {
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
    if known.is_some_and(|known| known.version(version).is_none() && is_nearly_full(known)) {
        let message =
            format!("config {name} has almost as many versions as it can have; delete some with kubectl nudge delete");
        return SourceOutcome::Blocked(Reason::HistoryFull.explained(message));
    }
    SourceOutcome::Acts(Act::Make)
}

/// Returns whether the version is sealed and its objects are there. One whose objects are gone is made again.
fn is_sealed(observed: &Observed<'_>, version: &str) -> bool {
    let known = observed.config.and_then(|config| config.status.as_ref()?.version(version));
    known.is_some_and(|sealed| sealed.state != VersionState::Broken)
}

/// The rules of the config that the content breaks: found before it became a version, by admission, or by those who seal.
///
/// What is sealed is not judged again.
fn invalid(observed: &Observed<'_>, version: &str) -> Option<Explanation> {
    if is_sealed(observed, version) {
        return None;
    }
    let sealing = || {
        let invalid = &observed.config?.status.as_ref()?.invalid;
        let found = invalid.iter().find(|one| one.version == version)?;
        Some(found.reason.explained(format!(
            "version {version} breaks a rule of spec.validation: {}; correct the content, or change the rules",
            found.message
        )))
    };
    // Admission has refused its objects.
    let admission = || observed.trouble.filter(|trouble| trouble.reason == Reason::Invalid).cloned();
    observed.refusal.cloned().or_else(sealing).or_else(admission)
}

/// How long a version may take from its objects to its seal before its objects are looked after again.
const SEALING_TIMEOUT: Duration = Duration::from_secs(30);

fn made_just_now(status: &ConfigSourceStatus, now: Timestamp) -> bool {
    status.make_time.as_ref().is_some_and(|made| now < after(made.0, SEALING_TIMEOUT))
}

/// What a rollout of the config does that nothing may interrupt.
fn under_way(config: &VersionedConfig) -> Option<String> {
    let status = config.status.as_ref()?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if status.rollout.stage.is_some() {
        let target = status.target_version.as_deref().unwrap_or("another version");
        return Some(format!("config {name} is being moved to {target}; the newest content comes next"));
    }
    // What was asked for last has not been looked at.
    let seen = status.observed_generation == config.metadata.generation;
    (!seen).then(|| format!("config {name} is being looked at; the newest content comes next"))
}

/// Remembers that a version of the source failed.
fn note_failure(status: &mut ConfigSourceStatus, config: Option<&VersionedConfigStatus>) {
    let Some(failure) = config.and_then(|config| config.rollout.failure.as_ref()) else { return };
    if is_of_source(&failure.version) && !status.failed_versions.contains(&failure.version) {
        status.failed_versions.push(failure.version.clone());
        let surplus = status.failed_versions.len().saturating_sub(MAX_FAILED);
        status.failed_versions.drain(..surplus);
    }
}

/// Why there is no content now, and what becomes of the version that the source made last, if it has made one.
fn with_last(why: &Explanation, status: &ConfigSourceStatus) -> Explanation {
    let away = matches!(why.reason, Reason::SourceGone | Reason::FetchFailed) && status.version.is_some();
    let end = if away { "; the last version stays as it is" } else { "" };
    why.reason.explained(format!("{}{end}", why.message))
}

fn failed(source: &ConfigSource, version: &str) -> Explanation {
    let (config, name) = (source.config(), own_name(source));
    Reason::Failed.explained(format!(
        "version {version} of config {config} failed and is not tried again; change the data, or try it again with kubectl nudge source \
         sync {name}"
    ))
}

/// Somebody else sets `spec.version`.
pub fn held_by(source: &ConfigSource, other: &str) -> Explanation {
    let (config, name) = (source.config(), own_name(source));
    Reason::HeldBy.explained(format!(
        "spec.version of config {config} is set by {other}; give it back to the source with kubectl nudge source resume {name}"
    ))
}

fn own_name(source: &ConfigSource) -> &str {
    source.metadata.name.as_deref().unwrap_or_default()
}

/// The request of `kubectl nudge source sync`.
fn sync_asked(source: &ConfigSource) -> Option<&str> {
    source.metadata.annotations.as_ref()?.get(labels::SYNC).map(String::as_str)
}

/// A source says something from the beginning.
fn first_words(mut status: ConfigSourceStatus, observed: &Observed<'_>) -> ConfigSourceStatus {
    if status.conditions.is_empty() && matches!(observed.upstream, Upstream::Content(_)) {
        let message = "the data was read, and must stay unchanged for a while";
        conclude(&mut status, observed, false, &Reason::Settling.explained(message));
    }
    status
}

fn conclude(status: &mut ConfigSourceStatus, observed: &Observed<'_>, ready: bool, why: &Explanation) {
    let (generation, now) = (observed.source.metadata.generation, Time(observed.now));
    let refused = if let Upstream::Refused(why) = observed.upstream { Some(with_last(why, status)) } else { None };
    let mut set = |kind, value, why: &Explanation| {
        set_condition(&mut status.conditions, condition(kind, value, why.reason, &*why.message, generation, &now));
    };
    match (observed.upstream, &refused) {
        (_, Some(refusal)) => set(ConditionType::Fetched, false, refusal),
        (Upstream::Unknown | Upstream::Refused(_), None) => {}
        (Upstream::Content(_), None) => {
            set(ConditionType::Fetched, true, &Reason::Fetched.explained("the object was read"));
        }
    }
    if let Upstream::Content(Newest { version, .. }) = observed.upstream {
        if let Some(refusal) = invalid(observed, version) {
            set(ConditionType::Valid, false, &refusal);
        } else if is_sealed(observed, version) {
            set(ConditionType::Valid, true, &Reason::Sealed.explained(format!("version {version} is sealed")));
        }
    }
    set(ConditionType::Ready, ready, why);
    set(ConditionType::Stalled, !ready && why.reason.facts().needs_action, why);
}
