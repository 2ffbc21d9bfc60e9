//! Connections to servers that users name. Only checked addresses are connected to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nudge_core::outbound::{Address, GuardedAddresses, refusal};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::authorities::Authorities;
use crate::tls_fault::describe;

/// The maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("the name {0} has no address")]
    Unknown(String),
    /// Nothing may be sent to the address.
    #[error("nothing is sent to {host}: {cause}")]
    Refused {
        /// The host as the user named it.
        host: String,
        /// The rule that refuses the address.
        cause: &'static str,
    },
    /// No address of the host accepts a connection.
    #[error("{host} can't be reached")]
    Unreachable {
        /// The host as the user named it.
        host: String,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("TLS with {host} failed: {cause}")]
    Tls {
        /// The host as the user named it.
        host: String,
        /// The fault, in our own words. It repeats nothing of the certificate, because the user may be unable to reach
        /// the server.
        cause: &'static str,
    },
    /// A certificate can't be for this host.
    #[error("a certificate can't have the name {0}")]
    Name(String),
}

/// The addresses that requests may go to.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Any address. This is for the user's own machine: the user could connect to the address there as well.
    Anywhere,
    /// Any address except those of the machine itself and these of the cluster.
    Outside(Arc<GuardedAddresses>),
}

impl Reach {
    fn refusal(&self, address: SocketAddr) -> Option<&'static str> {
        match self {
            Self::Anywhere => None,
            Self::Outside(guarded) => refusal(address, guarded),
        }
    }
}

/// A connection that can be read and written.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects to a server. The name is resolved once, all its addresses are checked, and no others are connected to.
pub async fn connect(address: &Address, reach: &Reach, roots: &Authorities) -> Result<Box<dyn Stream>, ConnectError> {
    let mut last_error = None;
    for resolved in resolve(address, reach).await? {
        match TcpStream::connect(resolved).await {
            Ok(stream) if address.tls => return Ok(Box::new(with_tls(stream, address, roots).await?)),
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error) => last_error = Some(error),
        }
    }
    match last_error {
        Some(source) => Err(ConnectError::Unreachable { host: address.host.clone(), source }),
        None => Err(ConnectError::Unknown(address.host.clone())),
    }
}

/// Returns a few addresses of the name. Connections to all of them are allowed. Programs that connect by themselves
/// must use these addresses instead of the name, because the name may have other addresses a moment later.
pub async fn resolve(address: &Address, reach: &Reach) -> Result<Vec<SocketAddr>, ConnectError> {
    let host = || address.host.clone();
    let mut addresses = match address.host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, address.port)],
        Err(_) => match lookup_host((address.host.as_str(), address.port)).await {
            Ok(addresses) => addresses.collect(),
            Err(_) => return Err(ConnectError::Unknown(host())),
        },
    };
    // One refused address is enough to refuse the name, because the DNS server decides which address is used.
    if let Some(cause) = addresses.iter().find_map(|address| reach.refusal(*address)) {
        return Err(ConnectError::Refused { host: host(), cause });
    }
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() { Err(ConnectError::Unknown(host())) } else { Ok(addresses) }
}

async fn with_tls(
    stream: TcpStream,
    address: &Address,
    roots: &Authorities,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let host = || address.host.clone();
    let name = ServerName::try_from(host()).map_err(|_| ConnectError::Name(host()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = |error: rustls::Error| ConnectError::Tls { host: host(), cause: describe(&error) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(tls)?;
    let config = config.with_root_certificates(Arc::clone(roots)).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        ConnectError::Tls { host: host(), cause: cause.map_or("the connection ended early", describe) }
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
        // The second is a number that resolvers read as an address; the last is a name with a loopback address.
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
