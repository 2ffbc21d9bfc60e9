//! The guards of a config: approval, windows, a protected hold, and analysis. A user who activates versions must not
//! switch guards off, so a change that removes or weakens a guard needs the right to override the config. How pods are
//! moved (steps, times, maxHarmed, any other hold) is not a guard.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Analysis, Approval, Hold, RolloutSpec, VersionedConfigSpec, Window};
use nudge_protocol::plural::counted;

/// Returns the fields of the guards that a config has.
pub fn guard_fields(spec: &RolloutSpec) -> Vec<&'static str> {
    let RolloutSpec { approval, windows, hold, analysis, .. } = spec;
    let fields = [
        ("approval", approval.is_some()),
        ("windows", !windows.is_empty()),
        ("hold", hold.as_ref().is_some_and(|hold| hold.protected)),
        ("analysis", !analysis.is_empty()),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

/// Returns how a change of the spec weakens its guards, each in words that follow "it". The result is empty if the
/// guards are as strict as before.
pub fn weakened_guards(old: &RolloutSpec, new: &RolloutSpec, now: Timestamp) -> Vec<String> {
    let mut weakened = weakened_approval(old.approval.as_ref(), new.approval.as_ref());
    weakened.extend(weakened_windows(&old.windows, &new.windows));
    weakened.extend(weakened_hold(old.hold.as_ref(), new.hold.as_ref(), now));
    weakened.extend(old.analysis.iter().filter_map(|analysis| weakened_analysis(analysis, &new.analysis)));
    weakened
}

/// Describes how a request assigns a version to all pods at once, if it does: it sets or changes
/// `spec.rollout.override`, or requests the version that an earlier override names.
pub fn describe_override(old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec) -> Option<String> {
    let overridden = new.rollout.overridden.as_ref()?;
    if old.and_then(|old| old.rollout.overridden.as_ref()) != Some(overridden) {
        return Some("set spec.rollout.override".to_owned());
    }
    let version = &overridden.version;
    let requests_version = |spec: &VersionedConfigSpec| spec.version.as_ref() == Some(version);
    (requests_version(new) && !old.is_some_and(requests_version))
        .then(|| format!("request version {version}, which spec.rollout.override names"))
}

fn weakened_approval(old: Option<&Approval>, new: Option<&Approval>) -> Vec<String> {
    let Some(old) = old else { return Vec::new() };
    let Some(new) = new else { return vec!["removes spec.rollout.approval".to_owned()] };
    let fewer = (new.required < old.required)
        .then(|| format!("requires {} instead of {}", counted(new.required, "approval"), old.required));
    let author = (old.not_author && !new.not_author).then(|| "lets authors approve (notAuthor: false)".to_owned());
    let new_seconds = new.valid_seconds;
    let old_seconds = old.valid_seconds;
    let longer = (new_seconds > old_seconds)
        .then(|| format!("lets approvals count for {new_seconds} s instead of {old_seconds} (validSeconds)"));
    fewer.into_iter().chain(author).chain(longer).collect()
}

fn weakened_windows(old: &[Window], new: &[Window]) -> Option<String> {
    if old.is_empty() {
        return None;
    }
    if new.is_empty() {
        return Some("removes spec.rollout.windows".to_owned());
    }
    let wider = new.iter().find(|new| !old.iter().any(|old| is_within(new, old)))?;
    let days: Vec<String> = wider.days.iter().map(|day| format!("{day:?}")).collect();
    let Window { from, to, time_zone, .. } = wider;
    Some(format!("adds a window that no earlier window contains ({} {from}-{to} {time_zone})", days.join(" ")))
}

/// Returns whether a window lies within another of the same days and time zone. Times are compared as texts, as the
/// policy does.
fn is_within(new: &Window, old: &Window) -> bool {
    let ends_next_day = |window: &Window| window.to <= window.from;
    let ends_within = match (ends_next_day(new), ends_next_day(old)) {
        (true, false) => false,
        (false, true) => true,
        _ => new.to <= old.to,
    };
    new.time_zone == old.time_zone
        && new.days.iter().all(|day| old.days.contains(day))
        && new.from >= old.from
        && ends_within
}

/// Returns how a change weakens a hold. A hold that is over guards nothing. Protecting a hold takes the same right as
/// ending it, so nobody is locked out.
fn weakened_hold(old: Option<&Hold>, new: Option<&Hold>, now: Timestamp) -> Option<String> {
    let end_of = |hold: &Hold| hold.until_time.as_ref().map_or(Timestamp::MAX, |until| until.0);
    let protected_end = |hold: Option<&Hold>| hold.filter(|hold| hold.protected && end_of(hold) > now).map(end_of);
    let change = match (protected_end(old), new) {
        (None, Some(new)) if new.protected && old != Some(new) => "protects spec.rollout.hold",
        (Some(_), None) => "removes spec.rollout.hold, which is protected",
        (Some(_), Some(new)) if !new.protected => "ends the protection of spec.rollout.hold",
        (Some(before), Some(new)) if end_of(new) < before => "ends spec.rollout.hold, which is protected, earlier",
        _ => return None,
    };
    Some(change.to_owned())
}

fn weakened_analysis(old: &Analysis, new: &[Analysis]) -> Option<String> {
    let name = &old.name;
    match new.iter().find(|new| new.name == *name) {
        None => Some(format!("removes {name} from spec.rollout.analysis")),
        Some(new) => (!is_as_strict(new, old))
            .then(|| format!("changes {name} in spec.rollout.analysis other than by a lower max or maxRatio")),
    }
}

/// Returns whether the new analysis is as strict. `failures` and `periodSeconds` decide how soon a version is bad, and
/// the minimum time that the first step is measured: neither direction is stricter.
fn is_as_strict(new: &Analysis, old: &Analysis) -> bool {
    let number = |text: &String| text.parse::<f64>().ok();
    let limit = |new: &Option<String>, old: &Option<String>| match (new, old) {
        (Some(new), Some(old)) => new == old || number(new).zip(number(old)).is_some_and(|(new, old)| new <= old),
        (new, old) => new == old,
    };
    new.prometheus == old.prometheus
        && limit(&new.max, &old.max)
        && limit(&new.max_ratio, &old.max_ratio)
        && new.failures == old.failures
        && new.period_seconds == old.period_seconds
}
