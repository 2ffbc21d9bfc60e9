//! The lines of the audit trail about requests that admission allows or refuses: they have the target `audit`, which no
//! log level switches off.

use nudge_api::Override;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::{ConfigName, VersionName};

use super::lookups::Right;
use super::review::{MAX_TEXT_BYTES, ReviewRequest};

/// Writes one line about a request. Others may still refuse the request, or it may be a dry run.
macro_rules! audit {
    ($request:ident, $message:literal, $($field:tt)*) => {
        tracing::info!(
            target: "audit",
            $($field)*
            namespace = $request.namespace.as_deref(),
            user = $request.proven_user(),
            claimed_user = $request.claimed_user(),
            peer = %$request.caller.address,
            dry_run = $request.dry_run,
            $message
        )
    };
}

/// Writes which versions the agent of an admitted pod has mounted.
pub(super) fn versions_mounted(
    request: &ReviewRequest,
    pod: &str,
    account: &str,
    versions: &[(ConfigName, VersionName)],
) {
    let account = one_line(account, MAX_TEXT_BYTES);
    for (config, version) in versions {
        audit!(request, "version mounted at admission", pod, service_account = account, %config, %version,);
    }
}

/// Writes that a user chooses another version in `spec.version`.
pub(super) fn version_chosen(request: &ReviewRequest, config: &str, from: Option<&str>, to: Option<&str>) {
    let [from, to] = [from, to].map(|version| version.map(|version| one_line(version, MAX_TEXT_BYTES)));
    audit!(request, "version chosen", config, from, to,);
}

/// Writes that a user assigns a version to all pods at once.
pub(super) fn override_set(request: &ReviewRequest, config: &str, Override { version, reason, until_time }: &Override) {
    let [version, reason] = [version, reason].map(|text| one_line(text, MAX_TEXT_BYTES));
    audit!(request, "version chosen for all pods at once", config, version, reason, until = %until_time.0,);
}

/// Writes that a user who may override a config weakens its guards.
pub(super) fn guards_overridden(request: &ReviewRequest, config: &str, action: &str, because: &str) {
    let because = one_line(because, 4 * MAX_TEXT_BYTES);
    audit!(request, "guards overridden", config, action, because,);
}

/// Writes that a user approves or denies a version.
pub(super) fn approval_decided(request: &ReviewRequest, config: &str, version: &str, decision: &str, reason: &str) {
    let reason = one_line(reason, 4 * MAX_TEXT_BYTES);
    audit!(request, "version decided about", config, version, decision, reason,);
}

/// Writes that the decision of a user is withdrawn.
pub(super) fn approval_withdrawn(request: &ReviewRequest, config: &str, version: &str, decision: &str, approver: &str) {
    let approver = one_line(approver, 2 * MAX_TEXT_BYTES);
    audit!(request, "decision about a version withdrawn", config, version, decision, approver,);
}

/// Writes that a user lacks a right.
pub(super) fn right_refused(request: &ReviewRequest, config: &str, action: &str, right: Right<'_>) {
    audit!(request, "right refused", config, action, %right,);
}
