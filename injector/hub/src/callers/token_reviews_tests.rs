//! The number of reviews per token, and how long their outcomes are kept.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use nudge_server::rates::Rate;

use super::*;
use crate::callers::claims::tests::{sample, token as signed};

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
            let claims = Claims::parse(token, SystemTime::UNIX_EPOCH).unwrap();
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
                Some("down") => Err(ReviewError::Unavailable(Arc::from(Box::from("down")))),
                Some("lies") => Ok(Caller { uid: PodUid::new("another").unwrap(), ..claims.caller }),
                Some("aged") => Ok(Caller { account_uid: "another".to_owned(), ..claims.caller }),
                _ => Ok(claims.caller),
            }
        })
    }
}

fn reviews(stub: Stub, settings: &Settings) -> (Arc<Stub>, Arc<TokenReviews>) {
    let stub = Arc::new(stub);
    (Arc::clone(&stub), TokenReviews::new(stub, &Arc::new(settings.clone()), Metrics::default()))
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

impl TokenReviews {
    async fn review_of(self: &Arc<Self>, token: &str, address: IpAddr) -> ReviewOutcome {
        let claims = Claims::parse(token, SystemTime::UNIX_EPOCH).unwrap();
        self.review(token, &claims, address.into()).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_is_kept_until_the_tokens_own_end_or_the_pods() {
    let (stub, reviews) = reviews(Stub::default(), &Settings::default());
    let token = token("u", 300);
    for _ in 0..3 {
        assert_eq!(reviews.review_of(&token, ONE).await.unwrap().caller.uid.as_str(), "u");
    }
    assert_eq!(stub.asked.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_secs(301)).await;
    reviews.review_of(&token, ONE).await.unwrap();
    assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
    reviews.forget(&PodUid::new("u").unwrap());
    reviews.review_of(&token, ONE).await.unwrap();
    assert_eq!(stub.asked.load(Ordering::SeqCst), 3);
    assert_eq!(reviews.outcomes.lock().running.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_token_is_kept_longer_than_ten_minutes_and_an_expired_one_not_at_all() {
    let (stub, reviews) = reviews(Stub::default(), &Settings::default());
    let long = token("u", 100_000);
    let until = reviews.review_of(&long, ONE).await.unwrap().until;
    assert_eq!(until.duration_since(Instant::now()).as_secs(), 600);
    tokio::time::advance(Duration::from_secs(601)).await;
    reviews.review_of(&long, ONE).await.unwrap();
    assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
    let over = token("v", 0);
    reviews.review_of(&over, ONE).await.unwrap();
    reviews.review_of(&over, ONE).await.unwrap();
    assert_eq!(stub.asked.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_kept_for_seconds_and_an_outage_not_at_all() {
    let (stub, reviews) = reviews(Stub::default(), &Settings::default());
    let (bad, down) = (token("bad.x", 600), token("down.x", 600));
    for _ in 0..3 {
        assert!(matches!(reviews.review_of(&bad, ONE).await, Err(ReviewError::Refused("no"))));
    }
    assert_eq!(stub.asked.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(reviews.review_of(&bad, ONE).await.is_err());
    assert_eq!(stub.asked.load(Ordering::SeqCst), 2);
    for _ in 0..2 {
        assert!(matches!(reviews.review_of(&down, ONE).await, Err(ReviewError::Unavailable(_))));
    }
    assert_eq!(stub.asked.load(Ordering::SeqCst), 4);
    for n in 0..2 * MAX_REFUSALS {
        assert!(reviews.review_of(&token(&format!("bad.{n}"), 600), ONE).await.is_err());
    }
    assert!(reviews.outcomes.lock().refused.len() <= MAX_REFUSALS);
}

#[tokio::test(start_paused = true)]
async fn a_review_that_names_another_pod_or_service_account_than_the_token_is_refused() {
    let (_, reviews) = reviews(Stub::default(), &Settings::default());
    for which in ["lies", "aged"] {
        assert!(matches!(reviews.review_of(&token(which, 600), ONE).await, Err(ReviewError::Refused(_))), "{which}");
    }
    assert_eq!(reviews.outcomes.lock().accepted.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn fifty_are_made_at_once_a_quarter_for_one_address_and_a_half_for_one_namespace() {
    for (addresses, namespaces, most) in [(1, 8, 13), (8, 1, 25), (8, 8, 50)] {
        let (stub, reviews) = reviews(Stub::default(), &Settings::default());
        let tokens: Vec<(u8, String)> = (0..200_u8)
            .map(|n| (n % addresses, token_in(&format!("ns{}", n % namespaces), &format!("u{n}"), 600)))
            .collect();
        let calls = tokens.iter().chain(&tokens);
        let calls = calls.map(|(host, token)| reviews.review_of(token, IpAddr::from([10, 0, 0, *host])));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
        assert_eq!(stub.asked.load(Ordering::SeqCst), 200, "one review for each token");
        assert_eq!(stub.most.load(Ordering::SeqCst), most);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_nobody_can_review_keep_only_their_own_address_waiting() {
    let stub = Stub { hangs: Some("false"), ..Stub::default() };
    let (_, reviews) = reviews(stub, &Settings::default());
    let hostile: Vec<String> = (0..100).map(|n| token(&format!("false.{n}"), 600)).collect();
    let hostile = join_all(hostile.iter().map(|token| reviews.review_of(token, ONE)));
    let other = async {
        tokio::task::yield_now().await;
        // Of the same namespace.
        reviews.review_of(&token("u", 600), IpAddr::from([10, 0, 0, 2])).await
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
    let (_, reviews) = reviews(stub, &Settings::default());
    let hostile: Vec<(u8, String)> = (0..200).map(|n| (n, token(&format!("false.{n}"), 600))).collect();
    let hostile = hostile.iter().map(|(host, token)| reviews.review_of(token, IpAddr::from([10, 0, 0, *host])));
    let other = async {
        tokio::task::yield_now().await;
        reviews.review_of(&token_in("other", "u", 600), ONE).await
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
    let (stub, reviews) = reviews(stub, &Settings::default());
    let tokens: Vec<String> = (0..200).map(|n| token(&format!("slow.{n}"), 600)).collect();
    let mut waiting: Vec<_> = tokens.iter().map(|token| Box::pin(reviews.review_of(token, ONE))).collect();
    let mut second = Box::pin(reviews.review_of(&tokens[0], ONE));
    for one in &mut waiting {
        assert!(one.now_or_never().is_none());
    }
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(stub.at_once.load(Ordering::SeqCst), 13);
    assert_eq!(reviews.outcomes.lock().running.len(), 200);
    drop(waiting);
    assert_eq!((stub.at_once.load(Ordering::SeqCst), reviews.outcomes.lock().running.len()), (1, 1));
    drop(second);
    assert_eq!((stub.at_once.load(Ordering::SeqCst), reviews.outcomes.lock().running.len()), (0, 0));
    let asked = stub.asked.load(Ordering::SeqCst);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(stub.asked.load(Ordering::SeqCst), asked, "none continues in the background");
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_that_hangs_is_an_outage() {
    let stub = Stub { hangs: Some("u"), ..Stub::default() };
    let (_, reviews) = reviews(stub, &Settings::default());
    assert!(matches!(reviews.review_of(&token("u", 600), ONE).await, Err(ReviewError::Unavailable(_))));
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_many_tokens_has_the_last_four_of_them_remembered() {
    let (stub, reviews) = reviews(Stub::default(), &Settings::default());
    let other = token("v", 600);
    reviews.review_of(&other, ONE).await.unwrap();
    let tokens: Vec<String> = (600..700).map(|seconds| token("u", seconds)).collect();
    for token in &tokens {
        reviews.review_of(token, ONE).await.unwrap();
    }
    let of_pod = reviews.outcomes.lock().by_uid[&PodUid::new("u").unwrap()].len();
    assert_eq!((reviews.outcomes.lock().accepted.len(), of_pod), (5, 4));
    let asked = stub.asked.load(Ordering::SeqCst);
    for token in tokens.iter().rev().take(4).chain([&other]) {
        reviews.review_of(token, ONE).await.unwrap();
    }
    assert_eq!(stub.asked.load(Ordering::SeqCst), asked);
}

#[tokio::test(start_paused = true)]
async fn an_address_has_a_rate_of_reviews_and_another_one_its_own() {
    let rate = Rate { per_second: 1, burst: 10 };
    let (stub, reviews) = reviews(Stub::default(), &Settings { review_rate: rate, ..Settings::default() });
    for number in 0..100 {
        let reviewed = reviews.review_of(&token(&format!("bad.{number}"), 600), ONE).await;
        assert!(matches!(reviewed, Err(ReviewError::Refused(_) | ReviewError::TooMany)));
    }
    assert_eq!(stub.asked.load(Ordering::SeqCst), 10);
    reviews.review_of(&token("u", 600), IpAddr::from([10, 0, 0, 2])).await.unwrap();
    assert_eq!(stub.asked.load(Ordering::SeqCst), 11);
}

#[tokio::test(start_paused = true)]
async fn a_review_without_a_turn_is_no_outage_of_the_api_server() {
    let settings = Settings { max_reviews: 1, review_timeout: Duration::from_hours(1), ..Settings::default() };
    let (_, reviews) = reviews(Stub { hangs: Some("slow"), ..Stub::default() }, &settings);
    let (slow, late) = (token("slow", 600), token("late", 600));
    let (slow, late) = (reviews.review_of(&slow, ONE), reviews.review_of(&late, ONE));
    tokio::pin!(slow);
    assert!(slow.as_mut().now_or_never().is_none());
    assert!(matches!(late.await, Err(ReviewError::TooMany)));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_tokens_is_bounded() {
    let settings = Settings { max_tokens: 10, ..Settings::default() };
    let (_, reviews) = reviews(Stub::default(), &settings);
    for n in 0..30 {
        reviews.review_of(&token(&format!("u{n}"), 600), ONE).await.unwrap();
    }
    assert_eq!(reviews.outcomes.lock().accepted.len(), 10);
    assert_eq!(reviews.outcomes.lock().by_uid.len(), 10);
}
