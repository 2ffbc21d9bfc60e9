//! The examples' Deployments: their facts about the examples, and a server's acceptance of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use nudge_tests::cluster::Options;
use nudge_tests::{Cluster, eventually};
use serde_json::{Value, json};

use crate::deploy::manifests::{documents, read};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Examples, and how each is notified.
const EXAMPLES: [(&str, &str); 6] = [
    ("python", "SIGUSR1"),
    ("node", "SIGUSR2"),
    ("shell", "SIGUSR1"),
    ("rust", "SIGUSR1"),
    ("webhook", "webhook"),
    ("nginx", "SIGHUP"),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn manifest(name: &str) -> Result<String> {
    read(&examples().join("deploy").join(format!("{name}.yaml")))
}

fn deployment(example: &str) -> Result<Value> {
    let mut objects = documents(&manifest(example)?)?;
    ensure!(objects.len() == 1, "{example} is one object");
    Ok(objects.remove(0))
}

#[test]
fn the_configs_are_those_of_local_mode() -> Result<()> {
    for config in ["shop", "web"] {
        let objects = documents(&manifest(config)?)?;
        for version in ["1.0.0", "1.0.1"] {
            let name = format!("{config}-{version}");
            let object = objects.iter().find(|object| object["metadata"]["name"] == name.as_str()).context(name)?;
            assert_eq!(object["metadata"]["labels"], json!({"nudge.dev/config": config, "nudge.dev/version": version}));
            let mut files = BTreeMap::new();
            for entry in fs::read_dir(examples().join("config").join(config).join(version))? {
                let path = entry?.path();
                let key = path.file_name().and_then(|name| name.to_str()).context("odd name")?.to_owned();
                files.insert(key, read(&path)?);
            }
            assert_eq!(object["data"], json!(files), "{config} {version}");
        }
    }
    Ok(())
}

#[test]
fn every_example_opts_in_and_has_an_image() -> Result<()> {
    for (example, notify) in EXAMPLES {
        let deployment = deployment(example)?;
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["nudge.dev/inject"], "true", "{example}");
        assert_eq!(template["metadata"]["annotations"]["nudge.dev/inject"], "true", "{example}");
        assert_eq!(template["metadata"]["annotations"]["nudge.dev/notify"], notify, "{example}");
        let image = format!("nudge-example-{example}:0.1.0");
        assert_eq!(template["spec"]["containers"][0]["image"], image.as_str());
        let build = read(&examples().join(example).join("Containerfile"))?;
        ensure!(build.contains(&image), "{example}");
        let user = template["spec"]["securityContext"]["runAsUser"].as_u64().context("no user")?;
        ensure!(build.contains(&format!("USER {user}:")), "{example}");
        for line in build.lines().filter_map(|line| line.strip_prefix("COPY examples/")) {
            for file in line.split(' ').filter(|word| !word.starts_with('/')) {
                let file = file.trim_start_matches("examples/");
                ensure!(examples().join(file).is_file(), "{example}: {file}");
            }
        }
    }
    let listed = documents(&manifest("kustomization")?)?.remove(0);
    let listed: Vec<_> = listed["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let expected = ["shop", "web"].into_iter().chain(EXAMPLES.map(|(name, _)| name)).map(|name| format!("{name}.yaml"));
    assert_eq!(listed, expected.collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn every_example_is_accepted() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let enforce = ("pod-security.kubernetes.io/enforce", "restricted");
    let space = cluster.space_with("examples", &[enforce]).await?;
    let place = ["--warnings-as-errors", "--namespace", space.name.as_str()];
    for name in ["shop", "web", "game"].into_iter().chain(EXAMPLES.map(|(name, _)| name)) {
        let text = manifest(name)?;
        for way in [["apply", "--server-side", "--dry-run=server"].as_slice(), &["apply", "--server-side"]] {
            // Until the server's schemas have the new kind, kubectl looks for it in ways that old servers warn of.
            let mut refusal = String::new();
            let accepted = eventually(WAIT_TIMEOUT, "it is accepted", async || {
                let tried = cluster.kubectl_on(&[way, &place].concat(), &text).await;
                tried.map_err(|error| refusal = format!("{name}: {error:#}")).ok().map(drop)
            })
            .await;
            accepted.with_context(|| refusal)?;
        }
    }
    // What the Deployments' controller would create; as it stands, without an agent.
    for (example, _) in EXAMPLES {
        let mut template = deployment(example)?["spec"]["template"].take();
        template["metadata"]["name"] = json!(example);
        let pod: Pod = serde_json::from_value(template)?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        space.api::<Pod>().create(&dry, &pod).await.with_context(|| example.to_owned())?;
    }
    Ok(())
}
