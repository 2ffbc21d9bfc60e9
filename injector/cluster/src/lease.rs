//! Leader election by a Lease, as client-go does it: the holder renews it; another replica takes it when it was not renewed for its
//! whole duration, by the clock of that replica. Each replica may leave a note on it for the others.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use nudge_core::hub_health::waiting_reports::{self, ReplicaNotes};
use nudge_protocol::error_chain::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::call::{CallError, call};

/// How often a look at the lease is repeated because another replica has written it meanwhile.
const MAX_CONFLICTS: usize = 3;
/// How often it is looked at while there is something to note, which counts for a short time only.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);

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
struct SeenRenewal {
    holder: Option<String>,
    version: String,
    /// What the holder wrote last. Notes of others leave it as it is.
    renewed: Option<MicroTime>,
    /// When that was first seen, by this replica's clock.
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

fn decide(seen: Option<&SeenRenewal>, identity: &str, now: Instant) -> Action {
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

/// The note of a replica: `None` where it has nothing to say.
type Note = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A lease that this replica tries to hold.
pub struct Lease {
    api: Api<Object>,
    settings: LeaseSettings,
    leads: watch::Sender<bool>,
    seen: Option<SeenRenewal>,
    /// Labels and annotations, which are not this replica's.
    others: ObjectMeta,
    spec: LeaseSpec,
    note: Option<Note>,
    /// The notes of all replicas.
    lines: ReplicaNotes,
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
            spec: LeaseSpec::default(),
            note: None,
            lines: ReplicaNotes::default(),
            renewed: None,
        }
    }

