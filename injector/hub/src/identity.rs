//! Which pod a request comes from: by a token review, which is remembered as long as it is good.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nudge_core::keys::PodUid;
use nudge_server::shares::Shares;
use nudge_server::slots::Peer;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use super::flight::Flight;
use super::metrics::{Metrics, ReviewResult};
use super::review::{Caller, ReviewError, Reviewer};
use super::settings::Settings;
use super::token::{self, TokenHash};

/// Longest token, in bytes: more than a request's head holds.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Refusals that are remembered.
const REFUSALS: usize = 1024;

type Verdict = Result<Arc<Caller>, ReviewError>;

struct Known {
    caller: Arc<Caller>,
    until: Instant,
}

#[derive(Default)]
struct Inner {
    accepted: HashMap<TokenHash, Known>,
    by_uid: HashMap<PodUid, Vec<TokenHash>>,
    refused: HashMap<TokenHash, (&'static str, Instant)>,
    flights: HashMap<TokenHash, Flight<Verdict>>,
}

/// The pods of the tokens that were reviewed.
pub(super) struct Identities {
    reviewer: Arc<dyn Reviewer>,
    slots: Shares,
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
            slots: Shares::new(settings.reviews, 1),
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

    /// The pod that `token` belongs to, which `peer` has sent.
    pub(super) async fn caller(self: &Arc<Self>, token: &str, peer: Peer) -> Verdict {
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Err(ReviewError::Refused(
                "the token is empty or too long; send the one that is mounted into the agent's container",
            ));
        }
        let hash = token::hash(token);
        let mut flight = {
            let mut inner = self.lock();
            let now = Instant::now();
            if let Some(known) = inner.accepted.get(&hash) {
                if known.until > now {
                    return Ok(Arc::clone(&known.caller));
                }
                inner.forget(&hash);
            }
            if let Some((message, until)) = inner.refused.get(&hash) {
                if *until > now {
                    return Err(ReviewError::Refused(message));
                }
                inner.refused.remove(&hash);
            }
            let start = || Flight::start(Arc::clone(self).look_up(hash, Zeroizing::new(token.to_owned()), peer));
            inner.flights.entry(hash).or_insert_with(start).clone()
        };
        match flight.landed().await {
            Some(verdict) => verdict,
            None => Err(unavailable("the review panicked")),
        }
    }

    /// One review, whose result is kept.
    async fn look_up(self: Arc<Self>, hash: TokenHash, token: Zeroizing<String>, peer: Peer) -> Verdict {
        let _landed = Landed { identities: Arc::clone(&self), hash };
        let reviewed = async {
            let _slot = timeout(self.turn, self.slots.take(peer, 1)).await?;
            timeout(self.review, self.reviewer.review(&token)).await
        };
        let verdict = match reviewed.await {
            Ok(Ok(caller)) => Ok(Arc::new(caller)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(unavailable("no answer in time")),
        };
        match &verdict {
            Ok(caller) => {
                self.metrics.reviewed(ReviewResult::Accepted);
                let life = life(token::expiry(&token), SystemTime::now()).min(self.accepted);
                self.lock().remember(hash, Arc::clone(caller), Instant::now() + life, self.tokens);
            }
            Err(ReviewError::Refused(message)) => {
                self.metrics.reviewed(ReviewResult::Refused);
                let mut inner = self.lock();
                if inner.refused.len() >= REFUSALS {
                    inner.refused.clear();
                }
                inner.refused.insert(hash, (message, Instant::now() + self.refusal));
            }
            Err(ReviewError::Unavailable(_)) => self.metrics.reviewed(ReviewResult::Unavailable),
        }
        verdict
    }

    /// Has the tokens of the pod reviewed anew: it is terminating, gone, or not what its token says.
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

    fn remember(&mut self, hash: TokenHash, caller: Arc<Caller>, until: Instant, bound: usize) {
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
        let hashes = self.by_uid.entry(caller.uid.clone()).or_default();
        // An agent reads its token again every few minutes, and the old one is not used any more.
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
        self.accepted.insert(hash, Known { caller, until });
    }
}

/// Ends the flight also when the review panics.
struct Landed {
    identities: Arc<Identities>,
    hash: TokenHash,
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.identities.lock().flights.remove(&self.hash);
    }
}

/// How long an accepted token is good; a minute where it does not say so itself.
fn life(expiry: Option<u64>, now: SystemTime) -> Duration {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    match expiry {
        Some(expiry) => Duration::from_secs(expiry).saturating_sub(now),
        None => Duration::from_mins(1),
    }
}

