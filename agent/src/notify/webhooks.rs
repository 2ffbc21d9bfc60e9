//! The webhooks of the pod: the subscriptions, what each was notified of, and the task that notifies it.

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

use super::outcome::notified;
use super::webhook_delivery::{DeliverError, Event, deliver};
use super::{TargetPolicy, WebhookTarget, WebhookUrl, WebhookUrlError};
use crate::metrics::{Channel, Metrics};
use crate::publish::{Current, Published, wait_for_other};
use crate::status::StatusPage;

/// Waits between attempts to deliver one change.
const RETRIES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// No attempt begins later than this after the first one.
const GIVE_UP: Duration = Duration::from_hours(1);

/// Why a webhook is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Its URL is not allowed.
    #[error("{0}")]
    Url(#[from] WebhookUrlError),
    /// There are too many.
    #[error("there are {limit} webhooks already; cancel one with DELETE /hooks/ID")]
    TooMany {
        /// The bound.
        limit: usize,
    },
}

#[derive(Debug)]
struct Webhook {
    id: String,
    target: WebhookTarget,
    container: Option<ContainerName>,
    notified: NotificationStatus,
    /// Keys that changed since the last delivery, each with the generation of its last change. No more than an event lists.
    changed: BTreeMap<String, u64>,
    /// The last generation whose changed keys did not all fit there.
    dropped: Option<u64>,
    task: AbortHandle,
}

