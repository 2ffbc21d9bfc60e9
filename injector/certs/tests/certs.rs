//! Certificates in a real cluster: created once by several processes, rotated under running requests, repaired, and
//! published.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, AdmissionVerdict, ReviewRequest, Webhook, WebhookError,
    Webhooks,
};
use nudge_certs::{
    Authority, Certificate, CertificateFiles, Certificates, CertificatesError, KeepError, Keeper, KubeSecret,
    Lifetimes, PUBLISH_CHECK_INTERVAL, ServingNames, StoreError, Stores, publish_to_webhooks,
};
use nudge_tests::cluster::{Cluster, Options, TestNamespace};
use nudge_tests::eventually;
use serde_json::{Value, json};
use time::OffsetDateTime;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const AUTHORITY: &str = "nudge-authority";
const SERVING: &str = "nudge-serving";
/// Checks often.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A whole rotation in half a minute. Within the grace, a busy machine must have written a bundle, and its API server
/// have taken it.
fn brief() -> Lifetimes {
    Lifetimes {
        authority: Duration::from_secs(36),
        certificate: Duration::from_secs(6),
        grace: Duration::from_secs(1),
        check: Duration::from_millis(100),
    }
}

fn watchful() -> Lifetimes {
    Lifetimes { check: Duration::from_millis(100), ..Lifetimes::default() }
}

/// The Secrets as the manifests have them: there, without data.
async fn empty(space: &TestNamespace) -> Result<()> {
    for name in [AUTHORITY, SERVING] {
        space.create_object::<Secret>(json!({"metadata": {"name": name, "labels": {"made-by": "admin"}}})).await?;
    }
    Ok(())
}

fn stores(space: &TestNamespace) -> Stores<KubeSecret> {
    let secret = |name| KubeSecret::new(space.client.clone(), &space.name, name);
    Stores { authority: secret(AUTHORITY), serving: secret(SERVING) }
}

async fn keep(space: &TestNamespace, lifetimes: Lifetimes) -> Result<Certificates> {
    let names = ServingNames::new(["127.0.0.1"])?;
    let (certificates, rotation) = Certificates::keep(stores(space), names, lifetimes).await?;
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
async fn processes_that_start_together_serve_under_one_authority() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("together").await?;
    empty(&space).await?;
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
    // The Secrets that servers mount hold no key of the authority, and no key except the server's own.
    let secrets = space.api::<Secret>();
    let keys = async |name: &str| Ok::<_, anyhow::Error>(secrets.get(name).await?.data.unwrap_or_default());
    assert_eq!(keys(SERVING).await?.keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
    assert_eq!(keys(AUTHORITY).await?.keys().collect::<Vec<_>>(), ["ca.crt", "ca.key"]);
    assert!(keys(AUTHORITY).await?["ca.key"] != keys(SERVING).await?["tls.key"]);
    Ok(())
}

#[tokio::test]
async fn secrets_that_are_missing_or_of_somebody_else_are_named() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("others").await?;
    let mut keeper = Keeper::new(stores(&space), ServingNames::new(["127.0.0.1"])?, Lifetimes::default());
    let missing = keeper.settle(OffsetDateTime::now_utc).await.unwrap_err();
    assert!(matches!(missing, KeepError::Store(StoreError::Missing(_))));
    assert_eq!(
        missing.to_string(),
        format!(
            "Secret {}/{AUTHORITY} does not exist, and Nudge may not create Secrets; apply deploy/base again, which has it \
             without data",
            space.name
        )
    );
    let object = json!({
        "metadata": {"name": SERVING}, "type": "kubernetes.io/tls", "data": {"tls.crt": "YQ==", "tls.key": "YQ=="}
    });
    let before: Secret = space.create_object(object).await?;
    space.create_object::<Secret>(json!({"metadata": {"name": AUTHORITY}})).await?;
    let error = keep(&space, Lifetimes::default()).await.unwrap_err();
    assert_eq!(
        error.downcast::<CertificatesError>()?.to_string(),
        format!(
            "Secret {}/{SERVING} has type kubernetes.io/tls, so Nudge did not make it and leaves it alone; to use its \
             certificate, mount it and set NUDGE_CERTIFICATE_DIR",
            space.name
        )
    );
    assert_eq!(space.api::<Secret>().get(SERVING).await?, before);
    Ok(())
}

