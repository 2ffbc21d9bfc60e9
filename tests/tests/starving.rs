//! One address takes all that it can get of a replica, and keeps nobody else out: no probe, no metrics, no review, no agent.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_api::{VersionedConfig, VersionedConfigSpec};
use nudge_tests::cluster::installation::{deploy, hub_ca};
use nudge_tests::{Cluster, Finished, Installation, Raw, Replica, ReplicaOptions, agent::tls, binary, eventually};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Where nothing is fast, and yet a fraction of what 600 connections take that time out in turns.
const SOON: Duration = Duration::from_secs(20);
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How long it waits before it connects again.
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps so many connections to each address, and opens another for each that ends, until it is dropped. Returns when each was there.
async fn hostile(addresses: &[SocketAddr], count: usize) -> Result<JoinSet<()>> {
    let mut all = JoinSet::new();
    let opened = Arc::new(AtomicUsize::new(0));
    for &address in addresses.iter().flat_map(|address| std::iter::repeat_n(address, count)) {
        let opened = Arc::clone(&opened);
        all.spawn(async move {
            loop {
                if let Ok(mut stream) = connect(address).await {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.read(&mut [0]).await;
                }
                sleep(PAUSE).await;
            }
        });
    }
    let expected = count * addresses.len();
    eventually(SOON, "all are connected", async || (opened.load(Ordering::Relaxed) >= expected).then_some(())).await?;
    Ok(all)
}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((HOSTILE, 0).into())?;
    Ok(socket.connect(address).await?)
}

/// What the kubelet runs in the container, by the names of the probes.
fn probes() -> Result<Vec<(String, Vec<String>)>> {
    let path = deploy().join("base/control.yaml");
    let deployment: Value = serde_saphyr::from_str(&fs::read_to_string(path)?)?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    ["startupProbe", "readinessProbe", "livenessProbe"]
        .map(|name| {
            let command = container[name]["exec"]["command"].clone();
            Ok((name.to_owned(), serde_json::from_value(command).with_context(|| format!("{name} runs no command"))?))
        })
        .into_iter()
        .collect()
}

/// Runs a command of the image with this machine's program.
fn run(command: &[String], socket: &Path) -> Result<Finished> {
    let (program, arguments) = command.split_first().context("no command")?;
    ensure!(program == "/nudge-injector", "{program} is not in the image");
    Finished::within(SOON, Command::new(binary::injector()?).args(arguments).env("NUDGE_HEALTH_SOCKET", socket))
}

/// All that others want of the replica.
async fn serves(replica: &Replica, socket: &Path, authority: &Path) -> Result<()> {
    for (name, command) in probes()? {
        let finished = run(&command, socket)?;
        ensure!(finished.code == Some(0), "{name}: {}", finished.stderr);
    }
    let (status, text) = timeout(SOON, replica.get("/metrics")).await.context("no metrics")??;
    ensure!(status == 200 && text.contains("nudge_leader"), "{text}");
    let ready = timeout(SOON, replica.get("/readyz")).await.context("no health")??;
    ensure!(ready == (200, "ok\n".to_owned()), "{ready:?}");
    let client = tls::trusting(authority)?;
    let open = async |address: SocketAddr| Raw::over(TcpStream::connect(address).await?, address.ip(), &client).await;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": "nudge.dev", "version": "v1alpha1", "kind": "VersionedConfig"},
            "resource": {"group": "nudge.dev", "version": "v1alpha1", "resource": "versionedconfigs"},
            "name": "shop", "namespace": "nowhere", "operation": "DELETE", "userInfo": {},
            "oldObject": VersionedConfig::new("shop", VersionedConfigSpec::default()),
        },
    })
    .to_string();
    let head = format!("POST /validate/configs HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", review.len());
    let asked = async {
        let mut raw = open(replica.admission).await?;
        raw.send(format!("{head}{review}")).await?;
        raw.reply().await
    };
    let reply = timeout(SOON, asked).await.context("no review")??;
    ensure!(reply.status == 200, "{reply:?}");
    let asked = async {
        let mut raw = open(replica.hub).await?;
        raw.send("POST /v1/poll HTTP/1.1\r\nhost: hub\r\ncontent-length: 2\r\n\r\n{}").await?;
        raw.reply().await
    };
    let reply = timeout(SOON, asked).await.context("no answer of the hub")??;
    ensure!(reply.status == 401, "{reply:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_with_many_connections_keeps_nobody_out() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let Some(installation) = Installation::apply(cluster).await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (socket, authority) = (folder.path().join("health.sock"), folder.path().join("ca.crt"));
    let argument = format!("--health-socket={}", socket.display());
    let options = ReplicaOptions::with(&[&argument, "--hub-connections=500"]);
    let mut replica = installation.guarded_replica_with(options.clone()).await?;
    fs::write(&authority, hub_ca(&installation.enabled("starving").await?).await?)?;
    serves(&replica, &socket, &authority).await?;
    for count in [80, 600] {
        let attack = hostile(&[replica.health, replica.admission, replica.hub], count).await?;
        if count > 500 {
            for listener in ["admission", "hub"] {
                let name = format!("nudge_{listener}_connections_refused_total");
                let full = async || (replica.metric(&name).await.ok()? > 0.0).then_some(());
                eventually(SOON, &format!("all slots for {listener} are taken"), full).await?;
            }
        }
        serves(&replica, &socket, &authority).await.with_context(|| format!("{count} connections"))?;
        drop(attack);
    }

    // One that was killed answers no more, and the next takes its socket over.
    replica.process.kill()?;
    let live = &probes()?[2].1;
    let finished = run(live, &socket)?;
    ensure!(socket.exists() && finished.code == Some(1), "{finished:?}");
    ensure!(finished.stderr.contains("nothing answers at "), "{finished:?}");
    let next = installation.replica(&options).await?;
    eventually(SOON, "the next one is live", async || {
        run(live, &socket).ok().filter(|it| it.code == Some(0)).map(drop)
    })
    .await?;
    drop(next);
    Ok(())
}
