//! The lines of the audit trail about a pod.

use nudge_tests::log::lines;

use crate::fixtures::*;

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_again_over_and_over_has_one_line_in_ten_seconds_and_another_pod_its_own() {
    let fixture = Fixture::with_one();
    // Each as over a new connection.
    for _ in 0..1000 {
        fixture.head(PollRequest::default()).await;
    }
    assert_eq!(lines("version delivered").len(), 1);
    let other = PodState { name: "other".to_owned(), ..pod("v", &["shop"]) };
    fixture.index.put_pod(other.clone());
    let elsewhere = Session { from: origin([10, 0, 0, 2]), ..session("u") };
    for session in [session_of(&other), elsewhere] {
        fixture.hub.polling.poll(&session, PollRequest::default(), &mut ConnectionPolls::default()).await;
    }
    assert_eq!(lines("version delivered").len(), 3);
    tokio::time::advance(Duration::from_secs(11)).await;
    fixture.head(PollRequest::default()).await;
    assert!(lines("version delivered")[3].contains("left_out=999"));
}

#[tokio::test(start_paused = true)]
async fn each_config_that_is_withheld_has_a_line() {
    let mut fixture = Fixture::with_one();
    let one = fixture.stored.add("1", b"x");
    fixture.put("other", 1, Some(&one));
    fixture.index.put_pod(pod("u", &["shop", "other"]));
    fixture.admit("shop", &["worker"]);
    fixture.admit("other", &["worker"]);
    for _ in 0..10 {
        fixture.head(PollRequest::default()).await;
    }
    let lines = lines("config withheld");
    assert!(
        lines.len() == 2 && lines[0].contains("config=\"shop\"") && lines[1].contains("config=\"other\""),
        "{lines:?}"
    );
}
