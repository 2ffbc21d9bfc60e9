//! Pods that the index does not have, or no more.

use super::*;

/// Status and seconds of a poll by a pod that the index does not have, or no more.
async fn answer_to(uid: &str) -> (StatusCode, u64) {
    let fixture = Fixture::new();
    let started = Instant::now();
    if uid == "gone" {
        fixture.index.put_pod(pod("gone", &["shop"]));
        fixture.index.remove_pod(&PodKey::new("ns", "web"));
    }
    let (reply, _) = fixture.hub.poll_result(&caller(uid), PollRequest::default(), &mut Repeats::default()).await;
    (reply.status, started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_there_is_waited_for_and_one_that_is_gone_is_refused() {
    let fixture = Fixture::new();
    assert_eq!(answer_to("new").await, (StatusCode::SERVICE_UNAVAILABLE, 5));
    assert_eq!(answer_to("gone").await, (StatusCode::UNAUTHORIZED, 0));

    let caller = caller("new");
    let poll = fixture.hub.pod(&caller);
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    fixture.index.put_pod(pod("new", &["shop"]));
    assert_eq!(poll.await.unwrap().state.uid.as_str(), "new");
    fixture.index.put_pod(PodState { finished: true, ..pod("new", &["shop"]) });
    assert!(matches!(fixture.hub.pod(&caller).await, Err(Refusal::Unauthorized(_))));
    fixture.index.set_enabled([].into());
    assert!(matches!(fixture.hub.pod(&caller).await, Err(Refusal::NotEnabled(_))));
}
