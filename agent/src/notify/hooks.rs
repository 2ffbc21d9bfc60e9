//! The webhooks of the pod: who subscribed, what each has been told, and the task that tells it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nudge_protocol::ContainerName;
use nudge_protocol::hooks::HookView;
use nudge_protocol::limits::MAX_LISTED_KEYS;
use nudge_protocol::status::{Notified, Outcome};
use time::OffsetDateTime;
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use super::backoff::{Backoff, jittered};
use super::outcome::notified;
use super::webhook::{DeliverError, deliver, event_body};
use super::{HookTarget, HookUrl, TargetPolicy, UrlError};
use crate::publish::{Current, Published, other};
use crate::serve::{Channel, Metrics};
use crate::status::StatusPage;

/// Waits between attempts to deliver one change.
const RETRIES: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1), give_up: Duration::from_hours(1) };

/// Why a webhook can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// Its URL is not allowed.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// There are too many.
    #[error("there are {limit} webhooks already; cancel one with DELETE /hooks/ID")]
    TooMany {
        /// The bound.
        limit: usize,
    },
}

#[derive(Debug)]
struct Hook {
    id: String,
    target: HookTarget,
    container: Option<ContainerName>,
    notified: Notified,
    /// Keys that changed since the last delivery, each with the generation of its last change; no more than an event lists.
    changed: BTreeMap<String, u64>,
    /// The last generation of which changed keys had no room there.
    dropped: Option<u64>,
    task: Option<AbortHandle>,
}

struct Shared {
    hooks: Mutex<Vec<Hook>>,
    limit: usize,
    secret: Zeroizing<Vec<u8>>,
    policy: TargetPolicy,
    ready: Current,
    status: StatusPage,
    metrics: Metrics,
}

/// The pod's webhooks; cheap to clone.
#[derive(Clone)]
pub struct Hooks(Arc<Shared>);

