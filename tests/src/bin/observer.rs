//! The application of the chaos test: it prints the values that it finds at its start, at each signal, and at its own
//! checks, as lines of JSON with the time.

#![allow(clippy::print_stdout, reason = "its output is what the test looks at")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nudge_protocol::env;
use nudge_tests::Client;
use nudge_tests::clock::Monotonic;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// How often the configuration is read without a signal.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// How often an unchanged configuration is printed again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Reads its configuration again and again, and says what it finds
#[derive(Debug, Parser)]
struct Args {
    /// Folder with the env file, which the agent shares with containers
    #[arg(long, value_name = "DIR")]
    share: PathBuf,
    /// Folder with the values as files
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
}

/// How long the endpoint may take: its agent may stand still.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type Values = BTreeMap<String, String>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    // A test that ends early leaves nothing behind: this process ends with its parent.
    prctl::set_pdeathsig(Signal::SIGKILL).context("can't ask to end with the parent")?;
    // Before the first read: no change is missed between the two.
    let mut signals = signal(SignalKind::user_defined1()).context("can't catch SIGUSR1")?;
    let mut client = None;
    let mut how = Some("started");
    let mut message: BTreeMap<&str, (Values, Instant)> = BTreeMap::new();
    let mut looks = interval(READ_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(()) = signals.recv() => how = Some("notified"),
            _ = looks.tick() => {}
        }
        // A start or a signal without an answer is not forgotten: it is read for as soon as the endpoint answers.
        if let Ok(Ok(values)) = timeout(ANSWER_TIMEOUT, fetch(&mut client, &args.share)).await {
            match how.take() {
                Some(how) => say(how, &values),
                None => say_if_changed("endpoint", values, &mut message),
            }
        } else {
            client = None;
        }
        if let Ok(values) = read(&args.files) {
            say_if_changed("files", values, &mut message);
        }
    }
}

fn say(how: &str, values: &Values) {
    println!("{}", json!({"at": Monotonic::now().nanos(), "pid": process::id(), "how": how, "values": values}));
}

/// Says what has changed, and else that nothing has, from time to time.
fn say_if_changed(how: &'static str, values: Values, said: &mut BTreeMap<&'static str, (Values, Instant)>) {
    let now = Instant::now();
    if said.get(how).is_none_or(|(before, at)| *before != values || now - *at >= REPEAT_INTERVAL) {
        say(how, &values);
        said.insert(how, (values, now));
    }
}

/// Returns the dictionary of the endpoint.
async fn fetch(client: &mut Option<Client>, share: &Path) -> Result<Values> {
    let client = match client {
        Some(client) => client,
        None => client.insert(connect(share)?),
    };
    let reply = client.get(env::CONFIG_PATH).await?;
    ensure!(reply.status == 200, "{}", reply.status);
    Ok(serde_json::from_slice(&reply.body)?)
}

fn connect(share: &Path) -> Result<Client> {
    let variables = fs::read_to_string(share.join("env"))?;
    let variable = |name: &str| {
        let line = variables.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("='"));
        line.and_then(|value| value.strip_suffix('\'')).with_context(|| format!("no {name}"))
    };
    let endpoint: hyper::Uri = variable(env::ENDPOINT)?.parse()?;
    let address = endpoint.authority().context("no address")?.as_str().parse()?;
    Client::with_token(address, variable(env::TOKEN)?, &share.join("ca.crt"))
}

/// Returns all files of one state: what the link names, whatever it names afterwards.
fn read(files: &Path) -> io::Result<Values> {
    let folder = files.join(fs::read_link(files.join("..data"))?);
    let mut values = Values::new();
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        values.insert(entry.file_name().to_string_lossy().into_owned(), fs::read_to_string(entry.path())?);
    }
    // One that is being removed is no state.
    if fs::read_link(files.join("..data")).is_ok_and(|now| files.join(now) == folder) {
        Ok(values)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}
