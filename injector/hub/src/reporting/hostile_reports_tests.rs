//! Hostile reports: floods, words about others, and escape sequences.

use nudge_api::Reason;
use nudge_protocol::ConfigUid;
use nudge_protocol::hub::{ReportedConfig, ReportedProblem};
use tokio::time::timeout;

use crate::fixtures::*;

fn report(version: &str, acknowledged: bool) -> ReportRequest {
    let config = ReportedConfig {
        name: ConfigName::new("shop").unwrap(),
        uid: ConfigUid::new("uid-shop"),
        revision: 1,
        version: nudge_protocol::VersionName::new(version).ok(),
        problem: None,
        acknowledged,
    };
    ReportRequest { configs: vec![config], acknowledged, ..ReportRequest::default() }
}

fn failed(reason: &str, message: &str) -> ReportRequest {
    let mut report = report("1", false);
    report.configs[0].problem = Some(ReportedProblem { reason: reason.to_owned(), message: message.to_owned() });
    report
}

fn named(namespace: &str, name: &str) -> PodState {
    PodState {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..pod(&format!("{namespace}-{name}"), &["shop"])
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_floods_reports_has_one_taken_every_two_seconds() {
    let fixture = Fixture::with_one();
    let (started, session) = (Instant::now(), session("u"));
    let floods = (0..200).map(|number| {
        let report = failed("Failed", &number.to_string());
        fixture.hub.conditions.take_report(&session, report)
    });
    let replies = futures::future::join_all(floods).await;
    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(started.elapsed().as_secs(), 2, "all but the first have waited, so that one connection sends few");
    let taken = fixture.hub.conditions.reports.get(&PodKey::new("ns", "web"), &session.caller.uid).unwrap();
    assert_eq!(taken.report.configs[0].problem.as_ref().unwrap().message, "199");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_floods_reports_does_not_delay_another_one() {
    let mut fixture = Fixture::with_one();
    fixture.index.set_enabled(["ns".to_owned(), "loud".to_owned()].into());
    fixture.index.put_account("loud", "app", "s");
    let loud: Vec<PodState> = (0..1000).map(|number| named("loud", &format!("web-{number}"))).collect();
    for pod in &loud {
        fixture.index.put_pod(pod.clone());
    }
    let one = fixture.stored.add("1", b"x");
    fixture.put("shop", 1, Some(&one));
    fixture.head(PollRequest::default()).await;
    let writing = fixture.hub.conditions.write_all();
    let flood = async {
        for round in 0..5 {
            let reports = loud.iter().map(|pod| async {
                let report = failed("Failed", &format!("round {round}"));
                fixture.hub.conditions.take_report(&session_of(pod), report).await
            });
            futures::future::join_all(reports).await;
        }
        std::future::pending::<()>().await;
    };
    let quiet = async {
        // 1,000 pods are due, which is 20 s of writes.
        tokio::time::sleep(Duration::from_secs(1)).await;
        fixture.hub.conditions.take_report(&session("u"), failed("Failed", "quiet")).await.unwrap();
        let asked = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if fixture.written.take().iter().any(|(pod, _)| pod.namespace == "ns") {
                return asked.elapsed();
            }
        }
    };
    let waited = tokio::select! {
        () = writing => panic!("it never ends"),
        () = flood => panic!("it never ends"),
        waited = quiet => waited,
    };
    assert!(waited < Duration::from_millis(200), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_about_versions_and_configs_of_others_changes_nothing_for_others() {
    let fixture = Fixture::with_one();
    let stranger = PodState { configs: vec![ConfigName::new("own").unwrap()], ..named("ns", "stranger") };
    fixture.index.put_pod(stranger.clone());
    fixture.head(PollRequest::default()).await;
    let key = ConfigKey::new("ns", ConfigName::new("shop").unwrap());
    let before = (fixture.index.config(&key), fixture.index.subscribers(&key));
    // As if it used the config of the others, ran a version that is none, and saw one fail.
    for hostile in [report("9.9.9", true), failed("Failed", "version 1 is broken")] {
        fixture.hub.conditions.take_report(&session_of(&stranger), hostile).await.unwrap();
    }
    let writing = fixture.hub.conditions.write_all();
    assert!(timeout(Duration::from_secs(20), writing).await.is_err());
    let written = fixture.written.take();
    assert!(!written.is_empty() && written.iter().all(|(pod, _)| *pod == stranger.key()), "{written:?}");
    for (_, condition) in written {
        assert_eq!(condition.reason(), Reason::NotFound, "of its own config, which there is not");
        assert!(condition.versions.iter().all(|(name, version)| name.as_str() == "own" && version.is_none()));
        assert!(!condition.message().contains("broken") && !condition.message().contains("9.9.9"));
    }
    assert_eq!((fixture.index.config(&key), fixture.index.subscribers(&key)), before);
}

#[tokio::test(start_paused = true)]
async fn escape_sequences_do_not_reach_the_condition() {
    let fixture = Fixture::with_one();
    fixture.head(PollRequest::default()).await;
    let message = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\nroot\u{202e}";
    fixture.hub.conditions.take_report(&session("u"), failed("Failed\u{1b}[31m", message)).await.unwrap();
    let writing = fixture.hub.conditions.write_all();
    assert!(timeout(Duration::from_secs(20), writing).await.is_err());
    let (_, condition) = fixture.written.take().pop().unwrap();
    assert_eq!(
        (condition.reason(), condition.message().as_str()),
        (Reason::Failed, "shop=1; config shop:  ]0;owned  [2J  root ")
    );
    // The status and Events take the report from the condition: reading it back yields the same report.
    let read = Report::read(&k8s_openapi::api::core::v1::PodCondition {
        status: condition.status().to_owned(),
        reason: Some(condition.reason().to_string()),
        message: Some(condition.message()),
        ..Default::default()
    });
    assert!(read.unwrap().is_same(&condition));
}
