//! How long a poll is held, and how it ends.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nudge_api::RolloutStage;
use nudge_core::pods::{PodState, Readiness, UpdateMode};
use nudge_protocol::ConfigUid;

use crate::fixtures::*;

#[tokio::test(start_paused = true)]
async fn a_poll_is_held_until_another_version_is_assigned() {
    let mut fixture = Fixture::with_one();
    let head = fixture.head(PollRequest::default()).await;
    assert_eq!(head.configs[0].version.as_ref().unwrap().as_str(), "1");
    assert!(head.configs[0].length.is_some());

    let (hub, request) = (Arc::clone(&fixture.hub), after(&head));
    let poll = async move { hub.polling.poll(&session("u"), request, &mut ConnectionPolls::default()).await };
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    assert!(fixture.hub.is_connected(&session("u").caller.uid));
    let two = fixture.stored.add("2", b"y");
    fixture.put("shop", 2, Some(&two));
    let (reply, result) = poll.await;
    assert_eq!((reply.status, result), (StatusCode::OK, PollResult::Changed));
    assert!(!fixture.hub.is_connected(&session("u").caller.uid));
    let head = fixture.head(after(&head)).await;
    assert_eq!((head.configs[0].revision, head.configs[0].version.as_ref().unwrap().as_str()), (2, "2"));
}

