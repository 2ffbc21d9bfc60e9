//! The slots of a listener's connections, with a share for each peer.
//!
//! While slots are free, any peer gets one. When all are taken, a new connection gets the slot of another connection,
//! which is cut:
//!
//! 1. a connection of the peer with the most, if the peer keeps more than the newcomer gets;
//! 2. an inactive connection of that peer, if the peer has more than the newcomer now;
//! 3. an inactive connection of the newcomer itself;
//! 4. an inactive connection of any peer, if connections that are being answered are not cut.
//!
//! Among the connections of a peer, a slow handshake goes first, then the connection that has been inactive longest. So
//! a peer with many connections can't keep out one with few. [`Bounds`] says whether connections that are being
//! answered are cut, too.

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nudge_protocol::mutex::lock;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::metrics::ConnectionMetrics;

/// The minimum age of a slow handshake.
pub const SLOW_HANDSHAKE_AGE: Duration = Duration::from_secs(1);
/// The time between two checks of a connection that waits for a slot.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The bounds of a slot table.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The maximum number of connections.
    pub max_connections: usize,
    /// The peers that have a share each.
    pub sharing: Sharing,
    /// The time that a connection may be inactive before it has to give way: its first or next request may be on its
    /// way. A peer that has a share replaces its own idle connections at once.
    pub grace: Duration,
    /// Whether connections that are being answered give way, too.
    pub cut_busy: bool,
    /// The time that a connection waits for a slot before it is refused.
    pub slot_wait: Duration,
}

/// The peers among which the slots are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One peer: all connections count for it.
    None,
    /// Each address.
    Addresses,
    /// Each IPv4 address and each IPv6 network (the first 64 bits), since one machine may have all addresses of a
    /// network.
    Networks,
}

impl Bounds {
    /// Returns bounds that give each network a share. Connections that are being answered give way to a network that
    /// has fewer.
    pub fn shared(max_connections: usize) -> Self {
        let (grace, slot_wait) = (Duration::ZERO, Duration::ZERO);
        Self { max_connections, sharing: Sharing::Networks, grace, cut_busy: true, slot_wait }
    }
}

/// The peer that a connection is counted for: an IPv4 address, or the half of an IPv6 address that names a network,
/// since one machine has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl Peer {
    /// All peers, if none has a share of its own.
    const ALL: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Returns the peer that has this address alone.
    fn from_exact(address: IpAddr) -> Self {
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

/// The phase of a connection, and its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotsState {
    phase: Phase,
    since: Instant,
}

/// The beginning of a connection's phase, and the connection.
type Since = (Instant, u64);

/// The connections of one peer by phase, the longest first.
#[derive(Debug, Default)]
struct Share([VecDeque<Since>; 3]);

/// The rank of a peer. The greatest gives way first: the most connections, then the one that has been inactive longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    connections: usize,
    inactive_since: Option<Reverse<Instant>>,
    peer: Peer,
}

impl Share {
    /// Returns the connection that has been in a phase longest.
    fn first(&self, phase: Phase) -> Option<Since> {
        self.0[phase as usize].front().copied()
    }

    fn insert(&mut self, SlotsState { phase, since }: SlotsState, id: u64) {
        let of_phase = &mut self.0[phase as usize];
        // The place is at the end, as a rule.
        of_phase.insert(of_phase.partition_point(|&other| other < (since, id)), (since, id));
    }

