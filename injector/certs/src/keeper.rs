//! Takes the planned steps on the stored certificates. If several processes write a step, the first one wins.

use time::OffsetDateTime;

use super::apply::apply;
use super::authority::AuthorityError;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::plan::{Cause, Step, plan};
use super::store::{SecretStore, StoreError, StoredSecret, WriteOutcome};
use super::stored::Stored;

/// The maximum number of reads of the stores in a row. In each step, every other replica can overtake this one once.
const MAX_ROUNDS: usize = 32;

/// The reason why there are no certificates at the moment.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A Secret can't be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key or certificate can't be made or used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The Secrets changed with every write.
    #[error("the certificates' Secrets were changed by others {MAX_ROUNDS} times in a row")]
    Restless,
}

/// The Secrets of the certificates.
#[derive(Clone, Debug)]
pub struct Stores<S> {
    /// The authority with its private key, and the cross certificates. Only its keeper reads it.
    pub authority: S,
    /// The serving certificate with its private key, and the authorities that clients trust. Servers mount it.
    pub serving: S,
}

/// The keeper of the certificates in the stores.
#[derive(Debug)]
pub struct Keeper<S> {
    stores: Stores<S>,
    names: ServingNames,
    lifetimes: Lifetimes,
    reported: Vec<String>,
}

impl<S: SecretStore> Keeper<S> {
    /// Makes a keeper of certificates for these names.
    pub fn new(stores: Stores<S>, names: ServingNames, lifetimes: Lifetimes) -> Self {
        Self { stores, names, lifetimes, reported: Vec::new() }
    }

    /// Takes the steps that are due at `now`, and returns the stored certificates after them.
    pub async fn settle(&mut self, now: impl Fn() -> OffsetDateTime) -> Result<Stored, KeepError> {
        for _ in 0..MAX_ROUNDS {
            let authority = self.stores.authority.read().await?;
            let serving = self.stores.serving.read().await?;
            let stored = Stored::read(&authority.entries, &serving.entries);
            self.report(&stored.faults);
            let now = now();
            let step = plan(&stored, &self.names, now, &self.lifetimes);
            if step == Step::Keep {
                return Ok(stored);
            }
            let updated = apply(step, stored, &self.names, now, &self.lifetimes)?;
            // On a conflict the next round reads the other process's write.
            if self.write(step, authority, serving, &updated).await? == WriteOutcome::Done {
                log(step, &updated, now, &self.lifetimes);
            }
        }
        Err(KeepError::Restless)
    }

    async fn write(
        &self,
        step: Step,
        authority: StoredSecret,
        serving: StoredSecret,
        updated: &Stored,
    ) -> Result<WriteOutcome, StoreError> {
        match step {
            Step::Keep => Ok(WriteOutcome::Done),
            Step::Make(_) | Step::Rotate(_) | Step::DropOld => {
                self.stores.authority.replace(authority, updated.authority_entries()).await
            }
            Step::Renew(_) | Step::Publish => self.stores.serving.replace(serving, updated.serving_entries()).await,
        }
    }

    fn report(&mut self, faults: &[String]) {
        if self.reported != faults {
            for fault in faults {
                tracing::error!(error = fault, "stored certificates are damaged; repairing them");
            }
            self.reported = faults.to_vec();
        }
    }
}

fn log(step: Step, updated: &Stored, now: OffsetDateTime, lifetimes: &Lifetimes) {
    match step {
        Step::Keep => {}
        Step::Make(Cause::Empty) => tracing::info!("CA created"),
        Step::Make(cause) => {
            let serving = updated.serving.as_ref().map(|serving| serving.certificate().not_after());
            let until = serving.map_or(now, |expiry| (expiry - lifetimes.certificate / 6).max(now));
            tracing::error!(
                cause = cause.as_str(),
                %until,
                "new CA created without the one before; running agents do not trust it: restart every pod with an agent until \
                 then"
            );
        }
        Step::Rotate(cause) => {
            tracing::info!(cause = cause.as_str(), "next CA created, cross-signed by the one before");
        }
        Step::Renew(cause) => tracing::info!(cause = cause.as_str(), "serving certificate renewed"),
        Step::Publish => tracing::info!("CAs for clients written beside the serving certificate"),
        Step::DropOld => tracing::info!("old CAs removed, as no server uses a certificate signed by them"),
    }
}
