//! Tests of the connection that gives way to a new connection.

use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn slots(max_connections: usize) -> Slots {
    Slots::new(Bounds::shared(max_connections), ConnectionMetrics::default())
}

/// The slots of an agent: all clients of the pod count for one peer, neighbours each for themselves.
fn agent(max_connections: usize, sharing: Sharing) -> Slots {
    let bounds = Bounds { sharing, grace: SLOW_HANDSHAKE_AGE, cut_busy: false, ..Bounds::shared(max_connections) };
    Slots::new(bounds, ConnectionMetrics::default())
}

fn is_cut(slot: &Slot) -> bool {
    slot.wait_until_cut().now_or_never().is_some()
}

#[test]
fn the_peer_with_the_most_gives_way_first_with_what_is_idle_longest() {
    let slots = slots(4);
    let now = Instant::now();
    let second = |seconds| now + Duration::from_secs(seconds);
    let few = slots.take(address(1), now).unwrap();
    let many: Vec<_> = (1..4).map(|at| slots.take(address(2), second(at)).unwrap()).collect();
    let busy = many[0].begin_request();
    let other = slots.take(address(3), second(4)).unwrap();
    assert_eq!([&few, &many[0], &many[1], &many[2]].map(is_cut), [false, false, true, false]);
    assert_eq!(slots.0.metrics.open.get(), 4);
    // The peer has two slots left, and the newcomer would have two.
    let also_busy = many[2].begin_request();
    let third = slots.take(address(3), second(5)).unwrap();
    assert!(is_cut(&other) && ![&few, &many[0], &many[2], &third].map(is_cut).contains(&true));
    // A peer that has none gets the slot of a request that the peer with the most has begun.
    let new = slots.take(address(4), second(6)).unwrap();
    assert_eq!([&many[0], &many[2], &few, &third, &new].map(is_cut), [true, false, false, false, false]);
    drop((busy, also_busy));
}

#[test]
fn the_peer_with_the_most_replaces_its_own_or_is_refused() {
    let slots = slots(2);
    let now = Instant::now();
    let [first, second] = [(); 2].map(|()| slots.take(address(1), now).unwrap());
    let busy = [first.begin_request(), second.begin_request()];
    assert!(slots.take(address(1), now).is_none());
    drop(busy);
    let third = slots.take(address(1), now).unwrap();
    assert_eq!([is_cut(&first), is_cut(&second), is_cut(&third)].iter().filter(|cut| **cut).count(), 1);
    drop((first, second, third));
    assert_eq!(slots.0.metrics.open.get(), 0);
    assert!(slots.table().shares.is_empty() && slots.table().greediest().is_none());
}

#[test]
fn one_machine_is_one_peer() {
    let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
    assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    assert_eq!(peer("fd00::2:3:4:5"), peer("fd00::9:8:7:6"));
    assert_ne!(peer("fd00:0:0:1::1"), peer("fd00:0:0:2::1"));
    assert_ne!(peer("::1"), peer("127.0.0.1"));
}

#[test]
fn neighbours_of_one_ipv6_network_have_a_share_each_with_an_agent_alone() {
    let addresses = ["fd00::1", "fd00::2"].map(|text| text.parse::<IpAddr>().unwrap());
    let peers = |slots: &Slots| addresses.map(|address| slots.take(address, Instant::now()).unwrap().peer());
    assert_eq!(peers(&agent(2, Sharing::Addresses)), addresses.map(Peer::from_exact));
    assert_eq!(peers(&slots(2)), addresses.map(Peer::from));
    assert_ne!(Peer::from_exact(addresses[0]), Peer::from_exact(addresses[1]));
    assert_eq!(Peer::from_exact("::ffff:10.0.0.1".parse().unwrap()), Peer::from(address(1)));

    let slots = agent(4, Sharing::Addresses);
    let greedy: Vec<_> = (0..4).map(|_| slots.take(addresses[0], Instant::now()).unwrap()).collect();
    assert!(slots.take(addresses[1], Instant::now()).is_some() && is_cut(&greedy[0]));
}

#[test]
fn a_slow_handshake_goes_first_and_a_busy_connection_never() {
    let slots = agent(3, Sharing::None);
    let now = Instant::now();
    let [one, two, three] = [(); 3].map(|()| slots.take(address(1), now).unwrap());
    one.mark_established();
    two.mark_established();
    let _busy = one.begin_request();
    assert!(slots.take(address(2), now).is_none(), "each is given a second");
    let later = Instant::now() + SLOW_HANDSHAKE_AGE;
    let four = slots.take(address(3), later).unwrap();
    assert_eq!([&one, &two, &three].map(is_cut), [false, false, true]);
    assert_eq!((slots.count(), slots.busy_count()), (3, 1));
    let five = slots.take(address(4), later).unwrap();
    assert!(is_cut(&two) && slots.contains(&five));
    drop((four, five));
    assert_eq!(slots.count(), 1);
}

#[test]
fn each_table_has_its_own_slots_and_shared_metrics() {
    let pod = agent(1, Sharing::None);
    let foreign =
        Slots::new(Bounds { max_connections: 2, ..agent(1, Sharing::Addresses).0.bounds }, pod.0.metrics.clone());
    let now = Instant::now();
    let own = pod.take(address(1), now).unwrap();
    let neighbours: Vec<_> = (0..5).map(|_| foreign.take(address(2), now)).collect();
    assert_eq!((neighbours.iter().flatten().count(), pod.0.metrics.open.get()), (2, 3));
    assert!(pod.contains(&own) && !foreign.contains(&own));
    drop(own);
    assert!(pod.take(address(1), now).is_some());
    assert_eq!(pod.0.metrics.open.get(), 2);
}

