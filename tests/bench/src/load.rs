//! A load generator that does as little as it can: requests ready as bytes, replies read by their length.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::CipherSuite;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Room for the longest head of a reply, and for its body in few reads.
const BUFFER_BYTES: usize = 64 * 1024;

/// A server and the request that it gets again and again.
#[derive(Clone)]
pub(crate) struct Server {
    /// The process that serves.
    pub(crate) pid: i32,
    pub(crate) address: SocketAddr,
    pub(crate) tls: TlsConnector,
    /// The whole request, as it goes over the wire.
    pub(crate) request: Arc<[u8]>,
    /// The status that every reply must have.
    pub(crate) status: u16,
}

/// When to stop.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// The load ends after this time.
    Elapsed(Duration),
    /// The load ends after this many requests over all connections.
    Requests(u64),
}

/// What a run came to.
#[derive(Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
}

/// Open connections to one server.
pub(crate) struct Load {
    connections: Vec<Connection>,
}

impl Load {
    /// Opens connections, one after the other, and sends one request over each.
    pub(crate) async fn connect(server: &Server, count: usize) -> Result<Self> {
        let mut connections = Vec::with_capacity(count);
        for number in 1..=count {
            let connection = async {
                let mut connection = Connection::open(server.clone()).await?;
                connection.exchange().await?;
                anyhow::Ok(connection)
            };
            connections.push(connection.await.with_context(|| format!("connection {number} of {count}"))?);
        }
        Ok(Self { connections })
    }

    /// Keeps one request under way on every connection.
    pub(crate) async fn run(&mut self, until: Until) -> Result<Tally> {
        let begun = Instant::now();
        let asked = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for mut connection in self.connections.drain(..) {
            let asked = Arc::clone(&asked);
            tasks.spawn(async move {
                let mut answered: u64 = 0;
                while until.continues(begun, &asked) {
                    connection.exchange().await?;
                    answered += 1;
                }
                anyhow::Ok((connection, answered))
            });
        }
        let mut requests = 0;
        while let Some(done) = tasks.join_next().await {
            let (connection, answered) = done??;
            self.connections.push(connection);
            requests += answered;
        }
        Ok(Tally { requests, elapsed: begun.elapsed() })
    }

    /// Returns the cipher suite, which all connections share. Its name says which TLS version it belongs to.
    pub(crate) fn negotiated(&self) -> Option<CipherSuite> {
        let (_, tls) = self.connections.first()?.stream.get_ref();
        Some(tls.negotiated_cipher_suite()?.suite())
    }
}

impl Until {
    fn continues(self, begun: Instant, asked: &AtomicU64) -> bool {
        match self {
            Self::Elapsed(time) => begun.elapsed() < time,
            Self::Requests(count) => asked.fetch_add(1, Ordering::Relaxed) < count,
        }
    }
}

struct Connection {
    server: Server,
    stream: TlsStream<TcpStream>,
    buffer: Box<[u8]>,
}

impl Connection {
    async fn open(server: Server) -> Result<Self> {
        let stream = TcpStream::connect(server.address).await?;
        stream.set_nodelay(true)?;
        let stream = server.tls.connect(ServerName::from(server.address.ip()), stream).await?;
        Ok(Self { server, stream, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Sends the request and reads the whole reply.
    async fn exchange(&mut self) -> Result<()> {
        self.stream.write_all(&self.server.request).await.context("can't send a request")?;
        self.stream.flush().await?;
        let mut filled = 0;
        let head = loop {
            filled += self.read(filled).await?;
            if let Some(head) = Head::parse(&self.buffer[..filled])? {
                break head;
            }
        };
        ensure!(head.status == self.server.status, "status {} where {} belongs", head.status, self.server.status);
        let mut missing = (head.length + head.body).checked_sub(filled).context("more bytes than the reply has")?;
        while missing > 0 {
            missing = missing.checked_sub(self.read(0).await?).context("more bytes than the reply has")?;
        }
        Ok(())
    }

    async fn read(&mut self, from: usize) -> Result<usize> {
        let read = self.stream.read(&mut self.buffer[from..]).await.context("can't read a reply")?;
        ensure!(read > 0, "the server has closed the connection, or its reply has too long a head");
        Ok(read)
    }
}

/// What is needed of a reply's head.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// The bytes of the head itself, with the empty line.
    length: usize,
    /// The bytes of the body.
    body: usize,
}

impl Head {
    /// Returns `None` while the head is not complete.
    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        const END: &[u8] = b"\r\n\r\n";
        let Some(end) = bytes.windows(END.len()).position(|window| window == END) else { return Ok(None) };
        let text = str::from_utf8(&bytes[..end]).context("the head of a reply is not text")?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("a reply without a status")?;
        let status = status.parse().with_context(|| format!("a reply with status {status}"))?;
        let value = |line: &str, name: &str| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        let body = match lines.find_map(|line| value(line, "content-length")) {
            // This reply has no body, whatever length it names.
            _ if status == 304 => 0,
            Some(body) => body.parse().with_context(|| format!("a reply of length {body}"))?,
            None => bail!("a reply without a length"),
        };
        Ok(Some(Self { status, length: end + END.len(), body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_complete() {
        let head = b"HTTP/1.1 200 OK\r\nserver: x\r\nContent-Length: 12\r\n\r\n";
        assert_eq!(Head::parse(&head[..head.len() - 1]).unwrap(), None);
        let whole = [head.as_slice(), b"hello"].concat();
        assert_eq!(Head::parse(&whole).unwrap(), Some(Head { status: 200, length: head.len(), body: 12 }));
    }

    #[test]
    fn not_modified_has_no_body_and_others_need_a_length() {
        let head = Head::parse(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.body, 0);
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(Head::parse(b"nonsense\r\n\r\n").is_err());
    }
}
