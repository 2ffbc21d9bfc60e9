//! Pods that the index does not have, or no more.

use super::*;

/// What a request of a pod gets that the index does not have, or no more, and after how many seconds.
async fn answer_to(uid: &str) -> (Refusal, u64) {
    let fixture = Fixture::new();
    let started = Instant::now();
    if uid == "gone" {
        fixture.index.put_pod(pod("gone", &["shop"]));
        fixture.index.remove_pod(&PodKey::new("ns", "web"));
    }
    let answer = fixture.hub.await_pod(&PodKey::new("ns", "web"), &PodUid::new(uid).unwrap()).await;
    (answer.err().unwrap(), started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_there_is_waited_for_and_one_that_is_gone_is_refused() {
    let fixture = Fixture::new();
    assert!(matches!(answer_to("new").await, (Refusal::Unavailable(_), 5)));
    assert!(matches!(answer_to("gone").await, (Refusal::Unauthorized(_), 0)));

    let (key, uid) = (PodKey::new("ns", "web"), PodUid::new("new").unwrap());
    let found = fixture.hub.await_pod(&key, &uid);
    tokio::pin!(found);
    assert!(found.as_mut().now_or_never().is_none());
    fixture.index.put_pod(pod("new", &["shop"]));
    assert_eq!(found.await.unwrap().state.uid.as_str(), "new");
    fixture.index.put_pod(PodState { finished: true, ..pod("new", &["shop"]) });
    assert!(matches!(fixture.hub.await_pod(&key, &uid).await, Err(Refusal::Unauthorized(_))));
    fixture.index.set_enabled([].into());
    assert!(matches!(fixture.hub.await_pod(&key, &uid).await, Err(Refusal::NotEnabled(_))));
}

#[tokio::test(start_paused = true)]
async fn a_poll_ends_with_its_pod_and_before_the_review_of_its_token_does() {
    let fixture = Fixture::with_one();
    let head = fixture.head(PollRequest::default()).await;
    let started = Instant::now();
    let session = Session { until: started + Duration::from_secs(40), ..session("u") };
    let (reply, _) = fixture.hub.poll_result(&session, after(&head), &mut Repeats::default()).await;
    assert_eq!((reply.status, started.elapsed().as_secs()), (StatusCode::NO_CONTENT, 40));

    let mut repeats = Repeats::default();
    let poll = fixture.hub.poll_result(&session, after(&head), &mut repeats);
    let (reply, _) = poll.await;
    assert_eq!(reply.status, StatusCode::NO_CONTENT, "at once");
    let hub = Arc::clone(&fixture.hub);
    let poll = async move { hub.poll_result(&super::session("u"), after(&head), &mut Repeats::default()).await };
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    fixture.index.remove_pod(&PodKey::new("ns", "web"));
    assert_eq!(poll.await.0.status, StatusCode::UNAUTHORIZED);
}
