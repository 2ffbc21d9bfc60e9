//! Applies a step to the stored certificates, in memory.

use time::OffsetDateTime;

use super::authority::{Authority, AuthorityError, Pair};
use super::certificate::Certificate;
use super::chain::chain;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::plan::{Step, needed_old_authorities};
use super::stored::{MAX_OLD_AUTHORITIES, Signer, Stored};

/// The maximum number of names in one certificate.
const MAX_NAMES: usize = 64;

/// Returns the certificates to store after `step`.
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
            // The serving certificate may still be valid under a lost authority. The certificate of that authority is
            // stored with it.
            stored.old.extend(std::mem::take(&mut stored.published));
            stored.cross_certificates.clear();
            take_over(&mut stored, Authority::make(now, lifetimes)?, now);
        }
        Step::Rotate(_) => {
            if let Some(authority) = stored.signer.as_ref().and_then(Signer::able) {
                let (next, cross) = authority.make_next(now, lifetimes)?;
                stored.cross_certificates.insert(0, cross);
                stored.cross_certificates.truncate(MAX_OLD_AUTHORITIES);
                take_over(&mut stored, next, now);
            }
        }
        Step::Renew(_) => {
            if let Some(authority) = stored.signer.as_ref().and_then(Signer::able) {
                // Replicas of two releases may need different names, and must not replace each other's certificate
                // forever.
                let names = union(names, stored.serving.as_ref(), now);
                let serving = authority.make_serving(&names, now, lifetimes)?;
                stored.serving =
                    Some(serving.with_chain(chain(authority.certificate(), &stored.cross_certificates, now)));
                stored.published = stored.authorities();
            }
        }
        Step::Publish => stored.published = stored.authorities(),
        Step::DropOld => stored.old = needed_old_authorities(&stored, now, lifetimes),
    }
    Ok(stored)
}

/// Returns `names`, plus the names of the stored certificate if that is valid but lacks some of `names`.
fn union(names: &ServingNames, serving: Option<&Pair>, now: OffsetDateTime) -> ServingNames {
    let Some(serving) = serving.map(Pair::certificate).filter(|serving| serving.is_valid_at(now)) else {
        return names.clone();
    };
    let union = names.and(serving.names());
    if serving.names().cover(names) || union.len() > MAX_NAMES { names.clone() } else { union }
}

/// Replaces the authority that signs. The previous authority stays published, because servers still use certificates
/// that it has signed.
fn take_over(stored: &mut Stored, authority: Authority, now: OffsetDateTime) {
    let previous = stored.signer.replace(Signer::Able(authority));
    stored.old.extend(previous.map(|signer| signer.certificate().clone()));
    let mut old: Vec<Certificate> = Vec::new();
    for certificate in std::mem::take(&mut stored.old) {
        if certificate.not_after() > now && !old.contains(&certificate) {
            old.push(certificate);
        }
    }
    let surplus = old.len().saturating_sub(MAX_OLD_AUTHORITIES);
    old.drain(..surplus);
    stored.old = old;
}
