//! The slots of a listener's connections, with a share for each peer.
//!
//! While slots are free, any peer gets one. When all are taken, a new connection gets the slot of another one, which is cut:
//!
//! 1. one of the peer with the most connections, if that peer still has more than the newcomer then;
//! 2. an inactive one of that peer, if it has more now;
//! 3. an inactive one of the newcomer itself;
//! 4. where connections that are being answered stay, an inactive one of any peer.
//!
//! Among the connections of a peer, a handshake that dawdles goes first, then the one that is inactive longest. So a peer with many
//! connections can't keep out one with few. [`Bounds`] says whether connections that are being answered are cut too.

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nudge_protocol::locked::locked;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::metrics::ConnectionMetrics;

/// After which time a handshake dawdles.
pub const DAWDLING: Duration = Duration::from_secs(1);
/// How often a connection that waits for a slot looks for one.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The bounds of a slot table.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections.
    pub most: usize,
    /// Whether addresses have shares; otherwise all connections count for one peer.
    pub shares: bool,
    /// How long a connection may be inactive before it has to give way: its first or next request may be on its way. A peer that
    /// has a share replaces its own idle connections at once.
    pub grace: Duration,
    /// Whether connections that are being answered give way too.
    pub cut_busy: bool,
    /// How long a connection waits for a slot before it is refused.
    pub wait: Duration,
    /// Whether all addresses of an IPv6 network (its first 64 bits) are one peer, since one machine may have all of them.
    pub networks: bool,
}

impl Bounds {
    /// Each address has a share. Connections that are being answered give way to an address that has fewer.
    pub fn shared(most: usize) -> Self {
        Self { most, shares: true, grace: Duration::ZERO, cut_busy: true, wait: Duration::ZERO, networks: true }
    }
}

/// Whom a connection is counted for: an IPv4 address, or the half of an IPv6 address that names a network, since one machine has all
/// of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl Peer {
    /// All peers, where none has a share of its own.
    const ALL: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// The address alone.
    fn exactly(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Idle,
    Busy,
}

/// What a connection does, and since when.
type State = (Phase, Instant);

/// Since when, and which.
type Since = (Instant, u64);

/// The connections of one peer by phase, the longest first.
#[derive(Debug, Default)]
struct Share([VecDeque<Since>; 3]);

/// The greatest gives way first: the most connections, then the one inactive longest.
type Rank = (usize, Option<Reverse<Instant>>, Peer);

impl Share {
    /// The one that has been in a phase longest.
    fn first(&self, phase: Phase) -> Option<Since> {
        self.0[phase as usize].front().copied()
    }

    fn insert(&mut self, (phase, since): State, id: u64) {
        let of_phase = &mut self.0[phase as usize];
        // At the end, as a rule.
        of_phase.insert(of_phase.partition_point(|&other| other < (since, id)), (since, id));
    }

    fn remove(&mut self, (phase, since): State, id: u64) {
        let of_phase = &mut self.0[phase as usize];
        if let Ok(at) = of_phase.binary_search(&(since, id)) {
            of_phase.remove(at);
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }

    fn rank(&self, peer: Peer) -> Rank {
        let inactive = self.first(Phase::Handshake).into_iter().chain(self.first(Phase::Idle)).min();
        (self.count(), inactive.map(|(since, _)| Reverse(since)), peer)
    }

    /// The inactive connection that gives way first, of those that have been so for longer than the grace of their phase.
    fn inactive(&self, now: Instant, handshake_grace: Duration, idle_grace: Duration) -> Option<Since> {
        let first =
            |phase, grace| self.first(phase).filter(|&(since, _)| now.saturating_duration_since(since) >= grace);
        let dawdling = first(Phase::Handshake, DAWDLING.max(handshake_grace));
        let longest =
            || first(Phase::Handshake, handshake_grace).into_iter().chain(first(Phase::Idle, idle_grace)).min();
        dawdling.or_else(longest)
    }
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    state: State,
    /// The state under which `shares` has it.
    filed: State,
    /// Generation of the content that is being sent.
    sending: Option<u64>,
    cut: Arc<Notify>,
}

/// All connections. A step costs the logarithm of their number, and to take one out of the middle of a share moves up to half of the
/// peer's connections in that phase: 24 bytes each, at most 150 KB with 12,000 connections. Trees would cost no move, but more code in
/// every agent. What each request does is only filed when the next connection comes.
#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<u64, Entry>,
    shares: HashMap<Peer, Share>,
    /// The ranks of all shares, and some that they had before.
    ranks: BinaryHeap<Rank>,
    /// Whose state is not filed yet.
    changed: Vec<u64>,
    next: u64,
}

