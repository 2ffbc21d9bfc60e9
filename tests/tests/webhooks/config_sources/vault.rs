//! Secrets of a real OpenBao become versions; who may read them is decided there, and by Kubernetes, and nobody else's
//! token is sent.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::Installation;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::sources::may;
use nudge_tests::cluster::space::user;
use nudge_tests::cluster::tokens::claims;
use nudge_tests::servers::git_server::GitServer;
use nudge_tests::servers::openbao::{OpenBao, ROOT};
use serde_json::{Value, json};

use crate::config_sources::scene::{
    condition, create_quick_source, enabled, is, nowhere_logged, origin, patched, shared, source, until,
    wait_until_current,
};

/// The value of a secret, which is nowhere else.
const VALUE: &str = "hunter2-of-vault";

/// Returns a server that knows the cluster by the auth method `kubernetes`.
pub(crate) async fn openbao(
    installation: &Installation<'_>,
    space: &TestNamespace,
) -> Result<Option<(OpenBao, String)>> {
    let Some(bao) = OpenBao::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).await? else { return Ok(None) };
    let cluster = installation.cluster;
    let reviewer = bao.configure_kubernetes_auth(space, &cluster.url(), &cluster.authority().certificate()).await?;
    bao.bao(&["secrets", "enable", "-path=old", "-version=1", "kv"])?;
    Ok(Some((bao, reviewer)))
}

/// Returns a server with a secret `shop` of these fields, and the place of it, which sources may read.
pub(crate) async fn secret(space: &TestNamespace, fields: &[&str]) -> Result<Option<(OpenBao, Value)>> {
    let Some(installation) = shared().await? else { return Ok(None) };
    let Some((bao, _)) = openbao(installation, space).await? else { return Ok(None) };
    let place = bao.serve(space, fields).await?;
    Ok(Some((bao, place)))
}

/// Lets sources have tokens of an account, as the condition says.
pub(crate) async fn may_have_tokens(space: &TestNamespace, account: &str) -> Result<()> {
    may(space, &["create"], "serviceaccounts/token", account).await
}

async fn value(space: &TestNamespace, config: &str, version: &str, key: &str) -> Result<String> {
    let labels = format!("nudge.dev/config={config},nudge.dev/version={version}");
    let secrets = space.api::<Secret>().list(&ListParams::default().labels(&labels)).await?;
    let data = secrets.items.into_iter().find_map(|secret| secret.data?.remove(key)).context("no such key")?;
    Ok(String::from_utf8(data.0)?)
}

