//! Polls the hub and reports to it, in turns over one connection that is kept and opened again when it is gone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use nudge_protocol::ErrorBody;
use nudge_protocol::hub::{POLL_PATH, PollRequest, REPORT_PATH, ReportRequest, WAIT_GRACE_SECONDS};
use rustix::net::sockopt;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::credentials::Credentials;
use super::failure::{FailureKind, HubFailure};
use super::hub_url::HubUrl;
use super::interrupt::{Interrupt, Interruptible};
use super::reply::{PollReply, ReplyReader};

/// The maximum time for connecting, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for a reply's body, from its beginning.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time for a report, and for the end of a poll that is interrupted for it.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of an error's body that the agent reads, in bytes.
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// The maximum size of the buffer for the hub's replies, in bytes.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// The silence before the kernel sends keepalive probes. So the agent needs no timer of its own.
const KEEPALIVE_IDLE_TIME: Duration = Duration::from_secs(30);
/// The time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The number of unanswered probes that break the connection.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent data may stay unacknowledged, in milliseconds.
const USER_TIMEOUT_MILLIS: u32 = 60_000;

/// The answer to a poll.
#[derive(Debug)]
pub enum PollAnswer {
    /// The agent already has the assigned versions.
    Unchanged,
    /// The versions that the pod is assigned.
    Changed(Box<PollReply>),
}

/// A client of the hub with one connection.
pub struct HubClient {
    url: HubUrl,
    credentials: Arc<Credentials>,
    connection: Option<HubConnection>,
    /// The number of connections so far.
    connections: u64,
    interrupt: Interrupt,
}

struct HubConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for HubConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HubClient {
    /// Creates a client that is not connected yet.
    pub fn new(url: HubUrl, credentials: Arc<Credentials>) -> Self {
        Self { url, credentials, connection: None, connections: 0, interrupt: Interrupt::default() }
    }

