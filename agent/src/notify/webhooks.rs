//! The webhooks of the pod: the subscriptions, the last notification of each, and the task that sends it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nudge_protocol::ContainerName;
use nudge_protocol::backoff::{Backoff, with_jitter};
use nudge_protocol::limits::MAX_LISTED_KEYS;
use nudge_protocol::mutex::lock;
use nudge_protocol::status::{NotificationStatus, Outcome};
use nudge_protocol::webhooks::{CONFIG_CHANGED, WebhookView};
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use super::http_exchange::DeliverError;
use super::notification_status::status_now;
use super::verification::{FollowEnd, Verification, Verifier, note_start};
use super::webhook_post::{Event, deliver};
use super::{TargetPolicy, WebhookTarget, WebhookUrl, WebhookUrlError};
use crate::metrics::{Channel, Metrics};
use crate::publish::{Current, Published, wait_for_other};
use crate::status::StatusPage;

/// The waits between attempts to deliver one change.
const DELIVERY_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// How long after the first attempt a retry may still begin.
const GIVE_UP_TIMEOUT: Duration = Duration::from_hours(1);

/// The reason why a webhook is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The URL is not allowed.
    #[error("{0}")]
    Url(#[from] WebhookUrlError),
    /// There are too many webhooks.
    #[error("there are {limit} webhooks already; cancel one with DELETE /hooks/ID")]
    TooMany {
        /// The maximum number of webhooks.
        limit: usize,
    },
}

#[derive(Debug)]
struct Webhook {
    id: String,
    target: WebhookTarget,
    container: Option<ContainerName>,
    notified: NotificationStatus,
    /// The keys that changed since the last delivery, each with the generation of its last change; no more than an
    /// event lists.
    changed: BTreeMap<String, u64>,
    /// The last generation whose changed keys did not all fit into `changed`.
    dropped: Option<u64>,
    task: AbortHandle,
}

struct SharedWebhooks {
    webhooks: Mutex<Vec<Webhook>>,
    limit: usize,
    secret: Zeroizing<Vec<u8>>,
    policy: TargetPolicy,
    ready: Current,
    status: StatusPage,
    metrics: Metrics,
}

/// The pod's webhooks; cheap to clone.
#[derive(Clone)]
pub struct Webhooks(Arc<SharedWebhooks>);

