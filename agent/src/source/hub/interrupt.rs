//! Ends the poll that is held over a connection, so that a report can go over it: the agent writes an empty line, and the hub answers that
//! nothing has changed. A server ignores this line before a request, so one that crosses the answer does no harm.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use nudge_protocol::hub::INTERRUPT;
use nudge_protocol::mutex::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// A request to end the held poll.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    wish: Arc<Mutex<InterruptState>>,
    asked: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct InterruptState {
    /// Whether the line is to be written.
    asked: bool,
    /// Whether a request was written since.
    requested: bool,
    waker: Option<Waker>,
}

impl Interrupt {
    fn lock(&self) -> MutexGuard<'_, InterruptState> {
        lock(&self.wish)
    }

    /// Ends the poll that is held.
    pub fn ask(&self) {
        let waker = {
            let mut wish = self.lock();
            wish.asked = true;
            wish.waker.take()
        };
        self.asked.send_replace(true);
        waker.into_iter().for_each(Waker::wake);
    }

    /// For the next request, which nobody wants to end yet.
    pub(super) fn renewed(&self) -> Self {
        let mut wish = self.lock();
        (wish.asked, wish.requested) = (false, false);
        self.asked.send_replace(false);
        self.clone()
    }

    /// Waits until somebody has asked.
    pub(super) async fn wait_until_asked(&self) {
        // Its sender is here.
        let _ = self.asked.subscribe().wait_for(|asked| *asked).await;
    }
}

/// A connection that is used by one client, who reads while it waits for an answer.
pub(super) struct Interruptible<S> {
    stream: S,
    interrupt: Interrupt,
    /// The last request was sent whole: the line may not come into its middle.
    sent: bool,
    /// What is still to be written of the line.
    rest: &'static [u8],
}

impl<S: AsyncWrite + Unpin> Interruptible<S> {
    pub(super) fn new(stream: S, interrupt: Interrupt) -> Self {
        Self { stream, interrupt, sent: true, rest: &[] }
    }

    /// Writes the line if somebody has asked for it. Pending while a part of it is still to be written.
    fn poll_interrupt(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            let mut wish = self.interrupt.lock();
            if !self.sent || !wish.requested || !std::mem::take(&mut wish.asked) {
                wish.waker = Some(context.waker().clone());
                return Poll::Ready(Ok(()));
            }
            self.rest = INTERRUPT;
        }
        while !self.rest.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, self.rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.rest = &self.rest[count..];
        }
        // What can't be flushed now goes with what is read or written next.
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
        if !this.rest.is_empty() {
            ready!(this.poll_interrupt(context))?;
        }
        this.sent = false;
        this.interrupt.lock().requested = true;
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.sent = true;
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
        // Only a part of it is there.
        interrupt.ask();
        assert_eq!(read(5).await, "two\r\n");
        interrupt.ask();
        assert_eq!(read(2).await, "\r\n", "the waiting reader is woken");
        theirs.write_all(b"ok").await.unwrap();
        let mut bytes = [0; 7];
        theirs.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"another");
        drop(client.await.unwrap());
        assert_eq!(theirs.read(&mut bytes).await.unwrap(), 0, "and nothing more");
    }

    #[tokio::test]
    async fn a_wish_of_the_last_request_does_not_end_the_next_one() {
        let (ours, mut theirs) = duplex(64);
        let interrupt = Interrupt::default();
        let mut line = Interruptible::new(ours, interrupt.clone());
        interrupt.ask();
        let next = interrupt.renewed();
        line.write_all(b"request").await.unwrap();
        line.flush().await.unwrap();
        // One that is asked to end before it is sent ends as soon as it was.
        let another = next.renewed();
        another.ask();
        line.flush().await.unwrap();
        line.write_all(b"another").await.unwrap();
        line.flush().await.unwrap();
        drop(line);
        let mut all = String::new();
        theirs.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "requestanother\r\n");
    }
}
