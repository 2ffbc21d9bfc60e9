//! Who may read little sees that.

use std::path::Path;

use anyhow::{Result, ensure};
use nudge_tests::Installation;
use nudge_tests::cluster::Identity;
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::servers::ISSUER;
use serde_json::{Value, json};

use crate::kubectl_nudge::scene::{becomes_current, run_by, run_successfully, status};

#[tokio::test]
async fn who_may_read_little_sees_that_and_learns_which_right_is_missing() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("viewer").await?;
    bind(&space, "nudge-secrets").await?;
    let secret = "--secret-from-literal=pin=hidden-4711";
    run_successfully(installation, &space, &["create", "game", "1", "--from-literal=lives=3", secret]).await?;
    becomes_current(&space, "game", "1").await?;
    run_successfully(installation, &space, &["create", "game", "2", "--from-literal=lives=4", secret]).await?;
    status(&space, "game", "2 is sealed", |status| status.version("2").is_some()).await?;
    let folder = tempfile::tempdir()?;
    let as_user = async |name: &str, rules: Option<Value>| -> Result<std::path::PathBuf> {
        space.service_account(name).await?;
        if let Some(rules) = rules {
            space.allow(name, rules).await?;
        }
        let token = space.token(name, ISSUER, None).await?;
        let file = folder.path().join(name);
        std::fs::write(&file, installation.cluster.kubeconfig_of(&Identity::Token(&token)))?;
        Ok(file)
    };
    let read = ["get", "list", "watch"];
    let viewer = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": read},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": read},
    ]);
    let viewer = as_user("viewer", Some(viewer)).await?;
    let nobody = as_user("nobody", None).await?;
    let run_expecting = async |by: &Path, code: i32, arguments: &[&str], stdout: &str, stderr: &str| -> Result<()> {
        let finished = run_by(by, &space, arguments).await?;
        let is = finished.code == Some(code) && finished.stdout.contains(stdout) && finished.stderr.contains(stderr);
        ensure!(is && !format!("{finished:?}").contains("hidden"), "{arguments:?}: {finished:?}");
        ensure!(stderr.is_empty() == finished.stderr.is_empty(), "{arguments:?}: {finished:?}");
        ensure!(finished.stderr.lines().count() <= 1, "{arguments:?}: {finished:?}");
        Ok(())
    };
    let pods = "warning: pods are not shown: pods is forbidden";
    run_expecting(&viewer, 0, &["status"], "game     1", pods).await?;
    run_expecting(&viewer, 0, &["status", "game"], "Current:   1", pods).await?;
    run_expecting(&viewer, 0, &["versions", "game"], "1         Current", "").await?;
    run_expecting(&viewer, 0, &["current", "game"], "1\n", "").await?;
    let keys = "warning: the keys of Secret game-1-2 are not shown: reading Secret game-1-2: secrets \"game-1-2\" is forbidden";
    run_expecting(&viewer, 0, &["get", "game"], "lives: \"3\"", keys).await?;
    let refused = "error: reading Secret game-1-2: secrets \"game-1-2\" is forbidden";
    run_expecting(&viewer, 1, &["get", "game", "--show-secrets"], "", refused).await?;
    run_expecting(&viewer, 1, &["diff", "game", "1", "2"], "", refused).await?;
    run_expecting(&viewer, 1, &["get", "web"], "", "error: reading pod web: pods \"web\" is forbidden").await?;
    run_expecting(&viewer, 1, &["use", "game", "2"], "", "; ask the namespace's admin for that right").await?;
    run_expecting(&nobody, 1, &["status"], "", "error: listing configs: versionedconfigs.nudge.dev is forbidden")
        .await?;
    run_expecting(
        &nobody,
        1,
        &["get", "game"],
        "",
        "error: reading config game: versionedconfigs.nudge.dev \"game\" is",
    )
    .await?;
    Ok(())
}