struct Shared {
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
pub struct Webhooks(Arc<Shared>);

impl Webhooks {
    /// No webhooks yet. `ready` shows what subscribers are notified of; `secret` signs the events.
    pub fn new(
        limit: usize,
        secret: Zeroizing<Vec<u8>>,
        policy: TargetPolicy,
        ready: Current,
        status: StatusPage,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Shared { webhooks: Mutex::default(), limit, secret, policy, ready, status, metrics }))
    }

    fn webhooks(&self) -> MutexGuard<'_, Vec<Webhook>> {
        // Every change below leaves the list whole, also after a panic elsewhere.
        lock(&self.0.webhooks)
    }

    /// Subscribes. The same subscription twice gives the same webhook. Returns whether it is new. Needs a tokio runtime.
    pub fn add(
        &self,
        url: &str,
        container: Option<ContainerName>,
        etag: &str,
    ) -> Result<(bool, WebhookView), WebhookError> {
        self.add_known(url, container, etag, None)
    }

    /// Adds a subscriber that is `known` to have the dictionary with this `ETag`: it is notified if another one is served.
    pub fn add_known(
        &self,
        url: &str,
        container: Option<ContainerName>,
        etag: &str,
        known: Option<String>,
    ) -> Result<(bool, WebhookView), WebhookError> {
        let target = self.0.policy.check(url.parse::<WebhookUrl>()?)?;
        let mut webhooks = self.webhooks();
        if let Some(known) = webhooks.iter().find(|webhook| webhook.target == target && webhook.container == container)
        {
            return Ok((false, known.view(etag)));
        }
        if webhooks.len() >= self.0.limit {
            return Err(WebhookError::TooMany { limit: self.0.limit });
        }
        let id = random_name("hook");
        let mut ready = self.0.ready.clone();
        // The reply's ETag says what is served now.
        ready.borrow_and_update();
        // It is not known which keys the subscriber has missed.
        let dropped = known.as_ref().filter(|known| **known != etag).map(|_| 0);
        let webhook = Webhook {
            id: id.clone(),
            target: target.clone(),
            container,
            notified: NotificationStatus::nothing_yet(),
            changed: BTreeMap::new(),
            dropped,
            task: spawn(id.clone(), self.clone().notify(id, target, ready, known)),
        };
        let view = webhook.view(etag);
        webhooks.push(webhook);
        Ok((true, view))
    }

    /// Cancels a subscription; an event that is being posted may still arrive. Returns whether it existed.
    pub fn remove(&self, id: &str) -> bool {
        let mut webhooks = self.webhooks();
        let Some(at) = webhooks.iter().position(|webhook| webhook.id == id) else { return false };
        webhooks.remove(at).task.abort();
        true
    }

    /// All webhooks, oldest first.
    pub fn list(&self, etag: &str) -> Vec<WebhookView> {
        self.webhooks().iter().map(|webhook| webhook.view(etag)).collect()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.webhooks().is_empty()
    }

    /// The containers that webhooks are for.
    pub fn containers(&self) -> Vec<ContainerName> {
        self.webhooks().iter().filter_map(|webhook| webhook.container.clone()).collect()
    }

    /// Keeps which keys have changed with `generation`, whose dictionary has `etag`. Called before that dictionary is ready.
    pub fn changed(&self, changed: &[String], generation: u64, etag: &str) {
        for webhook in self.webhooks().iter_mut() {
            webhook.notified = notified(Outcome::Pending, String::new(), etag, 0);
            for key in changed {
                if webhook.changed.len() < MAX_LISTED_KEYS || webhook.changed.contains_key(key) {
                    webhook.changed.insert(key.clone(), generation);
                } else {
                    webhook.dropped = Some(generation);
                }
            }
        }
    }

    async fn notify(self, id: String, target: WebhookTarget, mut ready: Current, known: Option<String>) {
        let mut is_newer = wait_for_other(&mut ready, known.as_deref()).await;
        let mut missed = known.is_some();
        while is_newer {
            // It never becomes empty again.
            let Some(published) = ready.borrow_and_update().clone() else { return };
            if std::mem::take(&mut missed) {
                self.set_pending(&id, published.dictionary.etag());
            }
            is_newer = self.notify_one(&id, &target, &published, &mut ready).await;
        }
    }

    /// Notifies of `published` until that is done, given up, or there is a newer one. Returns when there is a newer one, and `false`
    /// when there never will be. An attempt under way is not cut short, so that no subscriber sees half a request.
    async fn notify_one(&self, id: &str, target: &WebhookTarget, published: &Published, ready: &mut Current) -> bool {
        let started = Instant::now();
        let event = random_name("msg");
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (changed, truncated) = self.changed_keys(id);
            let Published { dictionary, at, .. } = published;
            let kind = CONFIG_CHANGED;
            let body = Event { kind, at: *at, dictionary, candidate: None, changed, truncated }.body();
            let result = deliver(target, &self.0.secret, &event, body).await;
            let etag = published.dictionary.etag();
            let (notified, wait) = match &result {
                Ok(()) => (notified(Outcome::Delivered, String::new(), etag, attempt), None),
                Err(error) => {
                    let wait = RETRIES.wait_within(GIVE_UP, attempt, started.elapsed());
                    let gone = matches!(error, DeliverError::Status(hyper::StatusCode::GONE));
                    let wait = wait.filter(|_| !gone);
                    let outcome = if wait.is_some() { Outcome::Pending } else { Outcome::Failed };
                    (notified(outcome, error.to_string(), etag, attempt), wait)
                }
            };
            self.report(id, target, notified, published.generation, attempt);
            let Some(wait) = wait else { return ready.changed().await.is_ok() };
            tokio::select! {
                changed = ready.changed() => return changed.is_ok(),
                () = tokio::time::sleep(with_jitter(wait, rand::random())) => {}
            }
        }
    }

    /// The subscriber missed a change while this process did not run.
    fn set_pending(&self, id: &str, etag: &str) {
        let mut webhooks = self.webhooks();
        let Some(webhook) = webhooks.iter_mut().find(|webhook| webhook.id == id) else { return };
        webhook.notified = notified(Outcome::Pending, String::new(), etag, 0);
        if let Some(container) = &webhook.container {
            self.0.status.notified_by_webhook(container, webhook.notified.clone());
        }
    }

    /// The keys that changed since the last delivery, and whether there may be more.
    fn changed_keys(&self, id: &str) -> (Vec<String>, bool) {
        let webhooks = self.webhooks();
        let webhook = webhooks.iter().find(|webhook| webhook.id == id);
        webhook
            .map(|webhook| (webhook.changed.keys().cloned().collect(), webhook.dropped.is_some()))
            .unwrap_or_default()
    }

    fn report(&self, id: &str, target: &WebhookTarget, notified: NotificationStatus, generation: u64, attempt: u32) {
        match notified.outcome {
            Outcome::Delivered => {
                self.0.metrics.notified(Channel::Webhook, notified.outcome);
                tracing::info!(webhook = id, host = target.host(), attempts = attempt, "subscriber notified");
            }
            Outcome::Failed => {
                self.0.metrics.notified(Channel::Webhook, notified.outcome);
                tracing::warn!(
                    webhook = id,
                    host = target.host(),
                    error = notified.message,
                    "subscriber not notified; given up"
                );
            }
            // Only the first failure is logged; the status has the others.
            _ if attempt == 1 => {
                tracing::warn!(
                    webhook = id,
                    host = target.host(),
                    error = notified.message,
                    "subscriber not notified; retrying"
                );
            }
            _ => {}
        }
        let mut webhooks = self.webhooks();
        let Some(webhook) = webhooks.iter_mut().find(|webhook| webhook.id == id) else { return };
        if notified.outcome == Outcome::Delivered {
            webhook.changed.retain(|_, changed| *changed > generation);
            webhook.dropped = webhook.dropped.filter(|dropped| *dropped > generation);
        }
        webhook.notified = notified;
        if let Some(container) = webhook.container.clone() {
            let of_container = webhooks.iter().filter(|webhook| webhook.container.as_ref() == Some(&container));
            // A container with several webhooks counts as notified when all of them are.
            if let Some(worst) =
                of_container.map(|webhook| &webhook.notified).max_by_key(|notified| severity(notified.outcome))
            {
                self.0.status.notified_by_webhook(&container, worst.clone());
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

/// Which of several outcomes stands for all.
fn severity(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::NothingYet => 0,
        Outcome::Delivered => 1,
        Outcome::Pending => 2,
        Outcome::NoHandler | Outcome::NoProcess | Outcome::PermissionDenied | Outcome::Failed => 3,
    }
}

/// Starts a webhook's task. A panic ends only this one.
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

/// `prefix_` and 96 random bits: unique, and not to be guessed by another pod.
pub fn random_name(prefix: &str) -> String {
    let [one, two, three]: [u32; 3] = rand::random();
    format!("{prefix}_{one:08x}{two:08x}{three:08x}")
}
