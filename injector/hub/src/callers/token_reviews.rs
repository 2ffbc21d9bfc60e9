//! Reviews of tokens by the API server: shared by all who send the same token, bounded for each address and namespace, and remembered for some
//! minutes at most.

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
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use super::claims::Claims;
use super::reviewer::{Caller, ReviewError, Reviewer, send_mounted_token};
use super::token_hash::{TokenHash, hash};
use crate::metrics::{Metrics, ReviewResult};
use crate::settings::Settings;

/// The maximum number of refusals that are remembered.
const REFUSALS: usize = 1024;
/// The maximum number of tokens of one pod that are remembered. An agent reads its token again every few minutes, and does not use the old one
/// any more.
const PER_POD: usize = 4;
/// The maximum number of addresses whose reviews are counted apart.
const ADDRESSES: usize = 4096;
/// How often a review that was not made is logged.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A token that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct ReviewedToken {
    pub(crate) caller: Arc<Caller>,
    /// When the token has to be reviewed again.
    pub(crate) until: Instant,
}

type ReviewOutcome = Result<ReviewedToken, ReviewError>;
type Review = BoxFuture<'static, ReviewOutcome>;

/// The outcomes of reviews.
#[derive(Default)]
struct TokenOutcomes {
    accepted: HashMap<TokenHash, ReviewedToken>,
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
    shared: Arc<Semaphore>,
}

impl ReviewSlots {
    fn new(slots: usize) -> Self {
        let share = |part: usize| u32::try_from(slots.div_ceil(part)).unwrap_or(u32::MAX);
        let shared = Arc::new(Semaphore::new(slots));
        Self { addresses: Queues::new(share(4)), namespaces: Queues::new(share(2)), shared }
    }

    /// Waits for a slot, in a queue of its own first: the queue that all share holds no more than a share from each.
    async fn take(&self, peer: Peer, namespace: &str) -> [Option<OwnedSemaphorePermit>; 3] {
        let address = self.addresses.take(peer, 1).await;
        let namespace = self.namespaces.take(namespace.to_owned(), 1).await;
        // It is never closed.
        [address, namespace, Arc::clone(&self.shared).acquire_owned().await.ok()]
    }
}

/// Has tokens reviewed, and remembers the outcomes.
pub(crate) struct TokenReviews {
    reviewer: Arc<dyn Reviewer>,
    slots: ReviewSlots,
    rates: Rates<Peer>,
    settings: Arc<Settings>,
    metrics: Metrics,
    outcomes: Mutex<TokenOutcomes>,
}

