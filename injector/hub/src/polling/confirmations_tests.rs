//! Replicas that are behind etcd, and agents that come to them from other replicas.

use tokio::time::advance;

use crate::fixtures::*;

fn shop() -> ConfigKey {
    ConfigKey::parse("ns", "shop").unwrap()
}

/// The watch of this replica shows version 2 at revision 2. That version was bad: etcd has version 1 again, at revision
/// 3. Another replica knew of both, but sent the agent nothing, since the pod was never assigned version 2. Returns the
/// agent's poll of this replica.
async fn misses_a_return() -> (Fixture, PollRequest, VersionedConfig) {
    let mut fixture = Fixture::with_one();
    let held = after(&fixture.head(PollRequest::default()).await);
    let (two, one) = (fixture.stored.add("2", b"y"), fixture.stored.add("1", b"x"));
    fixture.put("shop", 2, Some(&two));
    let now = fixture.made("shop", 3, Some(&one));
    // A confirmation from before the agent came proves nothing.
    advance(Duration::from_secs(1)).await;
    (fixture, held, now)
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_from_another_replica_is_not_given_what_was_taken_back() {
    let (fixture, held, now) = misses_a_return().await;
    fixture.etcd.stores(Stores::This(Box::new(now)));
    let poll = fixture.poll(held);
    // The read has brought the change that the watch missed. So the poll is held, and its end brings the agent
    // the revision.
    let (reply, result) = poll.await;
    assert_eq!((reply.status, result), (StatusCode::OK, PollResult::Unchanged));
    let config = &head_of(reply).configs[0];
    assert_eq!((config.revision, config.version.as_ref().unwrap().as_str(), config.length), (3, "1", None));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_ask_etcd_gives_nothing_new_to_who_comes() {
    let (fixture, held, _) = misses_a_return().await;
    fixture.etcd.stores(Stores::Silence);
    let started = Instant::now();
    let (reply, result) = fixture.poll(held).await;
    assert_eq!((reply.status, result), (StatusCode::SERVICE_UNAVAILABLE, PollResult::Behind));
    assert_eq!(started.elapsed(), Settings::default().behind_timeout);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_given_a_config_that_was_deleted() {
    let (fixture, ..) = misses_a_return().await;
    fixture.etcd.stores(Stores::Nothing);
    let (_, result) = fixture.poll(PollRequest::default()).await;
    assert_eq!(result, PollResult::Behind, "only the watch knows whether it is there again");
    fixture.index.remove_config(&shop());
    assert_eq!(fixture.head(PollRequest::default()).await.configs[0].version, None);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_behind_the_agent_catches_up_by_its_read() {
    let (fixture, mut held, now) = misses_a_return().await;
    fixture.etcd.stores(Stores::This(Box::new(now)));
    held.configs[0].revision = 3;
    held.configs[0].version = None;
    assert_eq!(fixture.head(held).await.configs[0].revision, 3);
}

#[tokio::test(start_paused = true)]
async fn one_read_is_enough_for_all_who_came_before_it() {
    let mut fixture = Fixture::with_one();
    let held = after(&fixture.head(PollRequest::default()).await);
    let reads = || fixture.etcd.reads.load(Ordering::Relaxed);
    assert_eq!(reads(), 1);
    advance(Duration::from_secs(1)).await;
    let sessions: Vec<Session> = (0..2).map(|_| session("u")).collect();
    let mut polls: Vec<_> = sessions
        .iter()
        .map(|session| {
            let (hub, held) = (Arc::clone(&fixture.hub), held.clone());
            Box::pin(async move { hub.polling.poll(session, held, &mut ConnectionPolls::default()).await })
        })
        .collect();
    assert!(polls.iter_mut().all(|poll| poll.as_mut().now_or_never().is_none()));
    let two = fixture.stored.add("2", b"y");
    let config = fixture.made("shop", 2, Some(&two));
    fixture.index.put_config(config);
    for (_, result) in futures::future::join_all(polls).await {
        assert_eq!(result, PollResult::Changed);
    }
    assert_eq!(fixture.etcd.reads.load(Ordering::Relaxed), 2);
    // Over a connection that was there when it began, nothing is to be read again.
    let one = fixture.stored.add("1", b"x");
    let config = fixture.made("shop", 3, Some(&one));
    fixture.index.put_config(config);
    let (_, result) =
        fixture.hub.polling.poll(&sessions[0], PollRequest::default(), &mut ConnectionPolls::default()).await;
    assert_eq!((result, fixture.etcd.reads.load(Ordering::Relaxed)), (PollResult::Changed, 2));
}

#[tokio::test(start_paused = true)]
async fn the_time_to_confirm_begins_anew_with_each_change() {
    let mut fixture = Fixture::with_one();
    fixture.index.put_pod(pod("u", &["shop", "keys"]));
    let one = fixture.stored.add("1", b"x");
    fixture.put("keys", 1, Some(&one));
    let held = after(&fixture.head(PollRequest::default()).await);
    advance(Duration::from_secs(1)).await;
    let (hub, polls) = (Arc::clone(&fixture.hub), &mut ConnectionPolls::default());
    let session = session("u");
    let poll = hub.polling.poll(&session, held, polls);
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    // The read of one config shows that nothing has changed for the pod.
    let two = fixture.stored.add("2", b"y");
    let returned = fixture.made("shop", 3, Some(&one));
    fixture.put("shop", 2, Some(&two));
    fixture.etcd.stores(Stores::This(Box::new(VersionedConfig {
        metadata: kube::api::ObjectMeta { resource_version: Some("99".to_owned()), ..returned.metadata.clone() },
        ..returned
    })));
    assert!(tokio::time::timeout(Duration::from_mins(1), &mut poll).await.is_err(), "it is held");
    // That of the other one takes a while.
    fixture.etcd.stores(Stores::Silence);
    fixture.put("keys", 2, Some(&two));
    let started = Instant::now();
    assert_eq!((poll.await.1, started.elapsed()), (PollResult::Behind, Settings::default().behind_timeout));
}

#[tokio::test(start_paused = true)]
async fn a_step_of_others_is_no_answer_and_its_revision_is_passed_on() {
    let mut fixture = Fixture::with_one();
    let held = after(&fixture.head(PollRequest::default()).await);
    let one = fixture.stored.add("1", b"x");
    for interrupted in [true, false] {
        let (hub, held) = (Arc::clone(&fixture.hub), held.clone());
        let (mut polls, started) = (ConnectionPolls::default(), Instant::now());
        let interrupt = Arc::clone(&polls.interrupt);
        let poll = async move { hub.polling.poll(&session("u"), held, &mut polls).await };
        tokio::pin!(poll);
        assert!(poll.as_mut().now_or_never().is_none());
        for revision in 2..100 {
            fixture.put("shop", revision, Some(&one));
            assert!(poll.as_mut().now_or_never().is_none());
        }
        if interrupted {
            interrupt.notify_one();
        }
        let (reply, result) = poll.await;
        assert_eq!(head_of(reply).configs[0].revision, 99);
        let expected = if interrupted { (PollResult::Interrupted, 0) } else { (PollResult::Unchanged, 300) };
        assert_eq!((result, started.elapsed().as_secs()), expected);
    }
}