impl Webhooks {
    /// Creates the list without webhooks. `ready` brings the dictionaries that subscribers are notified of; `secret`
    /// signs the events.
    pub fn new(
        limit: usize,
        secret: Zeroizing<Vec<u8>>,
        policy: TargetPolicy,
        ready: Current,
        status: StatusPage,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(SharedWebhooks { webhooks: Mutex::default(), limit, secret, policy, ready, status, metrics }))
    }

    fn webhooks(&self) -> MutexGuard<'_, Vec<Webhook>> {
        // Every change below leaves the list whole, also after a panic elsewhere.
        lock(&self.0.webhooks)
    }

    /// Adds a subscription. The same subscription twice gives the same webhook. A subscriber that is known to have the
    /// dictionary with `known_etag` is notified if another one is served. With a verifier, the subscriber must show
    /// after each event that it took the version. Returns whether the webhook is new. Needs a tokio runtime.
    pub fn add(
        &self,
        url: &str,
        container: Option<ContainerName>,
        etag: &str,
        known_etag: Option<String>,
        verifier: Option<Verifier>,
    ) -> Result<(bool, WebhookView), WebhookError> {
        let target = self.0.policy.check(url.parse::<WebhookUrl>()?)?;
        let mut webhooks = self.webhooks();
        let is_same = |webhook: &&Webhook| webhook.target == target && webhook.container == container;
        if let Some(webhook) = webhooks.iter().find(is_same) {
            return Ok((false, webhook.view(etag)));
        }
        if webhooks.len() >= self.0.limit {
            return Err(WebhookError::TooMany { limit: self.0.limit });
        }
        let id = random_name("hook");
        let mut ready = self.0.ready.clone();
        // The reply's ETag names the dictionary that is served now.
        ready.borrow_and_update();
        // The keys that the subscriber has missed are not known.
        let dropped = known_etag.as_ref().filter(|known_etag| **known_etag != etag).map(|_| 0);
        let webhook = Webhook {
            id: id.clone(),
            target: target.clone(),
            container,
            notified: NotificationStatus::default(),
            changed: BTreeMap::new(),
            dropped,
            task: spawn(id.clone(), self.clone().notify(id, target, ready, known_etag, verifier)),
        };
        let view = webhook.view(etag);
        webhooks.push(webhook);
        Ok((true, view))
    }

    /// Cancels a subscription; an event that is being posted may still arrive. Returns whether it existed.
    pub fn remove(&self, id: &str) -> bool {
        let mut webhooks = self.webhooks();
        let Some(index) = webhooks.iter().position(|webhook| webhook.id == id) else { return false };
        webhooks.remove(index).task.abort();
        true
    }

    /// Returns all webhooks, oldest first.
    pub fn list(&self, etag: &str) -> Vec<WebhookView> {
        self.webhooks().iter().map(|webhook| webhook.view(etag)).collect()
    }

    /// Returns whether there are no webhooks.
    pub fn is_empty(&self) -> bool {
        self.webhooks().is_empty()
    }

    /// Returns the containers that webhooks are for.
    pub fn containers(&self) -> Vec<ContainerName> {
        self.webhooks().iter().filter_map(|webhook| webhook.container.clone()).collect()
    }

    /// Records the keys that have changed with `generation`, whose dictionary has `etag`. Must be called before that
    /// dictionary is ready, and after the status says which containers are notified.
    pub fn record_changes(&self, changed: &[String], generation: u64, etag: &str) {
        for webhook in self.webhooks().iter_mut() {
            let is_unchanged = webhook.container.as_ref().is_some_and(|name| self.0.status.is_unchanged(name, etag));
            let outcome = if is_unchanged { Outcome::Unchanged } else { Outcome::Pending };
            webhook.notified = status_now(outcome, String::new(), etag, 0);
            for key in changed {
                if webhook.changed.len() < MAX_LISTED_KEYS || webhook.changed.contains_key(key) {
                    webhook.changed.insert(key.clone(), generation);
                } else {
                    webhook.dropped = Some(generation);
                }
            }
        }
    }

    /// Notifies a webhook of each newer dictionary. With `known_etag`, the first notification may repeat one of an
    /// earlier run of the agent.
    async fn notify(
        self,
        id: String,
        target: WebhookTarget,
        mut ready: Current,
        known_etag: Option<String>,
        mut verifier: Option<Verifier>,
    ) {
        let start = ready.clone();
        let note_start = note_start(verifier.as_mut(), &start, known_etag.as_deref());
        let ((), mut is_newer) = tokio::join!(note_start, wait_for_other(&mut ready, known_etag.as_deref()));
        let mut has_missed = known_etag.is_some();
        while is_newer {
            // The publisher never becomes empty again.
            let Some(published) = ready.borrow_and_update().clone() else { return };
            if self.is_unchanged(&id, published.dictionary.etag()) {
                tracing::info!(webhook = id, "subscriber not notified: it reads no key that has changed");
                if let Some(verifier) = &mut verifier {
                    verifier.note_unchanged(&published.dictionary);
                }
                is_newer = ready.changed().await.is_ok();
                continue;
            }
            if std::mem::take(&mut has_missed) {
                self.set_pending(&id, published.dictionary.etag());
            }
            let verification = verifier.as_mut().and_then(|verifier| verifier.begin(&published.dictionary, None));
            is_newer = self.notify_one(&id, &target, &published, &mut ready, verification).await;
        }
    }

    /// Notifies of `published` until that is done, given up, or there is a newer dictionary. Returns when there is a
    /// newer one, and `false` when there never will be. An attempt is not cut short, so that no subscriber sees half a
    /// request.
    async fn notify_one(
        &self,
        id: &str,
        target: &WebhookTarget,
        published: &Published,
        ready: &mut Current,
        mut verification: Option<Verification<'_>>,
    ) -> bool {
        let mut started = Instant::now();
        let mut event = random_name("msg");
        let mut attempt = 0;
        let (changed, truncated) = self.changed_keys(id);
        let Published { dictionary, at, .. } = published;
        let body = Event { kind: CONFIG_CHANGED, at: *at, dictionary, candidate: None, changed, truncated }.body();
        loop {
            // A subscriber that could not be read may be there at the next attempt.
            if let Some(verification) = &mut verification {
                tokio::select! {
                    changed = ready.changed() => return changed.is_ok(),
                    () = verification.read_before() => {}
                }
                // The subscriber may get a request whose answer is lost.
                verification.note_sent();
            }
            attempt += 1;
            let body = body.clone();
            let result = deliver(target, &self.0.secret, &event, body).await;
            let etag = published.dictionary.etag();
            if result.is_ok() {
                self.forget_changes(id, published.generation);
                if let Some(verification) = &mut verification {
                    let delivered = status_now(Outcome::Delivered, String::new(), etag, attempt);
                    let mut show = |notified: NotificationStatus| {
                        self.count(notified.outcome);
                        self.record(id, notified);
                    };
                    match verification.follow(delivered, ready, &mut show).await {
                        FollowEnd::Newer => return true,
                        FollowEnd::Closed => return false,
                        // The same identifier would be a repetition of the same event.
                        FollowEnd::NotifyAgain => (started, event, attempt) = (Instant::now(), random_name("msg"), 0),
                    }
                    continue;
                }
            }
            let (notified, wait) = match &result {
                Ok(()) => (status_now(Outcome::Delivered, String::new(), etag, attempt), None),
                Err(error) => {
                    let wait = DELIVERY_BACKOFF.wait_within(GIVE_UP_TIMEOUT, attempt, started.elapsed());
                    let is_gone = matches!(error, DeliverError::Status(hyper::StatusCode::GONE));
                    let wait = wait.filter(|_| !is_gone);
                    let outcome = if wait.is_some() { Outcome::Pending } else { Outcome::Failed };
                    (status_now(outcome, error.to_string(), etag, attempt), wait)
                }
            };
            self.set_notified(id, target, notified, attempt);
            let Some(wait) = wait else { return ready.changed().await.is_ok() };
            tokio::select! {
                changed = ready.changed() => return changed.is_ok(),
                () = tokio::time::sleep(with_jitter(wait, rand::random())) => {}
            }
        }
    }

    /// Marks a subscriber that missed a change while this process did not run.
    fn set_pending(&self, id: &str, etag: &str) {
        let mut webhooks = self.webhooks();
        let Some(webhook) = webhooks.iter_mut().find(|webhook| webhook.id == id) else { return };
        webhook.notified = status_now(Outcome::Pending, String::new(), etag, 0);
        if let Some(container) = &webhook.container {
            self.0.status.set_webhook_notification(container, webhook.notified.clone());
        }
    }

    /// Returns whether the subscriber's container reads no key that has changed in the dictionary with `etag`.
    fn is_unchanged(&self, id: &str, etag: &str) -> bool {
        let webhooks = self.webhooks();
        let webhook = webhooks.iter().find(|webhook| webhook.id == id);
        webhook.is_some_and(|webhook| {
            webhook.container.as_ref().is_some_and(|name| self.0.status.is_unchanged(name, etag))
        })
    }

    /// Returns the keys that changed since the last delivery, and whether there may be more.
    fn changed_keys(&self, id: &str) -> (Vec<String>, bool) {
        let webhooks = self.webhooks();
        let webhook = webhooks.iter().find(|webhook| webhook.id == id);
        webhook
            .map(|webhook| (webhook.changed.keys().cloned().collect(), webhook.dropped.is_some()))
            .unwrap_or_default()
    }

    /// Forgets the keys that had changed with this generation, whose event is delivered.
    fn forget_changes(&self, id: &str, generation: u64) {
        let mut webhooks = self.webhooks();
        let Some(webhook) = webhooks.iter_mut().find(|webhook| webhook.id == id) else { return };
        webhook.changed.retain(|_, changed| *changed > generation);
        webhook.dropped = webhook.dropped.filter(|dropped| *dropped > generation);
    }

    fn set_notified(&self, id: &str, target: &WebhookTarget, notified: NotificationStatus, attempt: u32) {
        let host = target.host();
        match notified.outcome {
            Outcome::Delivered => tracing::info!(webhook = id, host, attempts = attempt, "subscriber notified"),
            Outcome::Failed => {
                tracing::warn!(webhook = id, host, error = notified.message, "subscriber not notified; given up");
            }
            // Only the first failure is logged; the status has the later failures.
            _ if attempt == 1 => {
                tracing::warn!(webhook = id, host, error = notified.message, "subscriber not notified; retrying");
            }
            _ => {}
        }
        self.count(notified.outcome);
        self.record(id, notified);
    }

    fn count(&self, outcome: Outcome) {
        if outcome != Outcome::Pending {
            self.0.metrics.count_notification(Channel::Webhook, outcome);
        }
    }

    /// Records the status of notifying a subscriber, and its container's.
    fn record(&self, id: &str, notified: NotificationStatus) {
        let mut webhooks = self.webhooks();
        let Some(webhook) = webhooks.iter_mut().find(|webhook| webhook.id == id) else { return };
        webhook.notified = notified;
        if let Some(container) = webhook.container.clone() {
            let webhooks = webhooks.iter().filter(|webhook| webhook.container.as_ref() == Some(&container));
            // A container with several webhooks counts as notified when all of them are.
            let worst = webhooks.map(|webhook| &webhook.notified).max_by_key(|notified| severity(notified.outcome));
            if let Some(worst) = worst {
                self.0.status.set_webhook_notification(&container, worst.clone());
            }
        }
    }
}

