//! The places of a listener's connections, with a share for each peer.
//!
//! While places are free, anybody gets one. When all are taken, the peer with the most gives way: its connection that is idle longest, else,
//! if it still has more than the newcomer then, the one that is busy longest. A peer that has as many as any can only replace an idle one of
//! its own. So whoever holds many connections can't keep out somebody who holds few.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

/// Whom a connection is counted for: an IPv4 address, or the half of an IPv6 address that names a network, since one machine has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// Since when, and which.
type Since = (Instant, u64);

/// The connections of one peer.
#[derive(Debug, Default)]
struct Share {
    idle: BTreeSet<Since>,
    busy: BTreeSet<Since>,
}

/// The greatest gives way first: the most connections, then the longest idle one.
type Rank = (usize, Option<Reverse<Instant>>, Peer);

impl Share {
    fn count(&self) -> usize {
        self.idle.len() + self.busy.len()
    }

    fn rank(&self, peer: Peer) -> Rank {
        (self.count(), self.idle.first().map(|&(since, _)| Reverse(since)), peer)
    }

    fn of(&mut self, busy: bool) -> &mut BTreeSet<Since> {
        if busy { &mut self.busy } else { &mut self.idle }
    }
}

#[derive(Debug)]
struct Slot {
    peer: Peer,
    busy: bool,
    since: Instant,
    cut: Arc<Notify>,
}

/// All connections. Every step costs the logarithm of their number.
#[derive(Debug, Default)]
struct Table {
    slots: HashMap<u64, Slot>,
    shares: HashMap<Peer, Share>,
    ranks: BTreeSet<Rank>,
    next: u64,
}

impl Table {
    /// Which connection makes room for one of `newcomer`, if any does.
    fn gives_way(&self, newcomer: Peer) -> Option<u64> {
        let own = self.shares.get(&newcomer);
        let has = own.map_or(0, Share::count);
        let greedy = self.ranks.last().and_then(|(_, _, peer)| self.shares.get(peer))?;
        let idle = greedy.idle.first().filter(|_| greedy.count() > has);
        let busy = greedy.busy.first().filter(|_| greedy.count() > has + 1);
        idle.or(busy).or_else(|| own?.idle.first()).map(|&(_, id)| id)
    }

    fn change(&mut self, peer: Peer, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(peer).or_default();
        self.ranks.remove(&share.rank(peer));
        change(share);
        if share.count() == 0 {
            self.shares.remove(&peer);
        } else {
            self.ranks.insert(share.rank(peer));
        }
    }

    fn add(&mut self, peer: Peer, now: Instant) -> (u64, Arc<Notify>) {
        let id = self.next;
        self.next += 1;
        let cut = Arc::new(Notify::new());
        self.slots.insert(id, Slot { peer, busy: false, since: now, cut: Arc::clone(&cut) });
        self.change(peer, |share| {
            share.idle.insert((now, id));
        });
        (id, cut)
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Notify>> {
        let Slot { peer, busy, since, cut } = self.slots.remove(&id)?;
        self.change(peer, |share| {
            share.of(busy).remove(&(since, id));
        });
        Some(cut)
    }

    fn set(&mut self, id: u64, busy: bool, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let before = (slot.busy, slot.since);
        (slot.busy, slot.since) = (busy, now);
        let peer = slot.peer;
        self.change(peer, |share| {
            share.of(before.0).remove(&(before.1, id));
            share.of(busy).insert((now, id));
        });
    }
}

/// The places of one listener.
#[derive(Clone, Debug)]
pub struct Slots {
    table: Arc<Mutex<Table>>,
    most: usize,
    count: Gauge,
}

impl Slots {
    /// So many, all free; `count` shows how many are taken.
    pub fn new(most: usize, count: Gauge) -> Self {
        Self { table: Arc::default(), most, count }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics between two halves of a step.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, if need be that of another one, which is cut; `None` where no other has to give way.
    pub fn take(&self, address: IpAddr, now: Instant) -> Option<Place> {
        let peer = Peer::from(address);
        let mut table = self.table();
        if table.slots.len() >= self.most {
            let victim = table.gives_way(peer)?;
            table.remove(victim)?.notify_one();
        }
        let (id, cut) = table.add(peer, now);
        self.counted(&table);
        Some(Place { id, peer, cut, all: self.clone() })
    }

    fn counted(&self, table: &Table) {
        self.count.set(i64::try_from(table.slots.len()).unwrap_or(i64::MAX));
    }
}

/// The place of one connection; given back on drop.
#[derive(Debug)]
pub struct Place {
    id: u64,
    peer: Peer,
    cut: Arc<Notify>,
    all: Slots,
}

impl Place {
    /// Whom it is counted for.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Serves the connection as long as it has its place; `None` where it has lost it. What `serving` holds is dropped then, the connection too.
    pub async fn keep<T>(&self, serving: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cut.notified() => None,
            served = serving => Some(served),
        }
    }

