//! Which replica's condition stands when an agent goes from one to another.

use nudge_api::Reason;
use nudge_core::pods::{PodState, ReportState, UpdateMode};
use nudge_protocol::hub::ReportedConfig;
use nudge_protocol::{ConfigUid, VersionName};
use tokio::time::timeout;

use crate::fixtures::*;

/// Returns a hub whose agent has reported version 1, and the time of the report.
async fn reported() -> (Fixture, i64) {
    let fixture = Fixture::with_one();
    let head = fixture.head(PollRequest::default()).await;
    let of = |config: &nudge_protocol::hub::PollConfig| ReportedConfig {
        name: config.name.clone(),
        uid: config.uid.clone(),
        revision: config.revision,
        version: config.version.clone(),
        problem: None,
        acknowledged: true,
    };
    let configs = head.configs.iter().map(of).collect();
    let report = ReportRequest { configs, acknowledged: true, ..ReportRequest::default() };
    assert_eq!(fixture.hub.conditions.take_report(&session("u"), report).await, Ok(()));
    let stamp = fixture.hub.conditions.reports.get(&PodKey::new("ns", "web"), &session("u").caller.uid).unwrap().stamp;
    (fixture, stamp)
}

fn no_handler() -> ReportState {
    ReportState::of(Reason::NoHandler.explained("app has none"))
}

impl Fixture {
    /// The watch shows a condition from a report of that second.
    fn shows(&self, state: ReportState, at: i64) {
        let versions = vec![(ConfigName::new("shop").unwrap(), VersionName::new("1").ok())];
        let report = Some(Report { versions, state, reasons: Vec::new(), at: Some(at) });
        self.index.put_pod(PodState { report, ..pod("u", &["shop"]) });
    }

    /// Returns the reasons that this replica writes in a while.
    async fn writes(&self) -> Vec<Reason> {
        let writing = self.hub.conditions.write_all();
        assert!(timeout(Duration::from_secs(20), writing).await.is_err());
        self.written.take().iter().map(|(_, condition)| condition.reason()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_that_waited_here_does_not_overwrite_a_later_one_of_another_replica() {
    let (fixture, stamp) = reported().await;
    fixture.shows(no_handler(), stamp + 10);
    assert!(fixture.writes().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_overwrites_an_earlier_one() {
    let (fixture, stamp) = reported().await;
    fixture.shows(no_handler(), stamp - 10);
    assert!(fixture.writes().await.contains(&Reason::Applied));
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_report_has_overwritten_is_written_again_and_a_later_one_stays() {
    let (fixture, stamp) = reported().await;
    fixture.shows(ReportState::Acknowledged, stamp);
    assert!(fixture.writes().await.is_empty(), "it stands");
    // Polls and reports may go to different replicas, so the agent's connection does not matter.
    for (other, written) in [(stamp - 100, true), (stamp + 100, false)] {
        fixture.shows(no_handler(), other);
        assert!(fixture.writes().await.is_empty(), "nothing has looked");
        fixture.hub.conditions.recheck_reports();
        assert_eq!(fixture.writes().await.contains(&Reason::Applied), written, "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_what_was_assigned_for_a_moment_only_does_not_stay() {
    let (mut fixture, stamp) = reported().await;
    let (two, one) = (fixture.stored.add("2", b"y"), fixture.stored.add("1", b"x"));
    fixture.put("shop", 2, Some(&two));
    assert_eq!(fixture.writes().await, [Reason::Resolving]);
    let version = VersionName::new("2").unwrap();
    let on_its_way = Reason::Resolving.explained(format!("version {version} of config shop is on its way"));
    fixture.shows(ReportState::of(on_its_way), stamp);
    fixture.hub.conditions.recheck_reports();
    assert!(fixture.writes().await.is_empty(), "it is so");
    // The agent, which runs version 1, has nothing more to report.
    fixture.put("shop", 3, Some(&one));
    fixture.hub.conditions.recheck_reports();
    assert_eq!(fixture.writes().await, [Reason::Applied]);
}

#[tokio::test(start_paused = true)]
async fn what_only_a_restart_brings_shows_in_the_condition_without_a_report() {
    let (mut fixture, _) = reported().await;
    fixture.index.put_pod(PodState { update_mode: UpdateMode::ByRestart, ..pod("u", &["shop"]) });
    assert_eq!(fixture.writes().await, [Reason::Applied]);
    let held = after(&head_of(fixture.poll(PollRequest::default()).await.0));
    let hub = Arc::clone(&fixture.hub);
    let poll = async move { hub.polling.poll(&session("u"), held, &mut ConnectionPolls::default()).await };
    tokio::pin!(poll);
    assert!(poll.as_mut().now_or_never().is_none());
    let two = fixture.stored.add("2", b"y");
    fixture.put("shop", 2, Some(&two));
    assert!(poll.as_mut().now_or_never().is_none(), "the agent keeps what its pod was born with");
    assert_eq!(fixture.writes().await, [Reason::NotRestarted]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_stands_is_written_once_for_each_change_of_another_config() {
    let mut fixture = Fixture::with_one();
    fixture.index.put_pod(pod("u", &["shop", "keys"]));
    let one = fixture.stored.add("1", b"x");
    fixture.put("keys", 1, Some(&one));
    fixture.head(PollRequest::default()).await;
    let two = fixture.stored.add("2", b"y");
    fixture.put("shop", 2, Some(&two));
    fixture.head(PollRequest::default()).await;
    let report = |version: &str, revision: u64, acknowledged: bool| {
        let config = |name: &str, version: &str, revision: u64| ReportedConfig {
            name: ConfigName::new(name).unwrap(),
            uid: ConfigUid::new(format!("uid-{name}")),
            revision,
            version: VersionName::new(version).ok(),
            problem: None,
            acknowledged,
        };
        let (reason, message) = ("CheckRefused".to_owned(), "no".to_owned());
        let problem = Some(nudge_protocol::hub::ReportedProblem { reason, message });
        let keys = ReportedConfig { problem, ..config("keys", "0", 1) };
        let configs = vec![config("shop", version, revision), keys];
        ReportRequest { configs, acknowledged, ..ReportRequest::default() }
    };
    let hub = Arc::clone(&fixture.hub);
    let writing = hub.conditions.write_all();
    let changes = async {
        hub.conditions.take_report(&session("u"), report("1", 1, true)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (_, shown) = fixture.written.take().pop().unwrap();
        assert_eq!(shown.reason(), Reason::CheckRefused);
        fixture.index.put_pod(PodState { report: Some(shown), ..pod("u", &["shop", "keys"]) });
        // The containers take a second for their acknowledgement.
        hub.conditions.take_report(&session("u"), report("2", 2, false)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        hub.conditions.take_report(&session("u"), report("2", 2, true)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    tokio::select! {
        () = writing => panic!("it never ends"),
        () = changes => {}
    }
    let messages: Vec<String> = fixture.written.take().iter().map(|(_, condition)| condition.message()).collect();
    assert_eq!(messages, ["shop=2 (Applied),keys=0; config keys: no"]);
}
