//! How many connections there may be, and which one goes when there are too many.
//!
//! Clients of the pod share one bound and those from elsewhere a smaller one, so that a neighbour on the pod network can't
//! starve the pod. At the bound a new connection takes the place of one that does nothing: idle longest first, then one
//! whose TLS handshake dawdles. A connection that is being answered is never cut for another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Limits;

/// How long a handshake may take before it can be cut for a new connection.
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
    fn admission(&self, origin: Origin, limits: &Limits, now: Instant) -> Admission {
        let bound = match origin {
            Origin::Pod => limits.connections,
            Origin::Foreign => limits.foreign_connections,
        };
        let same = || self.slots.iter().filter(|(_, slot)| slot.origin == origin);
        if same().count() < bound {
            return Admission::Take;
        }
        let oldest = |phase| {
            let of_phase = same().filter(|(_, slot)| slot.phase == phase);
            of_phase.min_by_key(|(_, slot)| slot.since).map(|(&id, slot)| (id, slot.since))
        };
        let dawdles = |&(_, since): &(u64, Instant)| now.saturating_duration_since(since) >= DAWDLING;
        match oldest(Phase::Idle).or_else(|| oldest(Phase::Handshake).filter(dawdles)) {
            Some((id, _)) => Admission::TakeFor(id),
            None => Admission::Full,
        }
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
    pub fn admit(&self, origin: Origin, now: Instant) -> Option<Connection> {
        let mut table = self.table();
        match table.admission(origin, &self.limits, now) {
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
        let slot = Slot { origin, phase: Phase::Handshake, since: now, sending: None, cut: Arc::clone(&cut) };
        table.slots.insert(id, slot);
        Some(Connection(Arc::new(Lease { id, origin, cut, all: self.clone() })))
    }

    /// How many there are now.
    pub fn count(&self) -> usize {
        self.table().slots.len()
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
        let [one, two, three] = [(); 3].map(|()| all.admit(Origin::Pod, now).unwrap());
        one.established();
        two.established();
        let _busy = one.busy();
        let four = all.admit(Origin::Pod, now).unwrap();
        assert!(is_cut(&two).await && !is_cut(&one).await && !is_cut(&three).await);
        assert_eq!(all.count(), 3);

        assert!(all.admit(Origin::Pod, now).is_none(), "handshakes are given a second");
        assert!(all.admit(Origin::Pod, now + DAWDLING).is_some());
        assert!(is_cut(&three).await);
        drop(four);
    }

    #[test]
    fn strangers_can_only_push_out_strangers() {
        let all = connections(1, 2);
        let now = Instant::now();
        let pod = all.admit(Origin::Pod, now).unwrap();
        let strangers: Vec<_> = (0..5).map(|_| all.admit(Origin::Foreign, now)).collect();
        assert_eq!(strangers.iter().flatten().count(), 2);
        assert_eq!(all.count(), 3);
        drop(pod);
        assert!(all.admit(Origin::Pod, now).is_some());
    }

    #[tokio::test]
    async fn slow_readers_of_old_dictionaries_are_cut() {
        let all = connections(3, 0);
        let [old, new, idle] = [(); 3].map(|()| all.admit(Origin::Pod, Instant::now()).unwrap());
        let (one, two) = (old.busy(), new.busy());
        one.sends(1);
        two.sends(2);
        all.cut_older(2);
        assert!(is_cut(&old).await && !is_cut(&new).await && !is_cut(&idle).await);
    }

    #[test]
    fn places_come_back() {
        let all = connections(1, 1);
        let one = all.admit(Origin::Pod, Instant::now()).unwrap();
        let (first, second) = (one.wait().unwrap(), one.wait());
        assert!(one.wait().is_none());
        drop((first, second));
        assert!(one.wait().is_some());
        drop(one);
        assert_eq!(all.count(), 0);
    }
}
