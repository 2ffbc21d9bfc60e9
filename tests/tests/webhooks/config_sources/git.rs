//! Commits of a real git server become versions; every fault leaves the last one, and a credential goes to the hosts
//! that its Secret names, and to no others.

use std::fs::File;
use std::io::Read as _;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::analysis::own_address;
use nudge_tests::cluster::sources::may;
use nudge_tests::cluster::space::user;
use nudge_tests::ports;
use nudge_tests::servers::git_repository::{Repository, git};
use nudge_tests::servers::git_server::{GitServer, TOKEN, USER};
use serde_json::{Value, json};

use crate::config_sources::scene::{
    MAX_MIRROR_BYTES, condition, enabled, is, mirrors, nowhere_logged, origin, patched, shared, source, until,
    wait_until_current,
};

/// Creates a Secret with credentials that sources may read.
pub(crate) async fn credentials(space: &TestNamespace, name: &str, hosts: &str, data: &Value) -> Result<()> {
    let metadata = json!({"name": name, "annotations": {"nudge.dev/allowed-hosts": hosts}});
    space.create_object::<Secret>(json!({"metadata": metadata, "stringData": data})).await?;
    may(space, &["get"], "secrets", name).await
}

async fn data(space: &TestNamespace, version: &str) -> Result<Value> {
    let map = space.api::<ConfigMap>().get(&format!("shop-{version}")).await?;
    Ok(json!(map.data))
}

#[tokio::test]
async fn commits_become_versions_and_every_fault_leaves_the_last_one() -> Result<()> {
    let Some(space) = enabled("git", false).await? else { return Ok(()) };
    let Some(server) = GitServer::start_outside("location /moved/ { return 302 https://localhost:1/; }").await? else {
        return Ok(());
    };
    let repository = Repository::new(server.root(), "shop")?;
    repository.write("config/prod/db/pool", "10\n")?;
    repository.write("config/prod/notes.md", "not for pods\n")?;
    let id = repository.commit("second")?;
    let ip = own_address()?.context("no address")?.to_string();
    let token = |token: &str| json!({"token": token, "username": USER});
    credentials(&space, "deploy", &ip, &token(TOKEN)).await?;
    let git = json!({"url": server.url("token/shop"), "ref": {"branch": "main"}, "path": "config/prod", "ca": server.ca(),
        "secretRef": {"name": "deploy"}});
    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0, "periodSeconds": 10, "exclude": ["*.md"]});
    source(&space, "shop", &json!({"git": git}), &extra_spec).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    ensure!(data(&space, &first).await? == json!({"a.conf": "one\n", "db.pool": "10\n"}));
    let origin = origin::<ConfigMap>(&space, "shop", &first).await?;
    ensure!(
        *origin.revision == *id && *origin.url == *server.url("token/shop") && origin.path == "config/prod",
        "{origin:?}"
    );
    ensure!(origin.time.is_some() && origin.signer.is_none(), "{origin:?}");
    // By the period alone, and a force-push is a version like any other.
    repository.write("config/prod/db/pool", "20\n")?;
    repository.git(&["add", "-A"])?;
    repository.git(&["commit", "-q", "--amend", "-m", "instead"])?;
    repository.publish()?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    ensure!(data(&space, &second).await?["db.pool"] == "20\n");

    let fails = async |what: &str, reason: &'static str, says: &str| {
        let status =
            until(&space, "shop", what, |status| is(reason)(status) && condition(status, "Fetched").2.contains(says));
        let status = status.await?;
        ensure!(status.version.as_ref() == Some(&second), "{status:?}");
        let config = space.api::<VersionedConfig>().get("shop").await?.status.context("no status")?;
        ensure!(config.current_version.as_ref() == Some(&second), "{what}: {:?}", config.current_version);
        Ok(())
    };
    let spec = async |git: Value| patched(&space, "shop", &json!({"spec": {"from": {"git": git}}})).await;
    spec(json!({"ref": {"branch": "gone"}})).await?;
    fails("a lost ref", "FetchFailed", "the repository has no branch gone").await?;
    spec(json!({"ref": {"branch": "main"}, "path": "config/nothing"})).await?;
    fails("a lost path", "FetchFailed", "has no config/nothing").await?;
    spec(json!({"path": "config/prod", "url": server.url("token/other")})).await?;
    fails("no such repository", "FetchFailed", "has no such repository").await?;
    spec(json!({"url": server.url("moved/shop")})).await?;
    fails("a redirect", "FetchFailed", "redirects to another URL").await?;
    spec(json!({"url": server.url("token/shop"), "ca": null})).await?;
    fails("another authority", "FetchFailed", "the authority of its certificate is not trusted").await?;
    spec(json!({"ca": server.ca(), "secretRef": null})).await?;
    fails("nobody", "FetchFailed", "refuses the credential, or requires one").await?;
    credentials(&space, "expired", &ip, &token("tok-expired-hunter2")).await?;
    credentials(&space, "elsewhere", "git.example.com", &token(TOKEN)).await?;
    for (secret, reason, says) in [
        ("expired", "FetchFailed", "refuses the credential, or requires one"),
        ("elsewhere", "SourceRefused", "Secret elsewhere is not for"),
        ("nothing", "NotAllowed", "Nudge may not read Secret nothing; allow it: kubectl create role"),
    ] {
        spec(json!({"secretRef": {"name": secret}})).await?;
        fails(secret, reason, says).await?;
    }
    // The way of an attacker: another host in the URL, by a name of the same machine, or what only the control plane
    // reaches.
    let port = ports::free()?;
    spec(json!({"secretRef": {"name": "deploy"}, "url": format!("https://localhost:{port}/token/shop")})).await?;
    fails("another host", "SourceRefused", "Secret deploy is not for localhost").await?;
    spec(json!({"secretRef": null, "url": format!("https://127.0.0.1:{port}/shop")})).await?;
    fails("the machine itself", "FetchFailed", "nothing is sent to 127.0.0.1").await?;
    spec(json!({"url": "ssh://git@169.254.169.254/shop"})).await?;
    fails("the cloud's metadata", "FetchFailed", "").await?;
    spec(json!({"secretRef": {"name": "deploy"}, "url": server.url("token/shop")})).await?;
    until(&space, "shop", "all is right again", is("Activated")).await?;
    nowhere_logged(&[TOKEN, "tok-expired-hunter2"]).await?;
    Ok(())
}

