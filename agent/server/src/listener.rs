//! Sockets that listen.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use socket2::{Domain, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The number of keepalive probes to a silent peer before the kernel gives the connection up.
const KEEPALIVE_RETRIES: u32 = 4;

/// Options of a listening socket, which its connections inherit.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// The number of connections that the kernel keeps until they are accepted.
    pub backlog: i32,
    /// The size of the send buffer, in bytes; the kernel doubles it for itself (socket(7)).
    pub send_buffer: Option<usize>,
    /// The size of the receive buffer, in bytes.
    pub receive_buffer: Option<usize>,
    /// The silence before the kernel probes whether the peer is still there.
    pub keepalive: Option<Duration>,
}

/// Listens on `address`, outside of any runtime: [`TcpListener::from_std`] takes the result.
pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A restarted process takes its port again at once (socket(7)).
    socket.set_reuse_address(true)?;
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(silence) = options.keepalive {
        let keepalive = TcpKeepalive::new().with_time(silence).with_interval(silence / KEEPALIVE_RETRIES);
        socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
    }
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A source of connections.
pub trait Listen: Send + Sync + 'static {
    /// The stream of a connection.
    type Stream: Send + 'static;

    /// Waits for a connection and returns it with the peer's address. Cancel safe: no connection is lost.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, IpAddr)>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        // Replies are written whole, so waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer.ip()))
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, IpAddr)> {
        let (stream, _) = Self::accept(self).await?;
        Ok((stream, Ipv4Addr::LOCALHOST.into()))
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn connections_inherit_the_options_of_their_listener() {
        let minute = Duration::from_mins(1);
        let options = SocketOptions {
            backlog: 8,
            send_buffer: Some(64 * 1024),
            receive_buffer: Some(16 * 1024),
            keepalive: Some(minute),
        };
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = Listen::accept(&listener).await.unwrap();
        assert!(peer.is_loopback());
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), minute);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), minute / 4);
        assert_eq!(socket.send_buffer_size().unwrap(), 128 * 1024);
        assert_eq!(socket.recv_buffer_size().unwrap(), 32 * 1024);
    }
}
