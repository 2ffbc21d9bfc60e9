//! Applies a step to the stored certificates, in memory.

use time::OffsetDateTime;

use super::authority::{Authority, AuthorityError, Pair};
use super::certificate::Certificate;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::plan::Step;
use super::stored::{MAX_OLD, Signer, Stored};

/// What to store after `step`.
pub fn apply(
    step: Step,
    stored: Stored,
    names: &ServingNames,
    now: OffsetDateTime,
    lifetimes: &Lifetimes,
) -> Result<Stored, AuthorityError> {
    let mut stored = Stored { faults: Vec::new(), ..stored };
    match step {
        Step::Keep => {}
        Step::Make(_) => {
            let authority = Authority::make(now, lifetimes)?;
            stored.next = None;
            take_over(&mut stored, authority, names, now, lifetimes)?;
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
            take_over(&mut stored, authority, names, now, lifetimes)?;
        }
        Step::Renew(_) => {
            if let Some(authority) = stored.signer.as_ref().and_then(Signer::able) {
                // Replicas of two releases may need different names, and must not renew in turns.
                let names = union(names, stored.serving.as_ref(), now);
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

/// These names, and those of the valid certificate that lacks some of them.
fn union(names: &ServingNames, serving: Option<&Pair>, now: OffsetDateTime) -> ServingNames {
    let Some(serving) = serving.map(Pair::certificate).filter(|serving| serving.is_valid_at(now)) else {
        return names.clone();
    };
    let both = names.and(serving.names());
    if serving.names().cover(names) || both.len() > MAX_NAMES { names.clone() } else { both }
}

fn take_over(
    stored: &mut Stored,
    authority: Authority,
    names: &ServingNames,
    now: OffsetDateTime,
    lifetimes: &Lifetimes,
) -> Result<(), AuthorityError> {
    let serving = authority.serving(names, now, lifetimes)?;
    let before = stored.signer.replace(Signer::Able(authority));
    // A replica that has not read the Secret yet still serves what it signed.
    let before = before.map(|signer| signer.certificate().clone()).filter(|before| before.not_after() > now);
    stored.old.extend(before);
    let surplus = stored.old.len().saturating_sub(MAX_OLD);
    stored.old.drain(..surplus);
    stored.old.retain(|old: &Certificate| old.not_after() > now);
    stored.serving = Some(serving);
    stored.since = Some(now);
    Ok(())
}
