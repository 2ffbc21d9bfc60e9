//! Carries out a step on the stored certificates. Nothing is written here.

use time::OffsetDateTime;

use super::authority::{Authority, AuthorityError, Pair};
use super::certificate::Certificate;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::plan::Step;
use super::stored::{MAX_OLD, Signer, Stored};

/// What is to be stored after `step`.
pub fn apply(
    step: Step,
    stored: Stored,
    desired: &ServingNames,
    now: OffsetDateTime,
    lifetimes: &Lifetimes,
) -> Result<Stored, AuthorityError> {
    let mut stored = Stored { faults: Vec::new(), ..stored };
    match step {
        Step::Keep => {}
        Step::Make(_) => {
            let authority = Authority::make(now, lifetimes)?;
            stored.next = None;
            take_over(&mut stored, authority, desired, now, lifetimes)?;
        }
        Step::Stage(_) => {
            stored.next = Some(Authority::make(now, lifetimes)?);
            stored.since = Some(now);
        }
        Step::Promote(_) => {
            let authority = match stored.next.take() {
                Some(next) => next,
                None => Authority::make(now, lifetimes)?,
            };
            take_over(&mut stored, authority, desired, now, lifetimes)?;
        }
        Step::Renew(_) => {
            if let Some(authority) = stored.signer.as_ref().and_then(Signer::able) {
                // Replicas of two releases may want different names, and must not renew in turns.
                let names = union(desired, stored.serving.as_ref(), now);
                stored.serving = Some(authority.serving(&names, now, lifetimes)?);
            }
        }
        Step::Restamp => stored.since = Some(now),
        Step::DropOld => {
            let keep = stored.since.is_some_and(|since| now - since < lifetimes.certificate + lifetimes.grace);
            stored.old.retain(|old| keep && old.not_after() > now);
        }
    }
    Ok(stored)
}

/// Most names in one certificate.
const MAX_NAMES: usize = 64;

/// The wanted names, and those of a certificate that was good until now and lacks some.
fn union(desired: &ServingNames, serving: Option<&Pair>, now: OffsetDateTime) -> ServingNames {
    let Some(serving) = serving.map(Pair::certificate).filter(|serving| serving.is_valid_at(now)) else {
        return desired.clone();
    };
    let both = desired.and(serving.names());
    if serving.names().cover(desired) || both.len() > MAX_NAMES { desired.clone() } else { both }
}

fn take_over(
    stored: &mut Stored,
    authority: Authority,
    desired: &ServingNames,
    now: OffsetDateTime,
    lifetimes: &Lifetimes,
) -> Result<(), AuthorityError> {
    let serving = authority.serving(desired, now, lifetimes)?;
    let before = stored.signer.replace(Signer::Able(authority));
    // A replica that has not looked yet still serves what it signed.
    let before = before.map(|signer| signer.certificate().clone()).filter(|before| before.not_after() > now);
    stored.old.extend(before);
    let surplus = stored.old.len().saturating_sub(MAX_OLD);
    stored.old.drain(..surplus);
    stored.old.retain(|old: &Certificate| old.not_after() > now);
    stored.serving = Some(serving);
    stored.since = Some(now);
    Ok(())
}
