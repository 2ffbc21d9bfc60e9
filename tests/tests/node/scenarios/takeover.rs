//! Somebody who may make ConfigMaps and do everything with VersionedConfigs, but not update ConfigMaps, tries to decide
//! about the content of the ConfigMap `shop` and the version of a pod, by the detour of deleting the config. Her
//! attempts while the control plane is away are here, too, for the scenario [`away`](super::away).

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::at_once;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::failures;
use crate::objects::{list, opted_in, plain, pod, published_config, shell};
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;
use nudge_tests::eventually;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = ScenarioNamespace::enabled(suite, "takeover").await?;
    home.apply(&list([plain("shop", &json!({"greeting": "owner"})), role(), binding()]))?;
    home.apply(&published_config("shop", &[("1.0.0", json!({"greeting": "owner"}))], &at_once()))?;
    home.wait_until_current("shop", "1.0.0").await?;
    home.apply(
        &pod(opted_in("web", &shell(&home, failures::APP), &[("configs", "shop"), ("notify", "SIGUSR1")])).to_string(),
    )?;
    let web = home.ready_pod("app=web").await?;
    let log = home.follow(&web).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has owner").await?;
    let configs = home.space.api::<VersionedConfig>();

    let force = ["annotate", "vcfg", "shop", "nudge.dev/force-delete=true"];
    let finalizer =
        ["patch", "vcfg", "shop", "--type=merge", "-p", r#"{"metadata": {"finalizers": ["devs.example.com/mine"]}}"#];
    assert_eve_refused(&home, &force, "may not set its annotation nudge.dev/force-delete")?;
    assert_eve_refused(&home, &finalizer, "may not add a finalizer to it")?;
    let delete = ["delete", "vcfg", "shop", "--wait=false"];
    let kept = home.kubectl(&delete).err().context("a config with a pod was deleted")?.to_string();
    ensure!(kept.contains("because 1 pod uses it"), "{kept}");

    // From here on as if an admin had helped, whatever for.
    home.kubectl(&force)?;
    home.kubectl(&finalizer)?;
    assert_eve_refused(&home, &delete, "needs the right to delete ConfigMaps")?;
    home.kubectl(&delete)?;
    let warned = eve(&home, &["create", "-f", "-"], &version("6.6.7"))?;
    ensure!(
        warned.contains("version 6.6.7 of config shop will not become current by itself"),
        "she is warned: {warned}"
    );
    eve(&home, &["patch", "vcfg", "shop", "--type=merge", "-p", r#"{"metadata": {"finalizers": null}}"#], "")?;
    eventually(WAIT_TIMEOUT, "the config is gone", async || {
        configs.get_opt("shop").await.ok()?.is_none().then_some(())
    })
    .await?;
    let maps = home.space.api::<ConfigMap>();
    eventually(WAIT_TIMEOUT, "so is its version", async || {
        maps.get_opt("shop-1.0.0").await.ok()?.is_none().then_some(())
    })
    .await?;
    let message = eve(&home, &["create", "-f", "-"], &config_without_version())
        .err()
        .context("she could make the config")?
        .to_string();
    ensure!(message.contains("may not create it, because that decides what ConfigMap shop holds"), "{message}");
    home.apply(&config_without_version())?;
    assert_owner_decides(&home).await?;
    assert_untouched(&home, &web).await?;

    // It is the owner's to say.
    home.activate("shop", "6.6.7").await?;
    home.wait_until_current("shop", "6.6.7").await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has hers").await?;
    ensure!(published_greeting(&home).await? == "hers", "it is not published");
    Ok(())
}

/// Checks that pods get the owner's ConfigMap, though the one version that somebody made is hers.
pub(super) async fn decides_nothing(home: &ScenarioNamespace<'_>) -> Result<()> {
    home.apply(&list([plain("shop", &json!({"greeting": "owner"})), role(), binding()]))?;
    let try_to_create = async || eve(home, &["create", "-f", "-"], &version("6.6.7")).ok().map(drop);
    eventually(WAIT_TIMEOUT, "she may make a version", try_to_create).await?;
    home.apply(&config_without_version())?;
    assert_owner_decides(home).await
}

/// Checks that she decides nothing while the control plane is away.
pub(super) fn decides_nothing_alone(home: &ScenarioNamespace<'_>) -> Result<()> {
    eve(home, &["create", "-f", "-"], &version("6.6.8"))?;
    let changed = eve(home, &["patch", "vcfg", "shop", "--type=merge", "-p", r#"{"spec": {"version": "6.6.8"}}"#], "");
    let message = changed.err().context("she could set spec.version")?.to_string();
    ensure!(message.contains("configs"), "{message}");
    Ok(())
}

/// Checks that she decides nothing when the control plane is back.
pub(super) async fn still_decides_nothing(home: &ScenarioNamespace<'_>) -> Result<()> {
    let configs = home.space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "6.6.8 is sealed", async || {
        configs.get("shop").await.ok()?.status?.version("6.6.8").map(drop)
    })
    .await?;
    assert_owner_decides(home).await
}

/// Returns what eve may.
fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "eve"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]},
            {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]},
        ],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "eve"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    })
}

fn version(version: &str) -> String {
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("shop-{version}"), "labels": labels},
        "immutable": true, "data": {"greeting": "hers"},
    })
    .to_string()
}

/// Returns the config without a word about its versions.
fn config_without_version() -> String {
    let spec = json!({"rollout": at_once(), "objects": ["ConfigMap"]});
    json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": spec})
        .to_string()
}

/// Runs kubectl as eve, with this on its input; returns all that it says.
fn eve(home: &ScenarioNamespace<'_>, arguments: &[&str], input: &str) -> Result<String> {
    let mut command = home.place.command("kubectl");
    command.args(["-n", &home.space.name, "--as=eve"]).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(output.status.success(), "eve: kubectl {arguments:?}: {text}");
    Ok(text)
}

fn assert_eve_refused(home: &ScenarioNamespace<'_>, arguments: &[&str], because: &str) -> Result<()> {
    let message = eve(home, arguments, "").err().with_context(|| format!("eve could {arguments:?}"))?.to_string();
    ensure!(message.contains(because), "{message}");
    Ok(())
}

async fn published_greeting(home: &ScenarioNamespace<'_>) -> Result<String> {
    let map = home.space.api::<ConfigMap>().get("shop").await?;
    map.data.and_then(|mut data| data.remove("greeting")).context("no greeting")
}

/// Fails unless pods get the owner's text, which is unchanged, and none of her versions.
async fn assert_owner_decides(home: &ScenarioNamespace<'_>) -> Result<()> {
    let configs = home.space.api::<VersionedConfig>();
    let version = eventually(WAIT_TIMEOUT, "the owner's text is current", async || {
        configs.get("shop").await.ok()?.status?.current_version
    })
    .await?;
    ensure!(!version.starts_with("6."), "her version {version} is current");
    ensure!(published_greeting(home).await? == "owner", "ConfigMap shop holds what is not the owner's");
    Ok(())
}