    /// A request has come; until the result is dropped the connection is not idle.
    pub fn busy(&self) -> Busy<'_> {
        self.all.table().set(self.id, true, Instant::now());
        Busy(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.all.table();
        table.remove(self.id);
        self.all.counted(&table);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Busy<'a>(&'a Place);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.all.table().set(self.0.id, false, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    fn address(host: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, host])
    }

    fn slots(most: usize) -> Slots {
        Slots::new(most, Gauge::default())
    }

    fn is_cut(place: &Place) -> bool {
        place.keep(std::future::pending::<()>()).now_or_never().is_some()
    }

    #[test]
    fn the_greediest_gives_way_first_what_is_idle_longest() {
        let slots = slots(4);
        let now = Instant::now();
        let second = |seconds| now + Duration::from_secs(seconds);
        let few = slots.take(address(1), now).unwrap();
        let many: Vec<_> = (1..4).map(|at| slots.take(address(2), second(at)).unwrap()).collect();
        let busy = many[0].busy();
        let other = slots.take(address(3), second(4)).unwrap();
        assert_eq!([&few, &many[0], &many[1], &many[2]].map(is_cut), [false, false, true, false]);
        assert_eq!(slots.count.get(), 4);
        // It has two left, and the newcomer would have two.
        let also_busy = many[2].busy();
        let third = slots.take(address(3), second(5)).unwrap();
        assert!(is_cut(&other) && ![&few, &many[0], &many[2], &third].map(is_cut).contains(&true));
        // Somebody who has none is worth more than what the greediest has begun.
        let new = slots.take(address(4), second(6)).unwrap();
        assert_eq!([&many[0], &many[2], &few, &third, &new].map(is_cut), [true, false, false, false, false]);
        drop((busy, also_busy));
    }

    #[test]
    fn whoever_has_most_replaces_its_own_or_is_refused() {
        let slots = slots(2);
        let now = Instant::now();
        let [first, second] = [(); 2].map(|()| slots.take(address(1), now).unwrap());
        let busy = [first.busy(), second.busy()];
        assert!(slots.take(address(1), now).is_none());
        drop(busy);
        let third = slots.take(address(1), now).unwrap();
        assert_eq!([is_cut(&first), is_cut(&second), is_cut(&third)].iter().filter(|cut| **cut).count(), 1);
        drop((first, second, third));
        assert_eq!(slots.count.get(), 0);
        assert!(slots.table().shares.is_empty() && slots.table().ranks.is_empty());
    }

    #[test]
    fn one_machine_is_one_client() {
        let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("fd00::2:3:4:5"), peer("fd00::9:8:7:6"));
        assert_ne!(peer("fd00:0:0:1::1"), peer("fd00:0:0:2::1"));
        assert_ne!(peer("::1"), peer("127.0.0.1"));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Come(u8),
        Busy(prop::sample::Index),
        Idle(prop::sample::Index),
        Go(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let which = || any::<prop::sample::Index>();
        let step = prop_oneof![
            3 => (0..5_u8).prop_map(Step::Come),
            2 => which().prop_map(Step::Busy),
            1 => which().prop_map(Step::Idle),
            1 => which().prop_map(Step::Go),
        ];
        prop::collection::vec(step, 0..120)
    }

