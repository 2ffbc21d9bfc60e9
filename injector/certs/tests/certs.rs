//! Certificates in a real cluster: created once by several replicas, rotated under running requests, repaired, and published.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, Request, Verdict, Webhook, WebhookError, Webhooks,
};
use nudge_certs::{
    Certificate, Certificates, CertificatesError, HUB_CA, HUB_CA_KEY, KubeSecret, Lifetimes, PublishTimes,
    ServingNames, publish_to_namespaces, publish_to_webhooks,
};
use nudge_protocol::backoff::Backoff;
use nudge_tests::cluster::servers::ISSUER;
use nudge_tests::cluster::{Cluster, Identity, Options, Space};
use nudge_tests::eventually;
use serde_json::{Value, json};
use tokio::sync::watch;

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "nudge-injector-tls";
/// Checks often, and retries a namespace that refuses after longer than any test takes.
const TIMES: PublishTimes = PublishTimes {
    check: Duration::from_millis(100),
    retry: Backoff { first: Duration::from_mins(10), longest: Duration::from_mins(10) },
};

/// A whole rotation within seconds.
fn brief() -> Lifetimes {
    Lifetimes {
        authority: Duration::from_secs(18),
        certificate: Duration::from_secs(3),
        propagation: Duration::from_secs(1),
        grace: Duration::from_millis(500),
        leeway: Duration::from_mins(1),
        check: Duration::from_millis(100),
    }
}

fn watchful() -> Lifetimes {
    Lifetimes { check: Duration::from_millis(100), ..Lifetimes::default() }
}

async fn keep(space: &Space, lifetimes: Lifetimes) -> Result<Certificates> {
    let store = KubeSecret::new(space.client.clone(), &space.name, SECRET);
    let (certificates, rotation) = Certificates::keep(store, ServingNames::new(["127.0.0.1"])?, lifetimes).await?;
    tokio::spawn(rotation);
    Ok(certificates)
}

fn bundle(certificates: &Certificates) -> String {
    certificates.ca_bundle().borrow().to_string()
}

fn authorities(bundle: &str) -> Vec<Certificate> {
    Certificate::all_from_pem(bundle)
}

#[tokio::test]
async fn replicas_that_start_together_serve_under_one_authority() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("together").await?;
    let (one, two, three) = tokio::try_join!(
        keep(&space, Lifetimes::default()),
        keep(&space, Lifetimes::default()),
        keep(&space, Lifetimes::default())
    )?;
    assert_eq!(bundle(&one), bundle(&two));
    assert_eq!(bundle(&one), bundle(&three));
    assert_eq!(authorities(&bundle(&one)).len(), 1);
    let later = keep(&space, Lifetimes::default()).await?;
    assert_eq!((bundle(&one), one.expires()), (bundle(&later), later.expires()));
    let secret = space.api::<Secret>().get(SECRET).await?;
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    Ok(())
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("others").await?;
    let object = json!({
        "metadata": {"name": SECRET}, "type": "kubernetes.io/tls", "data": {"tls.crt": "YQ==", "tls.key": "YQ=="}
    });
    let before: Secret = space.create_object(object).await?;
    let error = keep(&space, Lifetimes::default()).await.unwrap_err();
    assert_eq!(
        error.downcast::<CertificatesError>()?.to_string(),
        format!(
            "Secret {}/{SECRET} is of type kubernetes.io/tls, so Nudge has not made it and leaves it alone; choose another \
                 Secret, or mount this one and give its files",
            space.name
        )
    );
    assert_eq!(space.api::<Secret>().get(SECRET).await?, before);
    Ok(())
}

#[tokio::test]
async fn an_empty_secret_is_filled_and_a_damaged_one_repaired() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("repaired").await?;
    // An admin who allows no Secret to be created makes an empty one.
    space.create_object::<Secret>(json!({"metadata": {"name": SECRET, "labels": {"made-by": "admin"}}})).await?;
    let certificates = keep(&space, watchful()).await?;
    let secrets = space.api::<Secret>();
    let stored = async |key: &str| secrets.get(SECRET).await.ok()?.data?.remove(key);
    let first = stored("tls.crt").await.context("it was filled")?;
    assert!(secrets.get(SECRET).await?.metadata.labels.is_some_and(|labels| labels["made-by"] == "admin"));

    let spoil = Patch::Merge(json!({"data": {"tls.crt": "bm90IFBFTQ=="}}));
    secrets.patch(SECRET, &PatchParams::default(), &spoil).await?;
    let before = bundle(&certificates);
    eventually(SOON, "the serving certificate is renewed", async || {
        let now = String::from_utf8(stored("tls.crt").await?.0).ok()?;
        (now.as_bytes() != first.0 && Certificate::from_pem(&now).is_ok()).then_some(())
    })
    .await?;
    assert_eq!(bundle(&certificates), before, "under the same authority");

    secrets.delete(SECRET, &DeleteParams::default()).await?;
    eventually(SOON, "everything is made anew", async || (bundle(&certificates) != before).then_some(())).await?;
    Ok(())
}

