//! The bounds of the admission server, each crossed.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, AdmissionVerdict, ReviewRequest, UndecidedDeletions, Webhook,
    WebhookError, Webhooks,
};
use nudge_tests::cluster::{Authority, Certified};
use nudge_tests::eventually;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::guarded_cluster::{SOON, tls};

/// Fails at every review.
pub(crate) struct Broken(pub(crate) &'static str);

#[async_trait::async_trait]
impl Webhook for Broken {
    fn path(&self) -> &'static str {
        self.0
    }

    async fn review(&self, _: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        Err(WebhookError::Internal("an internal fault".into()))
    }
}

/// Allows everything at once.
pub(crate) struct Quick;

#[async_trait::async_trait]
impl Webhook for Quick {
    fn path(&self) -> &'static str {
        "/quick"
    }

    async fn review(&self, _: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        Ok(AdmissionVerdict::allow())
    }
}

/// Never answers.
pub(crate) struct Stuck;

#[async_trait::async_trait]
impl Webhook for Stuck {
    fn path(&self) -> &'static str {
        "/stuck"
    }

    async fn review(&self, _: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        std::future::pending().await
    }
}

/// Starts a server for some webhooks.
pub(crate) async fn start(
    authority: &Authority,
    webhooks: Webhooks,
    change: impl FnOnce(&mut AdmissionSettings),
) -> Result<AdmissionServer> {
    let mut settings = AdmissionSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    change(&mut settings);
    let certified = authority.server(&["127.0.0.1"])?;
    let made = move || -> Pin<Box<dyn Future<Output = Result<Webhooks>> + Send>> { Box::pin(async { Ok(webhooks) }) };
    Ok(AdmissionServer::start(settings, tls(&certified)?, AdmissionMetrics::default(), made).await?)
}

/// Deletions that it does not decide about are refused.
struct Guards(&'static str, Arc<dyn Webhook>);

#[async_trait::async_trait]
impl Webhook for Guards {
    fn path(&self) -> &'static str {
        self.0
    }

    fn undecided_deletions(&self) -> UndecidedDeletions {
        UndecidedDeletions::Deny
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        self.1.review(request).await
    }
}

struct Bench {
    server: AdmissionServer,
    client: WebhookClient,
}

impl Bench {
    async fn start(change: impl FnOnce(&mut AdmissionSettings)) -> Result<Self> {
        let authority = Authority::new("bounds")?;
        let webhooks: Webhooks = vec![
            Arc::new(Quick),
            Arc::new(Stuck),
            Arc::new(Broken("/broken")),
            Arc::new(Guards("/guards-stuck", Arc::new(Stuck))),
            Arc::new(Guards("/guards-quick", Arc::new(Quick))),
            Arc::new(Guards("/guards-broken", Arc::new(Broken("")))),
        ];
        let server = start(&authority, webhooks, change).await?;
        Ok(Self { client: WebhookClient::new(&authority, server.address())?, server })
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        self.client.connect().await
    }

    async fn ask(&self, path: &str, body: &str) -> Result<String> {
        self.client.ask(path, body).await
    }

    async fn send(&self, text: &str) -> Result<String> {
        self.client.send(text).await
    }
}

/// A client of a server's port.
pub(crate) struct WebhookClient {
    address: SocketAddr,
    connector: TlsConnector,
}

impl WebhookClient {
    pub(crate) fn new(authority: &Authority, address: SocketAddr) -> Result<Self> {
        Self::showing(authority, address, None)
    }

    /// Shows a certificate.
    pub(crate) fn showing(authority: &Authority, address: SocketAddr, own: Option<&Certified>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => config.with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(own.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(own.key.as_bytes())?,
            )?,
        };
        Ok(Self { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        self.connect_from(Ipv4Addr::LOCALHOST).await
    }

    /// Comes from another address of this machine.
    async fn connect_from(&self, from: Ipv4Addr) -> Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let stream = socket.connect(self.address).await?;
        Ok(self.connector.connect(ServerName::try_from("127.0.0.1")?, stream).await?)
    }

    /// Returns the answer to a request that closes its connection.
    pub(crate) async fn ask(&self, path: &str, body: &str) -> Result<String> {
        self.ask_from(Ipv4Addr::LOCALHOST, path, body).await
    }

    /// The same from another address of this machine.
    pub(crate) async fn ask_from(&self, from: Ipv4Addr, path: &str, body: &str) -> Result<String> {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n", body.len());
        self.send_from(from, &format!("{head}Connection: close\r\n\r\n{body}")).await
    }

    async fn send(&self, text: &str) -> Result<String> {
        self.send_from(Ipv4Addr::LOCALHOST, text).await
    }