    fn of(table: &Table, peer: Peer, busy: Option<bool>) -> usize {
        let counts = |slot: &&Slot| slot.peer == peer && busy.is_none_or(|busy| slot.busy == busy);
        table.slots.values().filter(counts).count()
    }

    proptest! {
        /// By looking at all connections, whatever has happened before.
        #[test]
        fn nobody_loses_a_place_to_somebody_who_has_more(steps in steps(), most in 1..8_usize) {
            let mut table = Table::default();
            let now = Instant::now();
            for (at, step) in steps.into_iter().enumerate() {
                let now = now + Duration::from_millis(at as u64);
                let mut ids: Vec<u64> = table.slots.keys().copied().collect();
                ids.sort_unstable();
                match step {
                    Step::Come(host) => {
                        let newcomer = Peer::from(address(host));
                        if table.slots.len() >= most {
                            let has = of(&table, newcomer, None);
                            let highest = table.slots.values().map(|slot| of(&table, slot.peer, None)).max().unwrap_or(0);
                            let Some(victim) = table.gives_way(newcomer) else {
                                prop_assert!(highest <= has + 1 && of(&table, newcomer, Some(false)) == 0);
                                continue;
                            };
                            let slot = &table.slots[&victim];
                            let oldest = table.slots.values().filter(|other| other.peer == slot.peer && other.busy == slot.busy);
                            prop_assert_eq!(oldest.map(|other| other.since).min(), Some(slot.since));
                            if slot.peer == newcomer {
                                prop_assert!(!slot.busy && highest <= has + 1);
                            } else {
                                let others = of(&table, slot.peer, None);
                                prop_assert!(others == highest && others > has + usize::from(slot.busy));
                                prop_assert!(!slot.busy || of(&table, slot.peer, Some(false)) == 0);
                            }
                            table.remove(victim);
                        }
                        table.add(newcomer, now);
                    }
                    Step::Busy(which) if !ids.is_empty() => table.set(*which.get(&ids), true, now),
                    Step::Idle(which) if !ids.is_empty() => table.set(*which.get(&ids), false, now),
                    Step::Go(which) if !ids.is_empty() => drop(table.remove(*which.get(&ids))),
                    _ => {}
                }
                prop_assert!(table.slots.len() <= most);
                let counted: usize = table.shares.values().map(Share::count).sum();
                prop_assert_eq!(counted, table.slots.len());
                let ranks: BTreeSet<Rank> = table.shares.iter().map(|(peer, share)| share.rank(*peer)).collect();
                prop_assert_eq!(&ranks, &table.ranks);
            }
        }

        /// Whatever a single peer does, another one that wants no more than half of the places gets and keeps them.
        #[test]
        fn one_client_keeps_nobody_out(steps in steps(), most in 2..8_usize) {
            let slots = slots(most);
            let (mut hostile, mut modest) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Come(0) if modest.len() < most / 2 => {
                        let place = slots.take(address(0), Instant::now());
                        prop_assert!(place.is_some());
                        modest.extend(place);
                    }
                    Step::Come(0) => drop(modest.pop()),
                    Step::Come(_) => hostile.extend(slots.take(address(1), Instant::now())),
                    Step::Busy(which) if !hostile.is_empty() => std::mem::forget(which.get(&hostile).busy()),
                    Step::Go(which) if !hostile.is_empty() => {
                        let index = which.index(hostile.len());
                        hostile.swap_remove(index);
                    }
                    _ => {}
                }
                prop_assert!(modest.iter().all(|place| !is_cut(place)));
            }
        }
    }
}
