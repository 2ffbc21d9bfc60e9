//! Leader election by a Lease, as client-go does it: whoever holds it renews it; others take it when it was not renewed for its
//! whole duration, by their own clock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{CallError, call};
use crate::causes::chain;

/// How the lease is kept.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who this replica is; no two may be the same.
    pub identity: String,
    /// How long it lasts without renewal.
    pub duration: Duration,
}

/// Whether this replica leads.
pub type Leadership = watch::Receiver<bool>;

/// What is known of the lease from looking at it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    holder: Option<String>,
    version: String,
    /// When this version was first seen, by the own clock.
    at: Instant,
    duration: Duration,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Renew or take it.
    Write,
    /// Somebody else holds it.
    Leave,
}

fn decide(seen: Option<&Seen>, identity: &str, now: Instant) -> Move {
    match seen {
        None => Move::Write,
        Some(seen) => match seen.holder.as_deref() {
            None | Some("") => Move::Write,
            Some(holder) if holder == identity => Move::Write,
            Some(_) if now.saturating_duration_since(seen.at) > seen.duration => Move::Write,
            Some(_) => Move::Leave,
        },
    }
}

/// Keeps a lease.
pub struct Lease {
    api: Api<Object>,
    settings: LeaseSettings,
    leads: watch::Sender<bool>,
    seen: Option<Seen>,
    /// When the lease was last renewed.
    renewed: Option<Instant>,
}

impl Lease {
    /// A lease that is not held yet.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self { api, settings, leads: watch::Sender::new(false), seen: None, renewed: None }
    }

    /// Whether this replica leads.
    pub fn leadership(&self) -> Leadership {
        self.leads.subscribe()
    }

    /// Tries to lead until `stop`, then gives the lease up so that another replica needs not wait.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        // A third of the duration, so that one failed renewal does no harm.
        let period = self.settings.duration / 3;
        loop {
            let tried = tokio::time::timeout(period, self.turn()).await;
            let leads = match tried {
                Ok(Ok(leads)) => leads,
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.settings.name, cause = chain(&error), "the lease can't be renewed");
                    self.may_still_lead()
                }
                Err(_) => self.may_still_lead(),
            };
            if *self.leads.borrow() != leads {
                tracing::info!(identity = self.settings.identity, leads, "leadership changed");
                self.leads.send_replace(leads);
            }
            // Others look more often than the holder renews, and not in step.
            let wait = if leads { period } else { period / 2 + (period / 4).mul_f64(rand::random()) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        if self.leads.send_replace(false) {
            let released = tokio::time::timeout(Duration::from_secs(2), self.write(None)).await;
            tracing::info!(released = matches!(released, Ok(Ok(()))), "gave up the lease");
        }
    }

    /// A holder that can't reach the API server leads until shortly before others may take over.
    fn may_still_lead(&self) -> bool {
        let limit = self.settings.duration * 2 / 3;
        *self.leads.borrow() && self.renewed.is_some_and(|renewed| renewed.elapsed() < limit)
    }

    async fn turn(&mut self) -> Result<bool, CallError> {
        let now = Instant::now();
        let what = || format!("reading Lease {}/{}", self.settings.namespace, self.settings.name);
        match call(what, self.api.get_opt(&self.settings.name)).await? {
            None => self.seen = None,
            Some(object) => {
                let spec = object.spec.unwrap_or_default();
                let version = object.metadata.resource_version.unwrap_or_default();
                let at = match &self.seen {
                    Some(seen) if seen.version == version => seen.at,
                    _ => now,
                };
                let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                let duration = seconds.map_or(self.settings.duration, Duration::from_secs);
                self.seen = Some(Seen { holder: spec.holder_identity, version, at, duration });
            }
        }
        match decide(self.seen.as_ref(), &self.settings.identity, now) {
            Move::Leave => Ok(false),
            Move::Write => match self.write(Some(&self.settings.identity.clone())).await {
                Ok(()) => {
                    self.renewed = Some(now);
                    Ok(true)
                }
                // Another replica was faster.
                Err(error) if error.code() == 409 => Ok(false),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes the lease as it was seen, with another holder. The resourceVersion makes sure that nobody was faster.
    async fn write(&mut self, holder: Option<&str>) -> Result<(), CallError> {
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.settings.duration.as_secs().max(1)).unwrap_or(i32::MAX);
        let mut object = Object {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.unwrap_or_default().to_owned()),
                lease_duration_seconds: Some(seconds),
                renew_time: Some(now.clone()),
                acquire_time: Some(now),
                ..LeaseSpec::default()
            }),
            ..Object::default()
        };
        let name = self.settings.name.clone();
        object.metadata.name = Some(name.clone());
        let what = || format!("writing Lease {}/{name}", self.settings.namespace);
        let params = PostParams::default();
        let written = match &self.seen {
            None => call(what, self.api.create(&params, &object)).await?,
            Some(seen) => {
                object.metadata.resource_version = Some(seen.version.clone());
                call(what, self.api.replace(&name, &params, &object)).await?
            }
        };
        self.seen = Some(Seen {
            holder: holder.map(str::to_owned),
            version: written.metadata.resource_version.unwrap_or_default(),
            at: Instant::now(),
            duration: self.settings.duration,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_is_free_own_or_overdue() {
        let start = Instant::now();
        let seen = |holder: Option<&str>| Seen {
            holder: holder.map(str::to_owned),
            version: "1".to_owned(),
            at: start,
            duration: Duration::from_secs(15),
        };
        assert_eq!(decide(None, "a", start), Move::Write);
        assert_eq!(decide(Some(&seen(Some(""))), "a", start), Move::Write);
        assert_eq!(decide(Some(&seen(None)), "a", start), Move::Write);
        assert_eq!(decide(Some(&seen(Some("a"))), "a", start), Move::Write);
        assert_eq!(decide(Some(&seen(Some("b"))), "a", start + Duration::from_secs(15)), Move::Leave);
        assert_eq!(decide(Some(&seen(Some("b"))), "a", start + Duration::from_secs(16)), Move::Write);
    }
}
