//! The next step on the stored certificates: a pure function of them and the time.

use std::time::Duration;

use time::OffsetDateTime;

use super::authority::{Authority, Pair};
use super::certificate::Certificate;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::stored::Stored;

/// The next step. Each leaves a Secret that can be used, so that a crash between two does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    Keep,
    /// Start over: clients that trust what was published before don't trust the result.
    Make(Cause),
    /// Make the next authority, and publish it beside the others.
    Stage(Cause),
    /// Sign with the next authority; the one before stays published for a while.
    Promote(Cause),
    /// Make another serving certificate under the same authority.
    Renew(Cause),
    /// Reset the time of the last change, which lies ahead because a clock was wrong.
    Restamp,
    /// Stop publishing old authorities.
    DropOld,
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is stored yet.
    Empty,
    /// Two thirds of its life are over.
    Due,
    /// There is no authority that can be used.
    NoAuthority,
    /// The authority's private key is missing or wrong.
    CannotSign,
    /// The next authority can't be used.
    NextUnusable,
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
            Self::NextUnusable => "the next CA can't be used",
            Self::NoServing => "no usable serving certificate is stored",
            Self::Names => "the serving certificate lacks names",
        }
    }
}

/// Decides the next step.
pub fn plan(stored: &Stored, names: &ServingNames, now: OffsetDateTime, lifetimes: &Lifetimes) -> Step {
    let next = stored.next.as_ref().filter(|next| next.certificate().is_valid_at(now));
    let start_over = |cause| if next.is_some() { Step::Promote(cause) } else { Step::Make(cause) };
    let Some(signer) = stored.signer.as_ref().filter(|signer| signer.certificate().is_valid_at(now)) else {
        return start_over(if stored.signer.is_none() && stored.faults.is_empty() {
            Cause::Empty
        } else {
            Cause::NoAuthority
        });
    };
    let serving = stored.serving.as_ref().map(Pair::certificate);
    let serving = serving.filter(|serving| serving.is_valid_at(now) && serving.is_signed_by(signer.certificate()));
    let Some(authority) = signer.able() else {
        return if serving.is_none() {
            start_over(Cause::CannotSign)
        } else {
            hand_over(stored, next, now, lifetimes, Cause::CannotSign)
        };
    };
    let Some(serving) = serving else { return Step::Renew(Cause::NoServing) };
    if !serving.names().cover(names) {
        return Step::Renew(Cause::Names);
    }
    if stored.next.is_some() || is_due(signer.certificate(), now, lifetimes.authority) {
        let step = hand_over(stored, next, now, lifetimes, Cause::Due);
        if step != Step::Keep {
            return step;
        }
    }
    // None lives longer than its authority, so a new one may gain too little.
    let gain = authority.serving_end(now, lifetimes) - serving.not_after();
    if is_due(serving, now, lifetimes.certificate) && gain > lifetimes.certificate / 6 {
        return Step::Renew(Cause::Due);
    }
    if drops_old(stored, now, lifetimes) { Step::DropOld } else { Step::Keep }
}

/// The step towards the next authority, while the serving certificate is valid.
fn hand_over(
    stored: &Stored,
    next: Option<&Authority>,
    now: OffsetDateTime,
    lifetimes: &Lifetimes,
    cause: Cause,
) -> Step {
    match (next, stored.since) {
        (None, _) if stored.next.is_some() => Step::Stage(Cause::NextUnusable),
        (None, _) => Step::Stage(cause),
        (Some(_), Some(since)) if since <= now && now - since >= lifetimes.propagation => Step::Promote(cause),
        (Some(_), Some(since)) if since <= now + lifetimes.leeway => Step::Keep,
        (Some(_), _) => Step::Restamp,
    }
}

/// Whether two thirds of its life are over.
fn is_due(certificate: &Certificate, now: OffsetDateTime, life: Duration) -> bool {
    now >= certificate.not_after() - life / 3
}

fn drops_old(stored: &Stored, now: OffsetDateTime, lifetimes: &Lifetimes) -> bool {
    if stored.old.is_empty() {
        return false;
    }
    let kept = lifetimes.certificate + lifetimes.grace;
    let signed_nothing_valid = stored.since.is_none_or(|since| now - since >= kept);
    signed_nothing_valid || stored.old.iter().any(|old| old.not_after() <= now)
}
