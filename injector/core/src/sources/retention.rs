//! A secret of Vault that is gone: after a time, the older versions that were made of it are deleted, too. The last
//! version stays.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigSourceStatus, PartKind, Reason};

use super::debounced_version::after;
use super::periods::secret_retention;
use super::source_snapshot::{Act, SourceSnapshot, Upstream};

/// Notes the time when the content disappeared.
pub(super) fn note_gone(status: &mut ConfigSourceStatus, upstream: &Upstream<'_>, now: Timestamp) {
    match upstream {
        Upstream::Refused(explanation) if explanation.reason == Reason::SourceGone => {
            status.gone_time.get_or_insert(Time(now));
        }
        // It is unknown whether the content exists.
        Upstream::Unknown => {}
        Upstream::Refused(explanation) if explanation.reason == Reason::NotAllowed => {}
        Upstream::Refused(_) | Upstream::Content(_) => status.gone_time = None,
    }
}

/// Returns the act that changes the note about old versions, if one is due, and the time when the next one may be due.
pub(super) fn decide_retention(
    observed: &SourceSnapshot<'_>,
    status: &ConfigSourceStatus,
) -> (Option<Act>, Option<Timestamp>) {
    let SourceSnapshot { source, upstream, now, .. } = *observed;
    let is_active = observed.config.is_some() && observed.rival.is_none() && !source.spec.suspend;
    if !is_active || matches!(upstream, Upstream::Unknown) {
        return (None, None);
    }
    let is_secret = source.spec.from.place().is_some_and(|from| from.part_kind() == PartKind::Secret);
    let due = status.gone_time.as_ref().filter(|_| is_secret).map(|gone| after(gone.0, secret_retention(source)));
    let last = status.version.as_deref().filter(|_| due.is_some_and(|due| due <= now));
    let act = (last != observed.last).then(|| Act::KeepOnly(last.map(str::to_owned)));
    (act, due.filter(|due| *due > now))
}
