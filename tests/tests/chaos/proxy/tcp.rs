//! A stand-in for a Service of a cluster. Its connections can be refused, held, cut, and cut in the middle of an
//! answer.

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

use crate::history::Occurrence;
use crate::history::recorder::Recorder;

/// The faults of a Service.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    refused: bool,
    held: bool,
    cuts: u64,
    /// The number of times that connections were cut in the middle of the next piece of an answer.
    answer_cuts: u64,
}

/// Forwards each new connection to the next backend that takes it, until it is dropped.
pub(crate) struct Service {
    /// The address for clients that have none of their own.
    listener: ServiceListener,
    backends: Arc<Backends>,
    state: watch::Sender<State>,
}

struct Backends {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
}

/// An address of a Service, until it is dropped.
pub(crate) struct ServiceListener {
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
        let (state, followed) = watch::channel(State::default());
        let backends = Arc::new(Backends { addresses, next: AtomicUsize::new(0) });
        Ok(Self { listener: ServiceListener::open(Arc::clone(&backends), followed, None).await?, backends, state })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Opens an address for one pod.
    pub(crate) async fn listen_for(&self, caller: Caller) -> Result<ServiceListener> {
        ServiceListener::open(Arc::clone(&self.backends), self.state.subscribe(), Some(caller)).await
    }

    /// Sets whether new connections are refused; those that exist end when that begins.
    pub(crate) fn set_refused(&self, refused: bool) {
        self.state.send_modify(|state| {
            state.refused = refused;
            state.cuts += u64::from(refused);
        });
    }

    /// Sets whether connections carry nothing while they stay open.
    pub(crate) fn set_held(&self, held: bool) {
        self.state.send_modify(|state| state.held = held);
    }

    /// Ends all connections.
    pub(crate) fn cut_connections(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Ends each connection in the middle of the next piece of an answer.
    pub(crate) fn cut_in_answers(&self) {
        self.state.send_modify(|state| state.answer_cuts += 1);
    }
}

impl ServiceListener {
    async fn open(backends: Arc<Backends>, state: watch::Receiver<State>, caller: Option<Caller>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let (backends, state, caller) = (Arc::clone(&backends), state.clone(), caller.clone());
                connections.spawn(async move { carry_connection(client, &backends, state, caller).await });
            }
        });
        Ok(Self { address, task: task.abort_handle() })
    }
}

impl Drop for ServiceListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry_connection(
    client: TcpStream,
    backends: &Backends,
    mut state: watch::Receiver<State>,
    caller: Option<Caller>,
) {
    let before = *state.borrow_and_update();
    if before.refused {
        return;
    }
    let since = caller.as_ref().map_or(0, |caller| caller.recorder.now());
    let note_contact = || {
        if let Some(Caller { pod, recorder }) = &caller {
            recorder.note(Occurrence::Contact { pod: pod.clone(), since });
        }
    };
    let (first, addresses) = (backends.next.fetch_add(1, Ordering::Relaxed), &backends.addresses);
    for offset in 0..addresses.len() {
        let Ok(server) = TcpStream::connect(addresses[(first + offset) % addresses.len()]).await else { continue };
        // This fails only on a connection that has just ended.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let requests = carry_direction(from_client, to_server, state.clone(), None, || ());
        let answers = carry_direction(from_server, to_client, state.clone(), Some(before.answer_cuts), note_contact);
        tokio::select! {
            _ = async { tokio::join!(requests, answers) } => {}
            _ = state.wait_for(|state| state.cuts > before.cuts) => {}
        }
        return;
    }
}

/// Carries one direction and calls `on_piece` for each piece. With `answer_cuts` it ends in the middle of the first
/// piece after there are more of them.
async fn carry_direction(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    answer_cuts: Option<u64>,
    on_piece: impl Fn(),
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        let Ok(now) = state.wait_for(|state| !state.held).await.map(|state| *state) else { return Ok(()) };
        if read == 0 {
            return to.shutdown().await;
        }
        on_piece();
        if answer_cuts.is_some_and(|answer_cuts| now.answer_cuts > answer_cuts) {
            to.write_all(&buffer[..read / 2]).await?;
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