    async fn send_from(&self, from: Ipv4Addr, text: &str) -> Result<String> {
        let mut stream = self.connect_from(from).await?;
        // A server that refuses a long request does not read all of it; its answer counts.
        let _ = send(&mut stream, text.as_bytes()).await;
        Ok(read_all(&mut stream).await)
    }
}

/// Sends bytes at once: bytes in TLS's buffer might stay there until the next write.
async fn send(stream: &mut TlsStream<TcpStream>, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
    stream.write_all(bytes.as_ref()).await?;
    stream.flush().await
}

/// All that comes until the server ends the connection, however it does that.
async fn read_all(stream: &mut TlsStream<TcpStream>) -> String {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    String::from_utf8_lossy(&all).into_owned()
}

pub(crate) fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "a", "namespace": "n",
            "operation": "DELETE", "userInfo": {}, "oldObject": {"metadata": {"name": "a"}}
        }
    })
}

#[tokio::test]
async fn every_kind_of_request_has_its_status() -> Result<()> {
    let bench = Bench::start(|settings| settings.max_body_bytes = 1024 * 1024).await?;
    let good = review().to_string();
    let answer = bench.ask("/quick?timeout=3s", &good).await?;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"allowed\":true"), "{answer}");
    let status = async |path: &str, body: &str| -> Result<String> {
        Ok(bench.ask(path, body).await?.split("\r\n").next().unwrap_or_default().to_owned())
    };
    assert_eq!(status("/other", &good).await?, "HTTP/1.1 404 Not Found");
    assert_eq!(status("/quick", "not JSON").await?, "HTTP/1.1 400 Bad Request");
    assert_eq!(status("/quick", "{}").await?, "HTTP/1.1 400 Bad Request");
    assert_eq!(status("/broken", &good).await?, "HTTP/1.1 500 Internal Server Error");
    // Unread bytes end the connection with a reset, which can overtake the answer.
    let long = " ".repeat(1024 * 1024 + 1);
    let refused = eventually(SOON, "it is refused", async || {
        Some(status("/quick", &long).await.ok()?).filter(|line| !line.is_empty())
    });
    assert_eq!(refused.await?, "HTTP/1.1 413 Payload Too Large");
    // A body larger than the guaranteed room.
    let large = format!("{good}{}", " ".repeat(512 * 1024));
    assert_eq!(status("/quick", &large).await?, "HTTP/1.1 200 OK");
    let got = bench.send("GET /quick HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
    assert!(got.starts_with("HTTP/1.1 405"), "{got}");
    let chunked = "POST /quick HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    assert!(bench.send(chunked).await?.starts_with("HTTP/1.1 411"));
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000));
    assert!(bench.send(&long).await?.starts_with("HTTP/1.1 4"));
    Ok(())
}

#[tokio::test]
async fn a_review_that_hangs_ends_before_the_api_server_gives_up() -> Result<()> {
    let bench = Bench::start(|settings| settings.review_timeout = Duration::from_millis(20)).await?;
    let answer = bench.ask("/stuck", &review().to_string()).await?;
    assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("took too long"), "{answer}");
    Ok(())
}

/// The failure policy of deletions is Ignore: an error would let them pass.
#[tokio::test]
async fn a_deletion_that_is_not_decided_is_refused_where_it_would_pass() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.review_timeout = Duration::from_secs(1);
        settings.all_objects_bytes = 4 * 1024 * 1024;
        settings.all_small_objects_bytes = 512 * 1024;
    })
    .await?;
    let by = |user: &str, operation: &str, values: usize| {
        let mut review = review();
        review["request"]["userInfo"]["username"] = json!(user);
        review["request"]["operation"] = json!(operation);
        review["request"]["oldObject"]["x"] = vec![json!({"a": 0}); values].into();
        review.to_string()
    };
    let denied = async |path: &str, body: &str, code: &str| -> Result<()> {
        let answer = bench.ask(path, body).await?;
        let parts = ["HTTP/1.1 200", "\"uid\":\"7\"", "\"allowed\":false", &format!("\"code\":{code}")];
        ensure!(parts.iter().all(|part| answer.contains(part)), "{path}: {answer}");
        Ok(())
    };
    let deletion = by("eve", "DELETE", 0);
    denied("/guards-stuck", &deletion, "503").await?;
    denied("/guards-broken", &deletion, "503").await?;
    denied("/guards-broken", &by("eve", "DELETE", 20_000), "413").await?;
    // A name that nothing can have.
    denied("/guards-broken", &deletion.replace("\"n\"", "\"n/../m\""), "503").await?;
    // While it waits for room: one that hangs has nearly all of its address.
    let mut greedy = bench.connect().await?;
    let large = by("eve", "CREATE", 0).replace("\"a\"", &format!("\"a\",\"x\":\"{}\"", "x".repeat(150 * 1024)));
    let head = format!("POST /stuck?timeout=5s HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", large.len());
    send(&mut greedy, format!("{head}{large}").as_bytes()).await?;
    let crowded = by("eve", "DELETE", 180);
    eventually(SOON, "there is no room", async || denied("/guards-quick", &crowded, "503").await.ok()).await?;
    drop(greedy);
    // A request that fails according to its policy.
    let status =
        async |path: &str, body: &str| -> Result<String> { Ok(bench.ask(path, body).await?[9..12].to_owned()) };
    assert_eq!(status("/guards-broken", &by("eve", "UPDATE", 0)).await?, "500");
    assert_eq!(status("/broken", &deletion).await?, "500");
    let empties = "system:serviceaccount:kube-system:namespace-controller";
    assert_eq!(status("/guards-broken", &by(empties, "DELETE", 0)).await?, "500");
    assert_eq!(status("/guards-broken", &by(empties, "DELETE", 20_000)).await?, "413");
    Ok(())
}

