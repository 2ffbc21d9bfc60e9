//! Reviews of tokens by the API server: shared by all requests with the same token, limited for each address and
//! namespace, and remembered for some minutes at most.

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
use super::token_hash::{TokenHash, hash_token};
use crate::metrics::{Metrics, ReviewResult};
use crate::settings::Settings;

/// The maximum number of refusals that are remembered.
const MAX_REFUSALS: usize = 1024;
/// The maximum number of tokens of one pod that are remembered. An agent reads its token again every few minutes, and
/// does not use the old one any more.
const MAX_TOKENS_PER_POD: usize = 4;
/// The maximum number of addresses whose reviews are counted separately.
const MAX_ADDRESSES: usize = 4096;
/// The interval between warnings about failed reviews.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A token that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct ReviewedToken {
    pub(crate) caller: Arc<Caller>,
    /// The time when the token has to be reviewed again.
    pub(crate) until: Instant,
}

/// A token that was refused.
struct RefusedToken {
    message: &'static str,
    /// The time when the token may be reviewed again.
    until: Instant,
}

type ReviewOutcome = Result<ReviewedToken, ReviewError>;
type Review = BoxFuture<'static, ReviewOutcome>;

#[derive(Default)]
struct TokenOutcomes {
    accepted: HashMap<TokenHash, ReviewedToken>,
    by_uid: HashMap<PodUid, Vec<TokenHash>>,
    refused: HashMap<TokenHash, RefusedToken>,
    /// The reviews that are running, and that a request waits for.
    running: HashMap<TokenHash, WeakShared<Review>>,
    warned_at: Option<Instant>,
}

/// The slots for reviews. An address gets a quarter of them at most, a namespace half of them. So an address that
/// claims to belong to a namespace leaves half of the namespace's slots to other addresses.
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

    /// Waits for a slot, first in the queues of the address and the namespace, so that the shared queue has only a
    /// share of each.
    async fn take(&self, peer: Peer, namespace: &str) -> [Option<OwnedSemaphorePermit>; 3] {
        let address = self.addresses.take(peer, 1).await;
        let namespace = self.namespaces.take(namespace.to_owned(), 1).await;
        // The semaphore is never closed.
        [address, namespace, Arc::clone(&self.shared).acquire_owned().await.ok()]
    }
}

