//! The connections. Their number is limited, each has one request, and a client that sends it slowly is disconnected.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{Page, routes};
use crate::failure::Failure;

/// The maximum number of connections. Others of this machine wait until one ends.
const MAX_CONNECTIONS: usize = 128;
/// The time that the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a request's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The wait after a failed accept, so that a machine without file descriptors is not asked all the time.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Accepts connections for as long as it is polled, within a `LocalSet`.
pub(super) async fn accept(listener: TcpListener, page: Rc<Page>) -> Result<(), Failure> {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        // Lines of a stream are sent as they are written.
        let _ = stream.set_nodelay(true);
        let page = Rc::clone(&page);
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| {
                let page = Rc::clone(&page);
                async move { Ok::<_, Infallible>(routes::answer(&page, request).await) }
            });
            let mut server = http1::Builder::new();
            server
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .keep_alive(false);
            // An error here is a client that went away.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(slot);
        });
    }
}