impl TokenReviews {
    pub(crate) fn new(reviewer: Arc<dyn Reviewer>, settings: &Arc<Settings>, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            reviewer,
            slots: ReviewSlots::new(settings.reviews),
            rates: Rates::new(settings.review_rate, ADDRESSES, Instant::now().into_std()),
            settings: Arc::clone(settings),
            metrics,
            outcomes: Mutex::default(),
        })
    }

    /// Returns the pod that `token` belongs to, which makes these claims and which `peer` has sent.
    pub(crate) async fn caller(self: &Arc<Self>, token: &str, claims: &Claims, peer: Peer) -> ReviewOutcome {
        let hash = hash(token);
        let review = {
            let mut outcomes = self.outcomes.lock();
            let now = Instant::now();
            if let Some(entry) = outcomes.accepted.get(&hash) {
                if entry.until > now {
                    return Ok(entry.clone());
                }
                outcomes.forget(&hash);
            }
            if let Some((message, until)) = outcomes.refused.get(&hash) {
                if *until > now {
                    return Err(ReviewError::Refused(message));
                }
                outcomes.refused.remove(&hash);
            }
            let under_way = outcomes.reviews.get(&hash).and_then(WeakShared::upgrade);
            match under_way {
                Some(review) => review,
                None if self.rates.take(peer, now.into_std()) => self.begin(&mut outcomes, hash, token, claims, peer),
                None => return Err(ReviewError::TooMany),
            }
        };
        review.await
    }

    /// Begins a review that all who wait for it share. When the last of them has left, it is dropped, with its place in the queue.
    fn begin(
        self: &Arc<Self>,
        outcomes: &mut TokenOutcomes,
        hash: TokenHash,
        token: &str,
        claims: &Claims,
        peer: Peer,
    ) -> Shared<Review> {
        let running = RunningReview { reviews: Arc::clone(self), hash };
        let (token, claims) = (Zeroizing::new(token.to_owned()), claims.clone());
        let review = async move {
            let outcome = running.reviews.look_up(hash, &token, &claims, peer).await;
            drop(running);
            outcome
        };
        let review = review.boxed().shared();
        outcomes.reviews.extend(review.downgrade().map(|weak| (hash, weak)));
        review
    }

    /// Makes one review, and keeps its outcome.
    async fn look_up(&self, hash: TokenHash, token: &str, claims: &Claims, peer: Peer) -> ReviewOutcome {
        let reviewed = async {
            let turn = timeout(self.settings.turn, self.slots.take(peer, &claims.caller.namespace)).await;
            let _slot = turn.map_err(|_| ReviewError::TooMany)?;
            timeout(self.settings.review, self.reviewer.review(token))
                .await
                .unwrap_or_else(|_| Err(unavailable("no answer in time")))
        };
        let outcome = match reviewed.await {
            Ok(caller) if caller == claims.caller => Ok(caller),
            Ok(_) => Err(ReviewError::Refused(send_mounted_token!(
                "the API server says that the token is of another pod or service account"
            ))),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(caller) => {
                self.metrics.reviewed(ReviewResult::Accepted);
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let life = claims.expires.saturating_sub(now).min(self.settings.accepted);
                let entry = ReviewedToken { caller: Arc::new(caller), until: Instant::now() + life };
                self.outcomes.lock().remember(hash, entry.clone(), self.settings.tokens);
                Ok(entry)
            }
            Err(ReviewError::Refused(message)) => {
                self.metrics.reviewed(ReviewResult::Refused);
                let mut outcomes = self.outcomes.lock();
                if outcomes.refused.len() >= REFUSALS {
                    outcomes.refused.clear();
                }
                outcomes.refused.insert(hash, (message, Instant::now() + self.settings.refusal));
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
        let (mut outcomes, now) = (self.outcomes.lock(), Instant::now());
        if outcomes.warned.is_none_or(|at| now >= at + WARNING_INTERVAL) {
            outcomes.warned = Some(now);
            tracing::warn!(error = chain(error), "token not reviewed");
        }
    }

    /// Has the tokens of the pod reviewed again: it is terminating or gone.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut outcomes = self.outcomes.lock();
        for hash in outcomes.by_uid.remove(uid).unwrap_or_default() {
            outcomes.accepted.remove(&hash);
        }
    }
}

impl TokenOutcomes {
    fn forget(&mut self, hash: &TokenHash) {
        if let Some(entry) = self.accepted.remove(hash)
            && let Some(hashes) = self.by_uid.get_mut(&entry.caller.uid)
        {
            hashes.retain(|other| other != hash);
            if hashes.is_empty() {
                self.by_uid.remove(&entry.caller.uid);
            }
        }
    }

    fn remember(&mut self, hash: TokenHash, entry: ReviewedToken, bound: usize) {
        if self.accepted.len() >= bound {
            let now = Instant::now();
            let over: Vec<TokenHash> =
                self.accepted.iter().filter(|(_, entry)| entry.until <= now).map(|(hash, _)| *hash).collect();
            for hash in &over {
                self.forget(hash);
            }
            // Any of them makes room: it only costs another review.
            let victim = self.accepted.keys().next().copied();
            if let Some(victim) = victim.filter(|_| self.accepted.len() >= bound) {
                self.forget(&victim);
            }
        }
        let hashes = self.by_uid.entry(entry.caller.uid.clone()).or_default();
        if !hashes.contains(&hash) {
            hashes.push(hash);
            if hashes.len() > PER_POD {
                self.accepted.remove(&hashes.remove(0));
            }
        }
        self.accepted.insert(hash, entry);
    }
}

/// A review that has ended, or that nobody waits for, is forgotten. At worst another one of the same token has begun meanwhile, and
/// then a third one may be made.
struct RunningReview {
    reviews: Arc<TokenReviews>,
    hash: TokenHash,
}

impl Drop for RunningReview {
    fn drop(&mut self) {
        self.reviews.outcomes.lock().reviews.remove(&self.hash);
    }
}

fn unavailable(why: &'static str) -> ReviewError {
    ReviewError::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(why)))
}

#[cfg(test)]
#[path = "token_reviews_tests.rs"]
mod tests;