impl Table {
    /// Which connection gives way to one of `newcomer`, if any does. All states must be filed.
    fn gives_way(&mut self, newcomer: Peer, bounds: &Bounds, now: Instant) -> Option<u64> {
        let greediest = self.greediest()?;
        let greedy = self.shares.get(&greediest)?;
        let own = self.shares.get(&newcomer);
        let has = own.map_or(0, Share::count);
        let much_more = || {
            let greedy = Some(greedy).filter(|greedy| greedy.count() > has + 1)?;
            let busy = || greedy.first(Phase::Busy).filter(|_| bounds.cut_busy);
            greedy.inactive(now, Duration::ZERO, Duration::ZERO).or_else(busy)
        };
        let more = || {
            let greedy = Some(greedy).filter(|greedy| greedy.count() > has)?;
            greedy.inactive(now, bounds.grace, bounds.grace)
        };
        let own = || own.filter(|_| bounds.shares)?.inactive(now, bounds.grace, Duration::ZERO);
        let any = || {
            let shares = self.shares.values().filter(|_| !(bounds.shares && bounds.cut_busy));
            shares.filter_map(|share| share.inactive(now, bounds.grace, bounds.grace)).min()
        };
        much_more().or_else(more).or_else(own).or_else(any).map(|(_, id)| id)
    }

    /// The peer that gives way first.
    fn greediest(&mut self) -> Option<Peer> {
        while let Some(rank @ &(_, _, peer)) = self.ranks.peek() {
            if self.shares.get(&peer).is_some_and(|share| share.rank(peer) == *rank) {
                return Some(peer);
            }
            self.ranks.pop();
        }
        None
    }

    /// Files a connection under another state.
    fn file(&mut self, id: u64, peer: Peer, from: Option<State>, to: Option<State>) {
        let share = self.shares.entry(peer).or_default();
        if let Some(state) = from {
            share.remove(state, id);
        }
        if let Some(state) = to {
            share.insert(state, id);
        }
        self.ranks.push(share.rank(peer));
        if share.count() == 0 {
            self.shares.remove(&peer);
        }
        if self.ranks.len() > 2 * self.shares.len() + 16 {
            self.ranks = self.shares.iter().map(|(&peer, share)| share.rank(peer)).collect();
        }
    }

    fn file_changed(&mut self) {
        for id in mem::take(&mut self.changed) {
            if let Some(entry) = self.entries.get_mut(&id) {
                let (peer, from, to) = (entry.peer, entry.filed, entry.state);
                entry.filed = to;
                self.file(id, peer, Some(from), Some(to));
            }
        }
    }