impl Webhook {
    fn view(&self, etag: &str) -> WebhookView {
        WebhookView {
            id: self.id.clone(),
            url: self.target.as_str().to_owned(),
            container: self.container.clone(),
            etag: etag.to_owned(),
            notified: self.notified.clone(),
        }
    }
}

/// Returns the severity of an outcome; the most severe of several outcomes stands for all.
fn severity(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::NothingYet => 0,
        Outcome::Delivered | Outcome::Unchanged => 1,
        Outcome::Pending => 2,
        Outcome::NoHandler
        | Outcome::NoProcess
        | Outcome::PermissionDenied
        | Outcome::Failed
        | Outcome::NotVerified => 3,
    }
}

/// Starts a webhook's task. A panic ends only this task.
fn spawn(id: String, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    let task = tokio::spawn(task);
    let handle = task.abort_handle();
    tokio::spawn(async move {
        if task.await.is_err_and(|error| error.is_panic()) {
            tracing::error!(webhook = id, "webhook gets no more events, which is a bug; cancel it and subscribe again");
        }
    });
    handle
}

/// Returns `prefix_` and 96 random bits: unique, and impossible to guess for another pod.
pub fn random_name(prefix: &str) -> String {
    let bits = rand::random::<u128>() >> 32;
    format!("{prefix}_{bits:024x}")
}
