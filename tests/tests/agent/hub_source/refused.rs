//! Replies that can't be taken in: the served version stays, and the status says why.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_protocol::hub::HubReason;
use nudge_protocol::limits::MAX_DICTIONARY_BYTES;
use nudge_protocol::status::{ProblemReason, Status};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::fakes::fake_hub::{Answer, framed};
use nudge_tests::kubelet::pod::served;
use nudge_tests::{FakeHub, Pod};

use crate::hub_source::TWO;

fn reason(status: &Status) -> Option<ProblemReason> {
    status.configs[0].problem.as_ref().map(|problem| problem.reason)
}

#[tokio::test]
async fn a_malformed_reply_changes_nothing_and_the_next_one_counts() -> Result<()> {
    let head = |text: &str| framed(&[text.as_bytes()]);
    let huge = br#"{"configs":[{"name":"shop","uid":"u","version":"9","sha256":"x","length":4294967295}]}"#;
    let answers = [
        ("garbage", Answer::Bytes(b"<html>no hub here</html>".to_vec()), "Malformed"),
        ("no JSON", Answer::Bytes(head("{")), "Malformed"),
        ("oversized", Answer::Bytes([&framed(&[huge])[..], &[255; 4], &[0; 1000]].concat()), "Malformed"),
        ("shorter than it says", Answer::Bytes(vec![0, 0, 1, 0, b'{']), "Malformed"),
        ("longer than it says", Answer::Bytes([head("{}"), vec![0; 10]].concat()), "Malformed"),
        ("cut", Answer::Cut(head("{}")), "Lost"),
        ("broken off", Answer::Break(Duration::ZERO), "Lost"),
        ("500", Answer::Status(500, None), "Status"),
        ("302", Answer::Status(302, None), "Status"),
    ];
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    for (round, (name, answer, expected)) in answers.into_iter().enumerate() {
        let round = round.to_string();
        hub.say(|say| say.always = Some(answer));
        // The one that is held is answered by what the hub says by itself.
        hub.cut().await?;
        let failed = pod.status_when(&mut client, WAIT_TIMEOUT, name, |status| {
            status.contact.as_ref().is_some_and(|contact| contact.reason == expected && !contact.message.is_empty())
        });
        failed.await.context(name)?;
        hub.say(|say| say.always = None);
        hub.activate("shop", &round, &[("lives", round.as_bytes())])?;
        pod.wait_until_served(&mut client, &format!("shop={round}")).await.context(name)?;
    }
    Ok(())
}

#[tokio::test]
async fn garbage_is_reported() -> Result<()> {
    let mut hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    pod.start().await?;
    hub.say(|say| say.always = Some(Answer::Bytes(b"garbage".to_vec())));
    hub.cut().await?;
    hub.wait_for_report(WAIT_TIMEOUT, "garbage is reported", |report| {
        report.configs[0].problem.as_ref().is_some_and(|problem| problem.message.contains("can't be understood"))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_content_that_does_not_match_its_digest_is_refused_and_reported() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    let digest = "0".repeat(64);
    hub.say(|say| {
        let _ = say.config("shop").set("1.0.1", &[("lives", b"5")]);
        say.config("shop").sha256 = digest;
    });
    let status = pod.status_when(&mut client, WAIT_TIMEOUT, "it is refused", |status| reason(status).is_some()).await?;
    assert_eq!((served(&status).as_str(), reason(&status)), ("shop=1.0.0", Some(ProblemReason::Damaged)));
    let report = hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        report.configs[0].problem.as_ref().is_some_and(|problem| problem.reason == "Damaged")
    });
    assert_eq!(report.await?.request.configs[0].version.as_ref().map(AsRef::as_ref), Some("1.0.0"));
    // A block that can't be read is no better, whatever its digest.
    hub.say(|say| {
        let shop = say.config("shop");
        shop.block = vec![255; 40];
        shop.sha256 = nudge_tests::fakes::hub_tls::sha256(&shop.block);
        shop.revision += 1;
    });
    pod.status_when(&mut client, WAIT_TIMEOUT, "it is refused too", |status| {
        status.configs[0].problem.as_ref().is_some_and(|problem| problem.message.contains("can't be read"))
    })
    .await?;
    hub.activate("shop", "1.0.2", &[("lives", b"7")])?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.2").await?;
    assert_eq!(reason(&status), None);
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_together_is_refused_once_and_taken_when_it_fits() -> Result<()> {
    let hub = FakeHub::start()?;
    let large = vec![b'x'; 1024 * 1024];
    let most: Vec<(&str, &[u8])> = vec![("a", &large), ("b", &large[..MAX_DICTIONARY_BYTES / 4])];
    hub.activate("keys", "1", &most)?;
    let mut pod = Pod::new(&hub)?;
    pod.configs = TWO;
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "shop=1.0.0,keys=1").await?;
    hub.activate("shop", "1.0.1", &[("c", &large), ("d", &large)])?;
    let status =
        pod.status_when(&mut client, WAIT_TIMEOUT, "it is too large", |status| reason(status).is_some()).await?;
    assert_eq!((served(&status).as_str(), reason(&status)), ("shop=1.0.0,keys=1", Some(ProblemReason::TooLarge)));
    hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
        report.configs[0].problem.as_ref().is_some_and(|problem| problem.reason == "TooLarge")
    })
    .await?;
    // The poll claims that the agent holds it, so it is not sent again and again.
    let polls = hub.polls();
    ensure!(polls.len() < 12, "{} polls", polls.len());
    hub.activate("keys", "2", &[("a", b"small")])?;
    let status = pod.wait_until_served(&mut client, "shop=1.0.1,keys=2").await?;
    assert_eq!(reason(&status), None);
    Ok(())
}

#[tokio::test]
async fn a_config_that_the_hub_has_a_problem_with_keeps_its_last_good_content() -> Result<()> {
    let hub = FakeHub::start()?;
    let mut pod = Pod::new(&hub)?;
    let mut client = pod.start().await?;
    for (reason, problem) in [
        (HubReason::Resolving, ProblemReason::Resolving),
        (HubReason::NotFound, ProblemReason::NotFound),
        (HubReason::NotAllowed, ProblemReason::NotAllowed),
        (HubReason::TooLarge, ProblemReason::TooLarge),
        (HubReason::Changed, ProblemReason::Changed),
        (HubReason::Other, ProblemReason::Other),
    ] {
        hub.say(|say| say.config("shop").fail(reason, "ask the admin"));
        let status = pod
            .status_when(&mut client, WAIT_TIMEOUT, problem.as_str(), |status| self::reason(status) == Some(problem));
        let status = status.await?;
        assert_eq!(served(&status), "shop=1.0.0");
        assert_eq!(status.configs[0].problem.as_ref().map(|problem| problem.message.as_str()), Some("ask the admin"));
        hub.wait_for_report(WAIT_TIMEOUT, "it is reported", |report| {
            report.configs[0].problem.as_ref().is_some_and(|reported| reported.reason == problem.as_str())
        })
        .await?;
    }
    hub.activate("shop", "2", &[("lives", b"1")])?;
    let status = pod.wait_until_served(&mut client, "shop=2").await?;
    assert_eq!(reason(&status), None);
    Ok(())
}
