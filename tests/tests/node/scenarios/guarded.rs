//! Two configs with guards and everything else at its default, each with four pods of the shell example. One needs an
//! approval, by another user than those who made the version and requested it; the other has windows, in a namespace
//! that a RolloutPolicy holds. Until the guards let them, no pod has the version; then it is moved to all of them. Who
//! activates can't take the guards away; while the control plane is away, that is tried by the scenario
//! [`away`](super::away). Beside that, a third config is judged by numbers ([`judged`]).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::ResourceExt as _;
use kube::api::ListParams;
use nudge_api::Reason;
use nudge_tests::binary;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::exposure::{nudge, wait_for_status};
use super::judged;
use crate::log::Log;
use crate::person::{APPROVE, EDIT, Person, Right};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched, is_ready};
use crate::suite::Suite;
use nudge_tests::eventually;

const TITLE: &str = "Guarded configs, four pods each, everything at its default";
const PODS: usize = 4;
const POLICY: &str = "nudge-e2e-guarded";
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The right to make VersionApprovals, without the one to approve.
const DECIDE: Right = ("--role=decide", ["create", "versionapprovals"]);
/// She activates by taking the guard away, and deletes the config.
const ACTIVATE: [&str; 6] =
    ["patch", "vcfg", "shop", "--type=merge", "-p", r#"{"spec": {"version": "1.0.1", "rollout": {"approval": null}}}"#];
const DELETE: [&str; 4] = ["delete", "vcfg", "shop", "--wait=false"];
/// The API server's message if nobody answers for Nudge: about a webhook, or about a policy, which needs nobody.
const AWAY: [&str; 2] = ["failed calling webhook", "needs the right to override"];

/// The example `shop` at version 1.0.0, with all of its pods.
struct Shop<'a> {
    home: ScenarioNamespace<'a>,
    pods: Vec<Pod>,
    logs: Vec<Log>,
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    // Built before anything is timed.
    binary::kubectl_nudge()?;
    suite.installed().await?;
    let (shop, hours) = tokio::try_join!(Shop::new(suite, "guarded", PODS), Shop::new(suite, "guarded-hours", PODS))?;
    let (alice, bob) = (person(&shop, "alice", &[EDIT, APPROVE]), person(&shop, "bob", &[EDIT, APPROVE]));
    let (carol, eve) = (person(&shop, "carol", &[APPROVE]), eve(&shop));
    let (alice, bob, carol, eve) = tokio::try_join!(alice, bob, carol, eve)?;
    let read = awaits_approval(&shop, [&alice, &bob, &eve]).await?;
    waits_for_its_time(&hours).await?;
    eve.assert_refused(&ACTIVATE, &["that removes spec.rollout.approval"])?;
    eve.assert_refused(&DELETE, &["that removes its guards (approval)"])?;

    let approved = OffsetDateTime::now_utc();
    carol.nudge(&["approve", "shop", "1.0.2", "--reason=read it", &read])?;
    hours.home.kubectl(&["delete", "rolloutpolicy", POLICY])?;
    let moves = (shop.wait_for_rollout(approved, "1.0.2"), hours.wait_for_rollout(approved, "1.0.1"));
    let (shop_took, hours_took, judged) = tokio::try_join!(moves.0, moves.1, judged::run(suite))?;
    assert_recorded(&shop, &bob, &carol)?;
    let back = goes_back(&hours).await?;
    shop.assert_untouched("1.0.2").await?;
    hours.assert_untouched("1.0.0").await?;
    for (what, took) in [
        ("approved: the first pod runs the version", shop_took[0]),
        ("approved: it is current", shop_took[1]),
        ("no longer on hold: the first pod runs the version", hours_took[0]),
        ("no longer on hold: it is current", hours_took[1]),
        ("on hold: kubectl nudge rollback, and all pods run the version before", back),
    ] {
        suite.report.row(TITLE, &[what.to_owned(), seconds(took)]);
    }
    if let Some(judged) = judged {
        let what = "half of its requests fail: the version has failed by numbers, at the first step";
        suite.report.row(TITLE, &[what.to_owned(), seconds(judged)]);
    }
    Ok(())
}

