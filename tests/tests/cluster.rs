//! The harness itself: a real API server whose rules, tokens, webhooks and faults other tests rely on.

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_core::Stream as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchParams};
use nudge_tests::cluster::options::CONTROLLERS;
use nudge_tests::cluster::{self, Cluster, Identity, Options, space, tokens};
use nudge_tests::{eventually, tools};
use serde_json::json;

mod hook;

const SOON: Duration = Duration::from_secs(30);
const AUDIENCE: &str = "test-audience";

fn config_map(name: &str, value: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": value}}))?)
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

#[tokio::test]
#[allow(clippy::print_stderr)] // a figure, for a person who runs the test alone
async fn the_version_is_known_and_new_features_are_asked_for() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    eprintln!("Kubernetes {} was ready after {:?}", cluster.version(), cluster.took());
    assert!(cluster.version().minor >= 20);
    assert!(cluster.has(20, "this test"));
    if cluster.has(30, "a ValidatingAdmissionPolicy") {
        Api::<ValidatingAdmissionPolicy>::all(cluster.admin().await?).list(&ListParams::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn only_what_a_role_allows_is_allowed() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("rbac").await?;
    space.service_account("reader").await?;
    space.api::<ConfigMap>().create(&PostParams::default(), &config_map("one", "1")?).await?;
    let token = space.token("reader", nudge_tests::cluster::servers::ISSUER, None).await?;
    let reader = cluster.client(&Identity::Token(&token)).await?;
    let config_maps = Api::<ConfigMap>::namespaced(reader, &space.name);
    assert!(is_status(&config_maps.get("one").await.unwrap_err(), 403));

    space.allow("reader", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])).await?;
    // The API server's own view of roles follows a moment later.
    eventually(SOON, "the role holds", async || config_maps.get("one").await.ok()).await?;
    let refused = config_maps.create(&PostParams::default(), &config_map("two", "2")?).await.unwrap_err();
    assert!(is_status(&refused, 403));

    let nobody = cluster.client(&cluster.user("jane", &["developers"])).await?;
    let refused = Api::<ConfigMap>::namespaced(nobody, &space.name).get("one").await.unwrap_err();
    assert!(is_status(&refused, 403) && refused.to_string().contains("jane"), "{refused}");
    let event = cluster.audited("jane's try is in the audit log", |event| {
        event["impersonatedUser"]["username"] == "jane" && event["objectRef"]["namespace"] == space.name.as_str()
    });
    assert_eq!(event.await?["responseStatus"]["code"], 403);
    Ok(())
}

#[tokio::test]
async fn a_token_names_its_pod_until_the_pod_is_gone() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("tokens").await?;
    space.service_account("app").await?;
    let pod = space.pod("app-1", "app", &["app"]).await?;
    let uid = pod.metadata.uid.clone().context("a uid")?;
    let token = space.token("app", AUDIENCE, Some(&pod)).await?;
    let unseen = space.token("app", AUDIENCE, Some(&pod)).await?;

    let review = cluster.review(&token, AUDIENCE).await?;
    assert_eq!(review.authenticated, Some(true), "{review:?}");
    assert_eq!(review.audiences, Some(vec![AUDIENCE.to_owned()]));
    let user = review.user.context("a user")?;
    assert_eq!(user.username, Some(format!("system:serviceaccount:{}:app", space.name)));
    let extra = user.extra.context("extra")?;
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["app-1"]);
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], [uid]);

    let refused = cluster.review(&token, "another").await?;
    assert_ne!(refused.authenticated, Some(true));
    let expired = cluster.sign_again(&token, |claims| claims["exp"] = json!(1_000_000_000))?;
    let refused = cluster.review(&expired, AUDIENCE).await?;
    assert_ne!(refused.authenticated, Some(true));
    assert!(refused.error.is_some_and(|error| error.contains("expired")));
    // A signature that is made here counts: the same token with nothing changed is believed.
    let again = cluster.sign_again(&token, |_| ())?;
    assert_eq!(tokens::claims(&again)?, tokens::claims(&token)?);
    assert_eq!(cluster.review(&again, AUDIENCE).await?.authenticated, Some(true));

    space.api::<Pod>().delete("app-1", &DeleteParams::default().grace_period(0)).await?;
    // What the server has just believed, it believes for 10 more seconds: so a token that it has not seen.
    eventually(SOON, "the token is refused", async || {
        let review = cluster.review(&unseen, AUDIENCE).await.ok()?;
        (review.authenticated != Some(true)).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_pod_that_nobody_runs_has_the_status_of_one_that_runs() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("pods").await?;
    space.service_account("app").await?;
    let pod = space.pod("app-1", "app", &["app", "agent"]).await?;
    let pod = space.run(&pod).await?;
    let status = pod.status.as_ref().context("a status")?;
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let ids = status.container_statuses.iter().flatten().map(|one| one.container_id.clone().unwrap_or_default());
    let expected = ["app", "agent"].map(|name| format!("containerd://{}", space::container_id(&pod, name)));
    assert_eq!(ids.collect::<Vec<_>>(), expected);
    Ok(())
}

#[tokio::test]
async fn kubectl_works_on_manifests() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("kubectl").await?;
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: {}\n", space.name);
    let Some(output) = cluster.kubectl_on(&["apply", "--server-side"], &manifest).await? else { return Ok(()) };
    assert_eq!(output, "configmap/a serverside-applied\n");
    Ok(())
}