/// The reviews of tokens, and their outcomes.
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
            slots: ReviewSlots::new(settings.max_reviews),
            rates: Rates::new(settings.review_rate, MAX_ADDRESSES, Instant::now().into_std()),
            settings: Arc::clone(settings),
            metrics,
            outcomes: Mutex::default(),
        })
    }

    /// Returns the pod of `token`, which makes these claims and was sent by `peer`.
    pub(crate) async fn review(self: &Arc<Self>, token: &str, claims: &Claims, peer: Peer) -> ReviewOutcome {
        let hash = hash_token(token);
        let review = {
            let mut outcomes = self.outcomes.lock();
            let now = Instant::now();
            if let Some(entry) = outcomes.accepted.get(&hash) {
                if entry.until > now {
                    return Ok(entry.clone());
                }
                outcomes.forget(&hash);
            }
            if let Some(refused) = outcomes.refused.get(&hash) {
                if refused.until > now {
                    return Err(ReviewError::Refused(refused.message));
                }
                outcomes.refused.remove(&hash);
            }
            let running = outcomes.running.get(&hash).and_then(WeakShared::upgrade);
            match running {
                Some(review) => review,
                None if self.rates.take(peer, now.into_std()) => self.begin(&mut outcomes, hash, token, claims, peer),
                None => return Err(ReviewError::TooMany),
            }
        };
        review.await
    }

    /// Begins a review, which requests with the same token share. When none of these requests waits any more, the
    /// review is dropped, with its place in the queue.
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
            let outcome = running.reviews.run(hash, &token, &claims, peer).await;
            drop(running);
            outcome
        };
        let review = review.boxed().shared();
        outcomes.running.extend(review.downgrade().map(|weak| (hash, weak)));
        review
    }

    /// Runs one review, and remembers its outcome.
    async fn run(&self, hash: TokenHash, token: &str, claims: &Claims, peer: Peer) -> ReviewOutcome {
        let review = async {
            let slot = timeout(self.settings.turn_timeout, self.slots.take(peer, &claims.caller.namespace)).await;
            let _slot = slot.map_err(|_| ReviewError::TooMany)?;
            timeout(self.settings.review_timeout, self.reviewer.review(token))
                .await
                .unwrap_or_else(|_| Err(ReviewError::Unavailable(Arc::from(Box::from("no answer in time")))))
        };
        let outcome = match review.await {
            Ok(caller) if caller == claims.caller => Ok(caller),
            Ok(_) => Err(ReviewError::Refused(send_mounted_token!(
                "the API server says that the token is of another pod or service account"
            ))),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(caller) => {
                self.metrics.count_review(ReviewResult::Accepted);
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let lifetime = claims.expires.saturating_sub(now).min(self.settings.max_token_age);
                let entry = ReviewedToken { caller: Arc::new(caller), until: Instant::now() + lifetime };
                self.outcomes.lock().remember(hash, entry.clone(), self.settings.max_tokens);
                Ok(entry)
            }
            Err(ReviewError::Refused(message)) => {
                self.metrics.count_review(ReviewResult::Refused);
                let mut outcomes = self.outcomes.lock();
                if outcomes.refused.len() >= MAX_REFUSALS {
                    outcomes.refused.clear();
                }
                outcomes
                    .refused
                    .insert(hash, RefusedToken { message, until: Instant::now() + self.settings.max_refusal_age });
                Err(ReviewError::Refused(message))
            }
            Err(error) => {
                self.warn(&error);
                self.metrics.count_review(ReviewResult::Unavailable);
                Err(error)
            }
        }
    }

    /// Logs why a review failed, once for all failures within ten seconds.
    fn warn(&self, error: &ReviewError) {
        let (mut outcomes, now) = (self.outcomes.lock(), Instant::now());
        if outcomes.warned_at.is_none_or(|time| now >= time + WARNING_INTERVAL) {
            outcomes.warned_at = Some(now);
            tracing::warn!(error = chain(error), "token not reviewed");
        }
    }

    /// Has the tokens of the pod reviewed again, because the pod is terminating or gone.
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

    fn remember(&mut self, hash: TokenHash, entry: ReviewedToken, max_tokens: usize) {
        if self.accepted.len() >= max_tokens {
            let now = Instant::now();
            let expired: Vec<TokenHash> =
                self.accepted.iter().filter(|(_, entry)| entry.until <= now).map(|(hash, _)| *hash).collect();
            for hash in &expired {
                self.forget(hash);
            }
            // Any token can make room, as it only costs another review.
            let victim = self.accepted.keys().next().copied();
            if let Some(victim) = victim.filter(|_| self.accepted.len() >= max_tokens) {
                self.forget(&victim);
            }
        }
        let hashes = self.by_uid.entry(entry.caller.uid.clone()).or_default();
        if !hashes.contains(&hash) {
            hashes.push(hash);
            if hashes.len() > MAX_TOKENS_PER_POD {
                self.accepted.remove(&hashes.remove(0));
            }
        }
        self.accepted.insert(hash, entry);
    }
}

/// A running review. It is removed from the outcomes when it ends, or when no request waits for it. At worst another
/// review of the same token has begun by then, and a third one may be made.
struct RunningReview {
    reviews: Arc<TokenReviews>,
    hash: TokenHash,
}

impl Drop for RunningReview {
    fn drop(&mut self) {
        self.reviews.outcomes.lock().running.remove(&self.hash);
    }
}

#[cfg(test)]
#[path = "token_reviews_tests.rs"]
mod tests;