/// Allows everything.
struct Quick;

impl Webhook for Quick {
    fn path(&self) -> &'static str {
        "/quick"
    }

    fn review<'a>(
        &'a self,
        _: &'a Request,
    ) -> Pin<Box<dyn Future<Output = Result<Verdict, WebhookError>> + Send + 'a>> {
        Box::pin(async { Ok(Verdict::allow()) })
    }
}

async fn serve(certificates: &Certificates) -> Result<AdmissionServer> {
    let settings = AdmissionSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let made = || -> Pin<Box<dyn Future<Output = Result<Webhooks>> + Send>> {
        Box::pin(async { Ok(vec![Arc::new(Quick) as Arc<dyn Webhook>]) })
    };
    let tls = certificates.server_config();
    Ok(AdmissionServer::start(settings, tls, AdmissionMetrics::default(), made).await?)
}

/// A configuration that asks about every ConfigMap of the namespace, and refuses when there is no answer.
async fn configuration(client: &Client, space: &Space, address: SocketAddr) -> Result<()> {
    let object = json!({
        "metadata": {"name": space.name, "labels": {"app.kubernetes.io/name": "nudge"}},
        "webhooks": [{
            "name": "quick.nudge.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 10, "clientConfig": {"url": format!("https://{address}/quick")},
            "namespaceSelector": {"matchLabels": {"certs": "rotation"}},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
                "scope": "Namespaced"
            }]
        }]
    });
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn ask(space: &Space) -> Result<(), kube::Error> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
    space.api().create(&dry, &ConfigMap { metadata, ..ConfigMap::default() }).await.map(drop)
}

#[tokio::test]
async fn requests_go_on_while_everything_is_rotated() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space_with("rotation", &[("certs", "rotation")]).await?;
    // Two replicas: the one that is asked is not always the one that takes the step.
    let (certificates, _other) = (keep(&space, brief()).await?, keep(&space, brief()).await?);
    let server = serve(&certificates).await?;
    let client = space.client.clone();
    configuration(&client, &space, server.address()).await?;
    let publisher = tokio::spawn(publish_to_webhooks(client.clone(), certificates.ca_bundle(), TIMES));
    eventually(SOON, "the webhook is trusted", async || ask(&space).await.ok()).await?;

    let first = authorities(&bundle(&certificates));
    assert_eq!(first.len(), 1);
    let (mut asked, mut seen) = (0, Vec::new());
    loop {
        ask(&space).await.with_context(|| format!("after {asked} requests and bundles of {seen:?}"))?;
        asked += 1;
        let now = authorities(&bundle(&certificates));
        let state = (now.len(), now.contains(&first[0]));
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        if state == (1, false) {
            break;
        }
    }
    assert_eq!(seen, [(1, true), (2, true), (1, false)], "one, both, the other");
    assert!(asked > 50, "only {asked} requests were made meanwhile");
    publisher.abort();
    Ok(())
}