    fn remove(&mut self, SlotsState { phase, since }: SlotsState, id: u64) {
        let of_phase = &mut self.0[phase as usize];
        if let Ok(index) = of_phase.binary_search(&(since, id)) {
            of_phase.remove(index);
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }

    fn rank(&self, peer: Peer) -> Rank {
        let inactive = self.first(Phase::Handshake).into_iter().chain(self.first(Phase::Idle)).min();
        Rank { connections: self.count(), inactive_since: inactive.map(|(since, _)| Reverse(since)), peer }
    }

    /// Returns the inactive connection that gives way first, of those that have been inactive for longer than the grace
    /// of their phase.
    fn inactive(&self, now: Instant, handshake_grace: Duration, idle_grace: Duration) -> Option<Since> {
        let first =
            |phase, grace| self.first(phase).filter(|&(since, _)| now.saturating_duration_since(since) >= grace);
        let slow = first(Phase::Handshake, SLOW_HANDSHAKE_AGE.max(handshake_grace));
        let longest =
            || first(Phase::Handshake, handshake_grace).into_iter().chain(first(Phase::Idle, idle_grace)).min();
        slow.or_else(longest)
    }
}

#[derive(Debug)]
struct SlotEntry {
    peer: Peer,
    state: SlotsState,
    /// The state under which the share of the peer has the connection.
    filed_state: SlotsState,
    /// The generation of the content that is being sent.
    sending: Option<u64>,
    cut: Arc<Notify>,
}

/// All connections. A step costs the logarithm of their number. Taking one out of the middle of a share also moves up
/// to half of the peer's connections in that phase: 24 bytes each, at most 150 KB with 12,000 connections. Trees would
/// avoid these moves, but add code to every agent. The effect of a request is filed only when the next connection
/// comes.
#[derive(Debug, Default)]
struct SlotTable {
    entries: BTreeMap<u64, SlotEntry>,
    shares: HashMap<Peer, Share>,
    /// The ranks of all shares, and some that they had before.
    ranks: BinaryHeap<Rank>,
    /// The connections whose state is not filed yet.
    unfiled: Vec<u64>,
    next_id: u64,
}

impl SlotTable {
    /// Returns the connection that gives way to one of `newcomer`. All states must be filed.
    fn find_victim(&mut self, newcomer: Peer, bounds: &Bounds, now: Instant) -> Option<u64> {
        let greediest = self.greediest()?;
        let greedy = self.shares.get(&greediest)?;
        let newcomers = self.shares.get(&newcomer);
        let count = newcomers.map_or(0, Share::count);
        let of_much_greedier = || {
            let greedy = Some(greedy).filter(|greedy| greedy.count() > count + 1)?;
            let busy = || greedy.first(Phase::Busy).filter(|_| bounds.cut_busy);
            greedy.inactive(now, Duration::ZERO, Duration::ZERO).or_else(busy)
        };
        let of_greedier = || {
            let greedy = Some(greedy).filter(|greedy| greedy.count() > count)?;
            greedy.inactive(now, bounds.grace, bounds.grace)
        };
        let has_shares = bounds.sharing != Sharing::None;
        let of_newcomer = || newcomers.filter(|_| has_shares)?.inactive(now, bounds.grace, Duration::ZERO);
        let of_any = || {
            let shares = self.shares.values().filter(|_| !(has_shares && bounds.cut_busy));
            shares.filter_map(|share| share.inactive(now, bounds.grace, bounds.grace)).min()
        };
        of_much_greedier().or_else(of_greedier).or_else(of_newcomer).or_else(of_any).map(|(_, id)| id)
    }

    /// Returns the peer that gives way first.
    fn greediest(&mut self) -> Option<Peer> {
        while let Some(rank @ &Rank { peer, .. }) = self.ranks.peek() {
            if self.shares.get(&peer).is_some_and(|share| share.rank(peer) == *rank) {
                return Some(peer);
            }
            self.ranks.pop();
        }
        None
    }

