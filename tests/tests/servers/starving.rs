//! One address, or two hundred, take all that they can get of a replica, and keep nobody else out: no probe, no
//! metrics, no review, no agent.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_api::{VersionedConfig, VersionedConfigSpec};
use nudge_tests::cluster::Options;
use nudge_tests::cluster::installation::{deploy, hub_ca};
use nudge_tests::{Cluster, Finished, Installation, Raw, Replica, ReplicaOptions, agent::tls, binary, eventually};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The maximum time of an answer if nothing is fast: a fraction of what 600 connections take that time out in turns.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of addresses of a single client, and of many.
const ONE: u8 = 1;
const MANY: u8 = 200;
/// Returns how long a connection waits before it connects again, by the number of them: 3,000 a second to each address,
/// since the attacker has the processors of this machine.
fn pause(count: usize) -> Duration {
    Duration::from_micros(333) * u32::try_from(count).unwrap_or(u32::MAX)
}

/// Keeps this many connections to each address, from this many addresses in turn, and opens another for each that ends,
/// until it is dropped. Returns when each was there.
async fn hostile(addresses: &[SocketAddr], count: usize, sources: u8) -> Result<JoinSet<()>> {
    let mut connections = JoinSet::new();
    let opened = Arc::new(AtomicUsize::new(0));
    let sources = (1..=sources).cycle().map(|number| Ipv4Addr::new(127, 0, 1, number));
    for (&address, from) in addresses.iter().flat_map(|address| std::iter::repeat_n(address, count)).zip(sources) {
        let opened = Arc::clone(&opened);
        connections.spawn(async move {
            loop {
                if let Ok(mut stream) = connect(address, from).await {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.read(&mut [0]).await;
                }
                sleep(pause(count)).await;
            }
        });
    }
    let expected = count * addresses.len();
    eventually(WAIT_TIMEOUT, "all are connected", async || (opened.load(Ordering::Relaxed) >= expected).then_some(()))
        .await?;
    Ok(connections)
}

async fn connect(address: SocketAddr, from: Ipv4Addr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    Ok(socket.connect(address).await?)
}

/// Returns what the kubelet runs in the container, by the names of the probes.
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
    Finished::within(WAIT_TIMEOUT, Command::new(binary::injector()?).args(arguments).env("NUDGE_HEALTH_SOCKET", socket))
}

/// No probe fails.
fn passes(socket: &Path) -> Result<()> {
    for (name, command) in probes()? {
        let finished = run(&command, socket)?;
        ensure!(finished.code == Some(0), "{name}: {}", finished.stderr);
    }
    Ok(())
}

/// Fails unless the replica serves all that others ask of it.
async fn assert_serving(replica: &Replica, socket: &Path, authority: &Path) -> Result<()> {
    passes(socket)?;
    let (status, text) = timeout(WAIT_TIMEOUT, replica.get("/metrics")).await.context("no metrics")??;
    ensure!(status == 200 && text.contains("nudge_leader"), "{text}");
    let ready = timeout(WAIT_TIMEOUT, replica.get("/readyz")).await.context("no health")??;
    ensure!(ready == (200, "ok\n".to_owned()), "{ready:?}");
    answers(replica, authority).await
}

/// A review and a poll are answered.
async fn answers(replica: &Replica, authority: &Path) -> Result<()> {
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
    let ask = async {
        let mut raw = open(replica.admission).await?;
        raw.send(format!("{head}{review}")).await?;
        raw.reply().await
    };
    let reply = timeout(WAIT_TIMEOUT, ask).await.context("no review")??;
    ensure!(reply.status == 200, "{reply:?}");
    let ask = async {
        let mut raw = open(replica.hub).await?;
        raw.send("POST /v1/poll HTTP/1.1\r\nhost: hub\r\ncontent-length: 2\r\n\r\n{}").await?;
        raw.reply().await
    };
    let reply = timeout(WAIT_TIMEOUT, ask).await.context("no answer of the hub")??;
    ensure!(reply.status == 401, "{reply:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_of_one_address_and_of_many_keep_nobody_out() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let folder = tempfile::tempdir()?;
    let (socket, authority) = (folder.path().join("health.sock"), folder.path().join("ca.crt"));
    let argument = format!("--health-socket={}", socket.display());
    let options = ReplicaOptions::with(&[&argument, "--hub-connections=500"]);
    let mut replica = installation.guarded_replica_with(options.clone()).await?;
    fs::write(&authority, hub_ca(&installation.enabled("starving").await?).await?)?;
    assert_serving(&replica, &socket, &authority).await?;
    for (count, sources) in [(80, ONE), (600, ONE), (2000, ONE), (2000, MANY)] {
        let mut ports = vec![replica.admission, replica.hub];
        // Port 8080 has fewer slots than there are addresses then.
        ports.extend((sources == ONE).then_some(replica.health));
        let attack = hostile(&ports, count, sources).await?;
        if sources == ONE && count > 500 {
            for listener in ["admission", "hub"] {
                let name = format!("nudge_{listener}_connections_refused_total");
                let full = async || (replica.metric(&name).await.ok()? > 0.0).then_some(());
                eventually(WAIT_TIMEOUT, &format!("all slots for {listener} are taken by {count}"), full).await?;
            }
        }
        let served = if sources == ONE {
            assert_serving(&replica, &socket, &authority).await
        } else {
            passes(&socket).and(answers(&replica, &authority).await)
        };
        served.with_context(|| format!("{count} connections from {sources} addresses"))?;
        drop(attack);
    }
    // Where all slots of a port are taken, that port alone is.
    let attack = hostile(&[replica.health], 2000, MANY).await?;
    passes(&socket)?;
    answers(&replica, &authority).await?;
    drop(attack);

    // One that was killed answers no more, and the next takes its socket over.
    replica.process.kill()?;
    let live = &probes()?[2].1;
    let finished = run(live, &socket)?;
    ensure!(socket.exists() && finished.code == Some(1), "{finished:?}");
    ensure!(finished.stderr.contains("nothing answers at "), "{finished:?}");
    let next = installation.replica(&options).await?;
    eventually(WAIT_TIMEOUT, "the next one is live", async || {
        run(live, &socket).ok().filter(|it| it.code == Some(0)).map(drop)
    })
    .await?;
    drop(next);
    Ok(())
}
