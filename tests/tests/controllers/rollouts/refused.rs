//! A policy of the cluster that refuses the status of a config: the refusal keeps no pod from its return.

use anyhow::{Context as _, Result, ensure};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::{ConditionType, ConfigState, Reason, ReleaseOutcome, VersionedConfigStatus, find_condition};
use nudge_tests::cluster::installation::{bind, create_part};
use nudge_tests::cluster::refusing_webhook::{Refuses, RefusingWebhook};
use nudge_tests::fakes::hook_server::Answer;
use nudge_tests::{HookServer, Installation};
use serde_json::{Value, json};

use super::rollout_under_test::RolloutUnderTest;

const PODS: usize = 4;
const LABEL: &str = "refuses";
/// What an application says of a version that it does not take.
const PLANTED: &str = "hunter2 is too short";
/// The most that is refused of one bad version, within the minutes that all of this may take: each minute the whole
/// status, and at each change of a status that is smaller the smaller ones.
const FEW: usize = 20;

/// Returns a scanner that wants no password anywhere, and repeats what it has found.
fn scanner(status: &Value) -> Option<(u16, String)> {
    let text = status.to_string();
    text.contains("hunter2").then(|| (422, "a password stands in it: hunter2".to_owned()))
}

/// Returns a quota.
fn quota(status: &Value) -> Option<(u16, String)> {
    let count = status["versions"].as_array().map_or(0, Vec::len);
    (count > 2).then(|| (413, format!("{count} versions are too many")))
}

fn refusal_message(status: &VersionedConfigStatus) -> Option<&str> {
    let condition = find_condition(&status.conditions, ConditionType::StatusComplete)?;
    (condition.reason == Reason::StatusRefused.as_str() && condition.status == "False").then_some(&*condition.message)
}

/// Returns a config at version 1, whose pods refuse every other one.
async fn rollout(name: &str) -> Result<Option<(RolloutUnderTest, HookServer)>> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(None) };
    let check = HookServer::willing().await?;
    let space = installation.cluster.space_with("refused", &[("nudge.dev/enabled", "true"), (LABEL, name)]).await?;
    bind(&space, "nudge-namespace").await?;
    let rollout = RolloutUnderTest::asking_in(space, replica.hub, PODS, check.url()).await?;
    check.answer(Answer::Text(StatusCode::UNPROCESSABLE_ENTITY, PLANTED.to_owned()));
    Ok(Some((rollout, check)))
}

async fn webhook(rollout: &RolloutUnderTest, name: &str, refuses: Refuses) -> Result<RefusingWebhook> {
    let admin = rollout.space.client.clone();
    RefusingWebhook::start(admin, (LABEL, name), (&rollout.space, "shop"), refuses).await
}

/// Waits until version 2 has failed and the status says what is refused of it.
async fn wait_for_failure(rollout: &RolloutUnderTest) -> Result<VersionedConfigStatus> {
    let fails = |status: &VersionedConfigStatus| status.rollout.failure.is_some() && refusal_message(status).is_some();
    let status = rollout.wait_for_status("version 2 fails, and its status is refused", fails).await?;
    let failure = status.rollout.failure.as_ref().context("just seen")?;
    ensure!((failure.version.as_str(), failure.reason) == ("2", Reason::CheckRefused), "{failure:?}");
    Ok(status)
}

/// Waits until all pods are back.
async fn comes_back(rollout: &RolloutUnderTest) -> Result<()> {
    let is_back =
        |status: &VersionedConfigStatus| status.state() == ConfigState::Failed && status.target_version.is_none();
    rollout.wait_for_status("all are back", is_back).await?;
    rollout.all_end_with("1").await
}

/// Removes the webhook, and waits for the whole status.
async fn wait_for_whole_status(rollout: &RolloutUnderTest, webhook: RefusingWebhook) -> Result<VersionedConfigStatus> {
    let refused = webhook.refused();
    eprintln!("{refused} statuses were refused");
    ensure!((1..=FEW).contains(&refused), "{refused} statuses were refused");
    webhook.remove(&rollout.space, "shop").await?;
    rollout.wait_for_status("the whole status is written", |status| refusal_message(status).is_none()).await
}

#[tokio::test]
async fn a_text_that_a_policy_refuses_keeps_no_pod_from_its_way_back() -> Result<()> {
    let Some((rollout, _check)) = rollout("scanner").await? else { return Ok(()) };
    let webhook = webhook(&rollout, "scanner", scanner).await?;
    rollout.request_version("2").await?;
    let status = wait_for_failure(&rollout).await?;
    let message = refusal_message(&status).context("just seen")?;
    ensure!(message.contains("\"refuses.example.com\" denied the request"), "{message}");
    comes_back(&rollout).await?;
    let event = rollout.wait_for_event("RollingBack").await?;
    ensure!(event.message.as_ref().is_some_and(|event| event.contains(PLANTED)), "its Event has the text: {event:?}");
    let status = wait_for_whole_status(&rollout, webhook).await?;
    ensure!(status.state() == ConfigState::Failed, "{status:#?}");
    let release = status.releases.last().context("no release")?;
    ensure!(release.version == "2" && release.outcome == Some(ReleaseOutcome::RolledBack), "{release:?}");
    Ok(())
}

#[tokio::test]
async fn where_a_policy_takes_few_versions_one_that_is_not_in_use_is_left_out() -> Result<()> {
    let Some((rollout, _check)) = rollout("quota").await? else { return Ok(()) };
    let webhook = webhook(&rollout, "quota", quota).await?;
    for (version, count) in [("2", 2), ("unused", 3)] {
        let meta = json!({"name": format!("shop-{version}"), "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}});
        let part = json!({"metadata": meta, "immutable": true, "data": {"number": version}});
        create_part::<ConfigMap>(&rollout.space, part).await?;
        let is_expected = |status: &VersionedConfigStatus| match refusal_message(status) {
            Some(message) => message.ends_with("denied the request: 3 versions are too many") && count == 3,
            None => status.versions.len() == count,
        };
        rollout.wait_for_status(&format!("version {version} is sealed, or left out"), is_expected).await?;
    }
    rollout.request_version("2").await?;
    let status = wait_for_failure(&rollout).await?;
    ensure!(status.version("2").is_some() && status.version("unused").is_none(), "{status:#?}");
    let failure = status.rollout.failure.context("just seen")?;
    ensure!(failure.message.ends_with(PLANTED), "nothing is wrong with that text: {failure:?}");
    comes_back(&rollout).await?;
    let status = wait_for_whole_status(&rollout, webhook).await?;
    ensure!(status.version("unused").is_some(), "{status:#?}");
    Ok(())
}
