//! Pods and service accounts that the index does not have, or no more.

use nudge_core::pods::{PodPhase, PodState};
use nudge_server::slots::Peer;

use super::claims::Claims;
use crate::fixtures::*;

fn caller(uid: &str, account_uid: &str) -> Caller {
    Caller { account_uid: account_uid.to_owned(), ..caller_of(&pod(uid, &[])) }
}

/// Returns the answer to a request of a pod or a service account that the index does not have (any more), and the
/// seconds until the answer.
async fn answer_to(uid: &str, account_uid: &str) -> (PollRefusal, u64) {
    let fixture = Fixture::new();
    let started = Instant::now();
    if uid == "gone" {
        fixture.index.put_pod(pod("gone", &["shop"]));
        fixture.index.remove_pod(&PodKey::new("ns", "web"));
    }
    let answer = fixture.hub.authentication.wait_for_pod(&caller(uid, account_uid)).await;
    (answer.err().unwrap(), started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_there_is_waited_for_and_one_that_is_gone_is_refused() {
    let fixture = Fixture::new();
    assert!(matches!(answer_to("new", "s").await, (PollRefusal::Unavailable(_), 5)));
    assert!(matches!(answer_to("gone", "s").await, (PollRefusal::Unauthorized(_), 0)));

    let new = caller("new", "s");
    let found = fixture.hub.authentication.wait_for_pod(&new);
    tokio::pin!(found);
    assert!(found.as_mut().now_or_never().is_none());
    fixture.index.put_pod(pod("new", &["shop"]));
    assert_eq!(found.await.unwrap().state.uid.as_str(), "new");
    fixture.index.put_pod(PodState { phase: PodPhase::Finished, ..pod("new", &["shop"]) });
    assert!(matches!(fixture.hub.authentication.wait_for_pod(&new).await, Err(PollRefusal::Unauthorized(_))));
    fixture.index.set_enabled([].into());
    assert!(matches!(fixture.hub.authentication.wait_for_pod(&new).await, Err(PollRefusal::NotEnabled(_))));
}

#[tokio::test(start_paused = true)]
async fn a_poll_ends_with_its_pod_and_before_the_review_of_its_token_does() {
    let fixture = Fixture::with_one();
    let head = fixture.head(PollRequest::default()).await;
    let started = Instant::now();
    let session = Session { until: started + Duration::from_secs(40), ..session("u") };
    let (reply, _) = fixture.hub.polling.poll(&session, after(&head), &mut ConnectionPolls::default()).await;
    assert_eq!((reply.status, started.elapsed().as_secs()), (StatusCode::NO_CONTENT, 40));

    let mut polls = ConnectionPolls::default();
    let poll = fixture.hub.polling.poll(&session, after(&head), &mut polls);
    let (reply, _) = poll.await;
    assert_eq!((reply.status, started.elapsed().as_secs()), (StatusCode::NO_CONTENT, 40), "at once");
    let hub = Arc::clone(&fixture.hub);
    let poll = async move {
        hub.polling.poll(&crate::fixtures::session("u"), after(&head), &mut ConnectionPolls::default()).await
    };
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    fixture.index.remove_pod(&PodKey::new("ns", "web"));
    assert_eq!(poll.await.0.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_service_account_that_is_new_is_waited_for_and_one_that_is_gone_is_refused() {
    assert!(matches!(answer_to("u", "new").await, (PollRefusal::Unavailable(_), 5)));

    let fixture = Fixture::new();
    let (old, new) = (caller("u", "s"), caller("u", "new"));
    let found = fixture.hub.authentication.wait_for_pod(&new);
    tokio::pin!(found);
    assert!(found.as_mut().now_or_never().is_none());
    // Deleted and made again: the token of the old one counts no longer, and that of the new one does.
    fixture.index.put_account("ns", "app", "new");
    assert!(found.await.is_ok());
    let started = Instant::now();
    assert!(matches!(fixture.hub.authentication.wait_for_pod(&old).await, Err(PollRefusal::Unauthorized(_))));
    fixture.index.remove_account("ns", "app");
    assert!(matches!(fixture.hub.authentication.wait_for_pod(&new).await, Err(PollRefusal::Unauthorized(_))));
    assert!(started.elapsed().is_zero(), "at once");
}

#[tokio::test(start_paused = true)]
async fn polls_end_with_the_service_account_of_their_pods_and_those_of_others_are_held() {
    for again in [None, Some("new")] {
        let fixture = Fixture::with_one();
        let other = PodState { name: "other".to_owned(), service_account: "another".to_owned(), ..pod("v", &["shop"]) };
        fixture.index.put_account("ns", "another", "s");
        fixture.index.put_pod(other.clone());
        let head = fixture.head(PollRequest::default()).await;
        let hub = &fixture.hub;
        let (request, mut polls) = (after(&head), [ConnectionPolls::default(), ConnectionPolls::default()]);
        let (of_web, of_other) = (session("u"), session_of(&other));
        let [first, second] = &mut polls;
        let held = hub.polling.poll(&of_other, request.clone(), second);
        let poll = hub.polling.poll(&of_web, request, first);
        tokio::pin!(held, poll);
        assert!(held.as_mut().now_or_never().is_none() && poll.as_mut().now_or_never().is_none());
        let started = Instant::now();
        match again {
            Some(uid) => fixture.index.put_account("ns", "app", uid),
            None => fixture.index.remove_account("ns", "app"),
        }
        assert_eq!(poll.await.0.status, StatusCode::UNAUTHORIZED);
        assert!(started.elapsed().is_zero(), "at once");
        assert!(matches!(
            hub.conditions.take_report(&of_web, ReportRequest::default()).await,
            Err(PollRefusal::Unauthorized(_))
        ));
        assert!(held.now_or_never().is_none(), "nobody else notices");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_of_unknown_pods_leave_those_of_known_pods_and_of_other_addresses_alone() {
    let fixture = Fixture::new();
    let claims = |uid| {
        let token = super::claims::tests::token(&super::claims::tests::sample(uid, 1000));
        Claims::parse(&token, std::time::SystemTime::UNIX_EPOCH).unwrap()
    };
    let peer = |host: u8| Peer::from(std::net::IpAddr::from([10, 0, 0, host]));
    let (unknown, known) = (claims("new"), claims("u"));
    let forged = (0..1000).map(|_| fixture.hub.authentication.wait_in_queue(&unknown, peer(1)));
    let mut forged = Box::pin(tokio::task::unconstrained(futures::future::join_all(forged)));
    assert!(forged.as_mut().now_or_never().is_none());
    assert!(fixture.hub.authentication.waiting.take(peer(1), 1).now_or_never().is_none(), "its places are taken");
    let started = Instant::now();
    assert_eq!(fixture.hub.authentication.wait_in_queue(&known, peer(1)).await, Ok(()));
    let mut other = Box::pin(fixture.hub.authentication.wait_in_queue(&unknown, peer(2)));
    assert!(other.as_mut().now_or_never().is_none());
    fixture.index.put_pod(pod("new", &["shop"]));
    assert_eq!(other.await, Ok(()));
    assert!(started.elapsed().is_zero(), "at once");
    assert!(forged.await.iter().all(Result::is_ok), "a place that is free goes to the next");
}
