//! What a Service is in a cluster, whose connections can be refused, held, cut, and cut in the middle of an answer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::history::What;
use crate::history::recorder::Recorder;

/// What has been done to it.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    refused: bool,
    held: bool,
    cuts: u64,
    /// Cuts that wait for the next piece of an answer, of which half arrives.
    halves: u64,
}

/// Forwards each new connection to the next backend that takes it, until it is dropped.
pub(crate) struct Service {
    /// The address for those who have none of their own.
    door: Door,
    backends: Arc<Backends>,
    state: watch::Sender<State>,
}

struct Backends {
    addresses: Vec<SocketAddr>,
    turn: AtomicUsize,
}

/// An address of a Service, until it is dropped.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

/// A pod whose contacts are noted.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) pod: String,
    pub(crate) recorder: Recorder,
}

impl Service {
    pub(crate) async fn start(addresses: Vec<SocketAddr>) -> Result<Self> {
        let (state, seen) = watch::channel(State::default());
        let backends = Arc::new(Backends { addresses, turn: AtomicUsize::new(0) });
        Ok(Self { door: Door::open(Arc::clone(&backends), seen, None).await?, backends, state })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.door.address
    }

    /// An address for one pod.
    pub(crate) async fn door(&self, caller: Caller) -> Result<Door> {
        Door::open(Arc::clone(&self.backends), self.state.subscribe(), Some(caller)).await
    }

    /// Refuses new connections, and ends all there are.
    pub(crate) fn refuse(&self, refused: bool) {
        self.state.send_modify(|state| {
            state.refused = refused;
            state.cuts += u64::from(refused);
        });
    }

    /// Carries nothing, and lets nobody notice.
    pub(crate) fn hold(&self, held: bool) {
        self.state.send_modify(|state| state.held = held);
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Ends each connection in the middle of the next piece of an answer.
    pub(crate) fn cut_in_answer(&self) {
        self.state.send_modify(|state| state.halves += 1);
    }
}

impl Door {
    async fn open(backends: Arc<Backends>, state: watch::Receiver<State>, caller: Option<Caller>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let (backends, state, caller) = (Arc::clone(&backends), state.clone(), caller.clone());
                connections.spawn(async move { carry(client, &backends, state, caller).await });
            }
        });
        Ok(Self { address, task: task.abort_handle() })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: TcpStream, backends: &Backends, mut state: watch::Receiver<State>, caller: Option<Caller>) {
    let before = *state.borrow_and_update();
    if before.refused {
        return;
    }
    let since = caller.as_ref().map_or(0, |caller| caller.recorder.now());
    let noted = || {
        if let Some(Caller { pod, recorder }) = &caller {
            recorder.note(What::Contact { pod: pod.clone(), since });
        }
    };
    let (turn, all) = (backends.turn.fetch_add(1, Ordering::Relaxed), &backends.addresses);
    for offset in 0..all.len() {
        let Ok(server) = TcpStream::connect(all[(turn + offset) % all.len()]).await else { continue };
        // That it could fail on a connection that has just ended is no reason to care.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let there = pump(from_client, to_server, state.clone(), None, || ());
        let back = pump(from_server, to_client, state.clone(), Some(before.halves), noted);
        tokio::select! {
            _ = async { tokio::join!(there, back) } => {}
            _ = state.wait_for(|state| state.cuts > before.cuts) => {}
        }
        return;
    }
}

/// Carries one direction, and says when something `passes`; with `halves` to the middle of the first piece after there are more of them.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    halves: Option<u64>,
    passes: impl Fn(),
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        let Ok(now) = state.wait_for(|state| !state.held).await.map(|state| *state) else { return Ok(()) };
        if read == 0 {
            return to.shutdown().await;
        }
        passes();
        if halves.is_some_and(|halves| now.halves > halves) {
            to.write_all(&buffer[..read / 2]).await?;
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