    /// Returns the number of connections so far. Each may have reached another replica.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Returns whether there is a connection now, as far as is known.
    pub fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.sender.is_closed())
    }

    /// Returns the interruption of the next request, if that is a poll. The hub answers an interrupted poll as if its
    /// time were over.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.renew()
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.connection = None;
    }

    /// Polls for the versions that the pod is assigned. After a failure the next request goes over a new connection,
    /// perhaps to another replica.
    pub async fn poll(&mut self, request: &PollRequest) -> Result<PollAnswer, HubFailure> {
        let limit = Duration::from_secs(u64::from(request.wait_seconds + WAIT_GRACE_SECONDS));
        // The request is a map with text keys, which always serialises.
        let body = serde_json::to_vec(request).unwrap_or_default();
        self.try_poll(body, limit).await.inspect_err(|_| self.close())
    }

    async fn try_poll(&mut self, body: Vec<u8>, limit: Duration) -> Result<PollAnswer, HubFailure> {
        let interrupt = self.interrupt.clone();
        let give_up = async {
            interrupt.wait_until_requested().await;
            sleep(REPORT_TIMEOUT).await;
        };
        let reply = tokio::select! {
            reply = self.send(POLL_PATH, body, limit) => reply?,
            () = give_up => {
                let message = format!("the hub did not end the poll within {} s", REPORT_TIMEOUT.as_secs());
                return Err(HubFailure::timed_out(message));
            }
        };
        match reply.status() {
            StatusCode::NO_CONTENT => Ok(PollAnswer::Unchanged),
            StatusCode::OK => {
                let message = || format!("the hub's reply did not arrive within {} s", BODY_TIMEOUT.as_secs());
                let poll_timeout = |_| HubFailure::timed_out(message());
                let reply = timeout(BODY_TIMEOUT, read_reply(reply.into_body())).await.map_err(poll_timeout)??;
                Ok(PollAnswer::Changed(Box::new(reply)))
            }
            _ => Err(to_failure(reply).await),
        }
    }

    /// Reports the versions that the pod runs, and how its containers took them.
    pub async fn report(&mut self, report: &ReportRequest) -> Result<(), HubFailure> {
        let body = serde_json::to_vec(report).unwrap_or_default();
        let result = match self.send(REPORT_PATH, body, REPORT_TIMEOUT).await {
            Ok(reply) if reply.status().is_success() => Ok(()),
            Ok(reply) => Err(to_failure(reply).await),
            Err(failure) => Err(failure),
        };
        result.inspect_err(|_| self.close())
    }

    /// Sends a request and waits for the head of its reply.
    async fn send(&mut self, path: &str, body: Vec<u8>, limit: Duration) -> Result<Response<Incoming>, HubFailure> {
        let open = match self.connection.take() {
            // The hub may have closed the connection between two requests, which is not a failure.
            Some(mut connection) => connection.sender.ready().await.is_ok().then_some(connection),
            None => None,
        };
        let is_new = open.is_none();
        let authorization = self.credentials.authorization(is_new)?;
        let connection = match open {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        self.connections += u64::from(is_new);
        let request = Request::post(path)
            .header(header::HOST, self.url.authority.as_str())
            .header(header::AUTHORIZATION, authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("nudge-agent/", env!("CARGO_PKG_VERSION")))
            .body(Full::from(body))
            .map_err(|error| HubFailure::new(FailureKind::Local, format!("the request can't be formed: {error}")))?;
        let connection = self.connection.insert(connection);
        match timeout(limit, connection.sender.send_request(request)).await {
            Ok(reply) => reply.map_err(|error| HubFailure::lost(&error)),
            Err(_) => Err(HubFailure::timed_out(format!("the hub did not answer within {} s", limit.as_secs()))),
        }
    }

    async fn connect(&self) -> Result<HubConnection, HubFailure> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let (hub, limit) = (&self.url.authority, CONNECT_TIMEOUT.as_secs());
        let connect_timeout = |action: &str| HubFailure::timed_out(format!("{action} {hub} took more than {limit} s"));
        let stream = timeout_at(deadline, self.connect_tcp())
            .await
            .map_err(|_| connect_timeout("connecting to the hub at"))??;
        let tls = TlsConnector::from(self.credentials.tls()?);
        let stream = timeout_at(deadline, tls.connect(self.url.server_name.clone(), stream))
            .await
            .map_err(|_| connect_timeout("the TLS handshake with the hub at"))?
            .map_err(|error| HubFailure::handshake(self.url.authority.as_str(), &error))?;
        let (sender, connection) = Builder::new()
            .max_buf_size(MAX_BUFFER_BYTES)
            .handshake(TokioIo::new(Interruptible::new(stream, self.interrupt.clone())))
            .await
            .map_err(|error| HubFailure::lost(&error))?;
        let driver = tokio::spawn(async move {
            // The caller that waits for the reply gets the fault.
            let _ = connection.await;
        });
        Ok(HubConnection { sender, driver: driver.abort_handle() })
    }

    /// Opens a TCP connection to one of the hub's addresses, beginning with a random address.
    async fn connect_tcp(&self) -> Result<TcpStream, HubFailure> {
        let authority = self.url.authority.as_str();
        let unreachable = |error: io::Error| {
            HubFailure::new(FailureKind::Unreachable, format!("the hub at {authority} can't be reached: {error}"))
        };
        let addresses = lookup_host((self.url.host.as_str(), self.url.port)).await.map_err(unreachable)?;
        let mut addresses: Vec<SocketAddr> = addresses.collect();
        let start = rand::random::<u32>() as usize % addresses.len().max(1);
        addresses.rotate_left(start);
        let stream = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
        set_socket_options(&stream);
        Ok(stream)
    }
}

/// Lets the kernel notice a hub that has vanished. Kernels that lack one of these options connect nevertheless.
fn set_socket_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE_TIME);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES);
    let _ = sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MILLIS);
}

async fn read_reply(mut body: Incoming) -> Result<PollReply, HubFailure> {
    let malformed =
        |error| HubFailure::new(FailureKind::Malformed, format!("the hub's reply can't be understood: {error}"));
    let mut reader = ReplyReader::default();
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame.map_err(|error| HubFailure::lost(&error))?.into_data() {
            reader.push(&bytes).map_err(malformed)?;
        }
    }
    reader.finish().map_err(malformed)
}

