//! Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example speaks on its standard output")]

use std::{collections::BTreeMap, env, error::Error, fs, process, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{Request, StatusCode, Uri, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Install the handlers before the first fetch. Otherwise a change between the two is missed, since the agent sends
    // no signal to a process without a handler.
    let changes = signal(SignalKind::user_defined1())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        end = follow(changes) => end,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Prints what this application uses of its configuration, now and after every change.
async fn follow(mut changes: Signal) -> Result<()> {
    let agent = Agent::from_env()?;
    show(&agent.load().await?);
    while changes.recv().await.is_some() {
        loop {
            match agent.load().await {
                Ok(config) => break show(&config),
                // The agent may be restarting: keep the old configuration and try again.
                Err(error) => eprintln!("configuration not read again yet: {error}"),
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

fn show(config: &BTreeMap<String, String>) {
    let [configs, greeting, lives] =
        ["nudge.configs", "greeting", "lives"].map(|key| config.get(key).map_or("", String::as_str));
    println!("pid {}: {configs} greeting={greeting} lives={lives}", process::id());
}

/// The agent's endpoint, and what a request needs.
struct Agent {
    endpoint: Uri,
    token: String,
    container: String,
    tls: TlsConnector,
}

impl Agent {
    fn from_env() -> Result<Self> {
        // From the environment where the cluster can put it there, else from a file.
        let token = match env::var("MY_CONFIG_TOKEN") {
            Ok(token) if !token.is_empty() => token,
            _ => fs::read_to_string(env::var("MY_CONFIG_TOKEN_FILE")?)?,
        };
        // The pod's own authority and nothing else.
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(env::var("MY_CONFIG_CERT")?)?)?;
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self {
            endpoint: env::var("MY_CONFIG_ENDPOINT")?.parse()?,
            token,
            container: env::var("MY_CONFIG_CONTAINER").unwrap_or_default(),
            tls: TlsConnector::from(Arc::new(tls)),
        })
    }

    /// Fetches the dictionary.
    async fn load(&self) -> Result<BTreeMap<String, String>> {
        timeout(Duration::from_secs(10), self.fetch()).await?
    }

    async fn fetch(&self) -> Result<BTreeMap<String, String>> {
        let authority = self.endpoint.authority().ok_or("MY_CONFIG_ENDPOINT is not a URL")?.as_str();
        // An IPv6 address has brackets in a URL, but not in a certificate.
        let host = self.endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
        let stream = TcpStream::connect(authority).await?;
        let stream = self.tls.connect(ServerName::try_from(host.to_owned())?, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);

        let mut request = Request::get(self.endpoint.path())
            .header(header::HOST, authority)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if !self.container.is_empty() {
            // Shows the agent which container has read which version.
            request = request.header("nudge-container", &self.container);
        }
        let reply = sender.send_request(request.body(String::new())?).await?;
        let status = reply.status();
        let body = reply.into_body().collect().await?.to_bytes();
        if status != StatusCode::OK {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice(&body)?)
    }
}
