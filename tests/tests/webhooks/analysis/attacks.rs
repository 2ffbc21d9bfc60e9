//! Attacks on what asks: servers without end, slow ones, ones that send it elsewhere, and addresses that it must not
//! reach.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use nudge_api::{RolloutAnalysis, VersionedConfigStatus};
use nudge_tests::cluster::analysis::{may_send, own_address};
use nudge_tests::tools;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::analysis::scene::{Scene, measurable, ready, shared};

/// What a server does with a connection, once it has read a request.
#[derive(Clone, Copy)]
enum Nature {
    /// The server writes for ever.
    Endless,
    /// The server writes a byte a second.
    Slow,
    /// The server redirects clients to this address.
    Elsewhere(SocketAddr),
    /// The server answers as Prometheus does.
    Good,
}

/// A server; how often somebody connected, and what was last asked.
struct Hostile {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Hostile {
    async fn start(ip: IpAddr, nature: Nature) -> Result<Self> {
        let listener = TcpListener::bind((ip, 0)).await?;
        let (address, connections) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, nature));
            }
        });
        Ok(Self { address, connections })
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn serve(mut stream: TcpStream, nature: Nature) {
    let _ = stream.read(&mut [0; 8192]).await;
    let good = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"0"]}}"#;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{good}", good.len());
    match nature {
        Nature::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'1'; 8192]).await.is_ok() {}
        }
        Nature::Slow => {
            for byte in answer.bytes() {
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Nature::Elsewhere(address) => {
            let answer = format!(
                "HTTP/1.1 307 Elsewhere\r\nlocation: http://{address}/api/v1/query\r\ncontent-length: 0\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        Nature::Good => {
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

fn analysis(name: &str, address: &str, secret: Option<&str>) -> Value {
    let secret = secret.map(|name| json!({"name": name}));
    json!({"name": name, "max": "1", "periodSeconds": 5,
           "prometheus": {"address": address, "query": "up{pod=~\"{{pods}}\"}", "secretRef": secret}})
}

fn error<'a>(object: &'a RolloutAnalysis, name: &str) -> Result<&'a str> {
    let queries = &object.status.as_ref().context("no status")?.queries;
    let answer = queries.iter().find(|query| query.name == name).and_then(|query| query.answers.last());
    Ok(answer.context("no answer")?.error.as_deref().unwrap_or("none"))
}

#[tokio::test]
async fn hostile_servers_and_addresses_get_nothing_and_decide_nothing() -> Result<()> {
    let Some(both) = shared().await? else { return Ok(()) };
    let Some(ip) = own_address()? else {
        tools::skipped("this machine has no address but the loopback");
        return Ok(());
    };
    let scene = Scene::new(both, 2).await?;
    let start_hostile = async |ip: IpAddr, nature| Hostile::start(ip, nature).await;
    let (endless, slow) =
        (start_hostile(ip.into(), Nature::Endless).await?, start_hostile(ip.into(), Nature::Slow).await?);
    let (other, loopback) =
        (start_hostile(ip.into(), Nature::Good).await?, start_hostile([127, 0, 0, 1].into(), Nature::Good).await?);
    let elsewhere = start_hostile(ip.into(), Nature::Elsewhere(loopback.address)).await?;
    // A Secret for another host, and one that nobody lets the role read.
    scene.secret("foreign", "prometheus.example.com", &json!({"token": "hunter2"})).await?;
    scene.secret("closed", &ip.to_string(), &json!({"token": "hunter2"})).await?;
    may_send(&scene.space, "foreign").await?;
    let api_server = both.0.cluster.address();
    let analyses = json!([
        analysis("endless", &endless.url(), None),
        analysis("slow", &slow.url(), None),
        analysis("closed", &other.url(), Some("closed")),
        analysis("elsewhere", &elsewhere.url(), None),
        analysis("metadata", "http://169.254.169.254", None),
        analysis("loopback", &loopback.url().replace("127.0.0.1", "localhost"), None),
        analysis("foreign", &other.url(), Some("foreign")),
        analysis("api", &format!("http://[::ffff:{}]:{}", api_server.ip(), api_server.port()), None),
    ]);
    scene.set(&json!({"rollout": {"analysis": analyses}})).await?;
    // Before a version is on trial, the queries are tried.
    let says = |said: &str| {
        said.contains("slow: the server did not answer within 10 s")
            && said.contains("closed: Nudge may not read Secret closed")
    };
    let tried = |status: &VersionedConfigStatus| {
        measurable(status).is_some_and(|(reason, said)| reason == "NotMeasurable" && says(said))
    };
    scene.wait_for_status("what can't be asked is said", tried).await?;
    scene.request_version("2").await?;
    let expected = [
        ("endless", "of the pods with the version: the answer has more than 1048576 bytes"),
        ("slow", "did not answer within 10 s"),
        ("elsewhere", "the server redirects the query (status 307), and redirects are not followed"),
        ("metadata", "nothing is sent to 169.254.169.254: it is link-local"),
        ("loopback", "nothing is sent to localhost: it is the machine itself"),
        ("foreign", "Secret foreign is not for"),
        ("closed", "Nudge may not read Secret closed; allow it: kubectl create role"),
        ("api", "nothing is sent to ::ffff:"),
    ];
    let object = scene.wait_for_answers(&expected.map(|(name, _)| name)).await?;
    for (name, text) in expected {
        let error = error(&object, name)?;
        ensure!(error.contains(text), "{name}: {error}");
    }
    ensure!((loopback.count(), other.count()) == (0, 0), "nothing reached what it must not reach");
    ensure!(endless.count() > 0 && slow.count() > 0 && elsewhere.count() > 0);
    let status = scene
        .wait_for_status("it is held", |status| ready(status).is_some_and(|it| it.0 == "AnalysisInconclusive"))
        .await?;
    ensure!(status.rollout.failure.is_none() && status.rollout.step == 1, "{status:#?}");
    ensure!(!format!("{object:?} {status:?}").contains("hunter2"));
    stands_behind_a_service_of_the_system(&scene, &other).await
}

/// What a Service of kube-system has is refused, as soon as that is known: by EndpointSlices, and on 1.20 by Endpoints.
async fn stands_behind_a_service_of_the_system(scene: &Scene, server: &Hostile) -> Result<()> {
    let (client, (ip, port)) = (&scene.space.client, (server.address.ip(), server.address.port()));
    let slice = json!({
        "metadata": {"name": "metrics"}, "addressType": "IPv4", "endpoints": [{"addresses": [ip]}], "ports": [{"port": port}],
    });
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "kube-system");
    match slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let subset = json!({"addresses": [{"ip": ip}], "ports": [{"port": port}]});
            let endpoints = json!({"metadata": {"name": "metrics"}, "subsets": [subset]});
            let system = Api::<Endpoints>::namespaced(client.clone(), "kube-system");
            system.create(&PostParams::default(), &serde_json::from_value(endpoints)?).await?;
        }
        made => drop(made?),
    }
    // What can't be asked holds the version, until it is known who stands behind the Service.
    let held = analysis("metadata", "http://169.254.169.254", None);
    scene.set(&json!({"rollout": {"analysis": [analysis("system", &server.url(), None), held]}})).await?;
    let refused = |object: &RolloutAnalysis| {
        error(object, "system").is_ok_and(|error| error.contains("it belongs to the API server or to kube-system"))
    };
    scene.wait_for_measurement("it is refused", refused).await?;
    let request_count = server.count();
    let answers = |object: &RolloutAnalysis| {
        let query = object.status.as_ref().and_then(|status| status.queries.first());
        query.and_then(|query| query.answers.last()).map_or(0, |last| last.number)
    };
    let first_answers = answers(&scene.wait_for_measurement("it is there", |_| true).await?);
    scene.wait_for_measurement("it is measured again", |object| answers(object) > first_answers).await?;
    ensure!(server.count() == request_count, "nothing is sent there any more");
    Ok(())
}
