//! Pods whose service account is deleted, with a real API server.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use hyper::StatusCode;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_protocol::hub::PollRequest;
use nudge_protocol::pod::TOKEN_AUDIENCE;
use nudge_tests::Raw;
use nudge_tests::cluster::{Cluster, TestNamespace};
use serde_json::json;
use tokio::time::timeout;

use crate::cluster::{HubOnCluster, injected};
use crate::front::{after, message, poll, read};

/// How long a busy machine may take until the hub denies an account. A review is remembered for 10 minutes.
const DENIAL_TIMEOUT: Duration = Duration::from_mins(1);

/// A poll that is held, since its agent has all there is.
async fn held(hub: &HubOnCluster, token: &str) -> Result<Raw> {
    let mut agent = hub.front.connect().await?;
    agent.send(poll(token, &PollRequest::default())?).await?;
    let reply = agent.reply().await?;
    agent.send(poll(token, &after(&read(&reply)?.0))?).await?;
    Ok(agent)
}

async fn delete(space: &TestNamespace, account: &str) -> Result<()> {
    space.api::<ServiceAccount>().delete(account, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_pod_whose_service_account_is_deleted_gets_nothing_more_and_others_stay() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let hub = HubOnCluster::new(cluster).await?;
    let (space, web): (TestNamespace, Pod) = hub.space("accounts", true).await?;
    space.service_account("other").await?;
    let other = injected(&space, "other", "other").await?;
    let of_other = space.token("other", TOKEN_AUDIENCE, Some(&other)).await?;
    let mut stays = held(&hub, &of_other).await?;

    // Deleted; deleted and made again at once.
    for again in [false, true] {
        let token = space.token("app", TOKEN_AUDIENCE, Some(&web)).await?;
        let mut agent = held(&hub, &token).await?;
        ensure!(agent.reply().now_or_never().is_none(), "the poll is held");
        delete(&space, "app").await?;
        if again {
            space.service_account("app").await?;
        }
        let reply = timeout(DENIAL_TIMEOUT, agent.reply()).await??;
        ensure!(reply.status == StatusCode::UNAUTHORIZED, "{again}: {}", reply.status);
        // Whether the API server still accepts the token or not.
        ensure!(hub.status(&token).await? == StatusCode::UNAUTHORIZED, "{again}: a new connection");
        agent.send(message("/v1/report", &token, "{}")).await?;
        ensure!(agent.reply().await?.status == StatusCode::UNAUTHORIZED, "{again}: a report");

        if !again {
            space.service_account("app").await?;
        }
        ensure!(hub.status(&token).await? == StatusCode::UNAUTHORIZED, "{again}: the account of that name is another");
        let token = space.token("app", TOKEN_AUDIENCE, Some(&web)).await?;
        ensure!(hub.status(&token).await? == StatusCode::OK, "{again}: a token of the new account");
    }

    // The poll of the other pod was held all the time, and gets the next change.
    ensure!(stays.reply().now_or_never().is_none(), "the poll of another pod has ended");
    let next = Patch::Merge(json!({"status": {"currentVersion": null, "internal": {"revision": 2}}}));
    space.api::<VersionedConfig>().patch_status("shop", &PatchParams::default(), &next).await?;
    let reply = timeout(DENIAL_TIMEOUT, stays.reply()).await??;
    ensure!(read(&reply)?.0.configs[0].revision == 2, "{}", reply.status);
    Ok(())
}
