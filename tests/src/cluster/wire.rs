//! A connection to the API server that can be cut, or go silent, without harm to anyone else's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What has been done to the wire.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    held: bool,
    cuts: u64,
}

/// Carries every connection on to the API server; those there are end when it is dropped.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Wire {
    /// Returns a wire to a port of this machine.
    pub(super) async fn to(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, port, seen.clone()));
            }
        });
        Ok(Self { address, state, task })
    }

    /// Returns where clients find it; the API server's certificate is good for this, too.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Ends all connections. New ones are carried.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Carries nothing any more, in no direction, and lets nobody notice: all connections stay, and new ones seem to
    /// succeed.
    pub fn hold(&self) {
        self.state.send_modify(|state| state.held = true);
    }

    /// Continues. Nothing is lost.
    pub fn release(&self) {
        self.state.send_modify(|state| state.held = false);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries one connection to its end, or to the next cut, or to the end of the wire.
async fn carry(stream: TcpStream, port: u16, mut state: watch::Receiver<State>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
    // Latencies are measured through this. That it could fail on a connection that has just ended is no reason to care.
    let _ = (stream.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (stream.into_split(), server.into_split());
    let cuts = state.borrow().cuts;
    let there = pump(from_client, to_server, state.clone());
    let back = pump(from_server, to_client, state.clone());
    tokio::select! {
        // Each direction ends in its own time.
        _ = async { tokio::join!(there, back) } => {}
        _ = state.wait_for(|state| state.cuts > cuts) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if state.wait_for(|state| !state.held).await.is_err() || read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
