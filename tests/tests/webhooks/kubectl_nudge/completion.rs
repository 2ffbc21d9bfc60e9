//! Arguments are completed.

use std::process::Command;

use anyhow::{Result, ensure};
use nudge_tests::{Finished, Installation, binary};

use crate::kubectl_nudge::scene::{becomes_current, run_successfully};

#[tokio::test]
async fn arguments_are_completed() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("words").await?;
    run_successfully(installation, &space, &["create", "game", "1.0.0", "--from-literal=a=b"]).await?;
    becomes_current(&space, "game", "1.0.0").await?;
    // kubectl runs a program of this name with the words of the command line.
    let link = tempfile::tempdir()?;
    let program = link.path().join("kubectl_complete-nudge");
    std::os::unix::fs::symlink(binary::kubectl_nudge()?, &program)?;
    let kubeconfig = installation.cluster.kubeconfig();
    let complete = async |words: &[&str]| -> Result<String> {
        let mut command = Command::new(&program);
        command.arg("--kubeconfig").arg(&kubeconfig).args(["-n", &space.name]).args(words);
        let finished = tokio::task::spawn_blocking(move || Finished::of(&mut command)).await??;
        ensure!(finished.code == Some(0), "{finished:?}");
        Ok(finished.stdout)
    };
    assert_eq!(complete(&["use", ""]).await?, "game\n:4\n");
    assert_eq!(complete(&["use", "game", "1"]).await?, "1.0.0\tCurrent\n:4\n");
    let script = run_successfully(installation, &space, &["completion"]).await?;
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("__complete"), "{script}");
    Ok(())
}