#[tokio::test]
async fn a_webhook_on_this_machine_is_asked() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let hook = hook::Hook::start("the hook says no").await?;
    let space = cluster.space_with("hooks", &[("hooked", "yes")]).await?;
    hook.register(&cluster.admin().await?, "hooks.test.nudge.dev", ("hooked", "yes")).await?;
    let config_maps = space.api::<ConfigMap>();
    // The API server learns of the webhook a moment later.
    let mut count = 0;
    let refused = eventually(SOON, "the webhook is asked", async || {
        count += 1;
        let new = config_map(&format!("c{count}"), "1").ok()?;
        config_maps.create(&PostParams::default(), &new).await.err()
    });
    let refused = refused.await?;
    assert!(refused.to_string().contains("the hook says no"), "{refused}");
    let elsewhere = cluster.space("unhooked").await?;
    elsewhere.api::<ConfigMap>().create(&PostParams::default(), &config_map("free", "1")?).await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_namespace_goes() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    if !cluster.controls("namespace") {
        return Ok(());
    }
    let space = cluster.space("brief").await?;
    space.api::<ConfigMap>().create(&PostParams::default(), &config_map("one", "1")?).await?;
    space.delete(Duration::from_mins(1)).await
}

#[tokio::test]
async fn a_wire_can_go_silent_and_be_cut() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let wire = cluster.wire().await?;
    let client = cluster::client(&cluster.kubeconfig_by(&wire, &cluster.administrator())).await?;
    client.apiserver_version().await?;

    wire.hold();
    let brief = Duration::from_millis(300);
    assert!(tokio::time::timeout(brief, client.apiserver_version()).await.is_err());
    assert!(cluster.admin().await?.apiserver_version().await.is_ok());
    wire.release();
    client.apiserver_version().await?;

    let space = cluster.space("wire").await?;
    let config_maps = Api::<ConfigMap>::namespaced(client, &space.name);
    let mut events = pin!(config_maps.watch(&WatchParams::default(), "0").await?);
    wire.cut();
    // The events so far, if any, and then the end.
    let end = tokio::time::timeout(SOON, async {
        while let Some(Ok(_)) = poll_fn(|context| events.as_mut().poll_next(context)).await {}
    });
    end.await.context("the watch does not end")?;
    eventually(SOON, "a new connection", async || config_maps.list(&ListParams::default()).await.ok()).await?;
    Ok(())
}

#[tokio::test]
async fn servers_come_back_with_their_data_and_leave_nothing() -> Result<()> {
    let options = Options::default().controllers(&CONTROLLERS[..1]).flag("max-requests-inflight", "200");
    let Some(mut cluster) = Cluster::start(&options).await? else { return Ok(()) };
    let space = cluster.space("faults").await?;
    let config_maps = space.api::<ConfigMap>();
    let version = config_maps.create(&PostParams::default(), &config_map("one", "1")?).await?.metadata.resource_version;

    cluster.stop_apiserver().await?;
    config_maps.get("one").await.unwrap_err();
    cluster.start_apiserver().await?;
    // The first request may find that its connection is gone.
    eventually(SOON, "the object is there", async || config_maps.get("one").await.ok()).await?;

    cluster.freeze_apiserver().await?;
    let brief = Duration::from_millis(300);
    assert!(tokio::time::timeout(brief, config_maps.get("one")).await.is_err());
    cluster.thaw_apiserver()?;
    eventually(SOON, "the object is there", async || config_maps.get("one").await.ok()).await?;

    cluster.restart_etcd().await?;
    let one = eventually(SOON, "the object is there", async || config_maps.get("one").await.ok()).await?;
    assert_eq!(one.metadata.resource_version, version);

    eventually(SOON, "another is made", async || {
        config_maps.create(&PostParams::default(), &config_map("two", "2").ok()?).await.ok()
    })
    .await?;
    cluster.compact().await?;
    cluster.restart_apiserver().await?;
    let old = ListParams::default().matching(kube::api::VersionMatch::Exact).at(&version.context("a version")?);
    let gone = eventually(SOON, "an answer", async || match config_maps.list(&old).await {
        Err(error @ kube::Error::Api(_)) => Some(error),
        _ => None,
    });
    assert!(is_status(&gone.await?, 410));

    let (pids, folder) = (cluster.pids(), cluster.folder().to_owned());
    assert_eq!(pids.len(), if cluster.controls("namespace") { 3 } else { 2 });
    ensure!(pids.iter().all(|pid| Path::new(&format!("/proc/{pid}")).exists()), "a server has ended: {pids:?}");
    cluster.stop()?;
    ensure!(!pids.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()), "a server is left: {pids:?}");
    ensure!(!folder.exists(), "{} is left", folder.display());
    Ok(())
}

#[tokio::test]
async fn a_server_that_can_not_start_says_why() -> Result<()> {
    let options = Options::default().flag("no-such-flag", "1");
    let Err(error) = Cluster::start(&options).await else {
        tools::skipped("there is no API server");
        return Ok(());
    };
    let error = format!("{error:#}");
    assert!(error.contains("kube-apiserver has ended") && error.contains("unknown flag: --no-such-flag"), "{error}");
    Ok(())
}
