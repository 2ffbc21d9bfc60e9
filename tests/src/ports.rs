//! Ports that stay reserved while a server is down, and a port that never has a server.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Result, bail};
use parking_lot::Mutex;
use tokio::net::TcpSocket;

/// The range is below the ports that Linux gives to outgoing connections (32768 and up). Otherwise such a connection
/// could take a server's port while the server is restarted.
const PORT_RANGE: std::ops::Range<u16> = 20_000..32_000;

/// How many ports to try.
const MAX_ATTEMPTS: usize = 1000;

/// The ports that this process has given away: their servers may not listen yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port of 127.0.0.1 that nobody listens on, another one at each call.
pub fn free() -> Result<u16> {
    Ok(free_at(Ipv4Addr::LOCALHOST)?.port())
}

/// Returns the same at another address of this machine.
pub fn free_at(ip: impl Into<IpAddr>) -> Result<SocketAddr> {
    let ip = ip.into();
    for _ in 0..MAX_ATTEMPTS {
        // Test processes that run at the same time must not all try the same ones. A hasher's keys are random.
        let random = RandomState::new().build_hasher().finish() % u64::from(PORT_RANGE.end - PORT_RANGE.start);
        let port = PORT_RANGE.start + u16::try_from(random)?;
        let is_new = GIVEN.lock().insert(port);
        let address = SocketAddr::new(ip, port);
        if is_new && TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port of {PORT_RANGE:?} is free");
}

/// An address at which nobody listens, and nobody else can while this is kept: every connection is refused.
pub struct Nobody {
    /// The address of the port.
    pub address: SocketAddr,
    _socket: TcpSocket,
}

impl Nobody {
    /// Takes a port of 127.0.0.1.
    pub fn new() -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: socket.local_addr()?, _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn nobody_listens_and_nobody_else_can() {
        let nobody = Nobody::new().unwrap();
        assert_eq!(TcpStream::connect(nobody.address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(nobody.address).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
