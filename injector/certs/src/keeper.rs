//! Keeps the stored certificates as the plan wants them; every replica does, and whoever is first wins.

use std::time::Duration;

use time::OffsetDateTime;

use super::apply::apply;
use super::authority::AuthorityError;
use super::lifetimes::Lifetimes;
use super::names::ServingNames;
use super::plan::{Cause, Step, plan};
use super::store::{SecretStore, StoreError, Written};
use super::stored::Stored;

/// Most looks at the store in a row. Each of a few replicas can be overtaken by each of the others once a step.
const MAX_ROUNDS: usize = 32;
/// How long the store may take for one answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why there are no certificates at the moment.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The Secret.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The Secret's store does not answer.
    #[error("the certificates' Secret could not be had within {DEADLINE:?}")]
    TooSlow,
    /// A key or certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The Secret changed again and again under our hands.
    #[error("the certificates' Secret does not come to rest: it was changed {MAX_ROUNDS} times meanwhile")]
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

    /// Takes the steps that are due at `now`, and gives what is stored then.
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
            // What another replica has written is read in the next round.
            if written == Written::Done {
                log(step);
            }
        }
        Err(KeepError::Restless)
    }

    fn report(&mut self, faults: &[String]) {
        if self.reported != faults {
            for fault in faults {
                tracing::error!("the stored certificates have a fault and are mended: {fault}");
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
        Step::Make(Cause::Empty) => tracing::info!("made an authority and a serving certificate"),
        Step::Make(cause) => tracing::error!(
            cause = cause.as_str(),
            "made an authority anew; agents trust it only after their nudge-hub-ca has been refreshed"
        ),
        Step::Stage(cause) => {
            tracing::info!(cause = cause.as_str(), "made the next authority, which is published from now on");
        }
        Step::Promote(cause) => tracing::info!(cause = cause.as_str(), "the next authority signs from now on"),
        Step::Renew(cause) => tracing::info!(cause = cause.as_str(), "renewed the serving certificate"),
        Step::Restamp => tracing::warn!("the last change of authorities lay in the future and counts from now"),
        Step::DropOld => tracing::info!("dropped authorities that nothing valid is signed by"),
    }
}
