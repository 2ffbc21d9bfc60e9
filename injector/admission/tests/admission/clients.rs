//! `--admission-client-ca-file`: only clients with a certificate of that authority may post reviews.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use nudge_admission::{AdmissionMetrics, AdmissionServer, AdmissionSettings, ClientAuthority, Webhooks};
use nudge_tests::cluster::{Authority, Certified, Cluster, Options};
use nudge_tests::eventually;
use serde_json::json;

use crate::forged;
use crate::guarded_cluster::{SOON, install_crd, install_webhooks, message, part, serve_with, tls};
use crate::server::{Quick, WebhookClient, review};

/// Writes which certificate an API server shows to webhooks. Returns the file for `--admission-control-config-file`.
fn admission_configuration(folder: &Path, own: &Certified) -> Result<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("client.crt"), &own.certificate)?;
    std::fs::write(path("client.key"), &own.key)?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        // An installation has the name nudge-injector.nudge-system.svc here.
        "users": [{"name": "*", "user": {"client-certificate": path("client.crt"), "client-key": path("client.key")}}],
    });
    std::fs::write(path("kubeconfig"), kubeconfig.to_string())?;
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": path("kubeconfig"),
        }})
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    std::fs::write(path("admission.yaml"), configuration.to_string())?;
    Ok(path("admission.yaml"))
}

#[tokio::test]
async fn with_an_authority_for_clients_only_the_api_server_is_answered() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (serving, clients) = (Authority::new("admission")?, Authority::new("clients")?);
    let own = clients.client("kube-apiserver", None)?;
    let flag = admission_configuration(folder.path(), &own)?;
    let options = Options::default().flag("admission-control-config-file", &flag);
    let Some(cluster) = Cluster::start(&options).await? else { return Ok(()) };
    let file = folder.path().join("clients.crt");
    std::fs::write(&file, clients.certificate())?;
    let config = ClientAuthority::read(file)?.server_config(tls(&serving.server(&["127.0.0.1"])?)?.as_ref())?;
    let server = serve_with(&cluster, Arc::new(config), Arc::default(), None).await?;
    let admin = cluster.admin().await?;
    install_crd(&admin).await?;
    install_webhooks(&admin, server.address(), &serving.certificate()).await?;
    let space = cluster.space_with("clients", &[("nudge.dev/enabled", "true")]).await?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let half: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "probe", "labels": {"nudge.dev/config": "probe"}}
    }))?;
    let refused = eventually(SOON, "the API server is answered", async || space.api().create(&dry, &half).await.err());
    let refusal = message("versions.nudge.dev", Err::<(), _>(refused.await?));
    ensure!(refusal.contains("label nudge.dev/version is missing"), "{refusal}");

    // The attack of any client of the network, and of any user of the cluster with a certificate.
    let guess = forged::review("ConfigMap", "CREATE", &space.name, &part("guess")).to_string();
    let user = cluster.authority().client("system:admin", Some("system:masters"))?;
    for shown in [None, Some(&user)] {
        let attacker = WebhookClient::showing(&serving, server.address(), shown)?;
        let answer = attacker.ask("/mutate/versions", &guess).await.unwrap_or_default();
        ensure!(answer.is_empty(), "{answer}");
    }
    let known = WebhookClient::showing(&serving, server.address(), Some(&own))?;
    let answer = known.ask("/mutate/versions", &guess).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn another_authority_needs_no_restart_and_a_broken_file_changes_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("clients.crt");
    let serving = Authority::new("admission")?;
    let [first, second] = [Authority::new("first")?, Authority::new("second")?];
    std::fs::write(&file, first.certificate())?;
    let clients = ClientAuthority::read(file.clone())?;
    let config = clients.server_config(tls(&serving.server(&["127.0.0.1"])?)?.as_ref())?;
    tokio::spawn(clients.follow(Duration::from_millis(20)));
    let webhooks = move || -> futures::future::BoxFuture<'static, Result<Webhooks>> {
        Box::pin(async { Ok(vec![Arc::new(Quick) as Arc<dyn nudge_admission::Webhook>]) })
    };
    let settings = AdmissionSettings::new(([127, 0, 0, 1], 0).into());
    let server = AdmissionServer::start(settings, Arc::new(config), AdmissionMetrics::default(), webhooks).await?;
    let client =
        |of: &Authority| WebhookClient::showing(&serving, server.address(), Some(&of.client("kube-apiserver", None)?));
    let (old, new) = (client(&first)?, client(&second)?);
    let body = review().to_string();
    let answered = async |client: &WebhookClient| {
        client.ask("/quick", &body).await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    };
    ensure!(answered(&old).await && !answered(&new).await);
    for broken in ["", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&file, broken)?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        ensure!(answered(&old).await, "{broken:?}");
        ClientAuthority::read(file.clone()).err().context("it can't be used")?;
    }
    std::fs::write(&file, second.certificate())?;
    eventually(SOON, "the new one counts", async || answered(&new).await.then_some(())).await?;
    ensure!(!answered(&old).await);
    Ok(())
}