#[tokio::test]
async fn a_secret_of_vault_becomes_versions_and_every_fault_leaves_the_last_one() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let Some(space) = enabled("vault", true).await? else { return Ok(()) };
    let Some((mut bao, reviewer)) = openbao(installation, &space).await? else { return Ok(()) };
    for account in ["shop", "other"] {
        space.service_account(account).await?;
    }
    bao.allow("shop", (&space.name, "shop"), "secret/data/team/shop")?;
    let put = |pin: &str| bao.bao(&["kv", "put", "secret/team/shop", &format!("pin={pin}"), "limit=3"]);
    put(VALUE)?;
    let kv = json!({"path": "team/shop"});
    source(
        &space,
        "shop",
        &bao.place("shop", "shop", &kv),
        &json!({"debounceSeconds": 0, "minPeriodSeconds": 0, "periodSeconds": 10}),
    )
    .await?;
    let sync = async |number: &str| {
        patched(&space, "shop", &json!({"metadata": {"annotations": {"nudge.dev/sync": number}}})).await
    };
    // Nobody has allowed tokens of the account.
    let refused = until(&space, "shop", "no token may be had", is("NotAllowed")).await?;
    let message = condition(&refused, "Fetched").2;
    ensure!(message.contains("--resource=serviceaccounts/token --resource-name=shop"), "{message}");
    may_have_tokens(&space, "shop").await?;
    sync("1").await?;
    let first = wait_until_current(&space, "shop", None).await?;
    ensure!(
        value(&space, "shop", &first, "pin").await? == VALUE && value(&space, "shop", &first, "limit").await? == "3"
    );
    let origin = origin::<Secret>(&space, "shop", &first).await?;
    ensure!(origin.line() == format!("Vault {}@1 secret/team/shop", bao.url()), "{origin:?}");
    // By the period alone.
    put("second")?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    ensure!(value(&space, "shop", &second, "pin").await? == "second");

    let fails = async |what: &str, reason: &'static str, says: &str| {
        let status =
            until(&space, "shop", what, |status| is(reason)(status) && condition(status, "Fetched").2.contains(says))
                .await?;
        ensure!(status.version.as_ref() == Some(&second), "{status:?}");
        let config = space.api::<VersionedConfig>().get("shop").await?.status.context("no status")?;
        ensure!(config.current_version.as_ref() == Some(&second), "{what}: {:?}", config.current_version);
        Ok(())
    };
    let spec = async |vault: Value| patched(&space, "shop", &json!({"spec": {"from": {"vault": vault}}})).await;
    spec(json!({"kv": {"path": "team/nothing"}})).await?;
    fails("another secret", "FetchFailed", "may not read the secret, or there is no such secret").await?;
    bao.bao(&["kv", "delete", "secret/team/shop"])?;
    spec(json!({"kv": {"path": "team/shop"}})).await?;
    fails("its newest version was deleted", "SourceGone", "or its newest version was deleted").await?;
    bao.bao(&["kv", "undelete", "-versions=2", "secret/team/shop"])?;
    sync("2").await?;
    until(&space, "shop", "it is back", is("Activated")).await?;
    spec(json!({"kv": {"version": 1}})).await?;
    fails("the other engine", "FetchFailed", "").await?;
    spec(json!({"kv": {"version": 2}, "auth": {"kubernetes": {"role": "nobody"}}})).await?;
    fails("no such role", "FetchFailed", "Vault refuses service account shop for role nobody").await?;
    spec(json!({"auth": {"kubernetes": {"role": "shop", "mount": "elsewhere"}}})).await?;
    fails("no such mount", "FetchFailed", "Vault refuses service account shop for role shop").await?;
    may_have_tokens(&space, "other").await?;
    spec(json!({"auth": {"kubernetes": {"mount": "kubernetes", "serviceAccount": "other"}}})).await?;
    fails("another account", "FetchFailed", "Vault refuses service account other for role shop").await?;
    spec(json!({"auth": {"kubernetes": {"serviceAccount": "nobody"}}})).await?;
    fails("no such account", "NotAllowed", "--resource-name=nobody").await?;
    spec(json!({"auth": {"kubernetes": {"serviceAccount": "shop"}}, "ca": installation.cluster.authority().certificate()})).await?;
    fails("another authority", "FetchFailed", "authority of its certificate is not trusted").await?;
    // The way of an attacker: what only the control plane reaches.
    for address in ["https://127.0.0.1:1", "https://localhost", "https://169.254.169.254", &installation.cluster.url()]
    {
        spec(json!({"address": address})).await?;
        fails(address, "FetchFailed", "nothing is sent to").await?;
    }
    spec(json!({"address": bao.url(), "ca": bao.ca()})).await?;
    until(&space, "shop", "all is right again", is("Activated")).await?;
    bao.bao(&["operator", "seal"])?;
    sync("3").await?;
    fails("it is sealed", "FetchFailed", "Vault is sealed or not ready (status 503)").await?;
    bao.process().kill()?;
    sync("4").await?;
    fails("it is away", "FetchFailed", "can't be reached").await?;
    // How tokens of service accounts begin.
    nowhere_logged(&[VALUE, ROOT, &reviewer, "eyJhbGci"]).await?;
    ensure!(!bao.log().contains(VALUE));
    Ok(())
}

