//! Pods that no webhook has seen: somebody has written an agent's container by hand, and claims a foreign workload.
//! Their service account, which the API server vouches for, is all that counts.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use nudge_api::{RolloutFailure, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::ConfigUid;
use nudge_protocol::hub::{HubReason, POLL_PATH, PollHead, REPORT_PATH};
use nudge_protocol::pod::{CONDITION, TOKEN_AUDIENCE};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::assigned::assigned;
use nudge_tests::cluster::installation::{create_part, hub_ca};
use nudge_tests::{Installation, Raw, Reply, agent::tls, eventually};
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::rollout_under_test::{RolloutUnderTest, WAIT_TIMEOUT};

/// Whom the config does not list.
const STRANGER: &str = "stranger";
const WORKLOAD: &str = "Deployment/web";

/// Returns a pod of the stranger with an agent of their own, which says that it is one of the Deployment `web`, and was
/// injected.
async fn create_handwritten_pod(space: &TestNamespace, name: &str, configs: &str) -> Result<Pod> {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d59", "uid": "uid-web", "controller": true,
    });
    let annotations = json!({
        "nudge.dev/inject": "true", "nudge.dev/configs": "shop", "nudge.dev/notify": "none",
        "nudge.dev/config-digest": "sha256:0", "nudge.dev/warnings": "\u{1b}[2Jowned",
    });
    let agent = json!({"name": "nudge-agent", "image": "mine", "env": [{"name": "NUDGE_CONFIGS", "value": configs}]});
    let pod = json!({
        "metadata": {
            "name": name, "labels": {"nudge.dev/agent": "0.1.0", "pod-template-hash": "5d59"},
            "annotations": annotations, "ownerReferences": [owner],
        },
        "spec": {
            "serviceAccountName": STRANGER, "automountServiceAccountToken": false,
            "containers": [agent, {"name": "app", "image": "mine"}],
        },
    });
    let pod = space.create_object::<Pod>(pod).await?;
    space.run(&pod).await
}

