//! Decides the next step on the stored certificates: a pure function of the certificates and the time.

use std::time::Duration;

use time::OffsetDateTime;

use super::authority::Pair;
use super::certificate::Certificate;
use super::lifetimes::{LEEWAY, Lifetimes};
use super::names::ServingNames;
use super::stored::{Signer, Stored};

/// A step. Each step writes one Secret and leaves certificates that can be used, so a crash between two steps does no
/// harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    Keep,
    /// Start over with an authority that nobody trusts yet, because no authority can sign a cross certificate.
    Make(Cause),
    /// Make the next authority, cross-signed by the previous authority. The certificates under the previous authority
    /// stay in use until they are renewed.
    Rotate(Cause),
    /// Make another serving certificate.
    Renew(Cause),
    /// Store the authorities that clients trust, together with the serving certificate.
    Publish,
    /// Stop publishing old authorities.
    DropOld,
}

/// The reason for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is stored yet.
    Empty,
    /// Most of the certificate's life is over.
    Due,
    /// No stored authority can be used.
    NoAuthority,
    /// The authority's private key is missing or wrong.
    CannotSign,
    /// The authority has expired, or is not valid yet: a clock was wrong.
    NotValid,
    /// No stored serving certificate can be used.
    NoServing,
    /// The serving certificate lacks some names.
    Names,
}

impl Cause {
    /// Returns the cause, for the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "nothing is stored yet",
            Self::Due => "due",
            Self::NoAuthority => "no usable CA is stored",
            Self::CannotSign => "the private key of the CA is missing or wrong",
            Self::NotValid => "the CA is not valid at this time",
            Self::NoServing => "no usable serving certificate is stored",
            Self::Names => "the serving certificate lacks names",
        }
    }
}

/// Decides the next step.
pub fn plan(stored: &Stored, names: &ServingNames, now: OffsetDateTime, lifetimes: &Lifetimes) -> Step {
    let signer = match &stored.signer {
        Some(Signer::Able(authority)) => authority.certificate(),
        Some(Signer::Unable(_)) => return Step::Make(Cause::CannotSign),
        None if stored.is_empty() => return Step::Make(Cause::Empty),
        None => return Step::Make(Cause::NoAuthority),
    };
    if !signer.is_valid_at(now) {
        return Step::Rotate(Cause::NotValid);
    }
    if is_due(signer, now, lifetimes.authority / 3) {
        return Step::Rotate(Cause::Due);
    }
    let serving = stored.serving.as_ref().map(Pair::certificate).filter(|serving| serving.is_valid_at(now));
    let Some((serving, issuer)) = serving.and_then(|serving| Some((serving, find_issuer(serving, stored)?))) else {
        return Step::Renew(Cause::NoServing);
    };
    if !serving.names().cover(names) {
        return Step::Renew(Cause::Names);
    }
    // Certificates of an old authority are renewed later, so that every authority is published for a while before it is
    // used.
    let remaining = match issuer {
        KnownIssuer::Signer => lifetimes.certificate / 3,
        KnownIssuer::Old => lifetimes.certificate / 6,
    };
    if is_due(serving, now, remaining) {
        return Step::Renew(Cause::Due);
    }
    if needed_old_authorities(stored, now, lifetimes).len() < stored.old.len() {
        return Step::DropOld;
    }
    if stored.published == stored.authorities() { Step::Keep } else { Step::Publish }
}

/// The authority that has signed a serving certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownIssuer {
    /// The authority that signs now.
    Signer,
    /// An authority that signed before.
    Old,
}

fn find_issuer(serving: &Certificate, stored: &Stored) -> Option<KnownIssuer> {
    let signed_by = |authority: &Certificate| serving.names_as_issuer(authority) && serving.is_signed_by(authority);
    if stored.signer.as_ref().is_some_and(|signer| signed_by(signer.certificate())) {
        return Some(KnownIssuer::Signer);
    }
    stored.old.iter().any(signed_by).then_some(KnownIssuer::Old)
}

/// Returns whether at most `remaining` of the certificate's life is left.
fn is_due(certificate: &Certificate, now: OffsetDateTime, remaining: Duration) -> bool {
    now >= certificate.not_after() - remaining
}

/// Returns the old authorities that clients still need. No client needs them once every server has had time to take a
/// certificate of the present authority.
pub(super) fn needed_old_authorities(stored: &Stored, now: OffsetDateTime, lifetimes: &Lifetimes) -> Vec<Certificate> {
    let serving = stored.serving.as_ref().map(Pair::certificate);
    let current = serving.filter(|serving| find_issuer(serving, stored) == Some(KnownIssuer::Signer));
    if current.is_some_and(|serving| now >= serving.not_before() + LEEWAY + lifetimes.grace) {
        return Vec::new();
    }
    stored.old.iter().filter(|old| old.not_after() > now).cloned().collect()
}