#[tokio::test(start_paused = true)]
async fn nothing_new_is_answered_when_the_wait_is_over() {
    let fixture = Fixture::with_one();
    let head = fixture.head(PollRequest::default()).await;
    let started = Instant::now();
    let (reply, _) = fixture.poll(after(&head)).await;
    assert_eq!(reply.status, StatusCode::NO_CONTENT);
    assert_eq!(started.elapsed().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_replica_behind_the_agent_says_so_after_five_seconds_and_never_what_it_knows() {
    let mut fixture = Fixture::with_one();
    let mut ahead = after(&fixture.head(PollRequest::default()).await);
    ahead.configs[0].revision = 2;
    let started = Instant::now();
    let (reply, result) = fixture.poll(ahead.clone()).await;
    assert_eq!((reply.status, result), (StatusCode::SERVICE_UNAVAILABLE, PollResult::Behind));
    assert_eq!(started.elapsed().as_secs(), 5);
    // The replica catches up meanwhile.
    let hub = Arc::clone(&fixture.hub);
    let poll = async move { hub.polling.poll(&session("u"), ahead, &mut ConnectionPolls::default()).await };
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    let two = fixture.stored.add("2", b"y");
    fixture.put("shop", 3, Some(&two));
    assert_eq!(poll.await.1, PollResult::Changed);
}

#[tokio::test(start_paused = true)]
async fn another_uid_is_sent_when_it_is_confirmed() {
    let fixture = Fixture::with_one();
    let mut other = after(&fixture.head(PollRequest::default()).await);
    other.configs[0].uid = ConfigUid::new("another");
    other.configs[0].revision = 9;
    assert_eq!(fixture.head(other).await.configs[0].revision, 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_take_a_reply_gets_it_ever_more_seldom() {
    let fixture = Fixture::with_one();
    let (mut polls, started) = (ConnectionPolls::default(), Instant::now());
    let mut times = Vec::new();
    for _ in 0..5 {
        let request = PollRequest { wait_seconds: 300, ..PollRequest::default() };
        let (_, result) = fixture.hub.polling.poll(&session("u"), request, &mut polls).await;
        assert_eq!(result, PollResult::Changed);
        times.push(started.elapsed().as_secs());
    }
    assert_eq!(times, [0, 1, 3, 7, 15]);
}

#[tokio::test(start_paused = true)]
async fn a_third_poll_of_a_pod_ends_the_first() {
    let fixture = Fixture::with_one();
    let request = after(&fixture.head(PollRequest::default()).await);
    let poll = || Box::pin(fixture.poll(request.clone()));
    let (mut first, mut second) = (poll(), poll());
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    let mut third = poll();
    assert!(third.as_mut().now_or_never().is_none());
    assert_eq!(first.await.1, PollResult::Superseded);
    assert!(second.now_or_never().is_none() && third.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn agents_are_sent_away_one_after_the_other() {
    let fixture = Fixture::with_one();
    let request = after(&fixture.head(PollRequest::default()).await);
    let mut held: Vec<_> = (0..2).map(|_| Box::pin(fixture.poll(request.clone()))).collect();
    assert!(held.iter_mut().all(|poll| poll.as_mut().now_or_never().is_none()));
    fixture.hub.drain.begin();
    let started = Instant::now();
    for (reply, result) in futures::future::join_all(held).await {
        assert_eq!((reply.status, result), (StatusCode::SERVICE_UNAVAILABLE, PollResult::Draining));
        assert!(reply.close);
    }
    assert!(started.elapsed() <= Settings::default().drain_period);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_versions_by_restarts_keeps_what_it_was_born_with() {
    let mut fixture = Fixture::with_one();
    fixture.index.put_pod(PodState { update_mode: UpdateMode::ByRestart, ..pod("u", &["shop"]) });
    let born = after(&fixture.head(PollRequest::default()).await);
    let two = fixture.stored.add("2", b"y");
    fixture.put("shop", 2, Some(&two));
    let version = |head: &PollHead| head.configs[0].version.as_ref().unwrap().to_string();
    // The mounted copy counts, too, although no hub has sent it.
    let mut mounted = born.clone();
    (mounted.configs[0].uid, mounted.configs[0].revision) = (None, 0);
    for request in [born.clone(), mounted] {
        let head = head_of(fixture.poll(request).await.0);
        assert_eq!((version(&head).as_str(), head.configs[0].revision, head.configs[0].length), ("1", 2, None));
        let (reply, _) = fixture.poll(after(&head)).await;
        assert_eq!(reply.status, StatusCode::NO_CONTENT, "it is held");
    }
    let new = fixture.head(PollRequest::default()).await;
    assert_eq!((version(&new).as_str(), new.configs[0].length.is_some()), ("2", true), "another pod has nothing yet");
    fixture.index.put_pod(PodState { update_mode: UpdateMode::Live, ..pod("u", &["shop"]) });
    assert_eq!(version(&fixture.head(born).await), "2", "the annotation was taken away");
}

#[tokio::test(start_paused = true)]
async fn a_return_is_spread_by_the_clock_of_this_replica() {
    let mut fixture = Fixture::with_one();
    let healthy = PodState { readiness: Readiness::Ready, containers_ready: true, ..pod("u", &["shop", "keys"]) };
    fixture.index.put_pod(healthy);
    let one = fixture.stored.add("1", b"x");
    fixture.put("keys", 1, Some(&one));
    let held = after(&fixture.head(PollRequest::default()).await);
    // The clock of the leader is an hour ahead.
    let ahead = Timestamp::now().checked_add(SignedDuration::from_hours(1)).unwrap();
    let two = fixture.stored.add("2", b"y");
    let key = ConfigKey::parse("ns", "shop").unwrap();
    fixture.put("shop", 2, Some(&two));
    let mut config = (*fixture.index.config(&key).unwrap()).clone();
    let status = config.status.as_mut().unwrap();
    (status.rollout.stage, status.rollout.progress_time) = (Some(RolloutStage::RollingBack), Some(MicroTime(ahead)));
    status.internal.revision = 3;
    config.spec.rollout.rollback_spread_seconds = Some(30);
    fixture.writes += 1;
    config.metadata.resource_version = Some(fixture.writes.to_string());
    fixture.index.put_config(config.clone());
    let started = Instant::now();
    let mut poll = Box::pin(fixture.poll(held.clone()));
    assert!(poll.as_mut().now_or_never().is_none(), "it waits for its turn");
    // Changed counts of pods restart nothing.
    tokio::time::advance(Duration::from_millis(500)).await;
    config.metadata.resource_version = Some((fixture.writes + 1).to_string());
    config.status.as_mut().unwrap().pods.total = 7;
    fixture.index.put_config(config);
    assert_eq!(poll.await.1, PollResult::Changed);
    let waited = started.elapsed();
    assert!(waited > Duration::from_millis(500) && waited <= Duration::from_secs(30), "{waited:?}");
}
