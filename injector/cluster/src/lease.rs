//! Leader election by a Lease, as client-go does it. The holder renews the Lease. Another replica takes the Lease after
//! a whole duration without renewal, measured by that replica's clock. Each replica may leave a note on the Lease for
//! the other replicas.

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

/// The maximum number of attempts at one renewal, since other replicas may write the lease at the same time.
const MAX_ATTEMPTS: usize = 3;
/// The time between two writes while there is a note, which counts for a short time only.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);

/// The object of a lease, the replica that wants it, and its duration.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// The namespace of the Lease object, which is Nudge's own.
    pub namespace: String,
    /// The name of the Lease object, one for each role.
    pub name: String,
    /// The name of this replica, which no other replica may have.
    pub identity: String,
    /// The time that the lease lasts without renewal.
    pub duration: Duration,
}

/// A receiver of whether this replica leads.
pub type Leadership = watch::Receiver<bool>;

/// The lease as it was last read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaseSnapshot {
    holder: Option<String>,
    version: String,
    /// The time of the holder's last write; notes of others do not change it.
    renew_time: Option<MicroTime>,
    /// The moment when that was first seen, by this replica's clock.
    seen_at: Instant,
    duration: Duration,
}

/// Returns whether the replica may renew or take the lease, because no other one holds it.
fn may_lead(snapshot: Option<&LeaseSnapshot>, identity: &str, now: Instant) -> bool {
    snapshot.is_none_or(|lease| {
        let holder = lease.holder.as_deref().unwrap_or_default();
        let is_expired = now.saturating_duration_since(lease.seen_at) > lease.duration;
        holder.is_empty() || holder == identity || is_expired
    })
}

/// A function that returns the note of a replica.
type LeaseNote = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A lease that this replica tries to hold.
pub struct Lease {
    api: Api<Object>,
    settings: LeaseSettings,
    leadership: watch::Sender<bool>,
    snapshot: Option<LeaseSnapshot>,
    /// The labels and annotations, which others may have written.
    metadata: ObjectMeta,
    spec: LeaseSpec,
    note: Option<LeaseNote>,
    /// The notes of all replicas.
    replica_notes: ReplicaNotes,
    /// The time of the last renewal by this replica.
    renewed_at: Option<Instant>,
}

