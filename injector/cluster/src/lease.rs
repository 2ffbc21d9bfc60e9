//! Leader election by a Lease, as client-go does it: the holder renews it; another replica takes it when it was not renewed for its
//! whole duration, by the clock of that replica.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_protocol::error_chain::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::call::{CallError, call};

/// Settings of the lease.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of this replica, which no other may have.
    pub identity: String,
    /// How long it lasts without renewal.
    pub duration: Duration,
}

/// Whether this replica leads.
pub type Leadership = watch::Receiver<bool>;

/// The lease as it was last read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    holder: Option<String>,
    version: String,
    /// When this version was first seen, by this replica's clock.
    at: Instant,
    duration: Duration,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Renew or take it.
    Write,
    /// Somebody else holds it.
    Leave,
}

fn decide(seen: Option<&Seen>, identity: &str, now: Instant) -> Action {
    match seen {
        None => Action::Write,
        Some(seen) => match seen.holder.as_deref() {
            None | Some("") => Action::Write,
            Some(holder) if holder == identity => Action::Write,
            Some(_) if now.saturating_duration_since(seen.at) > seen.duration => Action::Write,
            Some(_) => Action::Leave,
        },
    }
}

/// A lease that this replica tries to hold.
pub struct Lease {
    api: Api<Object>,
    settings: LeaseSettings,
    leads: watch::Sender<bool>,
    seen: Option<Seen>,
    /// Labels and annotations, which are not this replica's.
    others: ObjectMeta,
    /// When the lease was last renewed.
    renewed: Option<Instant>,
}

impl Lease {
    /// The lease, which this replica does not hold yet.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            api,
            settings,
            leads: watch::Sender::new(false),
            seen: None,
            others: ObjectMeta::default(),
            renewed: None,
        }
    }

    /// Whether this replica leads.
    pub fn leadership(&self) -> Leadership {
        self.leads.subscribe()
    }

    /// Tries to lead until `stop`, then releases the lease for another replica.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        // A third of the duration leaves time to retry a failed renewal.
        let period = self.settings.duration / 3;
        loop {
            let longest = Instant::now() + period;
            let tried = timeout_at(self.end().unwrap_or(longest).min(longest), self.turn()).await;
            let failed = !matches!(tried, Ok(Ok(_)));
            let leads = match tried {
                Ok(Ok(leads)) => leads,
                Ok(Err(error)) => {
                    tracing::warn!(
                        lease = self.settings.name,
                        error = chain(&error),
                        "renewing the lease failed; retrying"
                    );
                    self.may_still_lead()
                }
                Err(_) => {
                    tracing::warn!(lease = self.settings.name, "renewing the lease timed out; retrying");
                    self.may_still_lead()
                }
            };
            if *self.leads.borrow() != leads {
                tracing::info!(
                    lease = self.settings.name,
                    identity = self.settings.identity,
                    leads,
                    "leadership changed"
                );
                self.leads.send_replace(leads);
            }
            let wait = match (leads, failed) {
                (true, false) => period,
                (true, true) => period / 5,
                // Others check more often than the holder renews, and not in step.
                (false, _) => period / 2 + (period / 4).mul_f64(rand::random()),
            };
            let wake = Instant::now() + wait;
            tokio::select! {
                () = sleep_until(self.end().unwrap_or(wake).min(wake)) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        if self.leads.send_replace(false) {
            let released = tokio::time::timeout(Duration::from_secs(2), self.write(None)).await;
            let released = matches!(released, Ok(Ok(())));
            tracing::info!(lease = self.settings.name, released, "lease given up");
        }
    }

    /// When this replica stops leading unless it renews the lease: some time before others may take over.
    fn end(&self) -> Option<Instant> {
        let renewed = self.renewed.filter(|_| *self.leads.borrow())?;
        Some(renewed + self.settings.duration * 2 / 3)
    }

    fn may_still_lead(&self) -> bool {
        self.end().is_some_and(|end| Instant::now() < end)
    }

    async fn turn(&mut self) -> Result<bool, CallError> {
        let now = Instant::now();
        let what = || format!("reading Lease {}/{}", self.settings.namespace, self.settings.name);
        match call(what, self.api.get_opt(&self.settings.name)).await? {
            None => self.seen = None,
            Some(object) => {
                let spec = object.spec.unwrap_or_default();
                let ObjectMeta { labels, annotations, resource_version, .. } = object.metadata;
                self.others = ObjectMeta { labels, annotations, ..ObjectMeta::default() };
                let version = resource_version.unwrap_or_default();
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
            Action::Leave => Ok(false),
            Action::Write => match self.write(Some(&self.settings.identity.clone())).await {
                Ok(()) => {
                    self.renewed = Some(now);
                    Ok(true)
                }
                // Another replica wrote first.
                Err(error) if error.code() == 409 => Ok(false),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes the lease as it was seen, with another holder. The resourceVersion detects other writers.
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
            metadata: self.others.clone(),
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyper::http;
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_is_free_own_or_expired() {
        let start = Instant::now();
        let seen = |holder: Option<&str>| Seen {
            holder: holder.map(str::to_owned),
            version: "1".to_owned(),
            at: start,
            duration: Duration::from_secs(15),
        };
        assert_eq!(decide(None, "a", start), Action::Write);
        assert_eq!(decide(Some(&seen(Some(""))), "a", start), Action::Write);
        assert_eq!(decide(Some(&seen(None)), "a", start), Action::Write);
        assert_eq!(decide(Some(&seen(Some("a"))), "a", start), Action::Write);
        assert_eq!(decide(Some(&seen(Some("b"))), "a", start + Duration::from_secs(15)), Action::Leave);
        assert_eq!(decide(Some(&seen(Some("b"))), "a", start + Duration::from_secs(16)), Action::Write);
    }

    /// How long a replica leads whose API server refuses or is silent from `cut` on, and how often it tries to renew.
    async fn led(silent: bool) -> (Duration, u32) {
        let start = Instant::now();
        let cut = Duration::from_secs(13);
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let service = service_fn(move |request: http::Request<Body>| {
            let counted = Arc::clone(&counted);
            async move {
                if start.elapsed() >= cut {
                    counted.fetch_add(1, Ordering::Relaxed);
                    if silent {
                        std::future::pending::<()>().await;
                    }
                    return Err("down".into());
                }
                let (code, body) = match *request.method() {
                    http::Method::GET => {
                        (404, json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}))
                    }
                    _ => (201, json!({"metadata": {"name": "nudge", "resourceVersion": "1"}})),
                };
                let response = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                response.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
            }
        });
        let settings = LeaseSettings {
            namespace: "ns".to_owned(),
            name: "nudge".to_owned(),
            identity: "a".to_owned(),
            duration: Duration::from_secs(15),
        };
        let lease = Lease::new(Client::new(service, "ns"), settings);
        let mut leadership = lease.leadership();
        let (_stop, stopping) = watch::channel(false);
        let running = tokio::spawn(lease.run(stopping));
        leadership.wait_for(|leads| *leads).await.unwrap();
        leadership.wait_for(|leads| !*leads).await.unwrap();
        let led = start.elapsed();
        running.abort();
        (led, tries.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_cannot_renew_stops_before_others_may_take_over() {
        // Renewed after 0, 5 and 10 s.
        for silent in [false, true] {
            let (led, tries) = led(silent).await;
            assert!(led.as_millis().abs_diff(20_000) < 50, "{led:?} {silent}");
            assert!(tries >= if silent { 1 } else { 4 }, "{tries} {silent}");
        }
    }
}
