//! One client can't make Nudge ask the API server as often as it likes, and keeps nobody else from being answered.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use nudge_api::VersionedConfig;
use nudge_tests::eventually;
use serde_json::json;

use crate::forged::review;
use crate::guarded_cluster::GuardedCluster;
use crate::server::Asker;

const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How many connections it uses.
const AT_ONCE: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_reviews_of_one_address_use_up_only_its_own_rate() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("rates").await?;
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"current": "1"}
    });
    let asker = Arc::new(Asker::new(&guarded.authority, guarded.server.address())?);
    let forged = Arc::new(review("VersionedConfig", "CREATE", &space.name, &object).to_string());
    let flood = async || {
        let all = (0..AT_ONCE).map(|_| asker.ask_from(HOSTILE, "/validate/configs", &forged));
        let answers = join_all(all).await.into_iter().flatten();
        answers.into_iter().find(|answer| answer.contains("\"code\":429"))
    };
    let refused = eventually(crate::guarded_cluster::SOON, "it asks too often", flood).await?;
    ensure!(refused.starts_with("HTTP/1.1 200") && refused.contains("\"allowed\":false"), "{refused}");
    ensure!(
        refused.contains("the reviews of 127.0.0.2 have made Nudge ask") && refused.contains("\"retryAfterSeconds\":1"),
        "{refused}"
    );

    // While it goes on: another client, and users of the API server, which has an address of its own.
    let others = async {
        let answer = asker.ask_from(Ipv4Addr::new(127, 0, 0, 3), "/validate/configs", &forged).await?;
        ensure!(answer.contains("\"allowed\":true"), "{answer}");
        for number in 0..20 {
            let mut own = object.clone();
            own["metadata"]["name"] = json!(format!("shop-{number}"));
            space.create_object::<VersionedConfig>(own).await.with_context(|| format!("number {number}"))?;
        }
        Ok(())
    };
    let attack = async {
        loop {
            flood().await;
        }
    };
    tokio::select! {
        done = others => done?,
        () = attack => {}
    }
    // Namespaces that Nudge does not know are looked up no more often.
    let elsewhere = review("VersionedConfig", "CREATE", "nowhere", &object).to_string();
    let flood = async || {
        let all = (0..AT_ONCE).map(|_| asker.ask_from(HOSTILE, "/validate/configs", &elsewhere));
        join_all(all).await.into_iter().flatten().find(|answer| answer.contains("\"code\":429"))
    };
    eventually(crate::guarded_cluster::SOON, "it asks too often", flood).await?;
    Ok(())
}
