//! The application of the integration tests: it prints the signals that it gets, and the values that it finds then.

#![allow(clippy::print_stdout, reason = "its output is what tests look at")]

use std::fs;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nudge_protocol::{env, reserved};
use nudge_tests::{Access, Client, eventually};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How long connecting may take on a busy machine.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// Catches signals and prints a line for each, after one that says that it is ready
#[derive(Debug, Parser)]
struct Args {
    /// Catch this signal; may be given several times
    #[arg(long = "catch", value_name = "SIGNAL")]
    signals: Vec<Signal>,
    /// Install the handlers only when this file is there
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,
    /// Take this time for each signal
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    slow: u64,
    /// Read this file at once with each signal, and print it too
    #[arg(long, value_name = "FILE", conflicts_with = "fetch")]
    read: Option<PathBuf>,
    /// Fetch the versions at once with each signal, and print them too
    #[arg(long)]
    fetch: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    // A test that ends early leaves nothing behind: this process ends with its parent.
    prctl::set_pdeathsig(Signal::SIGKILL).context("can't ask to end with the parent")?;
    let mut client = if args.fetch { Some(connect().await?) } else { None };
    if let Some(file) = args.after {
        say("without handlers");
        eventually(CONNECT_TIMEOUT, "the file is there", async || file.exists().then_some(())).await?;
    }

    let (sender, mut caught) = mpsc::unbounded_channel();
    for requested in args.signals {
        let mut stream =
            signal(SignalKind::from_raw(requested as i32)).with_context(|| format!("can't catch {requested}"))?;
        let sender = sender.clone();
        tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(requested).is_ok() {} });
    }
    say("ready");

    // The sender stays, so this ends only by a signal that is not caught.
    while let Some(signal) = caught.recv().await {
        tokio::time::sleep(Duration::from_millis(args.slow)).await;
        if let Some(client) = &mut client {
            let configs_reply = client.get(&format!("/config/{}", reserved::CONFIGS)).await?;
            say(&format!("{signal} {}", String::from_utf8_lossy(&configs_reply.body)));
        } else if let Some(file) = &args.read {
            say(&format!("{signal} {}", fs::read_to_string(file)?));
        } else {
            say(signal.as_str());
        }
    }
    Ok(())
}

/// Returns a client with an open connection, so that the first fetch takes no longer than the others.
async fn connect() -> Result<Client> {
    let mut client = Client::new(&Access::from_env()?)?;
    let path = format!("/config/{}", reserved::CONFIGS);
    client.get(&path).await.with_context(|| format!("{} can't be read", env::ENDPOINT))?;
    Ok(client)
}

fn say(what: &str) {
    println!("{} {what}", process::id());
}
