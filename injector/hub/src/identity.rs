//! Which pod a request comes from: by a token review, which is remembered for some minutes at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use nudge_core::keys::PodUid;
use nudge_server::shares::Queues;
use nudge_server::slots::Peer;
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
            under_way.unwrap_or_else(|| self.begin(&mut inner, hash, token, claims, peer))
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
            let _slot = timeout(self.turn, self.slots.take(peer, &claims.caller.namespace)).await?;
            timeout(self.review, self.reviewer.review(token)).await
        };
        let verdict = match reviewed.await {
            Ok(Ok(caller)) if caller == claims.caller => Ok(caller),
            Ok(Ok(_)) => {
                Err(ReviewError::Refused("the API server says that this token is of another pod or service account"))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(unavailable("no answer in time")),
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
            Err(error @ ReviewError::Unavailable(_)) => {
                self.metrics.reviewed(ReviewResult::Unavailable);
                Err(error)
            }
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
        // An agent reads its token again every few minutes, and the old one is not used any more.
        if !hashes.contains(&hash) {
            hashes.push(hash);
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
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;
    use crate::claims::tests::{sample, token as signed};

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[derive(Default)]
    struct Stub {
        asked: AtomicUsize,
        at_once: AtomicUsize,
        most: AtomicUsize,
        hangs: Option<&'static str>,
    }

    /// A review counts as under way until this is dropped.
    struct Counted<'a>(&'a AtomicUsize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Reviewer for Stub {
        fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
            Box::pin(async move {
                let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
                let _counted = Counted(&self.at_once);
                self.asked.fetch_add(1, Ordering::SeqCst);
                self.most.fetch_max(now, Ordering::SeqCst);
                let claims = Claims::read(token, SystemTime::UNIX_EPOCH).unwrap();
                let uid = claims.caller.uid.as_str();
                if self.hangs.is_some_and(|which| uid.starts_with(which)) {
                    std::future::pending::<()>().await;
                }
                // A task that polls many does not get to all of them in one go.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                match uid.split('.').next() {
                    Some("bad") => Err(ReviewError::Refused("no")),
                    Some("down") => Err(unavailable("down")),
                    Some("lies") => Ok(Caller { uid: PodUid::new("another").unwrap(), ..claims.caller }),
                    Some("aged") => Ok(Caller { account_uid: "another".to_owned(), ..claims.caller }),
                    _ => Ok(claims.caller),
                }
            })
        }
    }

    fn identities(stub: Stub, settings: &Settings) -> (Arc<Stub>, Arc<Identities>) {
        let stub = Arc::new(stub);
        (Arc::clone(&stub), Identities::new(stub, settings, Metrics::default()))
    }

    fn token(uid: &str, seconds: u64) -> String {
        token_in("ns", uid, seconds)
    }

    fn token_in(namespace: &str, uid: &str, seconds: u64) -> String {
        let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds;
        let mut claims = sample(uid, exp);
        claims["kubernetes.io"]["namespace"] = namespace.into();
        signed(&claims)
    }

    impl Identities {
        async fn of(self: &Arc<Self>, token: &str, address: IpAddr) -> Verdict {
            let claims = Claims::read(token, SystemTime::UNIX_EPOCH).unwrap();
            self.caller(token, &claims, address.into()).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_is_kept_until_the_tokens_own_end_or_the_pods() {
        let (stub, identities) = identities(Stub::default(), &Settings::default());
        let token = token("u", 300);
        for _ in 0..3 {
            assert_eq!(identities.of(&token, ONE).await.unwrap().caller.uid.as_str(), "u");
        }
        assert_eq!(stub.asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_secs(301)).await;
        identities.of(&token, ONE).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
        identities.forget(&PodUid::new("u").unwrap());
        identities.of(&token, ONE).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 3);
        assert_eq!(identities.lock().reviews.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_token_is_kept_longer_than_ten_minutes_and_an_expired_one_not_at_all() {
        let (stub, identities) = identities(Stub::default(), &Settings::default());
        let long = token("u", 100_000);
        let until = identities.of(&long, ONE).await.unwrap().until;
        assert_eq!(until.duration_since(Instant::now()).as_secs(), 600);
        tokio::time::advance(Duration::from_secs(601)).await;
        identities.of(&long, ONE).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
        let over = token("v", 0);
        identities.of(&over, ONE).await.unwrap();
        identities.of(&over, ONE).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_kept_for_seconds_and_an_outage_not_at_all() {
        let (stub, identities) = identities(Stub::default(), &Settings::default());
        let (bad, down) = (token("bad.x", 600), token("down.x", 600));
        for _ in 0..3 {
            assert!(matches!(identities.of(&bad, ONE).await, Err(ReviewError::Refused("no"))));
        }
        assert_eq!(stub.asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(identities.of(&bad, ONE).await.is_err());
        assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
        for _ in 0..2 {
            assert!(matches!(identities.of(&down, ONE).await, Err(ReviewError::Unavailable(_))));
        }
        assert_eq!(stub.asked.load(Ordering::SeqCst), 4);
        for n in 0..2 * REFUSALS {
            assert!(identities.of(&token(&format!("bad.{n}"), 600), ONE).await.is_err());
        }
        assert!(identities.lock().refused.len() <= REFUSALS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_names_another_pod_or_service_account_than_the_token_is_refused() {
        let (_, identities) = identities(Stub::default(), &Settings::default());
        for which in ["lies", "aged"] {
            assert!(matches!(identities.of(&token(which, 600), ONE).await, Err(ReviewError::Refused(_))), "{which}");
        }
        assert_eq!(identities.known(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_are_made_at_once_a_quarter_for_one_address_and_a_half_for_one_namespace() {
        for (addresses, namespaces, most) in [(1, 8, 13), (8, 1, 25), (8, 8, 50)] {
            let (stub, identities) = identities(Stub::default(), &Settings::default());
            let tokens: Vec<(u8, String)> = (0..200_u8)
                .map(|n| (n % addresses, token_in(&format!("ns{}", n % namespaces), &format!("u{n}"), 600)))
                .collect();
            let calls = tokens.iter().chain(&tokens);
            let calls = calls.map(|(host, token)| identities.of(token, IpAddr::from([10, 0, 0, *host])));
            assert!(join_all(calls).await.iter().all(Result::is_ok));
            assert_eq!(stub.asked.load(Ordering::SeqCst), 200, "one review for each token");
            assert_eq!(stub.most.load(Ordering::SeqCst), most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_nobody_can_review_keep_only_their_own_address_waiting() {
        let stub = Stub { hangs: Some("false"), ..Stub::default() };
        let (_, identities) = identities(stub, &Settings::default());
        let hostile: Vec<String> = (0..100).map(|n| token(&format!("false.{n}"), 600)).collect();
        let hostile = join_all(hostile.iter().map(|token| identities.of(token, ONE)));
        let other = async {
            tokio::task::yield_now().await;
            // Of the same namespace.
            identities.of(&token("u", 600), IpAddr::from([10, 0, 0, 2])).await
        };
        tokio::select! {
            biased;
            _ = hostile => panic!("they were answered first"),
            other = other => assert_eq!(other.unwrap().caller.uid.as_str(), "u"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_reviewed_from_everywhere_leaves_half_to_others() {
        let stub = Stub { hangs: Some("false"), ..Stub::default() };
        let (_, identities) = identities(stub, &Settings::default());
        let hostile: Vec<(u8, String)> = (0..200).map(|n| (n, token(&format!("false.{n}"), 600))).collect();
        let hostile = hostile.iter().map(|(host, token)| identities.of(token, IpAddr::from([10, 0, 0, *host])));
        let other = async {
            tokio::task::yield_now().await;
            identities.of(&token_in("other", "u", 600), ONE).await
        };
        tokio::select! {
            biased;
            _ = join_all(hostile) => panic!("they were answered first"),
            other = other => assert_eq!(other.unwrap().caller.uid.as_str(), "u"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_nobody_waits_for_is_dropped_and_one_that_somebody_waits_for_is_not() {
        let stub = Stub { hangs: Some("slow"), ..Stub::default() };
        let (stub, identities) = identities(stub, &Settings::default());
        let tokens: Vec<String> = (0..200).map(|n| token(&format!("slow.{n}"), 600)).collect();
        let mut waiting: Vec<_> = tokens.iter().map(|token| Box::pin(identities.of(token, ONE))).collect();
        let mut second = Box::pin(identities.of(&tokens[0], ONE));
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(stub.at_once.load(Ordering::SeqCst), 13);
        assert_eq!(identities.lock().reviews.len(), 200);
        drop(waiting);
        assert_eq!((stub.at_once.load(Ordering::SeqCst), identities.lock().reviews.len()), (1, 1));
        drop(second);
        assert_eq!((stub.at_once.load(Ordering::SeqCst), identities.lock().reviews.len()), (0, 0));
        let asked = stub.asked.load(Ordering::SeqCst);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(stub.asked.load(Ordering::SeqCst), asked, "none goes on in the background");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reviewer_that_hangs_is_an_outage() {
        let stub = Stub { hangs: Some("u"), ..Stub::default() };
        let (_, identities) = identities(stub, &Settings::default());
        assert!(matches!(identities.of(&token("u", 600), ONE).await, Err(ReviewError::Unavailable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_tokens_is_bounded() {
        let settings = Settings { tokens: 10, ..Settings::default() };
        let (_, identities) = identities(Stub::default(), &settings);
        for n in 0..30 {
            identities.of(&token(&format!("u{n}"), 600), ONE).await.unwrap();
        }
        assert_eq!(identities.known(), 10);
        assert_eq!(identities.lock().by_uid.len(), 10);
    }
}