impl Lease {
    /// Returns the lease, which this replica does not hold yet.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            api,
            settings,
            leadership: watch::Sender::new(false),
            snapshot: None,
            metadata: ObjectMeta::default(),
            spec: LeaseSpec::default(),
            note: None,
            replica_notes: ReplicaNotes::default(),
            renewed_at: None,
        }
    }

    /// Writes the result of `note` as an annotation, each time that the lease is read.
    #[must_use]
    pub fn with_note(self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { note: Some(Box::new(note)), ..self }
    }

    /// Returns a receiver of whether this replica leads.
    pub fn leadership(&self) -> Leadership {
        self.leadership.subscribe()
    }

    /// Tries to lead until `stop`, then releases the lease for another replica.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        // A third of the duration leaves time to retry a failed renewal.
        let period = self.settings.duration / 3;
        loop {
            let longest = Instant::now() + period;
            let result = timeout_at(self.expiry().unwrap_or(longest).min(longest), self.renew_or_take()).await;
            let failed = !matches!(result, Ok(Ok(_)));
            let is_leader = match result {
                Ok(Ok(is_leader)) => is_leader,
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
            if *self.leadership.borrow() != is_leader {
                tracing::info!(
                    lease = self.settings.name,
                    identity = self.settings.identity,
                    leads = is_leader,
                    "leadership changed"
                );
                self.leadership.send_replace(is_leader);
            }
            let wait = match (is_leader, failed) {
                (true, false) => period,
                (true, true) => period / 5,
                // Others check more often than the holder renews, and not in step.
                (false, _) => period / 2 + (period / 4).mul_f64(rand::random()),
            };
            let wake = Instant::now() + wait;
            tokio::select! {
                () = self.wait(self.expiry().unwrap_or(wake).min(wake)) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        if self.leadership.send_replace(false) {
            let released = tokio::time::timeout(Duration::from_secs(2), self.write(None)).await;
            let released = matches!(released, Ok(Ok(())));
            tracing::info!(lease = self.settings.name, released, "lease given up");
        }
    }

    /// Waits until `until`, or until there is something to note.
    async fn wait(&self, until: Instant) {
        loop {
            let now = Instant::now();
            sleep_until(until.min(now + NOTE_INTERVAL)).await;
            let has_note = self.note.as_ref().is_some_and(|note| note().is_some());
            if has_note || Instant::now() >= until {
                return;
            }
        }
    }

    /// Returns when this replica stops leading unless it renews the lease, which is before others may take over.
    fn expiry(&self) -> Option<Instant> {
        let renewed_at = self.renewed_at.filter(|_| *self.leadership.borrow())?;
        Some(renewed_at + self.settings.duration * 2 / 3)
    }

    fn may_still_lead(&self) -> bool {
        self.expiry().is_some_and(|lease_end| Instant::now() < lease_end)
    }

    async fn renew_or_take(&mut self) -> Result<bool, CallError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.try_renew_or_take().await {
                // Another replica wrote a note, or took the lease, first.
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
        Ok(self.may_still_lead())
    }

    /// Reads the Lease, and renews or takes it. A holder counts as gone by the time since this replica saw its last
    /// renewal, so clocks of two machines are never compared.
    async fn try_renew_or_take(&mut self) -> Result<bool, CallError> {
        let now = Instant::now();
        let action = || format!("reading Lease {}/{}", self.settings.namespace, self.settings.name);
        match call(action, self.api.get_opt(&self.settings.name)).await? {
            None => self.snapshot = None,
            Some(object) => {
                self.spec = object.spec.unwrap_or_default();
                let ObjectMeta { labels, annotations, resource_version, .. } = object.metadata;
                self.metadata = ObjectMeta { labels, annotations, ..ObjectMeta::default() };
                let LeaseSpec { holder_identity, lease_duration_seconds, renew_time, .. } = self.spec.clone();
                let is_same = |snapshot: &&LeaseSnapshot| {
                    (&snapshot.holder, &snapshot.renew_time) == (&holder_identity, &renew_time)
                };
                let seen_at = self.snapshot.as_ref().filter(is_same).map_or(now, |snapshot| snapshot.seen_at);
                let seconds = lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                let duration = seconds.map_or(self.settings.duration, Duration::from_secs);
                let version = resource_version.unwrap_or_default();
                self.snapshot = Some(LeaseSnapshot { holder: holder_identity, version, renew_time, seen_at, duration });
            }
        }
        let note_differs = self.update_notes(now);
        let is_holder = may_lead(self.snapshot.as_ref(), &self.settings.identity, now);
        if is_holder {
            self.write(Some(&self.settings.identity.clone())).await?;
            self.renewed_at = Some(now);
        } else if note_differs {
            self.put(self.spec.clone()).await?;
        }
        Ok(is_holder)
    }

    /// Writes this replica's note into the annotations, and removes the notes of replicas that are gone. Returns
    /// whether its own differs.
    fn update_notes(&mut self, now: Instant) -> bool {
        let Some(note) = &self.note else { return false };
        let mut annotations = self.metadata.annotations.take().unwrap_or_default();
        self.replica_notes.observe(&annotations, now.into_std());
        self.replica_notes.gone_replicas(now.into_std()).for_each(|key| drop(annotations.remove(key)));
        let key = waiting_reports::annotation_key(&self.settings.identity);
        let (note, known) = (note(), annotations.remove(&key));
        let differs = note != known;
        annotations.extend(note.map(|note| (key, note)));
        self.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        differs
    }

    /// Writes the lease with another holder.
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
        self.snapshot.iter_mut().for_each(|snapshot| snapshot.seen_at = Instant::now());
        Ok(())
    }

    /// Writes the lease. The resourceVersion detects other writers.
    async fn put(&mut self, spec: LeaseSpec) -> Result<(), CallError> {
        let name = self.settings.name.clone();
        let mut object = Object { spec: Some(spec.clone()), metadata: self.metadata.clone() };
        object.metadata.name = Some(name.clone());
        let action = || format!("writing Lease {}/{name}", self.settings.namespace);
        let params = PostParams::default();
        let written = match &self.snapshot {
            None => call(action, self.api.create(&params, &object)).await?,
            Some(snapshot) => {
                object.metadata.resource_version = Some(snapshot.version.clone());
                call(action, self.api.replace(&name, &params, &object)).await?
            }
        };
        let seen_at = self.snapshot.as_ref().map_or_else(Instant::now, |snapshot| snapshot.seen_at);
        self.snapshot = Some(LeaseSnapshot {
            holder: spec.holder_identity,
            version: written.metadata.resource_version.unwrap_or_default(),
            renew_time: spec.renew_time,
            seen_at,
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
        let seen = |holder: Option<&str>| LeaseSnapshot {
            holder: holder.map(str::to_owned),
            version: "1".to_owned(),
            renew_time: None,
            seen_at: start,
            duration: Duration::from_secs(15),
        };
        assert!(may_lead(None, "a", start));
        assert!(may_lead(Some(&seen(Some(""))), "a", start));
        assert!(may_lead(Some(&seen(None)), "a", start));
        assert!(may_lead(Some(&seen(Some("a"))), "a", start));
        assert!(!may_lead(Some(&seen(Some("b"))), "a", start + Duration::from_secs(15)));
        assert!(may_lead(Some(&seen(Some("b"))), "a", start + Duration::from_secs(16)));
    }

    /// Returns how long a replica leads whose API server refuses or is silent from `cut` on, and how often it tries to
    /// renew.
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

    /// Returns an API server with one Lease, which refuses writes to an older state.
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
        // The first replica disappears without release, and the other replicas continue to write notes.
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
