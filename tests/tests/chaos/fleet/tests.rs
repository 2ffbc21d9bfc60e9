//! The view of an application of the fleet, without a cluster: one agent, and a hub that the test controls.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nudge_tests::{FakeHub, Pod, eventually, procfs};

use super::app_output::record_output;
use super::kubelet::PodHealth;
use super::member::start_application;
use crate::history::recorder::Recorder;
use crate::history::{How, Occurrence};

const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the process of the application that has read this version in this way.
fn reader_of(recorder: &Recorder, wanted: How, version: &str) -> Option<u32> {
    recorder.with_events(|events| {
        events.iter().rev().find_map(|event| match &event.what {
            Occurrence::Read { life, how, values, .. }
                if *how == wanted && values.get("nudge.config.shop.version").is_some_and(|read| read == version) =>
            {
                Some(*life)
            }
            _ => None,
        })
    })
}

#[tokio::test]
async fn an_application_says_what_it_reads_at_its_start_by_itself_and_when_it_is_notified() -> Result<()> {
    let hub = FakeHub::start()?;
    hub.activate("shop", "1", &[("shop.text", b"text@1")])?;
    let mut pod = Pod::new(&hub)?;
    let files = pod.path("files");
    pod.arguments.extend(["--mount-path".into(), files.into(), "--notify".into(), "app=SIGUSR1".into()]);
    let app = start_application(&pod, |_| ())?;
    pod.arguments.extend(["--process".into(), format!("app={}", app.pid()).into()]);
    let (recorder, health) = (Recorder::new(), Arc::new(PodHealth::default()));
    let output = tokio::spawn(record_output(pod.path("app.out"), "web".to_owned(), recorder.clone(), health));
    let reads = async |how: How, version: &str| {
        let wait = format!("it reads {version}, {how:?}");
        eventually(READ_TIMEOUT, &wait, async || reader_of(&recorder, how, version)).await
    };

    let _client = pod.start().await?;
    for how in [How::Started, How::Endpoint, How::Files] {
        reads(how, "1").await?;
    }
    hub.activate("shop", "2", &[("shop.text", b"text@2")])?;
    let life = reads(How::Notified, "2").await?;
    reads(How::Files, "2").await?;

    // What is killed is started again, and says so.
    let process = procfs::descendants(app.pid())?.into_iter().next().context("no application")?;
    kill(Pid::from_raw(process), Signal::SIGKILL)?;
    let other = reads(How::Started, "2").await?;
    ensure!(other != life, "it is the same process");
    hub.activate("shop", "3", &[("shop.text", b"text@3")])?;
    ensure!(reads(How::Notified, "3").await? == other, "another one was notified");
    output.abort();
    Ok(())
}