/// Converts a reply without success into a failure.
async fn to_failure(reply: Response<Incoming>) -> HubFailure {
    let (head, body) = reply.into_parts();
    let retry_after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let body = timeout(REPORT_TIMEOUT, Limited::new(body, MAX_ERROR_BYTES).collect()).await;
    let body = Zeroizing::new(body.ok().and_then(Result::ok).map(|body| body.to_bytes().to_vec()).unwrap_or_default());
    let message = serde_json::from_slice::<ErrorBody>(&body).map(|error| error.message).unwrap_or_default();
    HubFailure::status(head.status, &message, retry_after.map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nudge_protocol::hub::{ConfigClaim, PollConfig};
    use nudge_tests::fakes::fake_hub::{Answer as Forced, TOKEN};
    use nudge_tests::{FakeHub, eventually};

    use super::super::credentials::HubCa;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Returns the next poll of an agent that has taken in the reply.
    fn poll_after(reply: &PollReply) -> PollRequest {
        let claim = |config: &PollConfig| ConfigClaim {
            name: config.name.clone(),
            uid: config.uid.clone(),
            revision: config.revision,
            version: config.version.clone(),
            sha256: config.sha256.clone(),
            problem: None,
            mounted_secrets: Vec::new(),
        };
        let configs = reply.head.configs.iter().map(claim).collect();
        let containers_hash = reply.head.containers_hash.clone();
        PollRequest { configs, containers_hash, wait_seconds: 300, ..PollRequest::default() }
    }

    /// Starts a hub and returns it with its client, whose token is in the folder.
    fn start_hub() -> anyhow::Result<(FakeHub, HubClient, tempfile::TempDir)> {
        let (hub, folder) = (FakeHub::start()?, tempfile::tempdir()?);
        let token_file = folder.path().join("token");
        fs::write(&token_file, TOKEN)?;
        let credentials = Credentials::new(HubCa::Bundle(hub.ca().to_owned()), token_file);
        let client = HubClient::new(hub.url().parse()?, Arc::new(credentials));
        Ok((hub, client, folder))
    }

    #[tokio::test]
    async fn a_hub_that_does_not_end_a_poll_is_left_for_a_report() -> anyhow::Result<()> {
        let (hub, mut client, _folder) = start_hub()?;
        hub.say(|say| say.next.push_back(Forced::Break(Duration::from_hours(1))));
        let interrupt = client.interrupt();
        let ends = async {
            eventually(TIMEOUT, "it is held", async || hub.polls().pop()).await?;
            interrupt.request();
            tokio::time::pause();
            anyhow::Ok(Instant::now())
        };
        let request = PollRequest { wait_seconds: 300, ..PollRequest::default() };
        let (answer, requested) = tokio::join!(client.poll(&request), ends);
        let took = requested?.elapsed();
        tokio::time::resume();
        assert_eq!(answer.unwrap_err().kind, FailureKind::TimedOut);
        assert!(took >= REPORT_TIMEOUT && took < REPORT_TIMEOUT * 2, "{took:?}");
        client.report(&ReportRequest::default()).await?;
        assert_eq!((hub.reports().len(), client.connections()), (1, 2));
        Ok(())
    }

    #[tokio::test]
    async fn polls_and_reports_share_a_connection_and_a_held_poll_ends_when_it_is_interrupted() -> anyhow::Result<()> {
        let (hub, mut client, _folder) = start_hub()?;
        let PollAnswer::Changed(reply) = client.poll(&PollRequest::default()).await? else { anyhow::bail!("no reply") };
        let request = poll_after(&reply);
        for round in 1..=20 {
            let interrupt = client.interrupt();
            let ends = async {
                // Also at the moment when the hub takes the poll in.
                if round % 2 == 0 {
                    eventually(TIMEOUT, "it is held", async || (hub.polls().len() > round).then_some(())).await?;
                }
                interrupt.request();
                anyhow::Ok(())
            };
            let (answer, ended) = tokio::join!(client.poll(&request), ends);
            ended?;
            assert!(matches!(answer?, PollAnswer::Unchanged));
            client.report(&ReportRequest::default()).await?;
            assert_eq!((hub.reports().len(), client.connections(), client.is_open()), (round, 1, true));
        }
        // A poll that is answered at this moment leaves its line behind, which is not part of the next request.
        hub.activate("shop", "2", &[("lives", b"5")])?;
        let interrupt = client.interrupt();
        let (answer, ()) = tokio::join!(client.poll(&request), async { interrupt.request() });
        let PollAnswer::Changed(reply) = answer? else { anyhow::bail!("no reply") };
        client.report(&ReportRequest::default()).await?;
        let poll = PollRequest { wait_seconds: 0, ..poll_after(&reply) };
        assert!(matches!(client.poll(&poll).await?, PollAnswer::Unchanged));
        assert_eq!(hub.connections(), 1);
        Ok(())
    }
}