#[tokio::test]
async fn a_bundle_that_was_written_over_comes_back() -> Result<()> {
    // Its own cluster: in that of the other tests another publisher keeps the configurations of Nudge.
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let space = cluster.space("overwritten").await?;
    let certificates = keep(&space, Lifetimes::default()).await?;
    configuration(&space.client, &space, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))).await?;
    let api = Api::<ValidatingWebhookConfiguration>::all(space.client.clone());
    let foreign = json!({"metadata": {"name": "foreign"}, "webhooks": []});
    api.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    let publisher = tokio::spawn(publish_to_webhooks(space.client.clone(), certificates.ca_bundle(), TIMES));
    let expected = bundle(&certificates);
    let published = async || {
        let webhooks = api.get(&space.name).await.ok()?.webhooks?;
        let text = webhooks[0].client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone())?;
        (text == expected.as_bytes()).then_some(())
    };
    eventually(SOON, "caBundle is set", published).await?;
    let reset = Patch::Json::<()>(serde_json::from_value(json!([
        {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    ]))?);
    api.patch(&space.name, &PatchParams::default(), &reset).await?;
    eventually(SOON, "caBundle is set again", published).await?;
    // What is right is left alone: no write without a reason.
    let version = api.get(&space.name).await?.metadata.resource_version;
    let lists = || -> Result<usize> {
        let is = |event: &Value| {
            event["verb"] == "list" && event["objectRef"]["resource"] == "validatingwebhookconfigurations"
        };
        Ok(cluster.audit()?.iter().filter(|event| is(event)).count())
    };
    let before = lists()?;
    eventually(SOON, "it was looked at again", async || (lists().ok()? > before + 3).then_some(())).await?;
    assert_eq!(api.get(&space.name).await?.metadata.resource_version, version);
    publisher.abort();
    Ok(())
}

#[tokio::test]
async fn every_enabled_namespace_has_the_bundle_and_one_that_refuses_is_not_pressed() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let home = cluster.space("home").await?;
    let [bound, unbound, late] =
        [cluster.space("bound").await?, cluster.space("unbound").await?, cluster.space("late").await?];
    home.service_account("injector").await?;
    let token = home.token("injector", ISSUER, None).await?;
    let user = format!("system:serviceaccount:{}:injector", home.name);
    for space in [&bound, &late] {
        let role = json!({
            "metadata": {"name": "nudge"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "patch"]}]
        });
        space.create_object::<k8s_openapi::api::rbac::v1::Role>(role).await?;
        let binding = json!({
            "metadata": {"name": "nudge"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "nudge"},
            "subjects": [{"kind": "ServiceAccount", "name": "injector", "namespace": home.name}]
        });
        space.create_object::<k8s_openapi::api::rbac::v1::RoleBinding>(binding).await?;
    }
    let client = cluster.client(&Identity::Token(&token)).await?;
    let allowed = Api::<ConfigMap>::namespaced(client.clone(), &late.name);
    eventually(SOON, "the role holds", async || allowed.get_opt("none").await.ok()).await?;
    let allowed = Api::<ConfigMap>::namespaced(client.clone(), &bound.name);
    eventually(SOON, "the role holds", async || allowed.get_opt("none").await.ok()).await?;

    let (enable, enabled) = watch::channel(Arc::new(BTreeSet::from([bound.name.clone(), unbound.name.clone()])));
    let (publish, bundle) = watch::channel(Arc::from("one\n"));
    let publisher = tokio::spawn(publish_to_namespaces(client, bundle, enabled, TIMES));
    let holds = async |space: &Space, text: &str| {
        let config_map = space.api::<ConfigMap>().get(HUB_CA).await.ok()?;
        config_map.data?.get(HUB_CA_KEY).is_some_and(|held| held == text).then_some(())
    };
    eventually(SOON, "it is published", async || holds(&bound, "one\n").await).await?;
    bound.api::<ConfigMap>().delete(HUB_CA, &DeleteParams::default()).await?;
    eventually(SOON, "it is published again", async || holds(&bound, "one\n").await).await?;
    let edit = Patch::Merge(json!({"data": {HUB_CA_KEY: "wrong"}}));
    bound.api::<ConfigMap>().patch(HUB_CA, &PatchParams::default(), &edit).await?;
    eventually(SOON, "it is put right", async || holds(&bound, "one\n").await).await?;
    enable.send_modify(|names| {
        Arc::make_mut(names).insert(late.name.clone());
    });
    eventually(SOON, "it is published in a namespace enabled later", async || holds(&late, "one\n").await).await?;
    publish.send_replace(Arc::from("two\n"));
    for space in [&bound, &late] {
        eventually(SOON, "another bundle is published", async || holds(space, "two\n").await).await?;
    }
    let pressed = cluster.audit()?.into_iter().filter(|event| {
        event["user"]["username"] == user.as_str() && event["objectRef"]["namespace"] == unbound.name.as_str()
    });
    assert_eq!(pressed.count(), 1, "one refusal is enough for a while");
    drop(enable);
    tokio::time::timeout(SOON, publisher).await.context("it ends with what it listens to")??;
    Ok(())
}
