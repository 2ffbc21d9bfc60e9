//! Which pod a request comes from: by a token review, which is remembered for some minutes at most.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use nudge_core::keys::PodUid;
use nudge_protocol::error_chain::chain;
use nudge_server::rates::Rates;
use nudge_server::shares::Queues;
use nudge_server::slots::Peer;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use super::claims::Claims;
use super::metrics::{Metrics, ReviewResult};
use super::review::{Caller, ReviewError, Reviewer};
use super::settings::Settings;
use super::token_hash::{TokenHash, hash};

/// Refusals that are remembered.
const REFUSALS: usize = 1024;
/// Tokens of one pod that are remembered. An agent reads its token again every few minutes, and the old one is not used any more.
const PER_POD: usize = 4;
/// Addresses whose reviews are counted apart.
const ADDRESSES: usize = 4096;
/// How often a review that was not made is logged.
const WARN: Duration = Duration::from_secs(10);

/// A pod whose token was reviewed.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) caller: Arc<Caller>,
    /// When the token has to be reviewed again.
    pub(super) until: Instant,
}

type Verdict = Result<Known, ReviewError>;
type Review = BoxFuture<'static, Verdict>;

#[derive(Default)]
struct Inner {
    accepted: HashMap<TokenHash, Known>,
    by_uid: HashMap<PodUid, Vec<TokenHash>>,
    refused: HashMap<TokenHash, (&'static str, Instant)>,
    /// Under way, as long as somebody waits for it.
    reviews: HashMap<TokenHash, WeakShared<Review>>,
    warned: Option<Instant>,
}

/// Reviews at the same time: of one address a quarter, of one namespace a half. An address that claims to be of a namespace so leaves
/// half of the namespace's share to others.
struct ReviewSlots {
    addresses: Queues<Peer>,
    namespaces: Queues<String>,
    all: Arc<Semaphore>,
}

impl ReviewSlots {
    fn new(all: usize) -> Self {
        let share = |part: usize| u32::try_from(all.div_ceil(part)).unwrap_or(u32::MAX);
        let all = Arc::new(Semaphore::new(all));
        Self { addresses: Queues::new(share(4)), namespaces: Queues::new(share(2)), all }
    }

