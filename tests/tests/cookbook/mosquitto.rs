//! Mosquitto: a topic is opened and closed, while subscribers stay connected.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::eventually;

use crate::load::{Count, Load};
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

/// Messages of one round.
const MESSAGES: u64 = 100;

#[tokio::test]
async fn mosquitto() -> Result<()> {
    let tools = ["mosquitto", "mosquitto_pub", "mosquitto_sub"];
    let Some(recipe) = Recipe::find("mosquitto", "mosquitto", &tools)? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port.to_string();
    let may_publish = async || {
        let mut publish = Command::new("mosquitto_pub");
        let output = publish.args(["-p", &port, "-V", "5", "-q", "1", "-t", "prices/a", "-m", "x"]).output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(!String::from_utf8_lossy(&output.stderr).contains("Not authorized"))
    };
    wait_until_serving(&software, &false, may_publish).await?;

    let file = software.folder.join("subscriber");
    let lines = || fs::read_to_string(&file).map(|text| text.lines().count()).context("no subscriber");
    let subscribe = ["mosquitto_sub", "-p", &port, "-q", "1", "-t", "shop/#"];
    // To a terminal or by stdbuf: else the lines come when it ends.
    let mut subscriber = software.start_beside("subscriber", &[&["stdbuf", "-oL"][..], &subscribe].concat())?;
    let first = ["-p", &port, "-q", "1", "-t", "shop/a", "-m", "first"];
    let subscribed = async || {
        Command::new("mosquitto_pub").args(first).status().ok()?;
        lines().is_ok_and(|lines| lines > 0).then_some(())
    };
    eventually(WAIT_TIMEOUT, "the subscriber gets messages", subscribed).await?;
    let before = lines()?;
    let (repeat, address) = (MESSAGES.to_string(), port.clone());
    let load = Load::rounds(move || {
        let mut publish = Command::new("mosquitto_pub");
        publish.args([
            "-p",
            &address,
            "-q",
            "1",
            "-t",
            "shop/a",
            "-m",
            "x",
            "--repeat",
            &repeat,
            "--repeat-delay",
            "0.01",
        ]);
        let sent = publish.output()?.status.success();
        Ok(Count { done: u64::from(sent) * MESSAGES, dropped: u64::from(!sent), ..Count::default() })
    });
    let count = twenty_switches(&mut software, load, [false, true], may_publish).await?;
    ensure!(subscriber.try_exited()?.is_none(), "the subscriber has ended");
    let all = usize::try_from(count.done)?;
    eventually(WAIT_TIMEOUT, "the subscriber has all messages", async || (lines().ok()? >= before + all).then_some(()))
        .await?;
    // It drops its rules before it reads the file: a wrong file opens all topics.
    software.write_version("2.0.0", [("acl", "nonsense\n")])?;
    software.switch("2.0.0")?;
    let open = eventually(WAIT_TIMEOUT, "all topics are open", async || may_publish().await.ok()?.then_some(()));
    open.await.map_err(|error| software.agent.agent.explain(&error))?;
    software.agent.agent.check()
}