#[tokio::test]
async fn a_repository_beyond_the_bound_is_refused_and_others_continue() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let Some(space) = enabled("git-large", false).await? else { return Ok(()) };
    let Some(server) = GitServer::start_outside("").await? else { return Ok(()) };
    let [large, small] = [Repository::new(server.root(), "large")?, Repository::new(server.root(), "small")?];
    let mut random = Vec::new();
    File::open("/dev/urandom")?.take((MAX_MIRROR_BYTES + MAX_MIRROR_BYTES / 8).into()).read_to_end(&mut random)?;
    for folder in [large.work(), large.served()] {
        git(folder, &["config", "core.compression", "0"])?;
    }
    large.write("config/prod/large", random)?;
    large.commit("large")?;
    let extra_spec = json!({"debounceSeconds": 0, "minPeriodSeconds": 0, "periodSeconds": 10});
    for name in ["large", "small"] {
        let url = server.url(&format!("open/{name}"));
        let git = json!({"git": {"url": url, "path": "config/prod", "ca": server.ca()}});
        source(&space, name, &git, &extra_spec).await?;
    }
    let says = format!("takes more than {MAX_MIRROR_BYTES} bytes on disk");
    let refused = until(&space, "large", &says, |status| condition(status, "Fetched").2.contains(&says)).await?;
    ensure!(is("FetchFailed")(&refused), "{refused:?}");
    ensure!(refused.version.is_none() && space.api::<VersionedConfig>().get_opt("large").await?.is_none());
    let first = wait_until_current(&space, "small", None).await?;
    space.api::<ConfigSource>().delete("large", &DeleteParams::default()).await?;
    small.write("config/prod/a.conf", "two\n")?;
    small.commit("second")?;
    wait_until_current(&space, "small", Some(&first)).await?;
    let bytes = mirrors(installation).await?;
    ensure!((1.0..=f64::from(MAX_MIRROR_BYTES)).contains(&bytes), "{bytes} bytes");
    Ok(())
}

#[tokio::test]
async fn a_source_shows_nobody_a_secret_that_he_may_not_get() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let Some(space) = enabled("git-lent", false).await? else { return Ok(()) };
    space.create_object::<Secret>(json!({"metadata": {"name": "deploy"}, "stringData": {"token": "a"}})).await?;
    let rules = json!([
        {"apiGroups": ["nudge.dev"], "resources": ["configsources"], "verbs": ["create", "patch"]},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update", "delete"]},
    ]);
    space.grant("eve", rules, user("eve")).await?;
    let client = installation.cluster.client(&installation.cluster.user("eve", &[])).await?;
    let sources = Api::<ConfigSource>::namespaced(client, &space.name);
    let source_with = |name: &str, from: Value| {
        let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": name}, "spec": {"from": from}});
        serde_json::from_value::<ConfigSource>(object)
    };
    let parameters = PostParams::default();
    let secret = json!({"name": "deploy"});
    for from in [
        json!({"git": {"url": "https://git.example.com/a", "secretRef": secret}}),
        json!({"oci": {"url": "oci://registry.example.com/a", "tag": "1", "secretRef": secret}}),
    ] {
        let message = sources
            .create(&parameters, &source_with("shop", from)?)
            .await
            .err()
            .context("a Secret was lent")?
            .to_string();
        ensure!(message.contains("the right to get Secret deploy"), "{message}");
    }
    // Without the Secret it is theirs to make, and may not be given one later.
    let open = source_with("open", json!({"git": {"url": "https://git.example.com/a"}}))?;
    let result =
        nudge_tests::eventually(crate::config_sources::scene::WAIT_TIMEOUT, "eve may create a source", async || {
            sources.create(&parameters, &open).await.ok()
        });
    result.await?;
    let patch = json!({"spec": {"from": {"git": {"secretRef": secret}}}});
    let changed = sources.patch("open", &PatchParams::default(), &Patch::Merge(patch)).await;
    let text = changed.err().context("a Secret was lent to a source that is there")?.to_string();
    ensure!(text.contains("the right to get Secret deploy"), "{text}");
    for url in [
        "https://eve:hunter2@git.example.com/a",
        "http://git.example.com/a",
        "file:///etc",
        "--upload-pack=a",
        "ext::sh -c a",
    ] {
        let result = sources.create(&parameters, &source_with("bad", json!({"git": {"url": url}}))?).await;
        let text = result.err().with_context(|| format!("{url} was taken"))?.to_string();
        ensure!(text.contains("spec.from.git.url"), "{text}");
    }
    Ok(())
}