#[tokio::test]
async fn slow_clients_are_cut() -> Result<()> {
    let brief = Duration::from_millis(50);
    // One bound at a time, or the others could cut first on a busy machine.
    let bench = Bench::start(|settings| settings.handshake_timeout = brief).await?;
    let mut silent = TcpStream::connect(bench.server.address()).await?;
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0, "no handshake");
    let bench = Bench::start(|settings| settings.idle_timeout = brief).await?;
    let mut idle = bench.connect().await?;
    read_all(&mut idle).await;
    let mut half_head = bench.connect().await?;
    send(&mut half_head, b"POST /quick HTTP/1.1\r\nHo").await?;
    read_all(&mut half_head).await;
    let bench = Bench::start(|settings| settings.body_timeout = brief).await?;
    let mut half_body = bench.connect().await?;
    send(&mut half_body, b"POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab").await?;
    let answer = read_all(&mut half_body).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn idle_connections_make_room() -> Result<()> {
    let bench = Bench::start(|settings| settings.max_connections = 2).await?;
    let mut first = bench.connect().await?;
    let _second = bench.connect().await?;
    let answer = bench.ask("/quick", &review().to_string()).await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(read_all(&mut first).await, "", "the one idle longest was cut");
    Ok(())
}

/// Another address than that of the API server.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[tokio::test]
async fn one_address_keeps_nobody_out_by_what_it_has_begun() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.max_connections = 4;
        settings.body_timeout = SOON;
        settings.review_timeout = SOON;
    })
    .await?;
    let mut hostile = Vec::new();
    // The address replaces its own idle connections, until all of its connections are being answered.
    while let Ok(mut stream) = bench.client.connect_from(HOSTILE).await {
        send(&mut stream, b"POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab").await?;
        hostile.push(stream);
    }
    let answer = bench.ask("/quick", &review().to_string()).await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn one_address_takes_no_more_than_a_quarter_of_the_handshakes() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.max_handshakes = 4;
        settings.turn_timeout = Duration::from_millis(50);
        settings.handshake_timeout = Duration::from_hours(1);
    })
    .await?;
    let begun = async || -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((HOSTILE, 0)))?;
        let mut stream = socket.connect(bench.server.address()).await?;
        // The first byte of a handshake whose rest never comes. It keeps its turn for a second.
        stream.write_all(&[22]).await?;
        Ok(stream)
    };
    eventually(SOON, "a handshake has no turn", async || {
        let _first = begun().await.ok()?;
        let mut second = begun().await.ok()?;
        let answer = bench.ask("/quick", &review().to_string()).await.ok()?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Only the wait for a turn ends so soon.
        let cut = timeout(Duration::from_secs(2), second.read(&mut [0; 1])).await.ok()?;
        (cut.unwrap_or(0) == 0).then_some(())
    })
    .await
}

#[tokio::test]
async fn one_address_takes_no_more_than_a_quarter_of_the_room() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.max_body_bytes = 1024 * 1024;
        settings.all_bodies_bytes = 4 * 1024 * 1024;
        settings.body_timeout = SOON;
        settings.review_timeout = SOON;
        settings.max_review_timeout = SOON;
    })
    .await?;
    let mut hostile = Vec::new();
    for _ in 0..8 {
        let mut stream = bench.client.connect_from(HOSTILE).await?;
        send(&mut stream, b"POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n").await?;
        hostile.push(stream);
    }
    // One of its own waits in its line, which one that came before and is answered late would not show.
    let large = format!("{}{}", review(), " ".repeat(512 * 1024));
    let mut own = bench.client.connect_from(HOSTILE).await?;
    let head = format!(
        "POST /quick?timeout=1s HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        large.len()
    );
    send(&mut own, head.as_bytes()).await?;
    let _ = send(&mut own, large.as_bytes()).await;
    assert!(read_all(&mut own).await.contains("took too long"));
    let answer = bench.ask("/quick?timeout=1s", &large).await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// A short text that takes a hundred times its length in memory.
