//! A namespace with sources, and what is asked of it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use nudge_api::{ConfigSource, ConfigSourceStatus, Origin, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::sources::may;
use nudge_tests::{Installation, Replica, ReplicaOptions};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// How long things may take, on a busy machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// The most bytes of the mirrors of the role sources that tests share.
pub(crate) const MAX_MIRROR_BYTES: u32 = 64 * 1024 * 1024;

/// Returns the control plane with its webhooks, and the role sources.
pub(crate) async fn shared() -> Result<Option<&'static Installation<'static>>> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(None) };
    sources(installation).await?;
    Ok(Some(installation))
}

/// Returns the one process of the role sources in the shared cluster: a second one would wait for it.
pub(crate) async fn sources(installation: &Installation<'_>) -> Result<&'static Replica> {
    static SHARED: OnceCell<Replica> = OnceCell::const_new();
    SHARED
        .get_or_try_init(async || {
            installation.apply_sources().await?;
            let options = ReplicaOptions::with(&[format!("--mirrors-mib={}", MAX_MIRROR_BYTES >> 20).as_str()]);
            installation.sources(&options).await
        })
        .await
}

/// Returns the bytes of these mirrors.
pub(crate) async fn mirrors(installation: &Installation<'_>) -> Result<f64> {
    sources(installation).await?.metric("nudge_source_mirrors_bytes").await
}

/// Fails if one of these stands in a log of the role sources, or of the control plane.
pub(crate) async fn nowhere_logged(credentials: &[&str]) -> Result<()> {
    let (installation, control) = Installation::shared_with_webhooks().await?.context("no control plane")?;
    let logs = [sources(installation).await?.log(), control.log()];
    ensure!(logs.iter().all(|log| !log.is_empty()), "a log is empty");
    let leaked = credentials.iter().filter(|credential| logs.iter().any(|log| log.contains(**credential)));
    let leaked: Vec<_> = leaked.map(|one| one.len()).collect();
    ensure!(leaked.is_empty(), "credentials of these lengths are in a log: {leaked:?}");
    Ok(())
}

/// Returns a namespace whose admin lets sources work there. `secrets`: with Secrets too.
pub(crate) async fn enabled(purpose: &str, secrets: bool) -> Result<Option<TestNamespace>> {
    let Some(installation) = shared().await? else { return Ok(None) };
    enabled_of(installation, purpose, secrets).await.map(Some)
}

/// Returns the same of another installation.
pub(crate) async fn enabled_of(installation: &Installation<'_>, purpose: &str, secrets: bool) -> Result<TestNamespace> {
    let space = installation.enabled(purpose).await?;
    bind(&space, "nudge-sources").await?;
    if secrets {
        bind(&space, "nudge-secrets").await?;
        bind(&space, "nudge-sources-secrets").await?;
    }
    Ok(space)
}

/// Lets the role sources decide about the published Secret of this name, as its message says.
pub(crate) async fn may_publish(space: &TestNamespace, name: &str) -> Result<()> {
    may(space, &["update"], "secrets", name).await
}

/// Returns a source that does not wait for long.
pub(crate) async fn create_quick_source(space: &TestNamespace, name: &str, from: &Value) -> Result<ConfigSource> {
    source(space, name, from, &json!({"debounceSeconds": 0, "minPeriodSeconds": 0})).await
}

/// Returns a source with more in its spec.
pub(crate) async fn source(space: &TestNamespace, name: &str, from: &Value, more: &Value) -> Result<ConfigSource> {
    let mut spec = json!({"from": from});
    spec.as_object_mut().context("no spec")?.extend(more.as_object().context("no fields")?.clone());
    let object =
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": name}, "spec": spec});
    space.create_object(object).await
}

pub(crate) async fn patched(space: &TestNamespace, name: &str, patch: &Value) -> Result<()> {
    space.api::<ConfigSource>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Waits until the status of a source is as expected.
pub(crate) async fn until(
    space: &TestNamespace,
    name: &str,
    what: &str,
    expected: impl Fn(&ConfigSourceStatus) -> bool,
) -> Result<ConfigSourceStatus> {
    let is_expected = |source: &ConfigSource| source.status.as_ref().is_some_and(&expected);
    space.object_until(WAIT_TIMEOUT, name, what, is_expected).await?.status.context("no status")
}

/// Reason and message of a condition.
pub(crate) fn condition(status: &ConfigSourceStatus, kind: &str) -> (String, String, String) {
    let entry = status.conditions.iter().find(|condition| condition.type_ == kind);
    entry.map(|it| (it.status.clone(), it.reason.clone(), it.message.clone())).unwrap_or_default()
}

pub(crate) fn is(reason: &'static str) -> impl Fn(&ConfigSourceStatus) -> bool {
    move |status| condition(status, "Ready").1 == reason
}

/// Waits until the config of this name is as expected, and returns it.
pub(crate) async fn config_until(
    space: &TestNamespace,
    name: &str,
    what: &str,
    expected: impl Fn(&VersionedConfig, &VersionedConfigStatus) -> bool,
) -> Result<VersionedConfig> {
    let is_expected = |config: &VersionedConfig| expected(config, &config.status.clone().unwrap_or_default());
    space.object_until(WAIT_TIMEOUT, name, what, is_expected).await
}

/// Waits until the version of the source's newest content is current, and returns its name.
pub(crate) async fn wait_until_current(space: &TestNamespace, source: &str, before: Option<&str>) -> Result<String> {
    let done = |status: &ConfigSourceStatus| is("Activated")(status) && status.version.as_deref() != before;
    let status = until(space, source, "the version is requested", done).await?;
    let version = status.version.context("no version")?;
    let config = space.api::<ConfigSource>().get(source).await?.config().to_owned();
    let current =
        |_: &VersionedConfig, status: &VersionedConfigStatus| status.current_version.as_ref() == Some(&version);
    config_until(space, &config, "the version is current", current).await?;
    Ok(version)
}

/// Returns where the content of a version is from, as its object says.
pub(crate) async fn origin<K>(space: &TestNamespace, config: &str, version: &str) -> Result<Origin>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K::DynamicType: Default,
{
    let labels = format!("nudge.dev/config={config},nudge.dev/version={version}");
    let objects = space.api::<K>().list_metadata(&ListParams::default().labels(&labels)).await?.items;
    let read = |meta: PartialObjectMeta<K>| Origin::read(meta.annotations().get("nudge.dev/origin")?);
    objects.into_iter().find_map(read).context("no origin")
}

/// Returns names of the ConfigMaps that are versions of a config.
pub(crate) async fn versions(space: &TestNamespace, config: &str) -> Result<Vec<ConfigMap>> {
    let list_params = ListParams::default().labels(&format!("nudge.dev/config={config}"));
    let mut maps = space.api::<ConfigMap>().list(&list_params).await?.items;
    maps.sort_by_key(ResourceExt::name_any);
    Ok(maps)
}