/// What runs in the agent's container: it says to the hub what it likes.
struct Forger {
    token: String,
    hub: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Forger {
    async fn of(space: &TestNamespace, pod: &Pod, hub: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = folder.path().join("ca.crt");
        std::fs::write(&authority, hub_ca(space).await?)?;
        Ok(Self {
            token: space.token(STRANGER, TOKEN_AUDIENCE, Some(pod)).await?,
            hub,
            tls: tls::trusting(&authority)?,
        })
    }

    async fn say(&self, path: &str, body: &Value) -> Result<Reply> {
        let mut raw = Raw::over(TcpStream::connect(self.hub).await?, self.hub.ip(), &self.tls).await?;
        let body = body.to_string();
        let (token, length) = (&self.token, body.len());
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-length: {length}");
        raw.send(format!("{head}\r\n\r\n{body}")).await?;
        raw.reply().await
    }

    /// Returns what the hub answers, and whether the reply has this text anywhere.
    async fn poll(&self, body: &Value, text: &str) -> Result<(PollHead, bool)> {
        let reply = self.say(POLL_PATH, body).await?;
        ensure!(reply.status == StatusCode::OK, "{reply:?}");
        let (length, rest) = reply.body.split_first_chunk().context("no length")?;
        let head = rest.get(..u32::from_be_bytes(*length) as usize).context("no head")?;
        let there = reply.body.windows(text.len()).any(|part| part == text.as_bytes());
        Ok((serde_json::from_slice(head)?, there))
    }

    async fn report(&self, configs: &Value, acknowledged: bool) -> Result<()> {
        let reply = self.say(REPORT_PATH, &json!({"configs": configs, "acknowledged": acknowledged})).await?;
        ensure!(reply.status == StatusCode::NO_CONTENT, "{reply:?}");
        Ok(())
    }
}

fn current_report(config: &str, uid: &str, version: &str) -> Value {
    json!({"name": config, "uid": uid, "revision": 1, "version": version})
}

fn failed_report(config: &str, uid: &str, version: &str) -> Value {
    let mut config = current_report(config, uid, version);
    config["problem"] = json!({"reason": "Failed", "message": "it is broken"});
    config
}

/// Returns the hub's condition of a pod: reason and message.
async fn condition(space: &TestNamespace, name: &str) -> Option<(String, String)> {
    let conditions = space.api::<Pod>().get(name).await.ok()?.status?.conditions?;
    let condition = conditions.into_iter().find(|condition| condition.type_ == CONDITION)?;
    Some((condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()))
}

#[tokio::test]
async fn pods_written_by_hand_get_what_their_service_account_may_and_speak_for_themselves() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 4, &["25%", "50%"]).await?;
    let space = &rollout.space;
    space.service_account(STRANGER).await?;
    rollout.set(json!({"allowedServiceAccounts": ["app"]})).await?;
    // A config of the same name as one that the stranger requests, in another namespace.
    let foreign = installation.enabled("foreign").await?;
    let labels = json!({"nudge.dev/config": "theirs", "nudge.dev/version": "1"});
    let part =
        json!({"metadata": {"name": "theirs-1", "labels": labels}, "immutable": true, "data": {"key": "foreign"}});
    create_part::<ConfigMap>(&foreign, part).await?;
    foreign.create_object::<VersionedConfig>(json!({"metadata": {"name": "theirs"}, "spec": {"version": "1"}})).await?;

    create_handwritten_pod(space, "silent", "shop").await?;
    let pod =
        create_handwritten_pod(space, "liar", &format!("shop,theirs,{}/theirs,../{0}/theirs", foreign.name)).await?;
    let uid = pod.uid().context("no uid")?;
    let member = space.api::<Pod>().get(&rollout.members[0].name).await?;
    ensure!(space.token(STRANGER, TOKEN_AUDIENCE, Some(&member)).await.is_err(), "the API server binds foreign pods");
    let liar = Forger::of(space, &pod, replica.hub).await?;

    // It names versions, and another config than its environment does. It gets nothing of either.
    let wish = json!({"configs": [current_report("shop", "", "7"), current_report("other", "", "1")], "namespace": foreign.name, "pod": member.uid()});
    let admitted = async || {
        let (head, leaked) = liar.poll(&wish, "number").await.ok()?;
        (head.configs[0].problem.as_ref()?.reason == HubReason::NotAllowed).then_some((head, leaked))
    };
    let (head, leaked) = eventually(WAIT_TIMEOUT, "the hub knows whom the config allows", admitted).await?;
    ensure!(!leaked, "the hub has sent it the config");
    let given: Vec<_> = head.configs.iter().map(|config| (config.name.as_str(), config.version.as_ref())).collect();
    ensure!(given == [("shop", None), ("theirs", None)], "{given:?}");
    ensure!(head.configs[1].problem.as_ref().is_some_and(|problem| problem.reason == HubReason::NotFound), "{head:?}");

    // All along the rollout it says that the next version is broken. Nobody waits for it, counts it or believes it.
    let before = condition(space, &rollout.members[0].name).await.context("no condition")?;
    liar.report(&json!([failed_report("shop", "", "2"), failed_report("other", "", "2")]), false).await?;
    eventually(WAIT_TIMEOUT, "the report is taken", async || condition(space, "liar").await).await?;
    ensure!(condition(space, &rollout.members[0].name).await == Some(before), "it has spoken for another pod");
    rollout.request_version("2").await?;
    let status = rollout.wait_until_current("2").await?;
    ensure!(status.pods.summary == "4/4" && status.pods.total == 4, "they are counted: {status:#?}");
    ensure!(status.rollout.failure.is_none() && !serde_json::to_string(&status)?.contains("broken"), "{status:#?}");
    rollout.all_end_with("2").await?;

    // Without the list it is one pod more of the namespace: it has the config, and its word is one word.
    rollout.set(json!({"allowedServiceAccounts": null, "rollout": {"steps": [{"pods": "100%"}]}})).await?;
    let served = async || liar.poll(&json!({}), "number").await.ok().filter(|(_, served)| *served);
    let (head, _) = eventually(WAIT_TIMEOUT, "it is served", served).await?;
    liar.report(
        &json!([
            current_report("shop", head.configs[0].uid.as_ref().map_or("", ConfigUid::as_str), "2"),
            current_report("other", "", "9")
        ]),
        true,
    )
    .await?;
    let status = rollout.wait_for_status("it counts", |status| status.pods.summary == "5/6").await?;
    ensure!(status.rollout.failure.is_none(), "{status:#?}");
    // One that has never spoken is not waited for, and what another reports is blamed on no other.
    rollout.request_version("3").await?;
    let config = rollout.uid();
    let assigned = |status: &_| assigned(status, config, &uid, WORKLOAD, pod.labels()) == Some("3");
    rollout.wait_for_status("3 is assigned to it", assigned).await?;
    let others_wait = |status: &VersionedConfigStatus| {
        status.rollout.evidence.as_ref().is_some_and(|known| (known.assigned, known.not_waited_for) == (5, 1))
    };
    rollout.wait_for_status("one is not waited for", others_wait).await?;
    liar.report(
        &json!([failed_report("shop", head.configs[0].uid.as_ref().map_or("", ConfigUid::as_str), "2")]),
        false,
    )
    .await?;
    let failure = async || rollout.status().await.ok()?.rollout.failure;
    let RolloutFailure { message, .. } = eventually(WAIT_TIMEOUT, "it is heard", failure).await?;
    ensure!(message.contains("pod liar reported about version 3"), "{message}");
    for member in &rollout.members {
        let text = condition(space, &member.name).await;
        ensure!(text.is_none_or(|(_, message)| !message.contains("broken")), "{} is said to have failed", member.name);
    }
    Ok(())
}