#[tokio::test]
async fn values_have_a_bound_apart_from_bytes() -> Result<()> {
    let bench = Bench::start(|settings| settings.all_objects_bytes = 4 * 1024 * 1024).await?;
    let with = |count: usize| {
        let mut review = review();
        review["request"]["oldObject"]["x"] = vec![json!({"a": 0}); count].into();
        review.to_string()
    };
    // Sizes that an address may take, and sizes that it may not.
    for (count, status) in [(100, "200"), (350, "200"), (700, "413"), (20_000, "413")] {
        let answer = bench.ask("/quick", &with(count)).await?;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{count}: {answer}");
    }
    Ok(())
}

/// A large review that hangs holds up no short one of the same address: all tenants of an API server share it.
#[tokio::test]
async fn short_reviews_do_not_wait_for_large_ones_of_their_address() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.all_objects_bytes = 4 * 1024 * 1024;
        settings.review_timeout = Duration::from_hours(1);
        settings.max_review_timeout = Duration::from_hours(1);
    })
    .await?;
    let large = review().to_string().replace("\"a\"", &format!("\"a\",\"x\":\"{}\"", "x".repeat(600 * 1024)));
    let head = format!("POST /stuck HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", large.len());
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let mut one = bench.connect().await?;
        send(&mut one, format!("{head}{large}").as_bytes()).await?;
        stuck.push(one);
    }
    for _ in 0..10 {
        let answer = bench.ask("/quick", &review().to_string()).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    Ok(())
}

/// Many short reviews that hang take no more than one large review.
#[tokio::test]
async fn short_reviews_of_one_address_share_its_room() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.all_small_objects_bytes = 2 * 1024 * 1024;
        settings.review_timeout = Duration::from_hours(1);
        settings.max_review_timeout = Duration::from_hours(1);
    })
    .await?;
    let mut review = review();
    review["request"]["object"]["x"] = vec![json!({"a": 0}); 100].into();
    let body = review.to_string();
    let head = |path| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut held = Vec::new();
    // Until its share is taken.
    eventually(SOON, "its own reviews wait", async || {
        let mut stuck = bench.client.connect_from(HOSTILE).await.ok()?;
        send(&mut stuck, head("/stuck").as_bytes()).await.ok()?;
        held.push(stuck);
        let mut own = bench.client.connect_from(HOSTILE).await.ok()?;
        send(&mut own, head("/quick?timeout=1s").as_bytes()).await.ok()?;
        let mut answer = vec![0; 64];
        let read = timeout(SOON, own.read(&mut answer)).await.ok()?.ok()?;
        String::from_utf8_lossy(&answer[..read]).contains("500").then_some(())
    })
    .await?;
    assert!(held.len() < 20, "{} reviews held", held.len());
    let answer = bench.ask("/quick", &body).await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn large_bodies_share_room_and_small_ones_have_their_own() -> Result<()> {
    let bench = Bench::start(|settings| {
        settings.max_body_bytes = 1024 * 1024;
        settings.all_bodies_bytes = 1024 * 1024;
        settings.review_timeout = Duration::from_millis(300);
        settings.body_timeout = SOON;
    })
    .await?;
    let mut greedy = bench.connect().await?;
    send(&mut greedy, b"POST /quick?timeout=30s HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n").await?;
    let large = format!("{}{}", review(), " ".repeat(512 * 1024));
    // Refused while the room is taken; that it is taken shows a moment after the request was sent.
    eventually(SOON, "there is no room", async || {
        let answer = bench.ask("/quick", &large).await.ok()?;
        answer.contains("took too long").then_some(())
    })
    .await?;
    let small = bench.ask("/quick", &review().to_string()).await?;
    assert!(small.starts_with("HTTP/1.1 200"), "{small}");
    drop(greedy);
    eventually(SOON, "there is room again", async || {
        bench.ask("/quick", &large).await.ok()?.starts_with("HTTP/1.1 200").then_some(())
    })
    .await
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_has_begun() -> Result<()> {
    let bench = Bench::start(|settings| settings.review_timeout = Duration::from_millis(100)).await?;
    let mut stream = bench.connect().await?;
    let mut idle = bench.connect().await?;
    let body = review().to_string();
    let head = format!("POST /stuck HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    send(&mut stream, head.as_bytes()).await?;
    send(&mut stream, body.as_bytes()).await?;
    // One that is answered on another connection shows that the first has been taken in.
    bench.ask("/quick", &body).await?;
    let address = bench.server.address();
    bench.server.stop().await;
    assert!(read_all(&mut stream).await.starts_with("HTTP/1.1 500"));
    assert_eq!(read_all(&mut idle).await, "");
    TcpStream::connect(address).await.err().context("it listens no more")?;
    Ok(())
}