    fn add(&mut self, peer: Peer, now: Instant) -> (u64, Arc<Notify>) {
        let id = self.next;
        self.next += 1;
        let (state, cut) = ((Phase::Handshake, now), Arc::new(Notify::new()));
        self.entries.insert(id, Entry { peer, state, filed: state, sending: None, cut: Arc::clone(&cut) });
        self.file(id, peer, None, Some(state));
        (id, cut)
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Notify>> {
        let Entry { peer, filed, cut, .. } = self.entries.remove(&id)?;
        self.file(id, peer, Some(filed), None);
        Some(cut)
    }

    fn set(&mut self, id: u64, phase: Phase, now: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.state == entry.filed {
            self.changed.push(id);
        }
        (entry.state, entry.sending) = ((phase, now), None);
    }
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    bounds: Bounds,
    metrics: ConnectionMetrics,
}

/// The slots of one listener, or of one group of its clients; cheap to clone.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

impl Slots {
    /// A table without connections. Several tables may share `metrics`.
    pub fn new(bounds: Bounds, metrics: ConnectionMetrics) -> Self {
        Self(Arc::new(Shared { table: Mutex::default(), bounds, metrics }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics between two halves of a step.
        locked(&self.0.table)
    }

    /// Takes a slot for a new connection, if need be that of another one, which is cut; `None` where no other has to give way.
    pub fn take(&self, address: IpAddr, now: Instant) -> Option<Slot> {
        let bounds = &self.0.bounds;
        let peer = match (bounds.shares, bounds.networks) {
            (false, _) => Peer::ALL,
            (true, true) => Peer::from(address),
            (true, false) => Peer::exactly(address),
        };
        let mut table = self.table();
        // Each time, or what has changed would pile up.
        table.file_changed();
        if table.entries.len() >= bounds.most {
            let victim = table.gives_way(peer, bounds, now)?;
            table.remove(victim)?.notify_one();
            self.0.metrics.open.dec();
            self.0.metrics.refused.inc();
        }
        let (id, cut) = table.add(peer, now);
        self.0.metrics.open.inc();
        self.0.metrics.accepted.inc();
        Some(Slot(Arc::new(Lease { id, peer, cut, slots: self.clone() })))
    }

    /// Returns whether connections may wait for a slot.
    pub(crate) fn can_wait(&self) -> bool {
        !self.0.bounds.wait.is_zero()
    }

    /// Waits for a slot as long as the bounds allow.
    pub(crate) async fn wait(&self, address: IpAddr) -> Option<Slot> {
        let until = Instant::now() + self.0.bounds.wait;
        loop {
            sleep(CHECK_INTERVAL).await;
            let now = Instant::now();
            let slot = self.take(address, now);
            if slot.is_some() || now >= until {
                return slot;
            }
        }
    }

    /// How many slots are taken.
    pub fn count(&self) -> usize {
        self.table().entries.len()
    }

    /// How many connections are being answered.
    pub fn busy(&self) -> usize {
        self.table().entries.values().filter(|entry| entry.state.0 == Phase::Busy).count()
    }

    /// Returns whether `slot` is one of these.
    pub fn include(&self, slot: &Slot) -> bool {
        Arc::ptr_eq(&self.0, &slot.0.slots.0)
    }

    /// Cuts connections that still send content older than `generation`: a client that reads slowly keeps a whole one in memory, and
    /// several changes in a row would keep several.
    pub fn cut_older(&self, generation: u64) {
        for entry in self.table().entries.values() {
            if entry.sending.is_some_and(|sending| sending < generation) {
                entry.cut.notify_one();
            }
        }
    }
}

#[derive(Debug)]
struct Lease {
    id: u64,
    peer: Peer,
    cut: Arc<Notify>,
    slots: Slots,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.slots.table().remove(self.id).is_some() {
            self.slots.0.metrics.open.dec();
        }
    }
}

/// The slot of one connection; free again when its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Slot(Arc<Lease>);

impl Slot {
    /// Whom the connection is counted for.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Resolves when the connection has lost its slot and must end.
    pub async fn cut(&self) {
        self.0.cut.notified().await;
    }

    /// The handshake is done.
    pub fn established(&self) {
        self.set(Phase::Idle);
    }

    /// A request has come; until the result is dropped the connection is not idle.
    pub fn busy(&self) -> Busy {
        self.set(Phase::Busy);
        Busy(self.clone())
    }

    fn set(&self, phase: Phase) {
        self.0.slots.table().set(self.0.id, phase, Instant::now());
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Busy(Slot);

impl Busy {
    /// The reply holds content of that generation.
    pub fn sends(&self, generation: u64) {
        let lease = &self.0.0;
        if let Some(entry) = lease.slots.table().entries.get_mut(&lease.id) {
            entry.sending = Some(generation);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Phase::Idle);
    }
}
