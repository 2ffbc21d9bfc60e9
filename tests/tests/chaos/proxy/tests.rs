//! The ways fail as they say.

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

use super::api::{ApiWay, acceptor, connector};
use super::tcp::{Caller, Service};
use crate::history::recorder::Recorder;
use crate::history::{Event, What};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const SOON: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_millis(500);

/// A server that sends back what it gets.
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

async fn said(stream: &mut TcpStream, text: &str) -> Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; text.len()];
    let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

#[tokio::test]
async fn a_service_is_cut_in_an_answer_and_held_and_refuses() -> Result<()> {
    let service = Service::start(vec![echo().await?]).await?;
    let mut client = TcpStream::connect(service.address()).await?;
    assert_eq!(said(&mut client, "whole").await?, "whole");
    service.cut_in_answer();
    assert_eq!(said(&mut client, "half").await?, "ha");
    assert_eq!(client.read(&mut [0]).await?, 0);

    let mut client = TcpStream::connect(service.address()).await?;
    assert_eq!(said(&mut client, "again").await?, "again");
    service.hold(true);
    let mut held = Box::pin(said(&mut client, "held"));
    assert!(tokio::time::timeout(LATE, &mut held).await.is_err());
    service.hold(false);
    assert_eq!(held.await?, "held");

    service.refuse(true);
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    let mut refused = TcpStream::connect(service.address()).await?;
    assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0);
    service.refuse(false);
    let mut client = TcpStream::connect(service.address()).await?;
    assert_eq!(said(&mut client, "back").await?, "back");
    Ok(())
}

#[tokio::test]
async fn contacts_of_a_pod_are_noted_with_the_beginning_of_their_connection() -> Result<()> {
    let (service, recorder) = (Service::start(vec![echo().await?]).await?, Recorder::new());
    let door = service.door(Caller { pod: "web-1".to_owned(), recorder: recorder.clone() }).await?;
    let contacts = || {
        let all = recorder.history().events.into_iter();
        all.filter_map(|Event { at, what }| match what {
            What::Contact { pod, since } if pod == "web-1" => Some((at, since)),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(said(&mut TcpStream::connect(service.address()).await?, "of nobody").await?, "of nobody");
    let mut client = TcpStream::connect(door.address).await?;
    assert_eq!(contacts(), []);
    for count in 1..=2 {
        assert_eq!(said(&mut client, "answer").await?, "answer");
        assert_eq!(contacts().len(), count);
    }
    let first = contacts();
    assert!(first[0].1 == first[1].1 && first[0].1 <= first[0].0 && first[0].0 <= first[1].0, "{first:?}");
    // What is done to the Service is done to this connection.
    service.cut();
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(said(&mut TcpStream::connect(door.address).await?, "again").await?, "again");
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

/// The answer to a request by a way, whose body is not read.
async fn asked(server: &Server, way: &ApiWay, method: Method, path: &str) -> Result<Response<Incoming>> {
    let stream = TcpStream::connect(way.address()).await?;
    let stream = connector(&server.authority)?.connect(ServerName::from(way.address().ip()), stream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "test").body(Empty::<Bytes>::new())?;
    Ok(sender.send_request(request).await?)
}

#[tokio::test]
async fn answers_to_writes_are_lost_after_they_were_done() -> Result<()> {
    let server = server().await?;
    let way = ApiWay::to(server.address, &server.authority).await?;
    assert!(asked(&server, &way, Method::PATCH, "/pods/a").await.is_ok());
    way.lose_answers(true);
    assert!(asked(&server, &way, Method::PATCH, "/pods/a").await.is_err());
    assert!(asked(&server, &way, Method::GET, "/pods/a").await.is_ok());
    assert_eq!(server.served.load(Ordering::Relaxed), 3);
    way.lose_answers(false);
    assert!(asked(&server, &way, Method::PATCH, "/pods/a").await.is_ok());
    Ok(())
}

#[tokio::test]
async fn watches_are_late_and_cut_in_the_middle_of_an_object() -> Result<()> {
    let server = server().await?;
    let way = ApiWay::to(server.address, &server.authority).await?;
    let mut watch = asked(&server, &way, Method::GET, "/pods?watch=true").await?.into_body();
    let next = async |watch: &mut Incoming| -> Result<Option<String>> {
        let frame = tokio::time::timeout(SOON, watch.frame()).await?;
        let data = frame.transpose()?.and_then(|frame| frame.into_data().ok());
        Ok(data.map(|data| String::from_utf8_lossy(&data).into_owned()))
    };
    server.pieces.send("one".into()).await?;
    assert_eq!(next(&mut watch).await?.as_deref(), Some("one"));
    way.late(LATE);
    let began = Instant::now();
    server.pieces.send("two".into()).await?;
    assert_eq!(next(&mut watch).await?.as_deref(), Some("two"));
    assert!(began.elapsed() >= LATE);
    // What is on its way arrives as soon as the way is good again.
    way.late(Duration::from_mins(1));
    server.pieces.send("three".into()).await?;
    way.late(Duration::ZERO);
    assert_eq!(next(&mut watch).await?.as_deref(), Some("three"));
    way.cut();
    assert_eq!(next(&mut watch).await?.as_deref(), Some("{\"type\":\"MODIFIED\",\"obj"));
    assert!(next(&mut watch).await.is_err());
    Ok(())
}
