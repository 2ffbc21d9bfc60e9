//! How many connections there may be, and which one goes when there are too many.
//!
//! Clients of the pod share one bound and those from elsewhere a smaller one, so that a neighbour on the pod network can't
//! starve the pod. At the bound a new connection takes the place of one that does nothing: one whose TLS handshake
//! dawdles first, then the one idle longest. Among those from elsewhere the address with the most connections gives way first, so that a
//! neighbour can't starve the kubelet's probes either. A connection that is being answered is never cut for another; once TLS has taken the whole
//! reply it counts as idle.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Limits;

/// How long a connection may do nothing before it can be cut for a new one: its first or next request may be on its way.
const DAWDLING: Duration = Duration::from_secs(1);

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In this pod.
    Pod,
    /// Elsewhere.
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Idle,
    Busy,
}

#[derive(Debug)]
struct Slot {
    origin: Origin,
    peer: IpAddr,
    phase: Phase,
    since: Instant,
    /// Generation of the dictionary that is being sent.
    sending: Option<u64>,
    cut: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    slots: BTreeMap<u64, Slot>,
    next: u64,
    waiting: usize,
}

/// What to do with a new connection.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Take,
    /// Take it and cut that one.
    TakeFor(u64),
    /// Nothing can go now.
    Full,
}

impl Table {
    fn admission(&self, origin: Origin, peer: IpAddr, limits: &Limits, now: Instant) -> Admission {
        let bound = match origin {
            Origin::Pod => limits.connections,
            Origin::Foreign => limits.foreign_connections,
        };
        let same = |slot: &Slot| slot.origin == origin;
        if self.slots.values().filter(|slot| same(slot)).count() < bound {
            return Admission::Take;
        }
        let dawdles = |slot: &Slot| now.saturating_duration_since(slot.since) >= DAWDLING;
        let greedy = if origin == Origin::Foreign { self.of_the_greediest(peer, &dawdles) } else { None };
        let victim = greedy
            .or_else(|| self.oldest(Phase::Handshake, |slot| same(slot) && dawdles(slot)))
            .or_else(|| self.oldest(Phase::Idle, |slot| same(slot) && dawdles(slot)));
        victim.map_or(Admission::Full, Admission::TakeFor)
    }

    /// A connection from elsewhere that can go for one of `peer`: of the address with the most places, if that would still have
    /// as many as `peer`, else of `peer` itself.
    fn of_the_greediest(&self, peer: IpAddr, dawdles: &dyn Fn(&Slot) -> bool) -> Option<u64> {
        let foreign = || self.slots.values().filter(|slot| slot.origin == Origin::Foreign);
        let places = |address: IpAddr| foreign().filter(|slot| slot.peer == address).count();
        let most = foreign().map(|slot| slot.peer).max_by_key(|&address| places(address))?;
        let other = places(most) > places(peer) + 1;
        let of = if other { most } else { peer };
        let from = |slot: &Slot| slot.origin == Origin::Foreign && slot.peer == of;
        self.oldest(Phase::Idle, from)
            .or_else(|| self.oldest(Phase::Handshake, |slot| from(slot) && (other || dawdles(slot))))
    }

    fn oldest(&self, phase: Phase, matches: impl Fn(&Slot) -> bool) -> Option<u64> {
        let of_phase = self.slots.iter().filter(|(_, slot)| slot.phase == phase && matches(slot));
        of_phase.min_by_key(|(_, slot)| slot.since).map(|(&id, _)| id)
    }
}

/// All connections of the endpoint.
#[derive(Clone, Debug)]
pub struct Connections {
    table: Arc<Mutex<Table>>,
    limits: Arc<Limits>,
}

impl Connections {
    /// No connections yet.
    pub fn new(limits: Arc<Limits>) -> Self {
        Self { table: Arc::default(), limits }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is one assignment, so a panic elsewhere leaves nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new connection in, cutting another if need be; `None` when there is no room.
    pub fn admit(&self, origin: Origin, peer: IpAddr, now: Instant) -> Option<Connection> {
        let mut table = self.table();
        match table.admission(origin, peer, &self.limits, now) {
            Admission::Take => {}
            Admission::TakeFor(id) => {
                if let Some(slot) = table.slots.remove(&id) {
                    slot.cut.notify_one();
                }
            }
            Admission::Full => return None,
        }
        let id = table.next;
        table.next += 1;
        let cut = Arc::new(Notify::new());
        let slot = Slot { origin, peer, phase: Phase::Handshake, since: now, sending: None, cut: Arc::clone(&cut) };
        table.slots.insert(id, slot);
        Some(Connection(Arc::new(Lease { id, origin, cut, all: self.clone() })))
    }

    /// How many there are now.
    pub fn count(&self) -> usize {
        self.table().slots.len()
    }

    /// Whether a request is being answered that does not just wait for a change.
    pub fn are_busy(&self) -> bool {
        let table = self.table();
        table.slots.values().filter(|slot| slot.phase == Phase::Busy).count() > table.waiting
    }

    /// Cuts those that still send a dictionary older than `generation`: a client that reads slowly keeps a whole one in
    /// memory, and several changes in a row would keep several.
    pub fn cut_older(&self, generation: u64) {
        for slot in self.table().slots.values() {
            if slot.sending.is_some_and(|sending| sending < generation) {
                slot.cut.notify_one();
            }
        }
    }
}

#[derive(Debug)]
struct Lease {
    id: u64,
    origin: Origin,
    cut: Arc<Notify>,
    all: Connections,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.all.table().slots.remove(&self.id);
    }
}