/// Returns who may change the config, and make VersionApprovals. Its pods would keep it from being deleted.
async fn eve<'a>(shop: &Shop<'a>) -> Result<Person<'a>> {
    shop.home.kubectl(&["create", "role", "decide", "--verb=create,get,list", "--resource=versionapprovals"])?;
    let eve = person(shop, "eve", &[EDIT, DECIDE]).await?;
    eve.kubectl(&["annotate", "vcfg", "shop", "nudge.dev/force-delete=true"])?;
    Ok(eve)
}

async fn person<'a>(shop: &Shop<'a>, name: &str, rights: &[Right]) -> Result<Person<'a>> {
    Person::new(&shop.home, name, rights).await
}

/// Neither who made the version nor who requested it approves it, nor does somebody without the verb. Returns the flag
/// that says what was read.
async fn awaits_approval(shop: &Shop<'_>, [author, requester, other]: [&Person<'_>; 3]) -> Result<String> {
    shop.guard(&json!({"approval": {"required": 1}}))?;
    let values =
        ["greeting=bye", "lives=7", "game.properties=enemies=none"].map(|enemy| format!("--from-literal={enemy}"));
    author.nudge(&["create", "shop", "1.0.2", &values[0], &values[1], &values[2]])?;
    let status =
        wait_for_status(&shop.home, "shop", "it is sealed", |status| status.version("1.0.2").is_some()).await?;
    let read = format!("--digest={}", status.version("1.0.2").context("just seen")?.digest);
    requester.nudge(&["use", "shop", "1.0.2"])?;
    shop.wait_until_waiting(Reason::AwaitingApproval, "version 1.0.2 has 0 of 1 approval that it needs;").await?;
    let approve = ["approve", "shop", "1.0.2", "--reason=mine", &read];
    author.nudge(&approve)?;
    requester.nudge(&approve)?;
    let description = format!(
        "; so far: {} has created a part of it, or set its source; {} has requested it",
        author.user, requester.user
    );
    shop.wait_until_waiting(Reason::AwaitingApproval, &description).await?;
    let refused = other.nudge(&approve).err().context("somebody without the verb could approve")?.to_string();
    ensure!(refused.contains("may not approve or deny versions of config shop"), "{refused}");
    Ok(read)
}

/// Outside of its windows, and then held by a policy, which stands when the windows are gone.
async fn waits_for_its_time(hours: &Shop<'_>) -> Result<()> {
    let opens = Timestamp::now() + SignedDuration::from_hours(72);
    let date = opens.to_zoned(TimeZone::UTC).date();
    let day = DAYS[usize::from(date.weekday().to_monday_zero_offset().unsigned_abs())];
    let window = json!({"name": "day", "days": [day], "from": "09:00", "to": "17:00", "timeZone": "UTC"});
    hours.guard(&json!({"windows": [window]}))?;
    nudge(&hours.home, &["use", "shop", "1.0.1"])?;
    hours.wait_until_waiting(Reason::OutsideWindow, &format!("the next window opens at {date} 09:00 UTC")).await?;
    hold(hours, "1.0.1").await?;
    hours.guard(&json!({"windows": null}))?;
    hours.wait_until_waiting(Reason::OnHold, "").await
}

/// Holds the namespace by a policy, and waits until its config, which something else holds as well, is held by that.
async fn hold(hours: &Shop<'_>, version: &str) -> Result<()> {
    let namespace = &hours.home.space.name;
    hours.home.kubectl(&["label", "--overwrite", "namespace", namespace, "team=guarded"])?;
    let policy = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": POLICY},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "guarded"}}, "hold": {"reason": "the audit runs"}},
    });
    hours.home.apply(&policy.to_string())?;
    nudge(&hours.home, &["use", "shop", version])?;
    hours.wait_until_waiting(Reason::OnHold, &format!("RolloutPolicy {POLICY} holds")).await
}

