//! A controller rotates a TLS Secret, as cert-manager does. An nginx with files and a Python server take each
//! certificate in place, while a client opens one connection after another: no handshake fails, and nobody is
//! restarted. How long it takes from the write of the Secret to a handshake with the certificate; if this scenario runs
//! alone or for minutes, beside the file of the same Secret in a volume, for which the kubelet takes more than one.
//!
//! A few rotations, one as soon as the one before is served, so a minute apart; or one every two minutes for as many
//! minutes as `NUDGE_TLS_MINUTES` says.

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use nudge_api::{ConfigState, VersionedConfigStatus};
use nudge_tests::cluster::installation::at_once;
use nudge_tests::cluster::{Authority, Certified};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::exposure::wait_for_status;
use crate::log::Log;
use crate::objects::{list, opted_in, pod, python, shell, template};
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const MINUTES: &str = "NUDGE_TLS_MINUTES";
const TITLE: &str = "A TLS Secret is rotated: from its write to the new certificate";
/// The number of rotations if nobody requests minutes.
const FEW: usize = 3;
const ROTATION_INTERVAL: Duration = Duration::from_mins(2);
/// The config, and the Secret that it follows.
const CONFIG: &str = "web-tls";
const SERVERS: [&str; 2] = ["nginx", "python"];
/// The number of versions that are kept beside those in use.
const HISTORY_LIMIT: usize = 3;
/// Versions that are kept: these, current and previous, and one that a rollout leaves.
const MAX_VERSIONS: usize = HISTORY_LIMIT + 3;

/// An nginx that knows nothing of Nudge, with the agent's files.
const NGINX: &str = r#"
mkdir -p /run/nginx/temp
cat >/run/nginx/nginx.conf <<END
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    server {
        listen 8443 ssl;
        ssl_certificate config/tls.crt;
        ssl_certificate_key config/tls.key;
        location / { return 200 "ok\n"; }
    }
}
END
PATH=$PATH:/usr/sbin
exec nginx -e stderr -p /run/nginx -c /run/nginx/nginx.conf"#;

/// A server whose new connections get what was read last. Certificate and key are read into a new context: in one that
/// is in use, a handshake could meet a certificate with the key of another.
const PYTHON: &str = r#"
import http.server, signal, ssl

def read(*_):
    global context
    fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    fresh.load_cert_chain("/config/tls.crt", "/config/tls.key")
    context = fresh

class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def setup(self):
        self.request = context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self):
        super().finish()
        self.request.close()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("", 8443), Handler)
signal.signal(signal.SIGUSR1, read)
read()
server.serve_forever()
"#;

/// Opens connections, two at the same time to each server, and requests a page over each. Says which certificate it
/// sees, and counts.
const CLIENT: &str = r#"
import hashlib, os, socket, ssl, threading, time

CONTEXT = ssl.create_default_context(cadata=os.environ["AUTHORITY"])

def ask(address):
    with socket.create_connection((address, 8443), timeout=10) as plain:
        with CONTEXT.wrap_socket(plain, server_hostname="web") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
            reply = tls.recv(4096)
            if b" 200 " not in reply.split(b"\r\n")[0]:
                raise OSError(f"the answer is {reply!r}")
            return hashlib.sha256(tls.getpeercert(True)).hexdigest()

def load(name, number, address):
    seen, count, failed = None, 0, 0
    while True:
        try:
            now = ask(address)
            if now != seen:
                print(name, "serves", now, flush=True)
            seen = now
        except Exception as error:
            failed += 1
            print(name, "FAILED", repr(error), flush=True)
        count += 1
        if count % 20 == 0:
            print(f"{name}-{number} count {count} failed {failed}", flush=True)
        time.sleep(0.02)

for server in os.environ["SERVERS"].split():
    name, address = server.split("=")
    for number in range(2):
        threading.Thread(target=load, args=(name, number, address)).start()
"#;

/// Says what stands in a volume of the Secret, which the kubelet refreshes.
const VOLUME: &str = r#"
while :; do
    now=$(sha256sum </tls/tls.crt)
    [ "$now" = "$was" ] || echo "file ${now%% *}"
    was=$now
    sleep 0.2
done"#;

/// What the certificates are rotated by.
struct Form {
    rotations: usize,
    /// The time between rotations; none begins before the one before is served.
    every: Option<Duration>,
    rollout: Value,
}

fn form() -> Result<Form> {
    let Some(minutes) = env::var_os(MINUTES) else {
        return Ok(Form { rotations: FEW, every: None, rollout: at_once() });
    };
    let minutes = minutes.to_str().and_then(|text| text.parse::<u64>().ok());
    let rotations = minutes.with_context(|| format!("{MINUTES} is no number"))? * 60 / ROTATION_INTERVAL.as_secs();
    let rollout = json!({"steps": [{"pods": 1}, {"pods": "100%"}], "minReadySeconds": 10, "bakeSeconds": 0});
    Ok(Form { rotations: usize::try_from(rotations)?.max(1), every: Some(ROTATION_INTERVAL), rollout })
}

