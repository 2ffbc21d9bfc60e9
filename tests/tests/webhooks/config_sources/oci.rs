//! Artifacts that `kubectl nudge push` has pushed into a real registry become versions; every fault leaves the last
//! one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_tests::cluster::analysis::own_address;
use nudge_tests::servers::registry::{PASSWORD, Registry};
use nudge_tests::{binary, ports, tools};
use serde_json::{Value, json};

use crate::config_sources::git::credentials;
use crate::config_sources::scene::{
    condition, enabled, is, nowhere_logged, origin, patched, source, until, wait_until_current,
};

/// Returns a registry at an address of this machine that is not the loopback.
pub(crate) async fn registry() -> Result<Option<Registry>> {
    let Some(ip) = own_address()? else {
        tools::skipped("this machine has no address but the loopback, to which nothing is sent");
        return Ok(None);
    };
    Registry::start_at(ports::free_at(ip)?).await
}

/// `kubectl nudge` with the registry's authority and a docker config.
pub(crate) fn nudge(folder: &Path, registry: &Registry, password: &str, arguments: &[&str]) -> Result<(bool, String)> {
    let (ca, config) = (folder.join("ca.crt"), folder.join("config.json"));
    fs::write(&ca, registry.ca())?;
    fs::write(&config, registry.docker_config(password).to_string())?;
    let mut command = Command::new(binary::kubectl_nudge()?);
    let output = command.args(arguments).env("SSL_CERT_FILE", ca).env("DOCKER_CONFIG", folder).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?.trim().to_owned()))
}

#[tokio::test]
async fn artifacts_become_versions_and_every_fault_leaves_the_last_one() -> Result<()> {
    let Some(space) = enabled("oci", false).await? else { return Ok(()) };
    let Some(registry) = registry().await? else { return Ok(()) };
    let ip = own_address()?.context("no address")?;
    let home = tempfile::tempdir()?;
    let folder = home.path().join("config");
    fs::create_dir_all(folder.join("db"))?;
    fs::write(folder.join("a.conf"), "one\n")?;
    let push = |pool: &str, tag: &str, password: &str| {
        fs::write(folder.join("db/pool"), pool)?;
        let to = format!("oci://{}/team/shop:{tag}", registry.host());
        nudge(home.path(), &registry, password, &["push", &folder.display().to_string(), &to])
    };
    let (refused, said) = push("10\n", "1.0.0", "pw-wrong-hunter2")?;
    ensure!(!refused && said.contains("credential") && !said.contains("hunter2"), "{said}");
    let (pushed, digest) = push("10\n", "1.0.0", PASSWORD)?;
    ensure!(pushed && digest.starts_with("sha256:"), "{digest}");
    ensure!(push("10\n", "1.0.0", PASSWORD)?.1 == digest, "the same files are the same artifact");

    let pull = |password: &str| json!({".dockerconfigjson": registry.docker_config(password).to_string()});
    credentials(&space, "pull", &ip.to_string(), &pull(PASSWORD)).await?;
    let url = format!("oci://{}/team/shop", registry.host());
    let oci = json!({"url": url, "semver": "1.x", "ca": registry.ca(), "secretRef": {"name": "pull"}});
    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0, "periodSeconds": 10});
    source(&space, "shop", &json!({"oci": oci}), &extra_spec).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    let data = async |version: &str| {
        let map = space.api::<ConfigMap>().get(&format!("shop-{version}")).await?;
        Ok::<_, anyhow::Error>(json!(map.data))
    };
    ensure!(data(&first).await? == json!({"a.conf": "one\n", "db.pool": "10\n"}));
    let origin = origin::<ConfigMap>(&space, "shop", &first).await?;
    ensure!(*origin.revision == *digest && *origin.url == *url, "{origin:?}");
    // A higher version, by the period alone.
    push("20\n", "1.1.0", PASSWORD)?;
    push("30\n", "2.0.0", PASSWORD)?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    ensure!(data(&second).await?["db.pool"] == "20\n");

    let fails = async |what: &str, reason: &'static str, says: &str| {
        let status =
            until(&space, "shop", what, |status| is(reason)(status) && condition(status, "Fetched").2.contains(says));
        let status = status.await.with_context(|| what.to_owned())?;
        ensure!(status.version.as_ref() == Some(&second), "{status:?}");
        Ok(())
    };
    let spec = async |oci: Value| patched(&space, "shop", &json!({"spec": {"from": {"oci": oci}}})).await;
    spec(json!({"semver": "3.x"})).await?;
    fails("no tag in the range", "FetchFailed", "3.x").await?;
    spec(json!({"semver": null, "tag": "gone"})).await?;
    fails("a lost tag", "FetchFailed", "gone").await?;
    spec(json!({"tag": "1.1.0", "path": "nothing"})).await?;
    fails("a lost path", "FetchFailed", "nothing").await?;
    let two = spec(json!({"semver": "1.x"})).await.err().context("two picks were taken")?;
    ensure!(
        format!("{two:#}").contains("spec.from.oci: it must have exactly one of tag, semver and digest"),
        "{two:#}"
    );
    spec(json!({"path": null, "secretRef": null})).await?;
    fails("nobody", "FetchFailed", "credential").await?;
    credentials(&space, "expired", &ip.to_string(), &pull("pw-expired-hunter2")).await?;
    credentials(&space, "elsewhere", "registry.example.com", &pull(PASSWORD)).await?;
    for (secret, reason, says) in
        [("expired", "FetchFailed", "credential"), ("elsewhere", "SourceRefused", "Secret elsewhere is not for")]
    {
        spec(json!({"secretRef": {"name": secret}})).await?;
        fails(secret, reason, says).await?;
    }
    spec(json!({"secretRef": null, "ca": null})).await?;
    fails("another authority", "FetchFailed", "authority of its certificate is not trusted").await?;
    spec(json!({"url": "oci://127.0.0.1:1/shop"})).await?;
    fails("the machine itself", "FetchFailed", "nothing is sent to 127.0.0.1").await?;
    spec(json!({"url": url, "ca": registry.ca(), "secretRef": {"name": "pull"}})).await?;
    until(&space, "shop", "all is right again", is("Activated")).await?;
    let encoded = {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(format!("{}:{PASSWORD}", nudge_tests::servers::registry::USER))
    };
    nowhere_logged(&[PASSWORD, "pw-expired-hunter2", &encoded]).await?;
    ensure!(!registry.log().contains(PASSWORD));
    Ok(())
}
