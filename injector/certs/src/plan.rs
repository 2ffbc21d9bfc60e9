//! The next step on the stored certificates: a pure function of them and the time.

use std::time::Duration;

use time::OffsetDateTime;

use super::authority::Pair;
use super::certificate::Certificate;
use super::lifetimes::{LEEWAY, Lifetimes};
use super::names::ServingNames;
use super::stored::{Signer, Stored};

/// The next step. Each writes one Secret, and leaves what can be used, so that a crash between two does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    Keep,
    /// Start over with an authority that nobody trusts yet: there is none that could sign a cross certificate.
    Make(Cause),
    /// Make the next authority, cross-signed by the one before. What that has signed stays in use until it is renewed.
    Rotate(Cause),
    /// Make another serving certificate.
    Renew(Cause),
    /// Put the authorities that clients trust beside the serving certificate.
    Publish,
    /// Stop publishing old authorities.
    DropOld,
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is stored yet.
    Empty,
    /// Most of its life is over.
    Due,
    /// There is no authority that can be used.
    NoAuthority,
    /// The authority's private key is missing or wrong.
    CannotSign,
    /// The authority has expired, or is not valid yet: a clock was wrong.
    NotValid,
    /// There is no serving certificate that can be used.
    NoServing,
    /// The serving certificate lacks names.
    Names,
}

impl Cause {
    /// The cause, for the log.
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
    let Some((serving, current)) = serving.and_then(|serving| Some((serving, is_current(serving, stored)?))) else {
        return Step::Renew(Cause::NoServing);
    };
    if !serving.names().cover(names) {
        return Step::Renew(Cause::Names);
    }
    // It changes to another authority later than it would be renewed: so every authority is published for a while before it is used.
    if is_due(serving, now, lifetimes.certificate / if current { 3 } else { 6 }) {
        return Step::Renew(Cause::Due);
    }
    if kept_old(stored, now, lifetimes).len() < stored.old.len() {
        return Step::DropOld;
    }
    if stored.published == stored.authorities() { Step::Keep } else { Step::Publish }
}

/// Returns whether the authority that signs has signed the serving certificate, or one that did before. `None`: neither has.
fn is_current(serving: &Certificate, stored: &Stored) -> Option<bool> {
    let by = |authority: &Certificate| serving.names_as_issuer(authority) && serving.is_signed_by(authority);
    let current = stored.signer.as_ref().is_some_and(|signer| by(signer.certificate()));
    (current || stored.old.iter().any(by)).then_some(current)
}

/// Returns whether no more than `rest` of its life is left.
fn is_due(certificate: &Certificate, now: OffsetDateTime, rest: Duration) -> bool {
    now >= certificate.not_after() - rest
}

/// The old authorities that clients still need: none when every server has had time to take what the present one has signed.
pub(super) fn kept_old(stored: &Stored, now: OffsetDateTime, lifetimes: &Lifetimes) -> Vec<Certificate> {
    let serving =
        stored.serving.as_ref().map(Pair::certificate).filter(|&serving| is_current(serving, stored) == Some(true));
    if serving.is_some_and(|serving| now >= serving.not_before() + LEEWAY + lifetimes.grace) {
        return Vec::new();
    }
    stored.old.iter().filter(|old| old.not_after() > now).cloned().collect()
}
