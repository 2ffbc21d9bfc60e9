//! What admission lets pass or refuses, for the audit trail: lines with target `audit`, which no log level switches off.

use nudge_api::Override;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::{ConfigName, VersionName};

use super::lookups::Right;
use super::review::{Request, TEXT_BYTES};

/// One line about a request. The object may still be refused by others, or may be a trial.
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

/// A pod is admitted whose agent has these versions mounted.
pub(super) fn mounted(request: &Request, pod: &str, account: &str, versions: &[(ConfigName, VersionName)]) {
    let account = one_line(account, TEXT_BYTES);
    for (config, version) in versions {
        audit!(request, "version mounted at admission", pod, service_account = account, %config, %version,);
    }
}

/// A user chooses another version in `spec.version`.
pub(super) fn activated(request: &Request, config: &str, from: Option<&str>, to: Option<&str>) {
    let [from, to] = [from, to].map(|version| version.map(|version| one_line(version, TEXT_BYTES)));
    audit!(request, "version chosen", config, from, to,);
}

/// A user assigns a version to all pods at once.
pub(super) fn at_once(request: &Request, config: &str, Override { version, reason, until_time }: &Override) {
    let [version, reason] = [version, reason].map(|text| one_line(text, TEXT_BYTES));
    audit!(request, "version chosen for all pods at once", config, version, reason, until = %until_time.0,);
}

/// A user who may override a config takes something away from its guards.
pub(super) fn overridden(request: &Request, config: &str, action: &str, because: &str) {
    let because = one_line(because, 4 * TEXT_BYTES);
    audit!(request, "guards overridden", config, action, because,);
}

/// A user approves or denies a version.
pub(super) fn decided(request: &Request, config: &str, version: &str, decision: &str, reason: &str) {
    let reason = one_line(reason, 4 * TEXT_BYTES);
    audit!(request, "version decided about", config, version, decision, reason,);
}

/// What a user has decided is withdrawn.
pub(super) fn withdrawn(request: &Request, config: &str, version: &str, decision: &str, approver: &str) {
    let approver = one_line(approver, 2 * TEXT_BYTES);
    audit!(request, "decision about a version withdrawn", config, version, decision, approver,);
}

/// A user lacks a right.
pub(super) fn refused(request: &Request, config: &str, action: &str, right: Right<'_>) {
    audit!(request, "right refused", config, action, %right,);
}