/// One connection's place; given up on drop.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Lease>);

impl Connection {
    /// Where the client is.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Resolves when the connection must go.
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

    /// A request wants to wait for a change; `None` when too many do.
    pub fn wait(&self) -> Option<Waiting> {
        let mut table = self.0.all.table();
        if table.waiting >= self.0.all.limits.waiting {
            return None;
        }
        table.waiting += 1;
        Some(Waiting(self.0.all.clone()))
    }

    fn set(&self, phase: Phase) {
        if let Some(slot) = self.0.all.table().slots.get_mut(&self.0.id) {
            slot.phase = phase;
            slot.since = Instant::now();
            slot.sending = None;
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Busy(Connection);

impl Busy {
    /// The reply holds the dictionary of that generation.
    pub fn sends(&self, generation: u64) {
        if let Some(slot) = self.0.0.all.table().slots.get_mut(&self.0.0.id) {
            slot.sending = Some(generation);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Phase::Idle);
    }
}

/// A request that waits for a change.
#[derive(Debug)]
pub struct Waiting(Connections);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.table().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn elsewhere(host: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, host])
    }

    fn connections(pod: usize, foreign: usize) -> Connections {
        let limits = Limits { connections: pod, foreign_connections: foreign, waiting: 2, ..Limits::default() };
        Connections::new(Arc::new(limits))
    }

    async fn is_cut(connection: &Connection) -> bool {
        tokio::time::timeout(Duration::ZERO, connection.cut()).await.is_ok()
    }

    #[tokio::test]
    async fn the_one_idle_longest_makes_room_and_a_busy_one_never() {
        let all = connections(3, 1);
        let now = Instant::now();
        let [one, two, three] = [(); 3].map(|()| all.admit(Origin::Pod, POD, now).unwrap());
        one.established();
        two.established();
        let _busy = one.busy();
        assert!(all.admit(Origin::Pod, POD, now).is_none(), "each is given a second");
        let later = Instant::now() + DAWDLING;
        let four = all.admit(Origin::Pod, POD, later).unwrap();
        assert!(is_cut(&three).await && !is_cut(&one).await && !is_cut(&two).await);
        assert_eq!(all.count(), 3);
        let five = all.admit(Origin::Pod, POD, later).unwrap();
        assert!(is_cut(&two).await);
        drop(five);
        drop(four);
    }

    #[test]
    fn strangers_can_only_push_out_strangers() {
        let all = connections(1, 2);
        let now = Instant::now();
        let pod = all.admit(Origin::Pod, POD, now).unwrap();
        let strangers: Vec<_> = (0..5).map(|_| all.admit(Origin::Foreign, elsewhere(1), now)).collect();
        assert_eq!(strangers.iter().flatten().count(), 2);
        assert_eq!(all.count(), 3);
        drop(pod);
        assert!(all.admit(Origin::Pod, POD, now).is_some());
    }

    #[tokio::test]
    async fn a_neighbour_with_many_connections_makes_room_for_one_with_few() {
        let all = connections(1, 4);
        let now = Instant::now();
        let greedy: Vec<_> = (0..4).map(|_| all.admit(Origin::Foreign, elsewhere(1), now).unwrap()).collect();
        assert!(all.admit(Origin::Foreign, elsewhere(1), now).is_none());
        let probe = all.admit(Origin::Foreign, elsewhere(2), now).unwrap();
        assert!(is_cut(&greedy[0]).await && !is_cut(&greedy[1]).await);
        assert!(all.admit(Origin::Foreign, elsewhere(1), now).is_none());
        assert!(!is_cut(&probe).await);
    }

    #[tokio::test]
    async fn slow_readers_of_old_dictionaries_are_cut() {
        let all = connections(3, 0);
        let [old, new, idle] = [(); 3].map(|()| all.admit(Origin::Pod, POD, Instant::now()).unwrap());
        let (one, two) = (old.busy(), new.busy());
        one.sends(1);
        two.sends(2);
        all.cut_older(2);
        assert!(is_cut(&old).await && !is_cut(&new).await && !is_cut(&idle).await);
    }

    #[test]
    fn places_come_back() {
        let all = connections(1, 1);
        let one = all.admit(Origin::Pod, POD, Instant::now()).unwrap();
        let (first, second) = (one.wait().unwrap(), one.wait());
        assert!(one.wait().is_none());
        drop((first, second));
        assert!(one.wait().is_some());
        drop(one);
        assert_eq!(all.count(), 0);
    }
}