    /// Writes what `note` says as an annotation, each time that the lease is looked at.
    #[must_use]
    pub fn with_note(self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { note: Some(Box::new(note)), ..self }
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
            let result = timeout_at(self.end().unwrap_or(longest).min(longest), self.turn()).await;
            let failed = !matches!(result, Ok(Ok(_)));
            let leads = match result {
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
                () = self.rest(self.end().unwrap_or(wake).min(wake)) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        if self.leads.send_replace(false) {
            let released = tokio::time::timeout(Duration::from_secs(2), self.write(None)).await;
            let released = matches!(released, Ok(Ok(())));
            tracing::info!(lease = self.settings.name, released, "lease given up");
        }
    }

    /// Waits until then, or until there is something to note.
    async fn rest(&self, until: Instant) {
        loop {
            let now = Instant::now();
            sleep_until(until.min(now + NOTE_INTERVAL)).await;
            let noting = self.note.as_ref().is_some_and(|note| note().is_some());
            if noting || Instant::now() >= until {
                return;
            }
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
        for _ in 0..MAX_CONFLICTS {
            match self.try_turn().await {
                // Another replica wrote first: a note, or that it leads.
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
        Ok(self.may_still_lead())
    }

    async fn try_turn(&mut self) -> Result<bool, CallError> {
        let now = Instant::now();
        let what = || format!("reading Lease {}/{}", self.settings.namespace, self.settings.name);
        match call(what, self.api.get_opt(&self.settings.name)).await? {
            None => self.seen = None,
            Some(object) => {
                self.spec = object.spec.unwrap_or_default();
                let ObjectMeta { labels, annotations, resource_version, .. } = object.metadata;
                self.others = ObjectMeta { labels, annotations, ..ObjectMeta::default() };
                let LeaseSpec { holder_identity, lease_duration_seconds, renew_time, .. } = self.spec.clone();
                let same =
                    self.seen.as_ref().filter(|seen| (&seen.holder, &seen.renewed) == (&holder_identity, &renew_time));
                let at = same.map_or(now, |seen| seen.at);
                let seconds = lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                let duration = seconds.map_or(self.settings.duration, Duration::from_secs);
                let version = resource_version.unwrap_or_default();
                self.seen = Some(SeenRenewal { holder: holder_identity, version, renewed: renew_time, at, duration });
            }
        }
        let noted = self.take_note(now);
        match decide(self.seen.as_ref(), &self.settings.identity, now) {
            Action::Leave if noted => self.put(self.spec.clone()).await.map(|()| false),
            Action::Leave => Ok(false),
            Action::Write => {
                self.write(Some(&self.settings.identity.clone())).await?;
                self.renewed = Some(now);
                Ok(true)
            }
        }
    }

    /// Puts this replica's note among the annotations, and takes away those of replicas that are gone. Returns whether its own has changed.
    fn take_note(&mut self, now: Instant) -> bool {
        let Some(note) = &self.note else { return false };
        let mut annotations = self.others.annotations.take().unwrap_or_default();
        self.lines.observe(&annotations, now.into_std());
        self.lines.gone_replicas(now.into_std()).for_each(|key| drop(annotations.remove(key)));
        let key = waiting_reports::annotation_key(&self.settings.identity);
        let (note, known) = (note(), annotations.remove(&key));
        let differs = note != known;
        annotations.extend(note.map(|note| (key, note)));
        self.others.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        differs
    }

    /// Writes the lease as it was seen, with another holder.
    async fn write(&mut self, holder: Option<&str>) -> Result<(), CallError> {
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.settings.duration.as_secs().max(1)).unwrap_or(i32::MAX);
        self.put(LeaseSpec {
            holder_identity: Some(holder.unwrap_or_default().to_owned()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(now.clone()),
            acquire_time: Some(now),
            ..LeaseSpec::default()
        })
        .await?;
        self.seen.iter_mut().for_each(|seen| seen.at = Instant::now());
        Ok(())
    }

    /// Writes the lease. The resourceVersion detects other writers.
    async fn put(&mut self, spec: LeaseSpec) -> Result<(), CallError> {
        let name = self.settings.name.clone();
        let mut object = Object { spec: Some(spec.clone()), metadata: self.others.clone() };
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
        let at = self.seen.as_ref().map_or_else(Instant::now, |seen| seen.at);
        self.seen = Some(SeenRenewal {
            holder: spec.holder_identity,
            version: written.metadata.resource_version.unwrap_or_default(),
            renewed: spec.renew_time,
            at,
            duration: self.settings.duration,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use hyper::http;
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_is_free_own_or_expired() {
        let start = Instant::now();
        let seen = |holder: Option<&str>| SeenRenewal {
            holder: holder.map(str::to_owned),
            version: "1".to_owned(),
            renewed: None,
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

    type Stored = Arc<Mutex<(u64, serde_json::Value)>>;

    /// An API server with one Lease, which refuses writes to an older state.
    fn stores(stored: &Stored) -> Client {
        let stored = Arc::clone(stored);
        let service = service_fn(move |request: http::Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                let is_write = *request.method() != http::Method::GET;
                let body = request.into_body().collect_bytes().await.map_err(Box::new)?;
                // Another replica may write between a read and a write.
                tokio::task::yield_now().await;
                let mut stored = stored.lock().unwrap();
                let known = stored.1["metadata"]["resourceVersion"].clone();
                let mut code = if stored.1.is_null() { 404 } else { 200 };
                if is_write {
                    let mut object: serde_json::Value = serde_json::from_slice(&body)?;
                    if object["metadata"]["resourceVersion"] == known {
                        stored.0 += 1;
                        object["metadata"]["resourceVersion"] = stored.0.to_string().into();
                        stored.1 = object;
                        code = 200;
                    } else {
                        code = 409;
                    }
                }
                let reason = if code == 404 { "NotFound" } else { "Conflict" };
                let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
                let body = if code == 200 { stored.1.clone() } else { status };
                let response = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                response.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
            }
        });
        Client::new(service, "ns")
    }

    fn noting(stored: &Stored, identity: &str, seconds: u64) -> Lease {
        let settings = LeaseSettings {
            namespace: "ns".to_owned(),
            name: "nudge".to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(seconds),
        };
        let count = AtomicU32::new(0);
        let note = move || Some(format!("{} s at some time", count.fetch_add(1, Ordering::Relaxed) + 4));
        Lease::new(stores(stored), settings).with_note(note)
    }

    fn noted(stored: &Stored) -> BTreeMap<String, String> {
        let annotations = stored.lock().unwrap().1["metadata"]["annotations"].clone();
        serde_json::from_value(annotations).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn notes_count_however_long_the_lease_is() {
        let stored = Stored::default();
        let (_stop, stopping) = watch::channel(false);
        let running = ["a", "b"].map(|identity| tokio::spawn(noting(&stored, identity, 300).run(stopping.clone())));
        let (mut lines, start) = ([ReplicaNotes::default(), ReplicaNotes::default()], Instant::now());
        while start.elapsed() < Duration::from_mins(10) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = Instant::now().into_std();
            for (lines, replica) in lines.iter_mut().zip(["a", "b"]) {
                let mut notes = noted(&stored);
                notes.retain(|key, _| *key == waiting_reports::annotation_key(replica));
                lines.observe(&notes, now);
                assert!(
                    lines.longest_wait("ns", now) > Duration::ZERO || start.elapsed() < Duration::from_secs(10),
                    "{replica}"
                );
            }
        }
        running.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn notes_of_others_cost_no_leadership_and_keep_no_dead_leader() {
        let stored = Stored::default();
        let (_stop, stopping) = watch::channel(false);
        let lease = noting(&stored, "a", 15);
        let mut leads = lease.leadership();
        let first = tokio::spawn(lease.run(stopping.clone()));
        tokio::time::timeout(Duration::from_secs(25), leads.wait_for(|leads| *leads)).await.unwrap().unwrap();
        leads.mark_unchanged();
        let others: Vec<_> = ["b", "c"].map(|identity| noting(&stored, identity, 15)).into();
        let mut next: Vec<_> = others.iter().map(Lease::leadership).collect();
        let others: Vec<_> = others.into_iter().map(|lease| tokio::spawn(lease.run(stopping.clone()))).collect();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(!leads.has_changed().unwrap(), "it led all the time");
        assert_eq!(noted(&stored).len(), 3);
        // It is gone without a word, and the others go on noting.
        first.abort();
        let gone = Instant::now();
        let leads = next.iter_mut().map(|leads| Box::pin(leads.wait_for(|leads| *leads)));
        let taken = tokio::time::timeout(Duration::from_secs(25), futures::future::select_all(leads)).await;
        assert!(taken.is_ok(), "after {:?}: {:?}", gone.elapsed(), stored.lock().unwrap());
        drop(taken);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(noted(&stored).len(), 2, "its note is removed");
        for other in others {
            other.abort();
        }
    }
}