    /// Files a connection under another state.
    fn file(&mut self, id: u64, peer: Peer, from: Option<SlotsState>, to: Option<SlotsState>) {
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

    fn file_all(&mut self) {
        for id in mem::take(&mut self.unfiled) {
            if let Some(entry) = self.entries.get_mut(&id) {
                let (peer, from, to) = (entry.peer, entry.filed_state, entry.state);
                entry.filed_state = to;
                self.file(id, peer, Some(from), Some(to));
            }
        }
    }

    fn add(&mut self, peer: Peer, now: Instant) -> (u64, Arc<Notify>) {
        let id = self.next_id;
        self.next_id += 1;
        let (state, cut) = (SlotsState { phase: Phase::Handshake, since: now }, Arc::new(Notify::new()));
        self.entries.insert(id, SlotEntry { peer, state, filed_state: state, sending: None, cut: Arc::clone(&cut) });
        self.file(id, peer, None, Some(state));
        (id, cut)
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Notify>> {
        let SlotEntry { peer, filed_state, cut, .. } = self.entries.remove(&id)?;
        self.file(id, peer, Some(filed_state), None);
        Some(cut)
    }

    fn set_phase(&mut self, id: u64, phase: Phase, now: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.state == entry.filed_state {
            self.unfiled.push(id);
        }
        (entry.state, entry.sending) = (SlotsState { phase, since: now }, None);
    }
}

#[derive(Debug)]
struct SharedSlots {
    table: Mutex<SlotTable>,
    bounds: Bounds,
    metrics: ConnectionMetrics,
}

/// The slots of one listener, or of one group of its clients; cheap to clone.
#[derive(Clone, Debug)]
pub struct Slots(Arc<SharedSlots>);

impl Slots {
    /// Creates a table without connections. Several tables may share `metrics`.
    pub fn new(bounds: Bounds, metrics: ConnectionMetrics) -> Self {
        Self(Arc::new(SharedSlots { table: Mutex::default(), bounds, metrics }))
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        // Nothing in here panics between two halves of a step.
        lock(&self.0.table)
    }

    /// Takes a slot for a new connection, if need be that of another one, which is cut. Returns `None` if no other
    /// has to give way.
    pub fn take(&self, address: IpAddr, now: Instant) -> Option<Slot> {
        let bounds = &self.0.bounds;
        let peer = match bounds.sharing {
            Sharing::None => Peer::ALL,
            Sharing::Networks => Peer::from(address),
            Sharing::Addresses => Peer::from_exact(address),
        };
        let mut table = self.table();
        // Without filing each time, the changes would pile up.
        table.file_all();
        if table.entries.len() >= bounds.max_connections {
            let victim = table.find_victim(peer, bounds, now)?;
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
        !self.0.bounds.slot_wait.is_zero()
    }

    /// Waits for a slot as long as the bounds allow.
    pub(crate) async fn wait(&self, address: IpAddr) -> Option<Slot> {
        let until = Instant::now() + self.0.bounds.slot_wait;
        loop {
            sleep(CHECK_INTERVAL).await;
            let now = Instant::now();
            let slot = self.take(address, now);
            if slot.is_some() || now >= until {
                return slot;
            }
        }
    }

    /// Returns the number of slots that are taken.
    pub fn count(&self) -> usize {
        self.table().entries.len()
    }

    /// Returns the number of connections that are being answered.
    pub fn busy_count(&self) -> usize {
        self.table().entries.values().filter(|entry| entry.state.phase == Phase::Busy).count()
    }

    /// Returns whether the set contains `slot`.
    pub fn contains(&self, slot: &Slot) -> bool {
        Arc::ptr_eq(&self.0, &slot.0.slots.0)
    }

    /// Cuts connections that still send content older than `generation`: a client that reads slowly keeps a whole one
    /// in memory, and several changes in a row would keep several.
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
    /// Returns the peer that the connection is counted for.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Waits until the connection has lost its slot and must end.
    pub async fn wait_until_cut(&self) {
        self.0.cut.notified().await;
    }

    /// Marks the end of the handshake.
    pub fn mark_established(&self) {
        self.set_phase(Phase::Idle);
    }

    /// Marks the beginning of a request; until the result is dropped the connection is not idle.
    pub fn begin_request(&self) -> RequestGuard {
        self.set_phase(Phase::Busy);
        RequestGuard(self.clone())
    }

    fn set_phase(&self, phase: Phase) {
        self.0.slots.table().set_phase(self.0.id, phase, Instant::now());
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct RequestGuard(Slot);

impl RequestGuard {
    /// Sets the generation of the content that the reply holds.
    pub fn set_generation(&self, generation: u64) {
        let lease = &self.0.0;
        if let Some(entry) = lease.slots.table().entries.get_mut(&lease.id) {
            entry.sending = Some(generation);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.set_phase(Phase::Idle);
    }
}