#[tokio::test]
async fn empty_secrets_are_filled_and_damaged_ones_repaired() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space("repaired").await?;
    empty(&space).await?;
    let certificates = keep(&space, watchful()).await?;
    let secrets = space.api::<Secret>();
    let stored = async |name: &str, key: &str| secrets.get(name).await.ok()?.data?.remove(key);
    let first = stored(SERVING, "tls.crt").await.context("it was filled")?;
    assert!(secrets.get(SERVING).await?.metadata.labels.is_some_and(|labels| labels["made-by"] == "admin"));

    let before = bundle(&certificates);
    for spoilt in ["tls.crt", "ca.crt"] {
        let spoil = Patch::Merge(json!({"data": {spoilt: "bm90IFBFTQ=="}}));
        secrets.patch(SERVING, &PatchParams::default(), &spoil).await?;
        eventually(TEST_TIMEOUT, "it is renewed", async || {
            let now = String::from_utf8(stored(SERVING, spoilt).await?.0).ok()?;
            Certificate::from_pem(&now).is_ok().then_some(())
        })
        .await?;
    }
    assert!(stored(SERVING, "tls.crt").await.is_some_and(|now| now != first));
    assert_eq!(bundle(&certificates), before, "under the same authority");

    // A lost authority: the serving certificate stays, and both authorities are trusted.
    let serving = stored(SERVING, "tls.crt").await;
    secrets.patch(AUTHORITY, &PatchParams::default(), &Patch::Merge(json!({"data": null}))).await?;
    let both = async || {
        let published = String::from_utf8(stored(SERVING, "ca.crt").await?.0).ok()?;
        (bundle(&certificates) == published && authorities(&published).len() == 2).then_some(())
    };
    eventually(TEST_TIMEOUT, "both are trusted", both).await?;
    assert!(authorities(&bundle(&certificates)).contains(&authorities(&before)[0]));
    assert_eq!(stored(SERVING, "tls.crt").await, serving);
    Ok(())
}

/// Allows everything.
struct Quick;

#[async_trait::async_trait]
impl Webhook for Quick {
    fn path(&self) -> &'static str {
        "/quick"
    }

    async fn review(&self, _: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        Ok(AdmissionVerdict::allow())
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
fn configuration(space: &TestNamespace, label: &str, address: SocketAddr) -> Value {
    json!({
        "metadata": {"name": space.name, "labels": {"app.kubernetes.io/name": "nudge"}},
        "webhooks": [{
            "name": "quick.nudge.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 10, "clientConfig": {"url": format!("https://{address}/quick")},
            "namespaceSelector": {"matchLabels": {"certs": label}},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
                "scope": "Namespaced"
            }]
        }]
    })
}

async fn create(client: &Client, configuration: Value) -> Result<()> {
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
    Ok(())
}

async fn ask(space: &TestNamespace) -> Result<(), kube::Error> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
    space.api().create(&dry, &ConfigMap { metadata, ..ConfigMap::default() }).await.map(drop)
}

