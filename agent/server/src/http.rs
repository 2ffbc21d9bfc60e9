//! HTTP/1.1 over a connection.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use futures::FutureExt as _;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::accept::ConnectionError;

/// The bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// From the end of one request, or the handshake, until the next request's head is there whole.
    pub head: Duration,
    /// Size of a request's head, in bytes.
    pub head_bytes: usize,
    /// Largest buffer for what a client sends and for a reply's head, in bytes. Bodies of replies are not copied into it.
    pub buffer_bytes: usize,
}

impl HttpLimits {
    /// An HTTP connection with these bounds.
    pub fn builder(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.head)
            .max_header_size(self.head_bytes)
            .max_buf_size(self.buffer_bytes);
        builder
    }
}

/// Answers the requests of a connection until its end. Once `stopping` is done, an idle connection ends at once, another after its reply.
pub fn serve_http<S, A, F, B>(
    stream: S,
    limits: &HttpLimits,
    stopping: impl Future<Output = ()>,
    answer: A,
) -> impl Future<Output = Result<(), ConnectionError>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(move |request| answer(request).map(Ok::<_, Infallible>));
    // On the heap at once: each future that holds it on the way would have room for it twice.
    let mut connection = Box::pin(limits.builder().serve_connection(TokioIo::new(stream), service));
    async move {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Ok(ended?),
            () = stopping => {}
        }
        connection.as_mut().graceful_shutdown();
        Ok(connection.await?)
    }
}
