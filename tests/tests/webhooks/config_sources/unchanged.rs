//! Irrelevant changes, and servers that are away: no version, no notification, and only the necessary writes.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use kube::ResourceExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use nudge_api::{ConfigSource, ConfigState, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::installation::{at_once, injected_pod_with};
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::servers::git_repository::Repository;
use nudge_tests::servers::git_server::GitServer;
use nudge_tests::servers::registry::PASSWORD;
use nudge_tests::{Cluster, Installation, Replica, ReplicaOptions, eventually, serving};
use serde_json::json;

use crate::config_sources::git::credentials;
use crate::config_sources::oci::{nudge, registry};
use crate::config_sources::scene::{
    WAIT_TIMEOUT, condition, config_until, enabled_of, is, source, until, wait_until_current,
};
use crate::config_sources::vault::{may_have_tokens, openbao};

const NAMES: [&str; 3] = ["git", "oci", "vault"];

/// Waits until servers of each kind were asked this often, with this outcome, since they had been asked as often as
/// `since` says.
async fn asked(sources: &Replica, outcome: &str, times: f64, since: [f64; 3]) -> Result<[f64; 3]> {
    let mut counts = [0.0; 3];
    for (at, kind) in ["Git", "OCI", "Vault"].iter().enumerate() {
        let labels = format!("kind=\"{kind}\",outcome=\"{outcome}\"");
        let enough = async || {
            let count = sources.metric_where("nudge_source_fetches_total", &labels).await.ok()?;
            (count >= since[at] + times).then_some(count)
        };
        counts[at] = eventually(WAIT_TIMEOUT, &format!("{kind} was asked: {outcome}"), enough).await?;
    }
    Ok(counts)
}

/// Returns all that a change of a config writes, and when it was written last.
async fn last_write(space: &TestNamespace, cluster: &Cluster) -> Result<String> {
    let each = r#"jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}"#;
    let kinds = "versionedconfigs,configsources,configmaps,secrets";
    let listed = cluster.kubectl(&["get", kinds, "-n", &space.name, "-o", each]).await?.context("no kubectl")?;
    ensure!(listed.code == Some(0), "{listed:?}");
    Ok(listed.stdout)
}

