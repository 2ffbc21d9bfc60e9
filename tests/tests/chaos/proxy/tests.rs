//! The proxies fail as they are set to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use nudge_tests::cluster::Authority;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::api::{ApiProxy, acceptor, connector};
use super::tcp::{Caller, Service};
use crate::history::recorder::Recorder;
use crate::history::{Event, Occurrence};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const DELAY: Duration = Duration::from_millis(500);

/// Returns a server that sends back what it gets.
async fn echo() -> Result<SocketAddr> {
    let listener = TcpListener::bind(ANY).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    Ok(address)
}

async fn send_and_read(stream: &mut TcpStream, text: &str) -> Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; text.len()];
    let read = tokio::time::timeout(ANSWER_TIMEOUT, stream.read(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

#[tokio::test]
async fn a_service_is_cut_in_an_answer_and_held_and_refuses() -> Result<()> {
    let service = Service::start(vec![echo().await?]).await?;
    let mut client = TcpStream::connect(service.address()).await?;
    assert_eq!(send_and_read(&mut client, "whole").await?, "whole");
    service.cut_in_answers();
    assert_eq!(send_and_read(&mut client, "half").await?, "ha");
    assert_eq!(client.read(&mut [0]).await?, 0);

    let mut client = TcpStream::connect(service.address()).await?;
    assert_eq!(send_and_read(&mut client, "again").await?, "again");
    service.set_held(true);
    let mut held = Box::pin(send_and_read(&mut client, "held"));
    assert!(tokio::time::timeout(DELAY, &mut held).await.is_err());
    service.set_held(false);
    assert_eq!(held.await?, "held");

    service.set_refused(true);
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    let mut refused = TcpStream::connect(service.address()).await?;
    assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0);
    service.set_refused(false);
    let mut client = TcpStream::connect(service.address()).await?;
    assert_eq!(send_and_read(&mut client, "back").await?, "back");
    Ok(())
}

#[tokio::test]
async fn contacts_of_a_pod_are_noted_with_the_beginning_of_their_connection() -> Result<()> {
    let (service, recorder) = (Service::start(vec![echo().await?]).await?, Recorder::new());
    let listener = service.listen_for(Caller { pod: "web-1".to_owned(), recorder: recorder.clone() }).await?;
    let contacts = || {
        let events = recorder.history().events.into_iter();
        events
            .filter_map(|Event { at, what }| match what {
                Occurrence::Contact { pod, since } if pod == "web-1" => Some((at, since)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(send_and_read(&mut TcpStream::connect(service.address()).await?, "of nobody").await?, "of nobody");
    let mut client = TcpStream::connect(listener.address).await?;
    assert_eq!(contacts(), []);
    for count in 1..=2 {
        assert_eq!(send_and_read(&mut client, "answer").await?, "answer");
        assert_eq!(contacts().len(), count);
    }
    let first = contacts();
    assert!(first[0].1 == first[1].1 && first[0].1 <= first[0].0 && first[0].0 <= first[1].0, "{first:?}");
    // What is done to the Service is done to this connection.
    service.cut_connections();
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(send_and_read(&mut TcpStream::connect(listener.address).await?, "again").await?, "again");
    assert!(contacts()[2].1 >= first[1].0);
    Ok(())
}

/// A server over TLS that counts requests, and in whose watches a piece comes for each message.
struct Server {
    address: SocketAddr,
    authority: Authority,
    served: Arc<AtomicUsize>,
    pieces: mpsc::Sender<Bytes>,
}

async fn server() -> Result<Server> {
    let authority = Authority::new("a test")?;
    let (listener, acceptor) = (TcpListener::bind(ANY).await?, acceptor(&authority)?);
    let (address, served) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
    let (pieces, watched) = mpsc::channel::<Bytes>(8);
    let (count, watched) = (Arc::clone(&served), Arc::new(tokio::sync::Mutex::new(watched)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, count, watched) = (acceptor.clone(), Arc::clone(&count), Arc::clone(&watched));
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.ok()?;
                let service = service_fn(move |_: Request<Incoming>| {
                    count.fetch_add(1, Ordering::Relaxed);
                    let watched = Arc::clone(&watched);
                    async move {
                        let pieces = futures::stream::unfold(watched, |watched| async move {
                            let piece = watched.lock().await.recv().await?;
                            Some((Ok::<_, Infallible>(Frame::data(piece)), watched))
                        });
                        Ok::<_, Infallible>(Response::new(StreamBody::new(pieces)))
                    }
                });
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok()
            });
        }
    });
    Ok(Server { address, authority, served, pieces })
}

/// Sends a request through a proxy. Returns the answer, whose body is not read.
async fn send_request(server: &Server, proxy: &ApiProxy, method: Method, path: &str) -> Result<Response<Incoming>> {
    let stream = TcpStream::connect(proxy.address()).await?;
    let stream = connector(&server.authority)?.connect(ServerName::from(proxy.address().ip()), stream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "test").body(Empty::<Bytes>::new())?;
    Ok(sender.send_request(request).await?)
}

#[tokio::test]
async fn answers_to_writes_are_lost_after_they_were_done() -> Result<()> {
    let server = server().await?;
    let proxy = ApiProxy::start(server.address, &server.authority).await?;
    assert!(send_request(&server, &proxy, Method::PATCH, "/pods/a").await.is_ok());
    proxy.set_losing_answers(true);
    assert!(send_request(&server, &proxy, Method::PATCH, "/pods/a").await.is_err());
    assert!(send_request(&server, &proxy, Method::GET, "/pods/a").await.is_ok());
    assert_eq!(server.served.load(Ordering::Relaxed), 3);
    proxy.set_losing_answers(false);
    assert!(send_request(&server, &proxy, Method::PATCH, "/pods/a").await.is_ok());
    Ok(())
}

#[tokio::test]
async fn watches_are_late_and_cut_in_the_middle_of_an_object() -> Result<()> {
    let server = server().await?;
    let proxy = ApiProxy::start(server.address, &server.authority).await?;
    let mut watch = send_request(&server, &proxy, Method::GET, "/pods?watch=true").await?.into_body();
    let next = async |watch: &mut Incoming| -> Result<Option<String>> {
        let frame = tokio::time::timeout(ANSWER_TIMEOUT, watch.frame()).await?;
        let data = frame.transpose()?.and_then(|frame| frame.into_data().ok());
        Ok(data.map(|data| String::from_utf8_lossy(&data).into_owned()))
    };
    server.pieces.send("one".into()).await?;
    assert_eq!(next(&mut watch).await?.as_deref(), Some("one"));
    proxy.delay_watches(DELAY);
    let began = Instant::now();
    server.pieces.send("two".into()).await?;
    assert_eq!(next(&mut watch).await?.as_deref(), Some("two"));
    assert!(began.elapsed() >= DELAY);
    // What is on its way arrives as soon as the delay is over.
    proxy.delay_watches(Duration::from_mins(1));
    server.pieces.send("three".into()).await?;
    proxy.delay_watches(Duration::ZERO);
    assert_eq!(next(&mut watch).await?.as_deref(), Some("three"));
    proxy.cut_watches();
    assert_eq!(next(&mut watch).await?.as_deref(), Some("{\"type\":\"MODIFIED\",\"obj"));
    assert!(next(&mut watch).await.is_err());
    Ok(())
}
