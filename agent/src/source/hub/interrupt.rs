//! Ends the poll that a connection holds, so that a report can go over it: the agent writes an empty line, and the hub
//! answers that nothing has changed. A server ignores this line before a request, so one that crosses the answer does
//! no harm.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use nudge_protocol::hub::INTERRUPT;
use nudge_protocol::mutex::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// The interruption of a held poll.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stage: watch::Sender<Stage>,
    /// The waker of the task that reads from the connection.
    waker: Arc<Mutex<Option<Waker>>>,
}

/// The stage of an interruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing was requested, and no poll was written.
    #[default]
    Idle,
    /// The interruption was requested before the poll was written.
    RequestedEarly,
    /// The poll was written, and no interruption was requested.
    PollWritten,
    /// The poll was written, and the line must follow.
    LineDue,
    /// The line follows the poll.
    LineWritten,
}

impl Interrupt {
    /// Requests the end of the poll that is held.
    pub fn request(&self) {
        self.stage.send_modify(|stage| {
            *stage = match *stage {
                Stage::Idle | Stage::RequestedEarly => Stage::RequestedEarly,
                Stage::PollWritten | Stage::LineDue | Stage::LineWritten => Stage::LineDue,
            }
        });
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns the interruption of the next request.
    pub(super) fn renew(&self) -> Self {
        self.stage.send_replace(Stage::Idle);
        self.clone()
    }

    /// Waits until the interruption is requested.
    pub(super) async fn wait_until_requested(&self) {
        let is_requested = |stage: &Stage| !matches!(stage, Stage::Idle | Stage::PollWritten);
        // The sender lives as long as `self`, so there is no error.
        let _ = self.stage.subscribe().wait_for(is_requested).await;
    }

    fn note_write(&self) {
        self.stage.send_modify(|stage| {
            *stage = match *stage {
                Stage::Idle => Stage::PollWritten,
                Stage::RequestedEarly => Stage::LineDue,
                later => later,
            }
        });
    }
}

/// A connection that is used by one client, which reads while it waits for an answer.
pub(super) struct Interruptible<S> {
    stream: S,
    interrupt: Interrupt,
    /// Whether the last request was flushed: the line must not come into its middle.
    is_flushed: bool,
    /// The part of the line that is not written yet.
    unwritten: &'static [u8],
}

impl<S: AsyncWrite + Unpin> Interruptible<S> {
    pub(super) fn new(stream: S, interrupt: Interrupt) -> Self {
        Self { stream, interrupt, is_flushed: true, unwritten: &[] }
    }

    /// Writes the line if it is due. Pending while a part of it is not written.
    fn poll_interrupt(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unwritten.is_empty() {
            // The waker is stored before the stage is read, so that no request is missed.
            *lock(&self.interrupt.waker) = Some(context.waker().clone());
            if !self.is_flushed || *self.interrupt.stage.borrow() != Stage::LineDue {
                return Poll::Ready(Ok(()));
            }
            self.interrupt.stage.send_replace(Stage::LineWritten);
            self.unwritten = INTERRUPT;
        }
        while !self.unwritten.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, self.unwritten))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unwritten = &self.unwritten[count..];
        }
        // A line that can't be flushed now is flushed with the next read or write.
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Interruptible<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(Err(error)) = this.poll_interrupt(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Interruptible<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.unwritten.is_empty() {
            ready!(this.poll_interrupt(context))?;
        }
        this.is_flushed = false;
        this.interrupt.note_write();
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.is_flushed = true;
        this.poll_interrupt(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn the_line_goes_out_between_requests_and_never_within_one() {
        let (ours, mut theirs) = duplex(4);
        let interrupt = Interrupt::default();
        let mut line = Interruptible::new(ours, interrupt.clone());
        let mut read = async |count: usize| {
            let mut bytes = vec![0; count];
            theirs.read_exact(&mut bytes).await.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap()
        };
        let client = tokio::spawn(async move {
            line.write_all(b"one two").await.unwrap();
            line.flush().await.unwrap();
            let mut answer = [0; 2];
            line.read_exact(&mut answer).await.unwrap();
            line.write_all(b"another").await.unwrap();
            line.flush().await.unwrap();
            line
        });
        assert_eq!(read(4).await, "one ");
        // Only a part of the request is written.
        interrupt.request();
        assert_eq!(read(5).await, "two\r\n");
        interrupt.request();
        assert_eq!(read(2).await, "\r\n", "the waiting reader is woken");
        theirs.write_all(b"ok").await.unwrap();
        let mut bytes = [0; 7];
        theirs.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"another");
        drop(client.await.unwrap());
        assert_eq!(theirs.read(&mut bytes).await.unwrap(), 0, "and nothing more");
    }

    #[tokio::test]
    async fn an_interruption_of_the_last_request_does_not_end_the_next_one() {
        let (ours, mut theirs) = duplex(64);
        let interrupt = Interrupt::default();
        let mut line = Interruptible::new(ours, interrupt.clone());
        interrupt.request();
        let next = interrupt.renew();
        line.write_all(b"request").await.unwrap();
        line.flush().await.unwrap();
        // A poll whose interruption is requested before it is sent ends as soon as it is sent.
        let another = next.renew();
        another.request();
        line.flush().await.unwrap();
        line.write_all(b"another").await.unwrap();
        line.flush().await.unwrap();
        drop(line);
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "requestanother\r\n");
    }
}
