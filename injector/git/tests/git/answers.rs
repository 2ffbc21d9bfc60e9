//! A TLS server that gives the answers of a test, and remembers the requests.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::web::Certificates;

/// The answer to a request, given with head and body. `None`: no answer, for ever.
pub(crate) type Answer = Arc<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

/// The server. It ends with this.
pub(crate) struct Answers {
    pub(crate) port: u16,
    pub(crate) ca: Vec<u8>,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Answers {
    pub(crate) async fn start(certificates: &Certificates, answer: Answer) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let chain = vec![CertificateDer::from_pem_slice(certificates.chain.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key)?));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, noted) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&noted));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = Vec::new();
                    while !is_whole(&request) {
                        let mut part = [0; 4096];
                        match stream.read(&mut part).await {
                            Ok(0) | Err(_) => return,
                            Ok(read) => request.extend_from_slice(&part[..read]),
                        }
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    noted.lock().push(request.clone());
                    match answer(&request) {
                        Some(answer) => {
                            let _ = stream.write_all(&answer).await;
                            let _ = stream.shutdown().await;
                        }
                        None => std::future::pending().await,
                    }
                });
            }
        });
        Ok(Self { port, ca: certificates.ca.clone(), asked, task })
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A whole answer.
pub(crate) fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