#[test]
fn a_neighbour_with_many_connections_makes_room_for_one_with_few() {
    let slots = agent(4, Sharing::Addresses);
    let now = Instant::now();
    let greedy: Vec<_> = (0..4).map(|_| slots.take(address(1), now).unwrap()).collect();
    assert!(slots.take(address(1), now).is_none());
    let probe = slots.take(address(2), now).unwrap();
    assert!(is_cut(&greedy[0]) && !is_cut(&greedy[1]));
    assert!(slots.take(address(1), now).is_none());
    assert!(!is_cut(&probe));
    // A connection that is being answered is never cut.
    for slot in greedy.iter().chain([&probe]) {
        std::mem::forget(slot.begin_request());
    }
    assert!(slots.take(address(3), now + SLOW_HANDSHAKE_AGE).is_none());
    // A connection of another peer is cut if the peer with the most connections has none that can be cut.
    probe.mark_established();
    let new = slots.take(address(3), Instant::now() + SLOW_HANDSHAKE_AGE);
    assert!(is_cut(&probe) && new.is_some());
}

#[test]
fn slow_readers_of_old_content_are_cut() {
    let slots = agent(3, Sharing::None);
    let [old, new, idle] = [(); 3].map(|()| slots.take(address(1), Instant::now()).unwrap());
    let (one, two) = (old.begin_request(), new.begin_request());
    one.set_generation(1);
    two.set_generation(2);
    slots.cut_older(2);
    assert_eq!([&old, &new, &idle].map(is_cut), [true, false, false]);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    Busy(prop::sample::Index),
    Idle(prop::sample::Index),
    Leave(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = || any::<prop::sample::Index>();
    let step = prop_oneof![
        3 => (0..5_u8).prop_map(Step::Arrive),
        2 => which().prop_map(Step::Busy),
        1 => which().prop_map(Step::Idle),
        1 => which().prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 0..120)
}

fn is_busy(entry: &SlotEntry) -> bool {
    entry.state.phase == Phase::Busy
}

fn count_connections(table: &SlotTable, peer: Peer, busy: Option<bool>) -> usize {
    let counts = |entry: &&SlotEntry| entry.peer == peer && busy.is_none_or(|busy| is_busy(entry) == busy);
    table.entries.values().filter(counts).count()
}

proptest! {
    /// Checked by looking at all connections, whatever has happened before.
    #[test]
    fn no_peer_loses_a_slot_to_one_that_has_more(steps in steps(), most in 1..8_usize) {
        let mut table = SlotTable::default();
        let now = Instant::now();
        for (at, step) in steps.into_iter().enumerate() {
            let now = now + Duration::from_millis(at as u64);
            let ids: Vec<u64> = table.entries.keys().copied().collect();
            match step {
                Step::Arrive(host) => {
                    let newcomer = Peer::from(address(host));
                    table.file_all();
                    if table.entries.len() >= most {
                        let has = count_connections(&table, newcomer, None);
                        let highest = table.entries.values().map(|entry| count_connections(&table, entry.peer, None)).max().unwrap_or(0);
                        let Some(victim) = table.find_victim(newcomer, &Bounds::shared(most), now) else {
                            prop_assert!(highest <= has + 1 && count_connections(&table, newcomer, Some(false)) == 0);
                            continue;
                        };
                        let entry = &table.entries[&victim];
                        let oldest = table.entries.values().filter(|other| other.peer == entry.peer && is_busy(other) == is_busy(entry));
                        prop_assert_eq!(oldest.map(|other| other.state.since).min(), Some(entry.state.since));
                        if entry.peer == newcomer {
                            prop_assert!(!is_busy(entry) && highest <= has + 1);
                        } else {
                            let others = count_connections(&table, entry.peer, None);
                            prop_assert!(others == highest && others > has + usize::from(is_busy(entry)));
                            prop_assert!(!is_busy(entry) || count_connections(&table, entry.peer, Some(false)) == 0);
                        }
                        table.remove(victim);
                    }
                    table.add(newcomer, now);
                }
                Step::Busy(which) if !ids.is_empty() => table.set_phase(*which.get(&ids), Phase::Busy, now),
                Step::Idle(which) if !ids.is_empty() => table.set_phase(*which.get(&ids), Phase::Idle, now),
                Step::Leave(which) if !ids.is_empty() => drop(table.remove(*which.get(&ids))),
                _ => {}
            }
            prop_assert!(table.entries.len() <= most);
            let counted: usize = table.shares.values().map(Share::count).sum();
            prop_assert_eq!(counted, table.entries.len());
            let highest = table.shares.iter().map(|(peer, share)| share.rank(*peer)).max();
            prop_assert_eq!(table.greediest(), highest.map(|rank| rank.peer));
            prop_assert!(table.ranks.len() <= 2 * table.shares.len() + 16);
        }
    }

    /// Whatever a single peer does, another one that takes no more than half of the slots gets and keeps them.
    #[test]
    fn one_peer_keeps_no_other_out(steps in steps(), most in 2..8_usize) {
        let slots = slots(most);
        let (mut hostile, mut modest) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Arrive(0) if modest.len() < most / 2 => {
                    let slot = slots.take(address(0), Instant::now());
                    prop_assert!(slot.is_some());
                    modest.extend(slot);
                }
                Step::Arrive(0) => drop(modest.pop()),
                Step::Arrive(_) => hostile.extend(slots.take(address(1), Instant::now())),
                Step::Busy(which) if !hostile.is_empty() => std::mem::forget(which.get(&hostile).begin_request()),
                Step::Leave(which) if !hostile.is_empty() => {
                    let index = which.index(hostile.len());
                    hostile.swap_remove(index);
                }
                _ => {}
            }
            prop_assert!(modest.iter().all(|slot| !is_cut(slot)));
        }
    }
}