fn unavailable(why: &'static str) -> ReviewError {
    ReviewError::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(why)))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use base64::Engine as _;
    use futures::future::BoxFuture;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[derive(Default)]
    struct Stub {
        asked: AtomicUsize,
        at_once: AtomicUsize,
        most: AtomicUsize,
        hangs: Option<&'static str>,
    }

    impl Reviewer for Stub {
        fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, ReviewError>> {
            Box::pin(async move {
                self.asked.fetch_add(1, Ordering::SeqCst);
                let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
                if self.hangs.is_some_and(|which| token.starts_with(which)) {
                    std::future::pending::<()>().await;
                }
                tokio::task::yield_now().await;
                self.at_once.fetch_sub(1, Ordering::SeqCst);
                match token.split('.').next() {
                    Some("bad") => Err(ReviewError::Refused("no")),
                    Some("down") => Err(unavailable("down")),
                    Some(uid) => {
                        Ok(Caller { namespace: "ns".into(), name: "web".into(), uid: PodUid::new(uid).unwrap() })
                    }
                    None => unreachable!(),
                }
            })
        }
    }

    fn identities(stub: Stub, settings: &Settings) -> (Arc<Stub>, Arc<Identities>) {
        let stub = Arc::new(stub);
        (Arc::clone(&stub), Identities::new(stub, settings, Metrics::default()))
    }

    fn token(uid: &str, seconds: u64) -> String {
        let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds;
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{exp}}}"#));
        format!("{uid}.{payload}.sig")
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_is_kept_until_the_tokens_own_end() {
        let (stub, identities) = identities(Stub::default(), &Settings::default());
        let token = token("u", 600);
        for _ in 0..3 {
            assert_eq!(identities.caller(&token, ONE.into()).await.unwrap().uid.as_str(), "u");
        }
        assert_eq!(stub.asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_secs(601)).await;
        identities.caller(&token, ONE.into()).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
        identities.forget(&PodUid::new("u").unwrap());
        identities.caller(&token, ONE.into()).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 3);
        assert_eq!(identities.lock().flights.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_token_is_kept_longer_than_an_hour_and_an_expired_one_not_at_all() {
        let (stub, identities) = identities(Stub::default(), &Settings::default());
        let long = token("u", 100_000);
        identities.caller(&long, ONE.into()).await.unwrap();
        tokio::time::advance(Duration::from_secs(3601)).await;
        identities.caller(&long, ONE.into()).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
        let over = token("v", 0);
        identities.caller(&over, ONE.into()).await.unwrap();
        identities.caller(&over, ONE.into()).await.unwrap();
        assert_eq!(stub.asked.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_kept_for_seconds_and_an_outage_not_at_all() {
        let (stub, identities) = identities(Stub::default(), &Settings::default());
        for _ in 0..3 {
            assert!(matches!(identities.caller("bad.x", ONE.into()).await, Err(ReviewError::Refused("no"))));
        }
        assert_eq!(stub.asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(identities.caller("bad.x", ONE.into()).await.is_err());
        assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
        for _ in 0..2 {
            assert!(matches!(identities.caller("down.x", ONE.into()).await, Err(ReviewError::Unavailable(_))));
        }
        assert_eq!(stub.asked.load(Ordering::SeqCst), 4);
        for n in 0..2 * REFUSALS {
            assert!(identities.caller(&format!("bad.{n}"), ONE.into()).await.is_err());
        }
        assert!(identities.lock().refused.len() <= REFUSALS);
    }

    #[tokio::test(start_paused = true)]
    async fn many_at_once_make_one_review_each_and_fifty_at_the_same_time_a_quarter_for_one_address() {
        for (addresses, most) in [(1, 13), (8, 50)] {
            let (stub, identities) = identities(Stub::default(), &Settings::default());
            let tokens: Vec<(usize, String)> =
                (0..200).map(|n| (n % addresses, token(&format!("u{n}"), 600))).collect();
            let peers: Vec<Peer> = (0..8).map(|host| IpAddr::from([10, 0, 0, host]).into()).collect();
            let calls = tokens.iter().chain(&tokens).map(|(address, token)| identities.caller(token, peers[*address]));
            assert!(futures::future::join_all(calls).await.iter().all(Result::is_ok));
            assert_eq!(stub.asked.load(Ordering::SeqCst), 200);
            assert_eq!(stub.most.load(Ordering::SeqCst), most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_nobody_can_review_keep_only_their_own_address_waiting() {
        let stub = Stub { hangs: Some("false"), ..Stub::default() };
        let (_, identities) = identities(stub, &Settings::default());
        let hostile: Vec<String> = (0..100).map(|n| format!("false.{n}")).collect();
        let hostile = futures::future::join_all(hostile.iter().map(|token| identities.caller(token, ONE.into())));
        let other = async {
            tokio::task::yield_now().await;
            identities.caller(&token("u", 600), IpAddr::from([10, 0, 0, 2]).into()).await
        };
        tokio::select! {
            biased;
            _ = hostile => panic!("they were answered first"),
            other = other => assert_eq!(other.unwrap().uid.as_str(), "u"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reviewer_that_hangs_is_an_outage() {
        let stub = Stub { hangs: Some("u"), ..Stub::default() };
        let (_, identities) = identities(stub, &Settings::default());
        assert!(matches!(identities.caller("u.x", ONE.into()).await, Err(ReviewError::Unavailable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_tokens_is_bounded() {
        let settings = Settings { tokens: 10, ..Settings::default() };
        let (_, identities) = identities(Stub::default(), &settings);
        for n in 0..30 {
            identities.caller(&token(&format!("u{n}"), 600), ONE.into()).await.unwrap();
        }
        assert_eq!(identities.known(), 10);
        assert_eq!(identities.lock().by_uid.len(), 10);
    }
}
