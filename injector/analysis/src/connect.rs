//! A connection to a server that a user has named: to the addresses that were looked at, and to no others.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nudge_core::analysis::{Address, Guarded, refusal};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

/// The most addresses of a name that are tried.
const MOST: usize = 4;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name has no address.
    #[error("the name {0} has no address")]
    Unknown(String),
    /// Nothing is sent there.
    #[error("nothing is sent to {host}: {why}")]
    Refused {
        /// As the user named it.
        host: String,
        /// The rule.
        why: &'static str,
    },
    /// Nobody answers.
    #[error("{host} can't be reached")]
    Unreachable {
        /// As the user named it.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// TLS.
    #[error("TLS with {host} failed")]
    Tls {
        /// As the user named it.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// The host can't have a certificate.
    #[error("{0} is no name that a certificate can have")]
    Name(String),
}

/// Both halves of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects. The name is resolved once, all of its addresses are looked at, and only these are connected to.
pub(crate) async fn connect(
    address: &Address,
    guarded: &Guarded,
    roots: Arc<RootCertStore>,
) -> Result<Box<dyn Stream>, ConnectError> {
    let host = || address.host.clone();
    let found = resolved(address).await.map_err(|_| ConnectError::Unknown(host()))?;
    // One address that is not allowed is enough: who answers for the name decides which of them is used.
    if let Some(why) = found.iter().find_map(|one| refusal(*one, guarded)) {
        return Err(ConnectError::Refused { host: host(), why });
    }
    let mut last = None;
    for one in found.into_iter().take(MOST) {
        match TcpStream::connect(one).await {
            Ok(stream) if address.tls => return Ok(Box::new(with_tls(stream, address, roots).await?)),
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(source) => Err(ConnectError::Unreachable { host: host(), source }),
        None => Err(ConnectError::Unknown(host())),
    }
}

async fn resolved(address: &Address) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    Ok(lookup_host((address.host.as_str(), address.port)).await?.collect())
}

async fn with_tls(
    stream: TcpStream,
    address: &Address,
    roots: Arc<RootCertStore>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let host = || address.host.clone();
    let name = ServerName::try_from(host()).map_err(|_| ConnectError::Name(host()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = |error: rustls::Error| ConnectError::Tls { host: host(), source: io::Error::other(error) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(tls)?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|source| ConnectError::Tls { host: host(), source })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn refused(url: &str) -> bool {
        let address = Address::parse(url).unwrap();
        let roots = Arc::new(RootCertStore::empty());
        matches!(connect(&address, &Guarded::default(), roots).await, Err(ConnectError::Refused { .. }))
    }

    #[tokio::test]
    async fn nothing_is_sent_to_this_machine_by_any_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // The second is what a resolver makes of a number; the last is a name with a loopback address.
        for host in ["127.0.0.1", "2130706433", "0x7f.1", "0", "[::1]", "[::ffff:7f00:1]", "localhost"] {
            let url = format!("http://{host}:{port}");
            let address = Address::parse(&url).unwrap();
            let roots = Arc::new(RootCertStore::empty());
            assert!(connect(&address, &Guarded::default(), roots).await.is_err(), "{url}");
        }
        assert!(refused(&format!("http://localhost:{port}")).await);
        assert!(refused("http://169.254.169.254").await && refused("https://[fd00:ec2::254]").await);
        let nobody = tokio::time::timeout(std::time::Duration::from_millis(100), listener.accept()).await;
        assert!(nobody.is_err(), "somebody connected");
    }
}