/// What the scenario [`away`](super::away) looks at: a config that awaits an approval, one that a policy holds, and who
/// tries it.
pub(super) struct Guarded<'a> {
    shop: Shop<'a>,
    hours: Shop<'a>,
    eve: Person<'a>,
}

impl<'a> Guarded<'a> {
    /// Returns two configs, each with this many pods.
    pub(super) async fn new(suite: &'a Suite, purpose: &str, pods: usize) -> Result<Self> {
        let held = format!("{purpose}-held");
        let (shop, hours) = tokio::try_join!(Shop::new(suite, purpose, pods), Shop::new(suite, &held, pods))?;
        let eve = eve(&shop).await?;
        shop.guard(&json!({"approval": {"required": 1}}))?;
        nudge(&shop.home, &["use", "shop", "1.0.1"])?;
        // Until the policy is seen.
        hours.guard(&json!({"hold": {"reason": "the audit runs"}}))?;
        hold(&hours, "1.0.1").await?;
        hours.guard(&json!({"hold": null}))?;
        let guarded = Self { shop, hours, eve };
        guarded.wait_until_waiting().await?;
        Ok(guarded)
    }

    async fn wait_until_waiting(&self) -> Result<()> {
        self.shop.wait_until_waiting(Reason::AwaitingApproval, "version 1.0.1 has 0 of 1 approval").await?;
        self.hours.wait_until_waiting(Reason::OnHold, POLICY).await
    }

    /// Checks the guards while the control plane is away.
    pub(super) async fn keeps_its_guards_alone(&self) -> Result<()> {
        self.eve.assert_refused(&ACTIVATE, &AWAY)?;
        self.eve.assert_refused(&DELETE, &AWAY)?;
        self.shop.assert_untouched("1.0.0").await?;
        self.hours.assert_untouched("1.0.0").await
    }

    /// When somebody watches again.
    pub(super) async fn still_waits(self) -> Result<()> {
        self.wait_until_waiting().await?;
        self.hours.home.kubectl(&["delete", "rolloutpolicy", POLICY]).map(drop)
    }
}

/// The record names who asked and who approved, and the steps.
fn assert_recorded(shop: &Shop<'_>, requester: &Person<'_>, approver: &Person<'_>) -> Result<()> {
    let history: Value = serde_json::from_str(&nudge(&shop.home, &["history", "shop", "-o", "json"])?)?;
    let release = history.as_array().and_then(|all| all.last()).context("no release")?;
    ensure!(release["version"] == "1.0.2" && release["outcome"] == "Current", "{release}");
    ensure!(release["requestedBy"] == requester.user.as_str(), "{release}");
    let approvals = release["approvals"].as_array().context("no approvals")?;
    ensure!(approvals.len() == 1 && approvals[0]["user"] == approver.user.as_str(), "{release}");
    let steps = release["steps"].as_array().context("no steps")?;
    let steps: Vec<u64> = steps.iter().filter_map(|step| step["pods"].as_u64()).collect();
    ensure!(steps == [1, 2, 4], "{release}");
    Ok(())
}

/// While another version is on hold, the way back is not: it is the version before for all pods, at once.
async fn goes_back(hours: &Shop<'_>) -> Result<Duration> {
    nudge(&hours.home, &["create", "shop", "1.0.3", "--from-literal=greeting=late", "--from-literal=lives=1"])?;
    wait_for_status(&hours.home, "shop", "it is sealed", |status| status.version("1.0.3").is_some()).await?;
    // Two holds without an end: the policy's is named as soon as it is seen.
    hours.guard(&json!({"hold": {"reason": "the audit runs"}}))?;
    hold(hours, "1.0.3").await?;
    // From the held version to the current version, and from there to the previous version.
    nudge(&hours.home, &["rollback", "shop"])?;
    hours.home.wait_until_current("shop", "1.0.1").await?;
    let asked_at = OffsetDateTime::now_utc();
    nudge(&hours.home, &["rollback", "shop"])?;
    let mut last = asked_at;
    for log in &hours.logs {
        last = last.max(log.line(asked_at, WAIT_TIMEOUT, "shop=1.0.0 ").await?.at);
    }
    hours.home.wait_until_current("shop", "1.0.0").await?;
    ensure!(hours.logs.iter().all(|log| has_not(log, "1.0.3")), "a pod had what was on hold");
    hours.home.kubectl(&["delete", "rolloutpolicy", POLICY])?;
    Ok(Duration::try_from(last - asked_at)?)
}

