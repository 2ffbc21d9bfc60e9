//! A connection to a server that a user has named: to the addresses that were looked at, and to no others.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nudge_core::outbound::{Address, Guarded, refusal};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::authorities::Authorities;
use crate::fault::fault;

/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
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
    #[error("TLS with {host} failed: {why}")]
    Tls {
        /// As the user named it.
        host: String,
        /// What is wrong, in words of our own: what a certificate holds is repeated to nobody who could not ask the server himself.
        why: &'static str,
    },
    /// The host can't have a certificate.
    #[error("a certificate can't have the name {0}")]
    Name(String),
}

/// Where requests may go.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Anywhere: on the machine of the user, who could connect there as well.
    Anywhere,
    /// Not to the machine itself, nor to these addresses of the cluster.
    Outside(Arc<Guarded>),
}

impl Reach {
    fn refusal(&self, address: SocketAddr) -> Option<&'static str> {
        match self {
            Self::Anywhere => None,
            Self::Outside(guarded) => refusal(address, guarded),
        }
    }
}

/// Both halves of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects. The name is resolved once, all of its addresses are looked at, and only these are connected to.
pub async fn connect(address: &Address, reach: &Reach, roots: &Authorities) -> Result<Box<dyn Stream>, ConnectError> {
    let mut last = None;
    for one in resolve(address, reach).await? {
        match TcpStream::connect(one).await {
            Ok(stream) if address.tls => return Ok(Box::new(with_tls(stream, address, roots).await?)),
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(source) => Err(ConnectError::Unreachable { host: address.host.clone(), source }),
        None => Err(ConnectError::Unknown(address.host.clone())),
    }
}

/// The addresses behind the name, a few at most, all of which may be connected to. For programs that connect by themselves: to these, and
/// not to the name, which may mean others a moment later.
pub async fn resolve(address: &Address, reach: &Reach) -> Result<Vec<SocketAddr>, ConnectError> {
    let host = || address.host.clone();
    let mut found = match address.host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, address.port)],
        Err(_) => match lookup_host((address.host.as_str(), address.port)).await {
            Ok(found) => found.collect(),
            Err(_) => return Err(ConnectError::Unknown(host())),
        },
    };
    // One address that is not allowed is enough: who answers for the name decides which of them is used.
    if let Some(why) = found.iter().find_map(|one| reach.refusal(*one)) {
        return Err(ConnectError::Refused { host: host(), why });
    }
    found.truncate(MAX_ADDRESSES);
    if found.is_empty() { Err(ConnectError::Unknown(host())) } else { Ok(found) }
}

async fn with_tls(
    stream: TcpStream,
    address: &Address,
    roots: &Authorities,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let host = || address.host.clone();
    let name = ServerName::try_from(host()).map_err(|_| ConnectError::Name(host()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = |error: rustls::Error| ConnectError::Tls { host: host(), why: fault(&error) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(tls)?;
    let config = config.with_root_certificates(Arc::clone(roots)).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        ConnectError::Tls { host: host(), why: cause.map_or("the connection ended early", fault) }
    })
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use tokio::net::TcpListener;

    use super::*;

    fn outside() -> Reach {
        Reach::Outside(Arc::default())
    }

    async fn refused(url: &str) -> bool {
        let address = Address::parse(url).unwrap();
        matches!(resolve(&address, &outside()).await, Err(ConnectError::Refused { .. }))
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
            assert!(connect(&address, &outside(), &roots).await.is_err(), "{url}");
        }
        assert!(refused(&format!("http://localhost:{port}")).await);
        assert!(refused("http://169.254.169.254").await && refused("https://[fd00:ec2::254]").await);
        let nobody = tokio::time::timeout(std::time::Duration::from_millis(100), listener.accept()).await;
        assert!(nobody.is_err(), "somebody connected");
    }
}
