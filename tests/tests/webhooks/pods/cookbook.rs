//! The pods on the pages of the cookbook, as they stand there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{InjectingCluster, dry, has_agent};

#[tokio::test]
async fn every_pod_of_the_cookbook_is_injected() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("cookbook").await?;
    let mut pods = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cookbook"))? {
        let page = entry?.path().join("README.md");
        // The page about systemd has no pod.
        let text = fs::read_to_string(&page).unwrap_or_default();
        let Some((_, manifest)) = text.split_once("```yaml\n") else { continue };
        let manifest = manifest.split_once("```").context("it has no end")?.0;
        let mut pod: Value = serde_saphyr::from_str(manifest).with_context(|| page.display().to_string())?;
        pod["metadata"]["name"] = json!("cookbook");
        // Old servers refuse a pod whose service account has no token in a Secret yet.
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        let injected = dry(&space, &pod).await.with_context(|| page.display().to_string())?;
        ensure!(has_agent(&injected), "{}", page.display());
        pods += 1;
    }
    ensure!(pods == 11, "{pods} pages have a pod");
    Ok(())
}
