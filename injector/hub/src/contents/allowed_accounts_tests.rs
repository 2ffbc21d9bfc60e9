//! Pods whose service account a config does not list.

use nudge_core::pods::{PodState, UpdateMode};
use nudge_protocol::hub::HubReason;

use crate::fixtures::*;

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_service_account_gets_nothing_but_the_reason() {
    let mut fixture = Fixture::with_one();
    fixture.admit("shop", &["worker"]);
    let head = fixture.head(PollRequest::default()).await;
    let config = &head.configs[0];
    let problem = config.problem.as_ref().unwrap();
    assert_eq!(problem.reason, HubReason::NotAllowed);
    assert!(problem.message.contains("does not admit the service account app"), "{}", problem.message);
    assert_eq!((&config.version, &config.sha256, config.length), (&None, &None, None));
    assert_eq!(fixture.stored.reads.load(Ordering::SeqCst), 0, "its content is not even read");

    // The poll is held until the account is admitted, and then answered.
    let (hub, request) = (Arc::clone(&fixture.hub), after(&head));
    let poll = async move { hub.polling.poll(&session("u"), request, &mut ConnectionPolls::default()).await };
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    fixture.admit("shop", &["worker", "app"]);
    let (reply, _) = poll.await;
    assert_eq!(reply.status, StatusCode::OK);
    let head = fixture.head(PollRequest::default()).await;
    assert!(head.configs[0].length.is_some());

    // The config is withheld as soon as the account is no longer admitted.
    fixture.admit("shop", &[]);
    let head = fixture.head(PollRequest { configs: Vec::new(), ..after(&head) }).await;
    assert!(head.configs[0].length.is_none() && head.configs[0].version.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_keeps_what_it_was_born_with_is_not_admitted_by_that() {
    let mut fixture = Fixture::with_one();
    fixture.index.put_pod(PodState { update_mode: UpdateMode::ByRestart, ..pod("u", &["shop"]) });
    let head = fixture.head(PollRequest::default()).await;
    fixture.admit("shop", &["worker"]);
    let head = fixture.head(after(&head)).await;
    assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, HubReason::NotAllowed);
}
