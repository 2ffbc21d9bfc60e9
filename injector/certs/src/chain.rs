//! The cross certificates that are sent with a serving certificate, and what they say about who trusts it.

use std::time::Duration;

use time::OffsetDateTime;

use super::authority::{AUTHORITY_NAME, Pair};
use super::certificate::Certificate;
use super::lifetimes::{LEEWAY, MAX_CROSSES};

/// Pods that lose their trust within this time are reported.
const TRUST_LOSS_NOTICE: Duration = Duration::from_hours(180 * 24);

/// The cross certificates that lead from `authority` to older ones, the newest first; none that is not valid.
pub(super) fn chain(authority: &Certificate, crosses: &[Certificate], now: OffsetDateTime) -> Vec<Certificate> {
    let first = crosses.iter().find(|cross| cross.is_for_subject_of(authority) && cross.is_valid_at(now));
    let next = |last: &&Certificate| {
        let last = *last;
        crosses.iter().find(|cross| last.names_as_issuer(cross) && cross.is_valid_at(now))
    };
    // Bounded, so that certificates that name each other do no harm.
    std::iter::successors(first, next).take(MAX_CROSSES as usize).cloned().collect()
}

/// Who trusts the serving certificate: an agent trusts the authorities of the moment at which its pod was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// When the authority that signed it expires.
    pub authority_expires: OffsetDateTime,
    /// Which pods trust it. `None` where the authority is not Nudge's own: then its age says nothing about the one before.
    pub pods: Option<TrustingPods>,
}

/// The pods that trust the serving certificate, by the time of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustingPods {
    /// Older pods do not trust it.
    pub since: OffsetDateTime,
    /// Pods that are older than this, and not older than `since`, lose their trust within 180 days.
    pub lasting_since: OffsetDateTime,
}

impl Trust {
    /// Who trusts `serving`, by the certificates in `bundle` and those that are sent with it.
    pub(super) fn of(serving: &Pair, bundle: &[Certificate], now: OffsetDateTime) -> Option<Self> {
        let signed = |certificate: &Certificate| bundle.iter().find(|authority| certificate.names_as_issuer(authority));
        let authority = signed(serving.certificate()).or_else(|| serving.chain().iter().rev().find_map(signed))?;
        let is_own = authority.common_name().is_some_and(|name| name.starts_with(AUTHORITY_NAME));
        // A cross certificate is valid from the moment at which the authority is that signed it.
        let since = |at| {
            let crosses = chain(authority, serving.chain(), at);
            crosses.iter().map(Certificate::not_before).fold(authority.not_before(), OffsetDateTime::min) + LEEWAY
        };
        let pods = is_own.then(|| TrustingPods { since: since(now), lasting_since: since(now + TRUST_LOSS_NOTICE) });
        Some(Self { authority_expires: authority.not_after(), pods })
    }
}
