//! One client can't make Nudge ask the API server as often as it likes, and keeps nobody else from being answered.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::join_all;
use nudge_server::rates::Rate;
use nudge_tests::eventually;
use serde_json::json;

use crate::forged::review;
use crate::guarded_cluster::{GuardedCluster, SOON, serve_with, tls};
use crate::server::WebhookClient;

const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How many connections it uses.
const AT_ONCE: usize = 40;
/// A rate that a busy machine can exceed: the default is ten times as high.
const RATE: Rate = Rate { per_second: 5, burst: 20 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_reviews_of_one_address_use_up_only_its_own_rate() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("rates").await?;
    let certified = guarded.authority.server(&["127.0.0.1"])?;
    let server = serve_with(guarded.cluster, tls(&certified)?, Arc::default(), Some(RATE)).await?;
    let client = WebhookClient::new(&guarded.authority, server.address())?;
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "1"}
    });
    let forged = review("VersionedConfig", "CREATE", &space.name, &object).to_string();
    // Namespaces that Nudge does not know are looked up no more often.
    let elsewhere = review("VersionedConfig", "CREATE", "nowhere", &object).to_string();
    let flood = async |forged: &str| {
        let all = (0..AT_ONCE).map(|_| client.ask_from(HOSTILE, "/validate/configs", forged));
        join_all(all).await.into_iter().flatten().find(|answer| answer.contains("\"code\":429"))
    };
    for forged in [&forged, &elsewhere] {
        let refused = eventually(SOON, "it asks too often", async || flood(forged).await).await?;
        ensure!(refused.starts_with("HTTP/1.1 200") && refused.contains("\"allowed\":false"), "{refused}");
        ensure!(
            refused.contains("the reviews of 127.0.0.2 make Nudge ask") && refused.contains("\"retryAfterSeconds\":1"),
            "{refused}"
        );
    }
    // Meanwhile: another client.
    let other = async {
        for _ in 0..RATE.burst {
            let answer = client.ask_from(Ipv4Addr::new(127, 0, 0, 3), "/validate/configs", &forged).await?;
            ensure!(answer.contains("\"allowed\":true"), "{answer}");
        }
        Ok(())
    };
    let attack = async {
        loop {
            flood(&forged).await;
        }
    };
    tokio::select! {
        done = other => done?,
        () = attack => {}
    }
    Ok(())
}