impl Hooks {
    /// No hooks yet. `ready` shows what subscribers are to be told of; `secret` signs.
    pub fn new(
        limit: usize,
        secret: Zeroizing<Vec<u8>>,
        policy: TargetPolicy,
        ready: Current,
        status: StatusPage,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Shared { hooks: Mutex::default(), limit, secret, policy, ready, status, metrics }))
    }

    fn hooks(&self) -> MutexGuard<'_, Vec<Hook>> {
        // Every change below leaves the list whole, so a panic elsewhere does no harm to it.
        self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes; asking for the same twice gives the same hook. Returns whether it is new. Needs a tokio runtime.
    pub fn add(&self, url: &str, container: Option<ContainerName>, etag: &str) -> Result<(bool, HookView), HookError> {
        self.add_known(url, container, etag, None)
    }

    /// The same for a subscriber that is `known` to have the dictionary with this `ETag`: it is told where another one is served.
    pub fn add_known(
        &self,
        url: &str,
        container: Option<ContainerName>,
        etag: &str,
        known: Option<String>,
    ) -> Result<(bool, HookView), HookError> {
        let target = self.0.policy.check(url.parse::<HookUrl>()?)?;
        let mut hooks = self.hooks();
        if let Some(known) = hooks.iter().find(|hook| hook.target == target && hook.container == container) {
            return Ok((false, known.view(etag)));
        }
        if hooks.len() >= self.0.limit {
            return Err(HookError::TooMany { limit: self.0.limit });
        }
        let id = random_name("hook");
        let mut hook = Hook {
            id: id.clone(),
            target: target.clone(),
            container,
            notified: Notified::nothing_yet(),
            changed: BTreeMap::new(),
            // Which keys were missed nobody knows.
            dropped: known.as_ref().filter(|known| **known != etag).map(|_| 0),
            task: None,
        };
        let mut ready = self.0.ready.clone();
        // What is there now, the subscriber learns from the reply's ETag.
        ready.borrow_and_update();
        hook.task = Some(tokio::spawn(self.clone().notify(id, target, ready, known)).abort_handle());
        let view = hook.view(etag);
        hooks.push(hook);
        Ok((true, view))
    }

    /// Cancels; an event that is being posted may still arrive. Returns whether the hook was there.
    pub fn remove(&self, id: &str) -> bool {
        let mut hooks = self.hooks();
        let Some(at) = hooks.iter().position(|hook| hook.id == id) else { return false };
        if let Some(task) = hooks.remove(at).task {
            task.abort();
        }
        true
    }

    /// All hooks, oldest first.
    pub fn list(&self, etag: &str) -> Vec<HookView> {
        self.hooks().iter().map(|hook| hook.view(etag)).collect()
    }

    /// Whether anybody has subscribed.
    pub fn is_empty(&self) -> bool {
        self.hooks().is_empty()
    }

    /// The containers that hooks are for.
    pub fn containers(&self) -> Vec<ContainerName> {
        self.hooks().iter().filter_map(|hook| hook.container.clone()).collect()
    }

    /// Notes which keys have changed with `generation`, whose dictionary has `etag`, before it is shown as ready.
    pub fn note(&self, changed: &[String], generation: u64, etag: &str) {
        for hook in self.hooks().iter_mut() {
            hook.notified = notified(Outcome::Pending, String::new(), etag, 0);
            for key in changed {
                if hook.changed.len() < MAX_LISTED_KEYS || hook.changed.contains_key(key) {
                    hook.changed.insert(key.clone(), generation);
                } else {
                    hook.dropped = Some(generation);
                }
            }
        }
    }

    async fn notify(self, id: String, target: HookTarget, mut ready: Current, known: Option<String>) {
        let mut is_newer = other(&mut ready, known.as_deref()).await;
        let mut missed = known.is_some();
        while is_newer {
            // There is no way back to having none.
            let Some(published) = ready.borrow_and_update().clone() else { return };
            if std::mem::take(&mut missed) {
                self.is_pending(&id, published.dictionary.etag());
            }
            is_newer = self.notify_one(&id, &target, &published, &mut ready).await;
        }
    }

    /// Tells of `published` until that is done, given up, or there is something newer. Returns when there is something
    /// newer, and `false` when there never will be. An attempt under way is not cut short: a subscriber should not see
    /// half a request.
    async fn notify_one(&self, id: &str, target: &HookTarget, published: &Published, ready: &mut Current) -> bool {
        let started = Instant::now();
        let event = random_name("msg");
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (changed, truncated) = self.changed(id);
            let body = Bytes::from(event_body(published, changed, truncated));
            let timestamp = OffsetDateTime::now_utc().unix_timestamp();
            let result = deliver(target, &self.0.secret, &event, timestamp, body).await;
            let etag = published.dictionary.etag();
            let (notified, wait) = match &result {
                Ok(()) => (notified(Outcome::Delivered, String::new(), etag, attempt), None),
                Err(error) => {
                    let wait = RETRIES.wait(attempt, started.elapsed());
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
                () = tokio::time::sleep(jittered(wait, rand::random())) => {}
            }
        }
    }

    /// What it missed while this process did not run is on its way.
    fn is_pending(&self, id: &str, etag: &str) {
        let mut hooks = self.hooks();
        let Some(hook) = hooks.iter_mut().find(|hook| hook.id == id) else { return };
        hook.notified = notified(Outcome::Pending, String::new(), etag, 0);
        if let Some(container) = &hook.container {
            self.0.status.notified_by_hook(container, hook.notified.clone());
        }
    }

    fn changed(&self, id: &str) -> (Vec<String>, bool) {
        let hooks = self.hooks();
        let hook = hooks.iter().find(|hook| hook.id == id);
        hook.map(|hook| (hook.changed.keys().cloned().collect(), hook.dropped.is_some())).unwrap_or_default()
    }

    fn report(&self, id: &str, target: &HookTarget, notified: Notified, generation: u64, attempt: u32) {
        match notified.outcome {
            Outcome::Delivered => {
                self.0.metrics.notified(Channel::Webhook, notified.outcome);
                tracing::info!(hook = id, url = target.host(), attempts = attempt, "notified");
            }
            Outcome::Failed => {
                self.0.metrics.notified(Channel::Webhook, notified.outcome);
                tracing::warn!(hook = id, url = target.host(), reason = notified.message, "not told");
            }
            // The first failure is worth a line; the rest stand in the status.
            _ if attempt == 1 => {
                tracing::warn!(hook = id, url = target.host(), reason = notified.message, "not told yet");
            }
            _ => {}
        }
        let mut hooks = self.hooks();
        let Some(hook) = hooks.iter_mut().find(|hook| hook.id == id) else { return };
        if notified.outcome == Outcome::Delivered {
            hook.changed.retain(|_, changed| *changed > generation);
            hook.dropped = hook.dropped.filter(|dropped| *dropped > generation);
        }
        hook.notified = notified;
        if let Some(container) = hook.container.clone() {
            let of_container = hooks.iter().filter(|hook| hook.container.as_ref() == Some(&container));
            // A container with several hooks has been told when all of them have.
            if let Some(worst) =
                of_container.map(|hook| &hook.notified).max_by_key(|notified| severity(notified.outcome))
            {
                self.0.status.notified_by_hook(&container, worst.clone());
            }
        }
    }
}

impl Hook {
    fn view(&self, etag: &str) -> HookView {
        HookView {
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

/// `prefix_` and 96 random bits: unique, and no guess at another pod's.
fn random_name(prefix: &str) -> String {
    let [one, two, three]: [u32; 3] = rand::random();
    format!("{prefix}_{one:08x}{two:08x}{three:08x}")
}