#[tokio::test]
async fn requests_continue_while_everything_is_rotated() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let space = cluster.space_with("rotation", &[("certs", "rotation")]).await?;
    empty(&space).await?;
    // Two processes: the one that is asked is not always the one that takes the step.
    let (certificates, _other) = (keep(&space, brief()).await?, keep(&space, brief()).await?);
    let server = serve(&certificates).await?;
    let client = space.client.clone();
    create(&client, configuration(&space, "rotation", server.address())).await?;
    let publisher =
        tokio::spawn(publish_to_webhooks(client.clone(), space.name.clone(), certificates.ca_bundle(), CHECK_INTERVAL));
    eventually(TEST_TIMEOUT, "the webhook is trusted", async || ask(&space).await.ok()).await?;

    let first = authorities(&bundle(&certificates));
    assert_eq!(first.len(), 1);
    let (mut asked, mut seen) = (0, Vec::new());
    loop {
        ask(&space).await.with_context(|| format!("after {asked} requests and bundles of {seen:?}"))?;
        asked += 1;
        // Much more often than anything is rotated, and not so often that nothing else has a turn.
        tokio::time::sleep(Duration::from_millis(20)).await;
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
async fn an_api_server_that_knows_only_the_authority_before_trusts_the_next() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (now, lifetimes) = (OffsetDateTime::now_utc(), Lifetimes::default());
    let first = Authority::make(now, &lifetimes)?;
    let (second, cross) = first.make_next(now, &lifetimes)?;
    let (third, crossed_again) = second.make_next(now, &lifetimes)?;
    let serving = third.make_serving(&ServingNames::new(["127.0.0.1"])?, now, &lifetimes)?;
    let crosses = vec![crossed_again, cross];
    for (purpose, chain, trusted) in
        [("cross", crosses.clone(), true), ("alone", Vec::new(), false), ("gap", crosses[..1].to_vec(), false)]
    {
        let space = cluster.space_with(purpose, &[("certs", purpose)]).await?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("tls.crt"), serving.clone().with_chain(chain).certificates_pem())?;
        std::fs::write(folder.path().join("tls.key"), serving.key_pem().as_bytes())?;
        std::fs::write(folder.path().join("ca.crt"), first.certificate().pem())?;
        let files = CertificateFiles::in_folder(folder.path());
        let (certificates, _rotation) = Certificates::from_files(files, TEST_TIMEOUT)?;
        let server = serve(&certificates).await?;
        // No publisher touches an object without Nudge's label.
        let mut object = configuration(&space, purpose, server.address());
        object["metadata"]["labels"] = json!({});
        object["webhooks"][0]["clientConfig"]["caBundle"] = json!(BASE64_STANDARD.encode(first.certificate().pem()));
        create(&space.client, object).await?;
        let answered = async || match ask(&space).await {
            Ok(()) if trusted => Some(()),
            Err(error) if !trusted => error.to_string().contains("x509").then_some(()),
            _ => None,
        };
        eventually(TEST_TIMEOUT, &format!("{purpose}: trusted is {trusted}"), answered).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_bundle_that_was_written_over_comes_back() -> Result<()> {
    // This test needs its own cluster: in the shared cluster another publisher keeps the configurations of Nudge.
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let space = cluster.space("overwritten").await?;
    empty(&space).await?;
    let certificates = keep(&space, Lifetimes::default()).await?;
    let api = Api::<ValidatingWebhookConfiguration>::all(space.client.clone());
    let reads = || -> Result<usize> {
        let is = |event: &Value| {
            let object = &event["objectRef"];
            event["verb"] == "get"
                && object["resource"] == "validatingwebhookconfigurations"
                && object["name"] == *space.name
        };
        Ok(cluster.audit(&space.name)?.iter().filter(|event| is(event)).count())
    };
    // While an installation is applied, it may come after the publisher, whose next check is 45 s away.
    let (client, interval) = (space.client.clone(), PUBLISH_CHECK_INTERVAL);
    let publisher = tokio::spawn(publish_to_webhooks(client, space.name.clone(), certificates.ca_bundle(), interval));
    eventually(TEST_TIMEOUT, "it was looked for", async || (reads().ok()? > 0).then_some(())).await?;
    create(&space.client, configuration(&space, "none", SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))).await?;
    let set = async || (api.get(&space.name).await.ok()?.webhooks?[0].client_config.ca_bundle.is_some()).then_some(());
    eventually(PUBLISH_CHECK_INTERVAL / 3, "caBundle is set before the next check", set).await?;
    publisher.abort();
    let publisher = tokio::spawn(publish_to_webhooks(
        space.client.clone(),
        space.name.clone(),
        certificates.ca_bundle(),
        CHECK_INTERVAL,
    ));
    let expected = bundle(&certificates);
    let published = async || {
        let webhooks = api.get(&space.name).await.ok()?.webhooks?;
        let text = webhooks[0].client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone())?;
        (text == expected.as_bytes()).then_some(())
    };
    eventually(TEST_TIMEOUT, "caBundle is set", published).await?;
    let reset = Patch::Json::<()>(serde_json::from_value(json!([
        {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    ]))?);
    api.patch(&space.name, &PatchParams::default(), &reset).await?;
    eventually(TEST_TIMEOUT, "caBundle is set again", published).await?;
    // A correct object is left alone: no write without a reason.
    let version = api.get(&space.name).await?.metadata.resource_version;
    let before = reads()?;
    eventually(TEST_TIMEOUT, "it was looked at again", async || (reads().ok()? > before + 5).then_some(())).await?;
    assert_eq!(api.get(&space.name).await?.metadata.resource_version, version);
    publisher.abort();
    Ok(())
}