#[tokio::test]
async fn the_same_content_and_servers_that_are_away_cost_no_write_and_no_notification() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let control = installation.guarded_replica().await?;
    installation.apply_sources().await?;
    let sources = installation.sources(&ReplicaOptions::default()).await?;
    let space = enabled_of(&installation, "unchanged", true).await?;
    let (Some(server), Some(registry)) = (GitServer::start_outside("").await?, registry().await?) else {
        return Ok(());
    };
    let Some((mut bao, _)) = openbao(&installation, &space).await? else { return Ok(()) };

    let repository = Repository::new(server.root(), "shop")?;
    let commit = |path: &str, content: &str| {
        repository.write(path, content)?;
        repository.commit(content)
    };
    commit("config/prod/number", "1")?;
    let git = json!({"git": {"url": server.url("open/shop"), "path": "config/prod", "ca": server.ca()}});

    let home = tempfile::tempdir()?;
    let push = |name: &str, content: &str| {
        let (folder, to) = (home.path().join("files"), format!("oci://{}/shop:stable", registry.host()));
        fs::create_dir_all(folder.join("config"))?;
        fs::write(folder.join(name), content)?;
        let (pushed, said) = nudge(home.path(), &registry, PASSWORD, &["push", &folder.display().to_string(), &to])?;
        ensure!(pushed, "{said}");
        Ok(said)
    };
    let pushed = push("config/motd", "hello")?;
    let host = registry.host();
    let docker = json!({".dockerconfigjson": registry.docker_config(PASSWORD).to_string()});
    credentials(&space, "pull", &host, &docker).await?;
    let oci = json!({"oci": {"url": format!("oci://{host}/shop"), "tag": "stable", "path": "config", "ca": registry.ca(),
        "secretRef": {"name": "pull"}}});

    space.service_account("shop").await?;
    may_have_tokens(&space, "shop").await?;
    bao.allow("shop", (&space.name, "shop"), "secret/data/shop")?;
    let put = || bao.bao(&["kv", "put", "secret/shop", "pin=1234"]).map(drop);
    put()?;
    let vault = bao.place("shop", "shop", &json!({"path": "shop"}));

    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0, "periodSeconds": 10});
    let mut first = Vec::new();
    for (name, from) in NAMES.into_iter().zip([&git, &oci, &vault]) {
        let config = json!({"metadata": {"name": name}, "spec": {"rollout": at_once()}});
        space.create_object::<VersionedConfig>(config).await?;
        source(&space, name, from, &extra_spec).await?;
        first.push(wait_until_current(&space, name, None).await?);
    }
    // One that is suspended asks nobody.
    source(&space, "idle", &git, &json!({"suspend": true})).await?;
    until(&space, "idle", "it is suspended", is("Suspended")).await?;
    let object = injected_pod_with(&space, "git,oci,vault", &json!({"name": "web"}), &json!({})).await?;
    let pod = serving(&space, control.hub, &object, ("git,oci,vault", None), env!("CARGO_BIN_EXE_app")).await?;
    let notified = || pod.app_output().lines().filter(|line| line.contains("SIGUSR1")).count();
    for name in NAMES {
        let rests = |_: &VersionedConfig, status: &VersionedConfigStatus| {
            status.state() == ConfigState::Current && status.pods.summary == "1/1"
        };
        config_until(&space, name, "the pod runs it", rests).await?;
    }

    // Other commits, other digests and another version in Vault: what is taken of them is the same.
    let before = last_write(&space, &cluster).await?;
    commit("README.md", "not for pods")?;
    ensure!(push("README.md", "not for pods")? != pushed, "the tag is moved to another digest");
    put()?;
    asked(&sources, "changed", 1.0, [1.0; 3]).await?;
    asked(&sources, "unchanged", 1.0, asked(&sources, "unchanged", 0.0, [0.0; 3]).await?).await?;
    let changed = asked(&sources, "changed", 0.0, [0.0; 3]).await?;
    ensure!(
        changed.iter().all(|count| *count < 2.5),
        "each was read twice, and the suspended one not at all: {changed:?}"
    );
    let after = last_write(&space, &cluster).await?;
    ensure!(after == before, "{before}\n{after}");

    // A change that counts is the first that the application hears of.
    commit("config/prod/number", "2")?;
    wait_until_current(&space, "git", Some(&first[0])).await?;
    eventually(WAIT_TIMEOUT, "the application is notified", async || (notified() > 0).then_some(())).await?;
    ensure!(notified() == 1 && pod.app_output().contains("SIGUSR1 2"), "{}", pod.app_output());

    // While servers are away, a status is written when it changes, and not at each failure.
    let configs = space.api::<ConfigSource>();
    let since = configs.list_metadata(&ListParams::default()).await?.metadata.resource_version.context("no version")?;
    drop((server, registry));
    bao.process().kill()?;
    asked(&sources, "failed", 3.0, [0.0; 3]).await?;
    let mut writes = BTreeMap::new();
    let mut events = Box::pin(configs.watch(&WatchParams::default().timeout(1), &since).await?);
    while let Some(event) = events.try_next().await? {
        let WatchEvent::Modified(source) = event else { continue };
        let status = source.status.clone().context("no status")?;
        *writes.entry((source.name_any(), condition(&status, "Fetched").2)).or_insert(0) += 1;
    }
    // A question that was under way when its server ended may have had another answer.
    let writes_of =
        |name: &str| writes.iter().filter(|((source, _), _)| source == name).map(|(_, count)| count).sum::<i32>();
    ensure!(NAMES.iter().all(|name| (1..=2).contains(&writes_of(name))), "{writes:?}");
    for name in NAMES {
        let status = until(&space, name, "it says so", is("FetchFailed")).await?;
        ensure!(condition(&status, "Fetched").2.ends_with("the last version stays as it is"), "{status:?}");
    }
    Ok(())
}
