//! The cross certificates that are sent with a serving certificate, and the pods that trust it thanks to them.

use std::time::Duration;

use time::OffsetDateTime;

use super::authority::{AUTHORITY_NAME, Pair};
use super::certificate::Certificate;
use super::lifetimes::{LEEWAY, MAX_CROSSES};

/// The notice period: pods that will lose their trust within this time are reported.
const TRUST_LOSS_NOTICE_PERIOD: Duration = Duration::from_hours(180 * 24);

/// Returns the valid cross certificates that lead from `authority` to older ones, the newest first.
pub(super) fn chain(
    authority: &Certificate,
    cross_certificates: &[Certificate],
    now: OffsetDateTime,
) -> Vec<Certificate> {
    let first = cross_certificates.iter().find(|cross| cross.is_for_subject_of(authority) && cross.is_valid_at(now));
    let next = |last: &&Certificate| {
        let last = *last;
        cross_certificates.iter().find(|cross| last.names_as_issuer(cross) && cross.is_valid_at(now))
    };
    // The bound also ends a cycle of certificates that name each other as issuers.
    std::iter::successors(first, next).take(MAX_CROSSES as usize).cloned().collect()
}

/// The clients that trust the serving certificate. An agent trusts the authorities that were published when its pod was
/// injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The expiry of the authority that signed the serving certificate.
    pub authority_expires: OffsetDateTime,
    /// The pods that trust the certificate. `None` if the authority is not Nudge's own: the age of a foreign authority
    /// says nothing about the one before it.
    pub pods: Option<TrustingPods>,
}

/// The pods that trust the serving certificate, by the time of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustingPods {
    /// The creation time of the oldest pods that trust the certificate.
    pub since: OffsetDateTime,
    /// The creation time that separates these pods: those created before it lose their trust within 180 days.
    pub lasting_since: OffsetDateTime,
}

impl Trust {
    /// Finds out who trusts `serving`, from the certificates in `bundle` and those sent with `serving`.
    pub(super) fn of(serving: &Pair, bundle: &[Certificate], now: OffsetDateTime) -> Option<Self> {
        let issuer = |certificate: &Certificate| bundle.iter().find(|authority| certificate.names_as_issuer(authority));
        let authority = issuer(serving.certificate()).or_else(|| serving.chain().iter().rev().find_map(issuer))?;
        let is_own = authority.common_name().is_some_and(|name| name.starts_with(AUTHORITY_NAME));
        // A cross certificate is valid from the same moment as the authority that signed it.
        let since = |time| {
            let certificates = chain(authority, serving.chain(), time);
            certificates.iter().map(Certificate::not_before).fold(authority.not_before(), OffsetDateTime::min) + LEEWAY
        };
        let pods =
            is_own.then(|| TrustingPods { since: since(now), lasting_since: since(now + TRUST_LOSS_NOTICE_PERIOD) });
        Some(Self { authority_expires: authority.not_after(), pods })
    }
}