#[tokio::test]
async fn a_role_of_another_audience_refuses_a_token_which_is_for_its_address_alone() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let Some(space) = enabled("audience", true).await? else { return Ok(()) };
    let Some((bao, _)) = openbao(installation, &space).await? else { return Ok(()) };
    // The server in between stores the bodies of requests.
    let keeps = format!("location /v1/ {{ client_body_in_file_only on; proxy_pass http://{}; }}", bao.admin());
    let Some(front) = GitServer::start_outside(&keeps).await? else { return Ok(()) };
    let address = front.url("").trim_end_matches('/').to_owned();
    space.service_account("shop").await?;
    may_have_tokens(&space, "shop").await?;
    bao.allow("shop", (&space.name, "shop"), "secret/data/shop")?;
    bao.bao(&["kv", "put", "secret/shop", &format!("pin={VALUE}")])?;
    let mut vault = bao.place("shop", "shop", &json!({"path": "shop"}));
    (vault["vault"]["address"], vault["vault"]["ca"]) = (json!(address), json!(front.ca()));
    create_quick_source(&space, "shop", &vault).await?;
    let refused = until(&space, "shop", "the role is for another address", is("FetchFailed")).await?;
    let message = condition(&refused, "Fetched").2;
    for part in ["Vault refuses service account shop for role shop (status 403)", "audience of the role", &address] {
        ensure!(message.contains(part), "{part}: {message}");
    }
    bao.bao(&["write", "auth/kubernetes/role/shop", &format!("audience={address}")])?;
    patched(&space, "shop", &json!({"metadata": {"annotations": {"nudge.dev/sync": "1"}}})).await?;
    let version = wait_until_current(&space, "shop", None).await?;
    ensure!(value(&space, "shop", &version, "pin").await? == VALUE);
    let mut sent = 0;
    for body in std::fs::read_dir(front.root().join("t1"))? {
        let login: Value = serde_json::from_slice(&std::fs::read(body?.path())?)?;
        let claims = claims(login["jwt"].as_str().context("no token")?)?;
        let subject = format!("system:serviceaccount:{}:shop", space.name);
        ensure!((&claims["aud"], &claims["sub"]) == (&json!([address]), &json!(subject)), "{claims}");
        sent += 1;
    }
    ensure!(sent >= 2, "{sent} logins");
    nowhere_logged(&[VALUE, "eyJhbGci"]).await
}

#[tokio::test]
async fn a_source_lends_nobody_the_rights_of_a_service_account() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let Some(space) = enabled("vault-lent", true).await? else { return Ok(()) };
    space.service_account("payment").await?;
    let eve = installation.cluster.user("eve", &[]);
    let rules = json!([
        {"apiGroups": ["nudge.dev"], "resources": ["configsources"], "verbs": ["create", "patch"]},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]},
    ]);
    space.grant("eve", rules, user("eve")).await?;
    let client = installation.cluster.client(&eve).await?;
    let sources = Api::<ConfigSource>::namespaced(client, &space.name);
    let vault = |address: &str| {
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"}, "spec": {"from": {"vault": {
            "address": address, "kv": {"path": "pay"}, "auth": {"kubernetes": {"role": "pay", "serviceAccount": "payment"}}}}}})
    };
    let parameters = PostParams::default();
    let result = sources.create(&parameters, &serde_json::from_value(vault("https://vault.example.com"))?).await;
    let message = result.err().context("a source was lent an account")?.to_string();
    ensure!(message.contains("create tokens of ServiceAccount payment"), "{message}");
    // What would stand in a URL, or go in the clear.
    for address in ["https://a:hunter2@vault.example.com", "http://vault.example.com", "https://vault.example.com?a"] {
        let result = sources.create(&parameters, &serde_json::from_value(vault(address))?).await;
        let message = result.err().with_context(|| format!("{address} was taken"))?.to_string();
        ensure!(message.contains("spec.from.vault.address"), "{message}");
    }
    let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["payment"], "verbs": ["create"]}]);
    space.grant("pays", rules, user("eve")).await?;
    let result =
        nudge_tests::eventually(crate::config_sources::scene::WAIT_TIMEOUT, "who has the right may", async || {
            sources.create(&parameters, &serde_json::from_value(vault("https://vault.example.com")).ok()?).await.ok()
        });
    let result = result.await?;
    sources.delete(&result.name_any(), &DeleteParams::default()).await.ok();
    space.api::<ServiceAccount>().delete("payment", &DeleteParams::default()).await?;
    Ok(())
}