/// A certificate that was written, and who has it since when.
struct Rotation {
    at: OffsetDateTime,
    certified: Certified,
    served: BTreeMap<&'static str, Duration>,
}

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let form = form()?;
    let home = ScenarioNamespace::enabled(suite, "certificates").await?;
    let authority = Authority::new("tests")?;
    let first = authority.server(&["web"])?;
    for part in ["secrets", "publish-secrets"] {
        home.kubectl(&["apply", "-k", &format!("deploy/namespace/{part}")])?;
    }
    home.space
        .create_object::<Secret>(
            json!({"metadata": {"name": CONFIG}, "type": "kubernetes.io/tls", "stringData": pair(&first)}),
        )
        .await?;
    let metadata = json!({"name": CONFIG});
    let spec = json!({"rollout": form.rollout, "objects": ["Secret"], "historyLimit": HISTORY_LIMIT});
    let config =
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": metadata, "spec": spec});
    home.apply(&config.to_string())?;
    home.wait_until_current(CONFIG, "1.0.0").await?;
    let mut version = Some("1.0.0".to_owned());

    let pods = servers(&home).await?;
    let client = client(&home, &authority, &pods).await?;
    let volume = if suite.is_alone() || form.every.is_some() { Some(volume(&home).await?) } else { None };
    for server in SERVERS {
        client.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, &format!("{server} serves {}", digest(&first)?)).await?;
    }
    let mut rotations = Vec::new();
    // The first one is no sooner after the first version than the others are after each other.
    let mut turns = form.every.map(|every| interval_at(Instant::now() + every, every));
    for number in 0..form.rotations {
        if let Some(turns) = &mut turns {
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            turns.tick().await;
        }
        let rotation = rotate(&home, &authority, &client).await.with_context(|| format!("rotation {number}"))?;
        rotations.push(rotation);
        let is_newest = |status: &VersionedConfigStatus| {
            status.state() == ConfigState::Current && status.current_version != version
        };
        version = wait_for_status(&home, CONFIG, "the certificate is current", is_newest).await?.current_version;
    }
    let refreshed = match &volume {
        Some((_, file)) => refresh_delays(file, &rotations, form.every.is_some()).await?,
        None => Vec::new(),
    };
    for pod in pods.iter().map(|(_, pod)| pod).chain(volume.iter().map(|(pod, _)| pod)) {
        assert_untouched(&home, pod).await?;
    }
    let count = count_connections(&client)?;
    keeps_few(&home).await?;
    report(suite, &rotations, refreshed, count);
    Ok(())
}

fn pair(certified: &Certified) -> Value {
    json!({"tls.crt": certified.certificate, "tls.key": certified.key})
}

/// Returns what the client says of it.
fn digest(certified: &Certified) -> Result<String> {
    let certificate = CertificateDer::from_pem_slice(certified.certificate.as_bytes())?;
    Ok(sha256(&certificate))
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Returns both servers.
async fn servers(home: &ScenarioNamespace<'_>) -> Result<Vec<(&'static str, Pod)>> {
    let probe =
        json!({"httpGet": {"path": "/", "port": 8443, "scheme": "HTTPS"}, "periodSeconds": 2, "timeoutSeconds": 2});
    let mut nginx = shell(home, NGINX);
    nginx["image"] = home.place.image("nudge-example-nginx:0.1.0").into();
    nginx["volumeMounts"] = json!([{"name": "run", "mountPath": "/run/nginx"}]);
    nginx["readinessProbe"] = probe.clone();
    let files = |folder| [("configs", "web-tls"), ("notify", folder), ("mount-path", "/config")];
    let mut annotations = files("SIGHUP");
    annotations[2].1 = "/run/nginx/config";
    let mut nginx = opted_in("nginx", &nginx, &annotations);
    nginx["spec"]["volumes"] = json!([{"name": "run", "emptyDir": {}}]);
    let mut python = python(home, PYTHON);
    python["readinessProbe"] = probe;
    let python = opted_in("python", &python, &files("SIGUSR1"));
    home.apply(&list([nginx, python].map(pod)))?;
    let mut pods = Vec::new();
    for name in SERVERS {
        pods.push((name, home.ready_pod(&format!("app={name}")).await?));
    }
    Ok(pods)
}

/// Returns the pod with a volume of the Secret, and its log.
async fn volume(home: &ScenarioNamespace<'_>) -> Result<(Pod, Log)> {
    let mut volume = shell(home, VOLUME);
    volume["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls"}]);
    let mut volume = template("volume", &volume);
    volume["spec"]["volumes"] = json!([{"name": "tls", "secret": {"secretName": CONFIG}}]);
    home.apply(&pod(volume).to_string())?;
    let volume = home.ready_pod("app=volume").await?;
    let log = home.follow(&volume).await?;
    Ok((volume, log))
}

