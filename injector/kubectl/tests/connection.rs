//! The way to the API server, through a real proxy and TLS: it goes where kubectl goes.

// Helpers may fail as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Nothing listens there.
const DEAD: &str = "http://127.0.0.1:9";
/// The error that an answer of the API server causes.
const REACHED: &str = "error: there is no config game in namespace shop";

/// An API server that has a namespace and no config, and a proxy that leads to it, whatever the host.
struct Scene {
    home: TempDir,
    server: SocketAddr,
    proxy: SocketAddr,
    authority: String,
    /// The requests to the proxy.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    async fn new() -> Self {
        let names = ["api.example.com", "0.0.0.0"].map(str::to_owned);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let authority = BASE64_STANDARD.encode(certificate.pem());
        let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let tls = tls.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = TlsAcceptor::from(Arc::new(tls.with_single_cert(vec![certificate.der().clone()], key).unwrap()));
        let (listener, proxy) = (listener().await, listener().await);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let addresses = (listener.local_addr().unwrap(), proxy.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(tls.clone(), stream));
            }
        });
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = proxy.accept().await {
                tokio::spawn(tunnel(stream, addresses.0, Arc::clone(&log)));
            }
        });
        let home = tempfile::tempdir().unwrap();
        Self { home, server: addresses.0, proxy: addresses.1, authority, asked }
    }

    /// A kubeconfig of this cluster and this user.
    fn kubeconfig(&self, cluster: &Value, user: &Value) -> PathBuf {
        let mut cluster = cluster.clone();
        cluster["certificate-authority-data"] = self.authority.as_str().into();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}], "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "shop"}}],
        });
        let file = self.home.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        file
    }

    /// Returns the requests to the proxy if the API server was reached, otherwise the command's output.
    fn reached(&self, kubeconfig: &Path, variables: &[(&str, String)]) -> Result<Vec<String>, String> {
        let mut all = BTreeMap::from([("KUBECONFIG", kubeconfig.display().to_string())]);
        all.extend(variables.iter().cloned());
        let said = String::from_utf8(run(&["current", "game"], &all, Stdio::null()).stderr).unwrap();
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        if said.starts_with(REACHED) { Ok(asked) } else { Err(said) }
    }
}

