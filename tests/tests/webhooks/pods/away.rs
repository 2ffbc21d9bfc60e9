//! Requests that never reach Nudge, requests that reach it with the component admission-policies, and the effects of
//! Nudge's absence.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::Options;
use nudge_tests::cluster::installation::{deploy, webhooks_at};
use nudge_tests::{Cluster, Finished, Installation, eventually};
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{
    WAIT_TIMEOUT, config_map, create, dry, has_agent, opted_in, pod_without_opt_in, refusal, reviews,
    wait_until_injected,
};

/// Returns a pod that opts in by the annotation alone.
fn by_annotation(name: &str, value: &str) -> Value {
    let mut pod = pod_without_opt_in(name);
    pod["metadata"]["annotations"] = json!({"nudge.dev/inject": value});
    pod
}

/// Returns the webhooks of the base with the component's changes, as kustomize makes them.
async fn with_component(cluster: &Cluster) -> Result<String> {
    let folder = cluster.folder().join("kustomize");
    for (from, to) in [("base", "base"), ("components/admission-policies", "component")] {
        copy(&deploy().join(from), &folder.join(to))?;
    }
    fs::write(folder.join("kustomization.yaml"), "resources: [base]\ncomponents: [component]\n")?;
    let path = folder.to_str().context("the path is not UTF-8")?;
    let Finished { code, stdout, stderr } = cluster.kubectl(&["kustomize", path]).await?.context("no kubectl")?;
    ensure!(code == Some(0), "{stderr}");
    let documents = stdout.split("\n---\n").filter(|document| document.contains("WebhookConfiguration"));
    Ok(documents.collect::<Vec<_>>().join("\n---\n"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn only_pods_that_opt_in_where_nudge_is_enabled_depend_on_it() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut replica = installation.guarded_replica().await?;
    let space = installation.enabled("enabled").await?;
    wait_until_injected(&space).await.with_context(|| replica.log())?;
    let elsewhere = cluster.space("elsewhere").await?;
    config_map(&elsewhere).await?;

    // Not asked about: proved by the count of what was asked.
    let before = reviews(&replica).await?;
    assert!(before >= 1.0);
    create(&space, &pod_without_opt_in("plain")).await?;
    let mut out = opted_in("out");
    out["metadata"]["labels"]["nudge.dev/inject"] = json!("false");
    create(&space, &out).await?;
    create(&space, &by_annotation("unseen", "true")).await?;
    assert!(!has_agent(&create(&elsewhere, &opted_in("web")).await?));
    assert!(reviews(&replica).await? <= before, "nothing of this is Nudge's affair");
    assert!(has_agent(&create(&space, &opted_in("web")).await?));
    assert!(reviews(&replica).await? > before);

    if cluster.has(30, "opting in by an annotation") {
        let text = with_component(&cluster).await?;
        let address = replica.admission;
        let text = webhooks_at(&text, address)?;
        cluster.kubectl_on(&["apply", "--server-side", "--force-conflicts"], &text).await?;
        // If this removes the authority, the leader writes it again within a minute.
        let by = async || dry(&space, &by_annotation("probe", "true")).await.ok().filter(has_agent).map(drop);
        eventually(WAIT_TIMEOUT * 2, "annotated pods are injected", by).await.with_context(|| replica.log())?;

        let before = reviews(&replica).await?;
        create(&space, &pod_without_opt_in("plain-2")).await?;
        create(&space, &by_annotation("out-2", "false")).await?;
        let mut both = by_annotation("both", "false");
        both["metadata"]["labels"] = json!({"nudge.dev/inject": "true"});
        create(&space, &both).await?;
        create(&elsewhere, &by_annotation("web-2", "true")).await?;
        assert!(reviews(&replica).await? <= before, "nothing of this is Nudge's affair");
        assert!(has_agent(&create(&space, &by_annotation("by-annotation", "true")).await?));
        assert!(has_agent(&create(&space, &opted_in("by-label")).await?));
        let message = refusal(create(&space, &by_annotation("odd", "yes")).await);
        assert!(message.contains("Pod odd: annotation nudge.dev/inject"), "{message}");
    }

    replica.process.kill()?;
    create(&space, &pod_without_opt_in("plain-3")).await?;
    create(&elsewhere, &opted_in("web-3")).await?;
    let message = refusal(create(&space, &opted_in("web-3")).await);
    // Which hook, and where it was looked for: behind a Service that stands in Nudge's namespace.
    assert!(message.contains("failed calling webhook \"pods.nudge.dev\""), "{message}");
    assert!(message.contains("/mutate/pods"), "{message}");
    Ok(())
}
