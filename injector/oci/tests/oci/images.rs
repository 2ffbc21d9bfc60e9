//! Images for several platforms, made by umoci and pushed by skopeo.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nudge_oci::{OciError, PullRequest};
use serde_json::{Value, json};

use crate::asking::{all, anywhere, files, plain, pulled, refused, tag};
use crate::registry::DockerRegistry;

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let run = Command::new(program).args(arguments).current_dir(folder).env("TMPDIR", folder).output();
    let run = run.with_context(|| format!("{program}; tests/run installs it"))?;
    ensure!(run.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    Ok(run.stdout)
}

/// An image of two layers in the layout `L`: the second layer removes `old` of the first layer.
fn image(folder: &Path, architecture: &str) -> Result<()> {
    let (image, root) = (format!("L:{architecture}"), folder.join(architecture));
    fs::create_dir_all(root.join("prod"))?;
    fs::write(root.join("prod/app.yaml"), architecture)?;
    fs::write(root.join("old"), "old")?;
    std::os::unix::fs::symlink("prod", root.join("link"))?;
    run(folder, "umoci", &["new", "--image", &image])?;
    run(folder, "umoci", &["config", "--image", &image, "--architecture", architecture])?;
    run(folder, "umoci", &["insert", "--rootless", "--image", &image, architecture, "/etc/shop"])?;
    run(folder, "umoci", &["insert", "--rootless", "--image", &image, "--whiteout", "/etc/shop/old"]).map(drop)
}

#[tokio::test]
async fn an_image_is_chosen_by_platform_and_its_layers_lie_on_each_other() -> Result<()> {
    let (server, registry) = (DockerRegistry::start("", "").await?, anywhere());
    let work = tempfile::tempdir()?;
    let folder = work.path();
    run(folder, "umoci", &["init", "--layout", "L"])?;
    image(folder, "amd64")?;
    image(folder, "arm64")?;
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    fs::write(folder.join("policy.json"), policy)?;
    // An index of both, in a layout of its own.
    let layout: Value = serde_json::from_slice(&fs::read(folder.join("L/index.json"))?)?;
    let manifests: Vec<Value> = layout["manifests"].as_array().context("no manifests")?.clone();
    let named = |it: &Value| {
        let architecture = it["annotations"]["org.opencontainers.image.ref.name"].clone();
        json!({"mediaType": it["mediaType"], "digest": it["digest"], "size": it["size"],
               "platform": {"os": "linux", "architecture": architecture}})
    };
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                       "manifests": manifests.iter().map(named).collect::<Vec<_>>()})
    .to_string();
    let digest = crate::stand_in::digest_of(index.as_bytes());
    fs::write(folder.join("L/blobs/sha256").join(&digest["sha256:".len()..]), &index)?;
    let entry = json!({"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest, "size": index.len(),
                       "annotations": {"org.opencontainers.image.ref.name": "all"}});
    let manifests: Vec<Value> = std::iter::once(entry).chain(manifests).collect();
    let layout = json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(folder.join("L/index.json"), layout.to_string())?;
    let to = |tag: &str| format!("docker://{}/team/shop:{tag}", server.host());
    let copy = |arguments: &[&str]| {
        let always = ["--policy", "policy.json", "copy", "--dest-tls-verify=false"];
        run(folder, "skopeo", &[&always, arguments].concat())
    };
    copy(&["--all", "oci:L:all", &to("all")])?;
    copy(&["--format", "v2s2", "oci:L:arm64", &to("docker")])?;
    let reference = plain(&server.host())?;
    let (all_of, docker) = (tag("all"), tag("docker"));
    let of = |platform| PullRequest { platform, path: "etc/shop/prod", ..all(&reference, &all_of) };
    for (platform, architecture) in [("linux/amd64", "amd64"), ("linux/arm64", "arm64")] {
        let found = pulled(&registry, &of(Some(platform))).await?;
        ensure!(found.files == files([("app.yaml", architecture)]) && found.digest == digest, "{found:?}");
        ensure!(found.created.is_some(), "an image says when it was made");
    }
    let found = pulled(&registry, &PullRequest { path: "etc/shop/prod", ..all(&reference, &docker) }).await?;
    ensure!(found.files == files([("app.yaml", "arm64")]) && found.digest != digest, "{found:?}");
    // Whiteouts, unwanted links, wanted links, and links that lead to wanted files.
    let no_link = PullRequest { path: "etc/shop", is_wanted: &|path| path != "link", ..all(&reference, &docker) };
    let found = pulled(&registry, &no_link).await?;
    ensure!(found.files == files([("prod/app.yaml", "arm64")]), "{found:?}");
    for path in ["etc/shop", "etc/shop/link", "etc/shop/link/app.yaml"] {
        let error = refused(&registry, &PullRequest { path, ..all(&reference, &docker) }).await?;
        ensure!(error.to_string().starts_with("etc/shop/link is a link"), "{path}: {error}");
    }
    let both = ["linux/amd64", "linux/arm64"];
    let which = refused(&registry, &of(None)).await?;
    ensure!(matches!(&which, OciError::WhichPlatform(there) if *there == both), "{which}");
    let none = refused(&registry, &of(Some("linux/s390x"))).await?;
    ensure!(matches!(&none, OciError::NoPlatform { platforms, .. } if *platforms == both), "{none}");
    Ok(())
}