fn run(arguments: &[&str], variables: &BTreeMap<&str, String>, input: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-nudge"));
    // No proxy of the machine that this runs on.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.args(arguments).envs(variables).stdin(input).output().unwrap()
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// The head of a request.
async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin), mut head: Vec<u8>) -> String {
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
            _ => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Answers requests as the API server does: there is the namespace, and no other object.
async fn answer(tls: TlsAcceptor, stream: TcpStream) {
    let Ok(mut stream) = tls.accept(stream).await else { return };
    loop {
        let head = head(&mut stream, Vec::new()).await;
        if head.is_empty() {
            return;
        }
        let (status, body) = if head.contains("/versionedconfigs/game ") {
            let details = json!({"name": "game", "group": "nudge.dev", "kind": "versionedconfigs"});
            let missing = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not found", "details": details,
            });
            ("404 Not Found", missing)
        } else {
            ("200 OK", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        };
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A proxy of HTTP (CONNECT) and of SOCKS 5.
async fn tunnel(mut stream: TcpStream, server: SocketAddr, asked: Arc<Mutex<Vec<String>>>) {
    let Ok(first) = stream.read_u8().await else { return };
    let (what, accepted): (String, &[u8]) = if first == 5 {
        let mut methods = vec![0; usize::from(stream.read_u8().await.unwrap())];
        stream.read_exact(&mut methods).await.unwrap();
        stream.write_all(&[5, 0]).await.unwrap();
        // Version, command, nothing, a name of this length.
        let mut request = [0; 5];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(request[..4], [5, 1, 0, 3], "the proxy looks up the name");
        let mut rest = vec![0; usize::from(request[4]) + 2];
        stream.read_exact(&mut rest).await.unwrap();
        let (name, port) = rest.split_at(rest.len() - 2);
        let port = u16::from_be_bytes([port[0], port[1]]);
        (format!("SOCKS {}:{port}", String::from_utf8_lossy(name)), &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    } else {
        let head = head(&mut stream, vec![first]).await;
        let user = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: ")).unwrap_or_default();
        let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1");
        (format!("{line} {user}").trim().to_owned(), b"HTTP/1.1 200 OK\r\n\r\n")
    };
    asked.lock().unwrap().push(what);
    let mut upstream = TcpStream::connect(server).await.unwrap();
    stream.write_all(accepted).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut upstream).await;
}

fn variable(name: &'static str, value: impl Into<String>) -> (&'static str, String) {
    (name, value.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_through_the_proxy_that_kubectl_goes_through() {
    let scene = Scene::new().await;
    let named = scene.kubeconfig(&json!({"server": "https://api.example.com:6443"}), &json!({}));
    let proxy = format!("http://{}", scene.proxy);
    let connect = |user: &str| Ok(vec![format!("CONNECT api.example.com:6443 {user}").trim().to_owned()]);
    for variables in [
        vec![variable("HTTPS_PROXY", &proxy)],
        vec![variable("https_proxy", scene.proxy.to_string())],
        vec![variable("HTTPS_PROXY", &proxy), variable("NO_PROXY", "other.example.com,, *.local,")],
    ] {
        assert_eq!(scene.reached(&named, &variables), connect(""), "{variables:?}");
    }
    let with_user = variable("HTTPS_PROXY", format!("http://jane:p%40ss@{}", scene.proxy));
    let user = format!("Basic {}", BASE64_STANDARD.encode("jane:p@ss"));
    assert_eq!(scene.reached(&named, &[with_user]), connect(&user));
    let socks = variable("HTTPS_PROXY", format!("socks5://{}", scene.proxy));
    assert_eq!(scene.reached(&named, &[socks]), Ok(vec!["SOCKS api.example.com:6443".to_owned()]));
    // That of the kubeconfig is for this server, whatever the variables say.
    let cluster = json!({"server": "https://api.example.com:6443", "proxy-url": proxy});
    let own = scene.kubeconfig(&cluster, &json!({}));
    let variables = [variable("HTTPS_PROXY", DEAD), variable("NO_PROXY", "*")];
    assert_eq!(scene.reached(&own, &variables), connect(""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_straight_where_no_proxy_says_so() {
    let scene = Scene::new().await;
    // An address that is not the loopback's, and leads there.
    let server = format!("https://0.0.0.0:{}", scene.server.port());
    let straight = scene.kubeconfig(&json!({"server": server}), &json!({}));
    for except in ["0.0.0.0", "localhost,0.0.0.0/8", "*", "a,, 0.0.0.0/0 ,"] {
        let variables = [variable("HTTPS_PROXY", DEAD), variable("NO_PROXY", except)];
        assert_eq!(scene.reached(&straight, &variables), Ok(vec![]), "{except}");
        let variables = [variable("https_proxy", DEAD), variable("no_proxy", except)];
        assert_eq!(scene.reached(&straight, &variables), Ok(vec![]), "{except}");
    }
    let variables = [variable("HTTPS_PROXY", DEAD), variable("NO_PROXY", "0.0.0.1")];
    assert!(scene.reached(&straight, &variables).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_the_list_that_is_missing_is_left_out() {
    let scene = Scene::new().await;
    let server = format!("https://0.0.0.0:{}", scene.server.port());
    let there = scene.kubeconfig(&json!({"server": server}), &json!({}));
    let list = std::env::join_paths([Path::new("/nonexistent/config"), &there]).unwrap();
    assert_eq!(scene.reached(Path::new(&list), &[]), Ok(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_piped_to_the_command_is_not_read_by_the_program_for_credentials() {
    let scene = Scene::new().await;
    let script = "cat > \"$SEEN\"; echo \"$KUBERNETES_EXEC_INFO\" > \"$SEEN.info\"; \
                  echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}'";
    let seen = scene.home.path().join("seen");
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "env": [{"name": "SEEN", "value": seen.display().to_string()}], "interactiveMode": "IfAvailable",
    }});
    let kubeconfig = scene.kubeconfig(&json!({"server": "https://api.example.com:6443"}), &user);
    let piped = scene.home.path().join("piped");
    std::fs::write(&piped, "a: [\n").unwrap();
    let variables = BTreeMap::from([("KUBECONFIG", kubeconfig.display().to_string())]);
    let input = std::fs::File::open(&piped).unwrap().into();
    let output = run(&["import", "-f", "-"], &variables, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the document at line 1 can't be read"), "the command has read nothing: {said}");
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), "");
    let info: Value = serde_json::from_str(&std::fs::read_to_string(seen.with_extension("info")).unwrap()).unwrap();
    assert_eq!(info["spec"]["interactive"], false);
}
