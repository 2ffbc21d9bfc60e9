//! Pods that the index does not have, or no more.

use super::*;

/// Status and seconds of a poll by a pod that the index does not have, or no more.
async fn answer_to(uid: &str) -> (StatusCode, u64) {
    let scene = Scene::new();
    let started = Instant::now();
    if uid == "gone" {
        scene.index.put_pod(pod("gone", &["shop"]));
        scene.index.remove_pod(&PodKey::new("ns", "web"));
    }
    let (reply, _) = scene.hub.poll_result(&caller(uid), PollRequest::default(), &mut Repeats::default()).await;
    (reply.status, started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_there_is_waited_for_and_one_that_is_gone_is_refused() {
    let scene = Scene::new();
    assert_eq!(answer_to("new").await, (StatusCode::SERVICE_UNAVAILABLE, 5));
    assert_eq!(answer_to("gone").await, (StatusCode::UNAUTHORIZED, 0));

    let caller = caller("new");
    let poll = scene.hub.pod(&caller);
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    scene.index.put_pod(pod("new", &["shop"]));
    assert_eq!(poll.await.unwrap().state.uid.as_str(), "new");
    scene.index.put_pod(PodState { finished: true, ..pod("new", &["shop"]) });
    assert!(matches!(scene.hub.pod(&caller).await, Err(Refusal::Unauthorized(_))));
    scene.index.set_enabled([].into());
    assert!(matches!(scene.hub.pod(&caller).await, Err(Refusal::NotEnabled(_))));
}
