//! A connection of an agent that may end its held poll by an empty line. hyper does not show it, so it is taken out
//! here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nudge_protocol::hub::INTERRUPT;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// The connection, and who is to know of the line.
pub(crate) struct Interruptible<S> {
    pub(crate) stream: S,
    pub(crate) interrupted: Arc<Notify>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Interruptible<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            // It may come together with the body before it.
            let read = &buffer.filled()[before..];
            let Some(rest) = read.strip_suffix(INTERRUPT).filter(|rest| rest.is_empty() || rest.ends_with(b"}")) else {
                return Poll::Ready(Ok(()));
            };
            let rest = rest.len();
            buffer.set_filled(before + rest);
            this.interrupted.notify_one();
            if rest > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Interruptible<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