    /// Waits for a slot, in a queue of its own first: the queue that all share holds no more than a share from each.
    async fn take(&self, peer: Peer, namespace: &str) -> [Option<OwnedSemaphorePermit>; 3] {
        let address = self.addresses.take(peer, 1).await;
        let namespace = self.namespaces.take(namespace.to_owned(), 1).await;
        // It is never closed.
        [address, namespace, Arc::clone(&self.all).acquire_owned().await.ok()]
    }
}

/// The pods of the tokens that were reviewed.
pub(super) struct Identities {
    reviewer: Arc<dyn Reviewer>,
    slots: ReviewSlots,
    rates: Rates<Peer>,
    turn: Duration,
    review: Duration,
    accepted: Duration,
    refusal: Duration,
    tokens: usize,
    metrics: Metrics,
    inner: Mutex<Inner>,
}

impl Identities {
    pub(super) fn new(reviewer: Arc<dyn Reviewer>, settings: &Settings, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            reviewer,
            slots: ReviewSlots::new(settings.reviews),
            rates: Rates::new(settings.review_rate, ADDRESSES, Instant::now().into_std()),
            turn: settings.turn,
            review: settings.review,
            accepted: settings.accepted,
            refusal: settings.refusal,
            tokens: settings.tokens,
            metrics,
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The pod that `token` belongs to, which claims to be this one and which `peer` has sent.
    pub(super) async fn caller(self: &Arc<Self>, token: &str, claims: &Claims, peer: Peer) -> Verdict {
        let hash = hash(token);
        let review = {
            let mut inner = self.lock();
            let now = Instant::now();
            if let Some(known) = inner.accepted.get(&hash) {
                if known.until > now {
                    return Ok(known.clone());
                }
                inner.forget(&hash);
            }
            if let Some((message, until)) = inner.refused.get(&hash) {
                if *until > now {
                    return Err(ReviewError::Refused(message));
                }
                inner.refused.remove(&hash);
            }
            let under_way = inner.reviews.get(&hash).and_then(WeakShared::upgrade);
            match under_way {
                Some(review) => review,
                None if self.rates.take(peer, now.into_std()) => self.begin(&mut inner, hash, token, claims, peer),
                None => return Err(ReviewError::TooMany),
            }
        };
        review.await
    }

    /// A review that all who wait for it share. When the last of them has left, it is dropped, with its place in the queue.
    fn begin(
        self: &Arc<Self>,
        inner: &mut Inner,
        hash: TokenHash,
        token: &str,
        claims: &Claims,
        peer: Peer,
    ) -> Shared<Review> {
        let under_way = UnderWay { identities: Arc::clone(self), hash };
        let (token, claims) = (Zeroizing::new(token.to_owned()), claims.clone());
        let review = async move {
            let verdict = under_way.identities.look_up(hash, &token, &claims, peer).await;
            drop(under_way);
            verdict
        };
        let review = review.boxed().shared();
        inner.reviews.extend(review.downgrade().map(|weak| (hash, weak)));
        review
    }

    /// One review, whose result is kept.
    async fn look_up(&self, hash: TokenHash, token: &str, claims: &Claims, peer: Peer) -> Verdict {
        let reviewed = async {
            let turn = timeout(self.turn, self.slots.take(peer, &claims.caller.namespace)).await;
            let _slot = turn.map_err(|_| ReviewError::TooMany)?;
            timeout(self.review, self.reviewer.review(token))
                .await
                .unwrap_or_else(|_| Err(unavailable("no answer in time")))
        };
        let verdict = match reviewed.await {
            Ok(caller) if caller == claims.caller => Ok(caller),
            Ok(_) => {
                Err(ReviewError::Refused("the API server says that this token is of another pod or service account"))
            }
            Err(error) => Err(error),
        };
        match verdict {
            Ok(caller) => {
                self.metrics.reviewed(ReviewResult::Accepted);
                let life = life(claims.expires, SystemTime::now()).min(self.accepted);
                let known = Known { caller: Arc::new(caller), until: Instant::now() + life };
                self.lock().remember(hash, known.clone(), self.tokens);
                Ok(known)
            }
            Err(ReviewError::Refused(message)) => {
                self.metrics.reviewed(ReviewResult::Refused);
                let mut inner = self.lock();
                if inner.refused.len() >= REFUSALS {
                    inner.refused.clear();
                }
                inner.refused.insert(hash, (message, Instant::now() + self.refusal));
                Err(ReviewError::Refused(message))
            }
            Err(error) => {
                self.warn(&error);
                self.metrics.reviewed(ReviewResult::Unavailable);
                Err(error)
            }
        }
    }

    /// Logs why a review was not made, for all who wait for it and all others in ten seconds.
    fn warn(&self, error: &ReviewError) {
        let (mut inner, now) = (self.lock(), Instant::now());
        if inner.warned.is_none_or(|at| now >= at + WARN) {
            inner.warned = Some(now);
            tracing::warn!(error = chain(error), "token not reviewed");
        }
    }

    /// Has the tokens of the pod reviewed again: it is terminating or gone.
    pub(super) fn forget(&self, uid: &PodUid) {
        let mut inner = self.lock();
        for hash in inner.by_uid.remove(uid).unwrap_or_default() {
            inner.accepted.remove(&hash);
        }
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.lock().accepted.len()
    }
}

impl Inner {
    fn forget(&mut self, hash: &TokenHash) {
        if let Some(known) = self.accepted.remove(hash)
            && let Some(hashes) = self.by_uid.get_mut(&known.caller.uid)
        {
            hashes.retain(|other| other != hash);
            if hashes.is_empty() {
                self.by_uid.remove(&known.caller.uid);
            }
        }
    }

    fn remember(&mut self, hash: TokenHash, known: Known, bound: usize) {
        if self.accepted.len() >= bound {
            let now = Instant::now();
            let over: Vec<TokenHash> =
                self.accepted.iter().filter(|(_, known)| known.until <= now).map(|(hash, _)| *hash).collect();
            for hash in &over {
                self.forget(hash);
            }
            // Any of them makes room: it only costs another review.
            let any = self.accepted.keys().next().copied();
            if let Some(any) = any.filter(|_| self.accepted.len() >= bound) {
                self.forget(&any);
            }
        }
        let hashes = self.by_uid.entry(known.caller.uid.clone()).or_default();
        if !hashes.contains(&hash) {
            hashes.push(hash);
            if hashes.len() > PER_POD {
                self.accepted.remove(&hashes.remove(0));
            }
        }
        self.accepted.insert(hash, known);
    }
}

/// A review that has ended, or that nobody waits for, is forgotten. At worst another one of the same token has begun meanwhile, and
/// then a third one may be made.
struct UnderWay {
    identities: Arc<Identities>,
    hash: TokenHash,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.identities.lock().reviews.remove(&self.hash);
    }
}

/// How long an accepted token is good.
fn life(expires: Duration, now: SystemTime) -> Duration {
    expires.saturating_sub(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn unavailable(why: &'static str) -> ReviewError {
    ReviewError::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(why)))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