/// Returns the log of the client, which has begun.
async fn client(home: &ScenarioNamespace<'_>, authority: &Authority, servers: &[(&str, Pod)]) -> Result<Log> {
    let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.clone();
    let servers = servers.iter().map(|(name, pod)| Some(format!("{name}={}", address(pod)?)));
    let servers = servers.collect::<Option<Vec<_>>>().context("a pod has no address")?.join(" ");
    let mut container = python(home, CLIENT);
    container["env"] = json!([
        {"name": "AUTHORITY", "value": authority.certificate()}, {"name": "SERVERS", "value": servers},
    ]);
    home.apply(&pod(template("client", &container)).to_string())?;
    home.follow(&home.ready_pod("app=client").await?).await
}

/// Writes a new pair of certificate and key, as a controller does, and waits until both servers have it.
async fn rotate(home: &ScenarioNamespace<'_>, authority: &Authority, client: &Log) -> Result<Rotation> {
    let certified = authority.server(&["web"])?;
    let patch = Patch::Merge(json!({"stringData": pair(&certified)}));
    home.space.api::<Secret>().patch(CONFIG, &PatchParams::default(), &patch).await?;
    let at = OffsetDateTime::now_utc();
    let mut served = BTreeMap::new();
    for server in SERVERS {
        let line = client.line(at, LONG_WAIT_TIMEOUT, &format!("{server} serves {}", digest(&certified)?)).await?;
        served.insert(server, Duration::try_from(line.at - at).unwrap_or_default());
    }
    Ok(Rotation { at, certified, served })
}

/// Returns after how long the file in the volume had a rotation: the last one, which nothing follows, or each.
async fn refresh_delays(file: &Log, rotations: &[Rotation], each: bool) -> Result<Vec<Duration>> {
    let first = if each { 0 } else { rotations.len() - 1 };
    let mut times = Vec::new();
    for rotation in &rotations[first..] {
        let text = format!("file {}", sha256(rotation.certified.certificate.as_bytes()));
        let line = file.line(rotation.at, LONG_WAIT_TIMEOUT, &text).await?;
        times.push(Duration::try_from(line.at - rotation.at).unwrap_or_default());
    }
    Ok(times)
}

/// Returns how many connections the client has made, of which none has failed.
fn count_connections(client: &Log) -> Result<usize> {
    let lines = client.lines();
    let failed: Vec<_> = lines.iter().filter(|line| line.text.contains("FAILED")).take(10).collect();
    ensure!(failed.is_empty(), "connections have failed: {failed:#?}");
    let mut counts = BTreeMap::new();
    for line in &lines {
        if let Some((name, count)) = line.text.split_once(" count ") {
            let (count, failed) = count.split_once(" failed ").context("half a line")?;
            ensure!(failed == "0", "{line:?}");
            counts.insert(name, count.parse::<usize>()?);
        }
    }
    ensure!(counts.len() == 2 * SERVERS.len(), "{counts:?}");
    Ok(counts.values().sum())
}

/// Returns what is left of this many versions.
async fn keeps_few(home: &ScenarioNamespace<'_>) -> Result<()> {
    let of_config = ListParams::default().labels(&format!("nudge.dev/config={CONFIG}"));
    let secrets = home.space.api::<Secret>().list_metadata(&of_config).await?.items;
    let names: Vec<_> = secrets.iter().map(|secret| &secret.metadata).map(ObjectMeta::clone).collect();
    ensure!((1..=MAX_VERSIONS).contains(&names.len()), "{names:#?}");
    Ok(())
}

fn report(suite: &Suite, rotations: &[Rotation], mut refreshed: Vec<Duration>, connections: usize) {
    let row = |what: &str, times: &mut Vec<Duration>| {
        times.sort();
        let count = times.len();
        let (median, worst) = (seconds(times[count / 2]), seconds(times[count - 1]));
        suite.report.row(TITLE, &[what.to_owned(), median, worst, count.to_string()]);
    };
    suite.report.row(TITLE, &["", "median", "worst", "of"].map(str::to_owned));
    let times = |of: fn(&Rotation) -> Option<Duration>| rotations.iter().filter_map(of).collect::<Vec<_>>();
    row("a handshake with it, first server", &mut times(|rotation| rotation.served.values().min().copied()));
    row("a handshake with it, second server", &mut times(|rotation| rotation.served.values().max().copied()));
    row("nginx (files, SIGHUP)", &mut times(|rotation| rotation.served.get("nginx").copied()));
    row("Python (files, SIGUSR1)", &mut times(|rotation| rotation.served.get("python").copied()));
    if !refreshed.is_empty() {
        row("the file in a volume of the same Secret (kubelet)", &mut refreshed);
    }
    let none = String::new;
    suite.report.row(TITLE, &["connections".to_owned(), none(), none(), connections.to_string()]);
    suite.report.row(TITLE, &["failed handshakes; restarts".to_owned(), none(), "0; 0".to_owned(), none()]);
}
