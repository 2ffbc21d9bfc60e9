//! Slow servers of one namespace keep the sources of others waiting for nothing.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nudge_tests::cluster::analysis::own_address;
use nudge_tests::eventually;
use nudge_tests::servers::git_repository::Repository;
use nudge_tests::servers::git_server::GitServer;
use parking_lot::Mutex;
use serde_json::json;

use crate::config_sources::scene::{enabled, source, wait_until_current};

/// Returns a server that takes connections and says nothing.
fn silent() -> Result<(String, Arc<Mutex<Vec<TcpStream>>>)> {
    let listener = TcpListener::bind((own_address()?.context("no address")?, 0))?;
    let (url, taken) = (format!("https://{}/shop", listener.local_addr()?), Arc::<Mutex<Vec<_>>>::default());
    let streams = Arc::clone(&taken);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            streams.lock().push(stream);
        }
    });
    Ok((url, taken))
}

#[tokio::test]
async fn slow_servers_of_one_namespace_do_not_take_the_turns_of_others() -> Result<()> {
    let Some(slow) = enabled("git-slow", false).await? else { return Ok(()) };
    let Some(quick) = enabled("git-quick", false).await? else { return Ok(()) };
    let Some(server) = GitServer::start_outside("").await? else { return Ok(()) };
    Repository::new(server.root(), "shop")?;
    let (url, taken) = silent()?;
    // Other paths are other repositories, which wait for no common mirror.
    for number in 0..8 {
        let git = json!({"url": format!("{url}-{number}")});
        source(&slow, &format!("shop-{number}"), &json!({"git": git}), &json!({})).await?;
    }
    let ask = || taken.lock().len();
    eventually(Duration::from_mins(1), "a slow server is asked", async || (ask() > 0).then_some(())).await?;
    let git = json!({"url": server.url("open/shop"), "path": "config/prod", "ca": server.ca()});
    source(&quick, "shop", &json!({"git": git}), &json!({"debounceSeconds": 0, "minPeriodSeconds": 0})).await?;
    wait_until_current(&quick, "shop", None).await?;
    // One at a time: the second only where this machine is so busy that the first was given up meanwhile.
    ensure!(ask() <= 2, "{} of the slow servers had a turn before", ask());
    Ok(())
}
