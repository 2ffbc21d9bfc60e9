//! Answers to polls for versions that are missing, late, or secret.

use crate::contents::fixtures::LATE;
use crate::fixtures::*;

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_a_problem_and_comes_when_it_is_there() {
    let mut fixture = Fixture::new();
    let head = fixture.head(PollRequest::default()).await;
    assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, nudge_protocol::hub::HubReason::NotFound);
    fixture.put("shop", 0, None);
    let head = fixture.head(after(&head)).await;
    assert!(head.configs[0].problem.as_ref().unwrap().message.contains("no current version yet"));
    let one = fixture.stored.add("1", b"x");
    fixture.put("shop", 1, Some(&one));
    assert!(fixture.head(after(&head)).await.configs[0].problem.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_content_that_is_slow_is_reported_and_comes_later() {
    let mut fixture = Fixture::new();
    let one = fixture.stored.add("1", b"x");
    fixture.stored.failures.store(12, Ordering::SeqCst);
    fixture.put("shop", 1, Some(&one));
    let started = Instant::now();
    let head = fixture.head(PollRequest::default()).await;
    assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, nudge_protocol::hub::HubReason::Resolving);
    assert_eq!(started.elapsed().as_secs(), 10);
    let mut request = after(&head);
    while request.configs[0].problem.is_some() {
        request = after(&fixture.head(request).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_was_answered_without_a_content_is_woken_by_it() {
    let mut fixture = Fixture::new();
    fixture.index.put_pod(pod("u", &["late", "shop"]));
    let one = fixture.stored.add("1", b"x");
    // That of `late` stays away, and the other one comes.
    let mut late = fixture.stored.add("2", b"y");
    late.parts[0].name = LATE.to_owned();
    fixture.stored.failures.store(usize::MAX, Ordering::SeqCst);
    fixture.put("late", 1, Some(&late));
    fixture.put("shop", 1, Some(&one));
    let head = fixture.head(PollRequest::default()).await;
    let mut poll = Box::pin(fixture.head(after(&head)));
    assert!(poll.as_mut().now_or_never().is_none());
    // Nothing is worth an answer any more but a content.
    let _ = tokio::time::timeout(Duration::from_secs(30), poll.as_mut()).await.unwrap_err();
    fixture.stored.failures.store(0, Ordering::SeqCst);
    let head = tokio::time::timeout(Duration::from_secs(15), poll).await.expect("it is woken");
    let problem = |at: usize| head.configs[at].problem.as_ref().map(|problem| problem.reason);
    assert_eq!((problem(0), problem(1)), (Some(nudge_protocol::hub::HubReason::Resolving), None));
}

#[tokio::test(start_paused = true)]
async fn secret_parts_are_served_where_they_are_allowed() {
    let mut fixture = Fixture::new();
    let (sealed, stored) =
        crate::contents::fixtures::part(nudge_api::PartKind::Secret, "pin", 1, &[("k", b"0".to_vec())]);
    fixture.stored.objects.lock().insert("pin".to_owned(), (stored.uid, stored.contents));
    let version = crate::contents::fixtures::sealed("1", vec![sealed]);
    fixture.put("shop", 1, Some(&version));
    let head = fixture.head(PollRequest::default()).await;
    assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, nudge_protocol::hub::HubReason::NotAllowed);
    assert_eq!(fixture.stored.reads.load(Ordering::SeqCst), 0);
    fixture.index.show_secrets("ns");
    let head = fixture.head(after(&head)).await;
    assert!(head.configs[0].length.is_some());
    fixture.index.forget_secrets("ns");
    let head = fixture.head(PollRequest { configs: Vec::new(), ..after(&head) }).await;
    assert!(head.configs[0].length.is_none(), "also when it was read before");
}
