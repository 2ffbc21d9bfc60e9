//! A Prometheus behind TLS: the trusted servers, and the messages about other servers.

use anyhow::{Context, Result, ensure};
use nudge_tests::cluster::analysis::{may_send, own_address};
use nudge_tests::cluster::authority::Authority;
use serde_json::{Value, json};

use crate::analysis::prometheus::Prometheus;
use crate::analysis::scene::{Scene, ready, shared};

/// The host of another certificate, whose names must not be repeated.
const OTHER_HOST: &str = "hunter2.example.com";

/// Asks a server that has no pods, with a Secret if there is one.
fn analysis(name: &str, address: &str, secret: Option<&str>) -> Value {
    let secret = secret.map(|name| json!({"name": name}));
    json!({"name": name, "max": "1", "periodSeconds": 5, "prometheus": {
        "address": address, "query": "count(up{pod=~\"{{pods}}\"}) or vector(0)", "secretRef": secret}})
}

#[tokio::test]
async fn a_server_is_asked_if_its_certificate_is_good_and_holds_the_version_if_not() -> Result<()> {
    let Some(both) = shared().await? else { return Ok(()) };
    let own_ip = own_address()?.map(|ip| ip.to_string()).unwrap_or_default();
    let (right, wrong) = (Authority::new("right")?, Authority::new("wrong")?);
    let Some(good) = Prometheus::behind_tls(&right.server(&[&own_ip])?).await? else { return Ok(()) };
    let expired = Prometheus::behind_tls(&right.expired_server(&[&own_ip])?).await?.context("no server")?;
    let other = Prometheus::behind_tls(&right.server(&[OTHER_HOST])?).await?.context("no server")?;
    let scene = Scene::new(both, 2).await?;
    for (name, authority) in [("right", &right), ("wrong", &wrong)] {
        let data = json!({"ca.crt": authority.certificate(), "token": "hunter2"});
        scene.secret(name, &own_ip, &data).await?;
        may_send(&scene.space, name).await?;
    }
    let analyses = [
        analysis("good", &good.https(), Some("right")),
        analysis("wrong", &good.https(), Some("wrong")),
        analysis("nobody", &good.https(), None),
        analysis("expired", &expired.https(), Some("right")),
        analysis("other", &other.https(), Some("right")),
        analysis("plain", &good.https().replace("https", "http"), Some("right")),
    ];
    scene.set(&json!({"rollout": {"analysis": analyses}})).await?;
    scene.request_version("2").await?;
    let expected = [
        ("good", "none"),
        ("wrong", "the authority of its certificate is not trusted"),
        ("nobody", "the authority of its certificate is not trusted"),
        ("expired", "its certificate has expired"),
        ("other", "its certificate is not for this host"),
        ("plain", "the server's answer is not one of Prometheus"),
    ];
    let object = scene.wait_for_answers(&expected.map(|(name, _)| name)).await?;
    for (name, text) in expected {
        let queries = &object.status.as_ref().context("no status")?.queries;
        let answer = queries.iter().find(|query| query.name == name).and_then(|query| query.answers.last());
        let error = answer.context("no answer")?.error.as_deref().unwrap_or("none");
        ensure!(error.contains(text), "{name}: {error}");
    }
    let held = scene
        .wait_for_status("it is held", |status| ready(status).is_some_and(|it| it.0 == "AnalysisInconclusive"))
        .await?;
    ensure!(held.rollout.failure.is_none() && held.rollout.step == 1, "nobody is blamed: {held:#?}");
    ensure!(
        !format!("{object:?} {held:?}").contains("hunter2"),
        "what the certificate and the Secret hold is repeated"
    );
    // Those that can be believed are enough.
    scene.set(&json!({"rollout": {"analysis": [&analyses[0]]}})).await?;
    scene.wait_until_current("2").await.map(drop)
}
