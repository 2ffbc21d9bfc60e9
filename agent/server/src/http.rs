//! HTTP/1.1 over a connection.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::accept::ConnectionError;

/// The bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// The time from the end of one request, or the handshake, until the next request's head is there whole.
    pub head: Duration,
    /// The maximum size of a request's head, in bytes.
    pub head_bytes: usize,
    /// The maximum size of the buffer for a client's request and of the buffer for a reply's head, in bytes. Bodies of
    /// replies are not copied into it.
    pub buffer_bytes: usize,
}

impl HttpLimits {
    /// Returns the builder of an HTTP connection with these bounds.
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

/// Answers the requests of a connection until its end. Once `shutdown` is done, an idle connection ends at once,
/// another after its reply.
pub fn serve_http<S, A, F, B>(
    stream: S,
    limits: &HttpLimits,
    shutdown: impl Future<Output = ()>,
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
            result = connection.as_mut() => return Ok(result?),
            () = shutdown => {}
        }
        connection.as_mut().graceful_shutdown();
        Ok(connection.await?)
    }
}

/// The reason why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The body is longer than it may be.
    TooLong,
    /// The body ended too early, or is not HTTP.
    BrokenOff,
}

/// Reads a body of at most `max_bytes` into one buffer. However small the body's pieces are, it takes no other memory:
/// a piece that was kept would keep the connection's read buffer.
pub async fn read_body(body: impl Body<Data = Bytes>, max_bytes: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = pin!(body);
    let length = body.size_hint().upper().map_or(max_bytes, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let mut bytes = Vec::with_capacity(length.min(max_bytes));
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let frame = frame.map_err(|_| BodyError::BrokenOff)?;
        let Some(piece) = frame.data_ref() else { continue };
        if piece.len() > max_bytes - bytes.len() {
            return Err(BodyError::TooLong);
        }
        bytes.extend_from_slice(piece);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use futures::FutureExt as _;
    use hyper::body::{Frame, SizeHint};

    use super::*;

    /// A piece that is counted for as long as it is kept.
    struct Piece(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    impl Drop for Piece {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A body of pieces of one byte each.
    #[derive(Default)]
    struct Pieces {
        left: usize,
        length: Option<u64>,
        breaks_off: bool,
        kept: Arc<AtomicUsize>,
        most_kept: Arc<AtomicUsize>,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = ();

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
            if self.left == 0 {
                return Poll::Ready(self.breaks_off.then_some(Err(())));
            }
            self.left -= 1;
            self.most_kept.fetch_max(self.kept.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Piece(Arc::clone(&self.kept)))))))
        }

        fn size_hint(&self) -> SizeHint {
            self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    #[test]
    fn no_piece_of_a_body_is_kept() {
        let most_kept = Arc::new(AtomicUsize::new(0));
        let pieces = Pieces { left: 10_000, most_kept: Arc::clone(&most_kept), ..Pieces::default() };
        let body = read_body(pieces, 65_536).now_or_never().unwrap().unwrap();
        assert_eq!((body.len(), body.capacity(), most_kept.load(Ordering::Relaxed)), (10_000, 65_536, 1));
    }

    #[test]
    fn a_body_is_bounded_and_whole() {
        let read = |left, length, breaks_off| {
            let pieces = Pieces { left, length, breaks_off, ..Pieces::default() };
            read_body(pieces, 10).now_or_never().unwrap().map(|bytes| (bytes.len(), bytes.capacity()))
        };
        assert_eq!(read(10, None, false), Ok((10, 10)));
        assert_eq!(read(11, None, false), Err(BodyError::TooLong));
        assert_eq!(read(3, Some(3), false), Ok((3, 3)), "no more is reserved than is announced");
        assert_eq!(read(11, Some(u64::MAX), false), Err(BodyError::TooLong));
        assert_eq!(read(3, Some(4), true), Err(BodyError::BrokenOff));
    }
}
