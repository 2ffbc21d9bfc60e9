//! Takes the planned steps on the stored certificates. Every replica does; the first to write a step wins.

use std::time::Duration;

use time::OffsetDateTime;

use super::apply::apply;
use super::authority::AuthorityError;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::plan::{Cause, Step, plan};
use super::store::{SecretStore, StoreError, Written};
use super::stored::Stored;

/// Most reads of the store in a row. Each of a few replicas can be overtaken by each of the others once a step.
const MAX_ROUNDS: usize = 32;
/// How long one call of the store may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why there are no certificates at the moment.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The Secret.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not answer.
    #[error("the API server gave no answer about the certificates' Secret within {DEADLINE:?}")]
    TooSlow,
    /// A key or certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The Secret changed with every write.
    #[error("the certificates' Secret was changed by others {MAX_ROUNDS} times in a row")]
    Restless,
}

/// Keeps the certificates in `store`.
#[derive(Debug)]
pub struct Keeper<S> {
    store: S,
    names: ServingNames,
    lifetimes: Lifetimes,
    reported: Vec<String>,
}

impl<S: SecretStore> Keeper<S> {
    /// Keeps certificates for those names.
    pub fn new(store: S, names: ServingNames, lifetimes: Lifetimes) -> Self {
        Self { store, names, lifetimes, reported: Vec::new() }
    }

    /// Takes the steps that are due at `now`, and returns what is stored then.
    pub async fn settle(&mut self, now: impl Fn() -> OffsetDateTime) -> Result<Stored, KeepError> {
        for _ in 0..MAX_ROUNDS {
            let found = in_time(self.store.read()).await?;
            let stored = found.as_ref().map(|found| Stored::read(&found.entries)).unwrap_or_default();
            self.report(&stored.faults);
            let now = now();
            let step = plan(&stored, &self.names, now, &self.lifetimes);
            if step == Step::Keep {
                return Ok(stored);
            }
            let entries = apply(step, stored, &self.names, now, &self.lifetimes)?.write();
            let written = match found {
                Some(found) => in_time(self.store.replace(found, entries)).await?,
                None => in_time(self.store.create(entries)).await?,
            };
            // On a conflict the next round reads what another replica has written.
            if written == Written::Done {
                log(step);
            }
        }
        Err(KeepError::Restless)
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

async fn in_time<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, KeepError> {
    let answered = tokio::time::timeout(DEADLINE, answer).await;
    Ok(answered.map_err(|_| KeepError::TooSlow)??)
}

fn log(step: Step) {
    match step {
        Step::Keep => {}
        Step::Make(Cause::Empty) => tracing::info!("CA and serving certificate created"),
        Step::Make(cause) => tracing::error!(
            cause = cause.as_str(),
            "CA recreated; agents trust it once their ConfigMap nudge-hub-ca has been refreshed"
        ),
        Step::Stage(cause) => tracing::info!(cause = cause.as_str(), "next CA created; publishing it"),
        Step::Promote(cause) => tracing::info!(cause = cause.as_str(), "next CA took over signing"),
        Step::Renew(cause) => tracing::info!(cause = cause.as_str(), "serving certificate renewed"),
        Step::Restamp => tracing::warn!("time of the last CA change was in the future; it now counts from now"),
        Step::DropOld => tracing::info!("old CAs removed, as no valid certificate is signed by them"),
    }
}