fn has_not(log: &Log, version: &str) -> bool {
    let text = format!("shop={version} ");
    !log.lines().iter().any(|line| line.text.contains(&text))
}

impl<'a> Shop<'a> {
    async fn new(suite: &'a Suite, purpose: &str, count: usize) -> Result<Self> {
        let home = ScenarioNamespace::enabled(suite, purpose).await?;
        home.apply_examples(&["shop", "shell"])?;
        home.kubectl(&["scale", "deployment", "example-shell", &format!("--replicas={count}")])?;
        let pods = eventually(LONG_WAIT_TIMEOUT, "all pods are ready", async || {
            let listed_pods = home.space.api::<Pod>().list(&ListParams::default()).await.ok()?.items;
            (listed_pods.len() == count && listed_pods.iter().all(is_ready)).then_some(listed_pods)
        })
        .await?;
        let mut logs = Vec::new();
        for pod in &pods {
            let log = home.follow(pod).await?;
            log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "shop=1.0.0 ").await?;
            logs.push(log);
        }
        home.wait_until_current("shop", "1.0.0").await?;
        Ok(Self { home, pods, logs })
    }

    /// Sets guards as the administrator.
    fn guard(&self, rollout: &Value) -> Result<()> {
        let spec = json!({"spec": {"rollout": rollout}}).to_string();
        self.home.kubectl(&["patch", "vcfg", "shop", "--type=merge", "-p", &spec]).map(drop)
    }

    /// Waits until the config waits for this and says so, and fails if it has begun.
    async fn wait_until_waiting(&self, reason: Reason, says: &str) -> Result<()> {
        let status = wait_for_status(&self.home, "shop", &format!("{reason}: {says}"), |status| {
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
            ready.is_some_and(|ready| ready.reason == reason.as_str() && ready.message.contains(says))
        })
        .await?;
        let target = status.target_version.as_deref();
        ensure!(status.rollout.stage.is_none() && target != status.current_version.as_deref(), "{status:#?}");
        ensure!(self.logs.iter().all(|log| has_not(log, target.unwrap_or_default())), "a pod has it");
        Ok(())
    }

    /// Fails unless all pods are what they were, and their agents give them this version.
    async fn assert_untouched(&self, expected: &str) -> Result<()> {
        for pod in &self.pods {
            assert_untouched(&self.home, pod).await?;
            let version = ["exec", &pod.name_any(), "-c", "app", "--", "nudge-agent", "get", "nudge.configs"];
            let version = self.home.kubectl(&version)?;
            ensure!(version.trim() == format!("shop={expected}"), "{}: {version}", pod.name_any());
        }
        Ok(())
    }

    /// Waits until the version, which was let go then, is current. How long it took to the first pod, and to the end.
    async fn wait_for_rollout(&self, since: OffsetDateTime, version: &str) -> Result<[Duration; 2]> {
        let text = format!("shop={version} ");
        let mut first = None;
        for log in &self.logs {
            let at = log.line(since, LONG_WAIT_TIMEOUT, &text).await?.at;
            first = Some(first.map_or(at, |first: OffsetDateTime| first.min(at)));
        }
        self.home.wait_until_current("shop", version).await?;
        let current = OffsetDateTime::now_utc();
        let first = first.context("no pod")?;
        Ok([Duration::try_from(first - since)?, Duration::try_from(current - since)?])
    }
}
