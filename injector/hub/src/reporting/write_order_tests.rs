//! Whose condition is written next.

use nudge_protocol::ConfigName;
use proptest::prelude::*;

use super::*;

fn pending(namespace: &str, config: &str, name: &str, urgent: bool) -> PendingWrite {
    let state = PodState {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        configs: vec![ConfigName::new(config).unwrap()],
        ..PodState::default()
    };
    PendingWrite::new(&state, urgent)
}

fn web(failures: u32) -> PendingWrite {
    PendingWrite { failures, ..pending("ns", "shop", "web", false) }
}

fn taken(order: &mut WriteOrder, now: Instant, count: usize) -> Vec<String> {
    std::iter::from_fn(|| order.next(now)).take(count).map(|pending| pending.pod.to_string()).collect()
}

fn is_empty(order: &WriteOrder) -> bool {
    let WriteOrder { writes, times, failures, others, refused, .. } = order;
    writes.is_empty() && refused.is_empty() && times.is_empty() && [failures, others].iter().all(|ring| ring.is_empty())
}

#[test]
fn namespaces_and_their_configs_take_turns_and_pods_come_by_their_time() {
    let (mut order, now) = (WriteOrder::default(), Instant::now());
    for number in 0..1000 {
        order.add(pending("loud", "big", &format!("{number:04}"), false), now);
    }
    order.add(pending("loud", "small", "one", false), now);
    order.add(pending("quiet", "a", "b", false), now);
    order.add(pending("quiet", "a", "a", false), now - Duration::from_secs(1));
    order.add(pending("quiet", "a", "later", false), now + Duration::from_secs(1));
    let first = ["loud/0000", "quiet/a", "loud/one", "quiet/b", "loud/0001", "loud/0002"];
    assert_eq!(taken(&mut order, now, 6), first);
    assert_eq!(order.earliest(), Some(now));
    assert_eq!(taken(&mut order, now, 2000).len(), 997);
    assert_eq!(order.earliest(), Some(now + Duration::from_secs(1)));
}

#[test]
fn failures_come_first_and_the_others_have_a_turn_now_and_then() {
    let (mut order, now) = (WriteOrder::default(), Instant::now());
    for number in 0..100 {
        order.add(pending("ns", "shop", &format!("good-{number:02}"), false), now);
        order.add(pending("ns", "shop", &format!("bad-{number:02}"), true), now);
    }
    let first = taken(&mut order, now, 16);
    let good: Vec<usize> = (0..16).filter(|at| first[*at].contains("good")).collect();
    assert_eq!(good, [7, 15], "{first:?}");
    // One that is due becomes urgent, and stays so until it was looked at.
    order.add(pending("ns", "shop", "good-99", true), now);
    order.add(pending("ns", "shop", "good-99", false), now);
    order.add(pending("ns", "shop", "good-98", false), now);
    let rest = taken(&mut order, now, 200);
    let at = |name: &str| rest.iter().position(|taken| taken.ends_with(name)).unwrap();
    assert!(at("good-99") < at("good-98") && rest.len() == 184 && is_empty(&order));
}

#[test]
fn a_pod_is_due_once_at_its_earliest_time() {
    let (mut order, now) = (WriteOrder::default(), Instant::now());
    for seconds in [5, 1, 9] {
        order.add(web(0), now + Duration::from_secs(seconds));
    }
    assert_eq!(order.earliest(), Some(now + Duration::from_secs(1)));
    assert!(order.next(now).is_none());
    assert!(order.next(now + Duration::from_secs(1)).is_some());
    assert!(is_empty(&order), "nothing is left behind");
}

#[test]
fn a_pause_after_failures_is_kept_whatever_is_added() {
    let (mut order, now) = (WriteOrder::default(), Instant::now());
    let after = |seconds| now + Duration::from_secs(seconds);
    order.add(web(0), now);
    order.add(web(3), after(60));
    for _ in 0..1000 {
        order.add(web(0), now);
    }
    assert!(order.next(after(59)).is_none());
    assert_eq!(order.next(after(60)), Some(web(3)));
    assert!(is_empty(&order));
    // A failure that is reported meanwhile comes before others when it is over.
    order.add(PendingWrite { urgent: true, ..web(0) }, now);
    order.add(web(1), after(60));
    assert!(order.remove(&web(0).pod).unwrap().1.urgent);
    order.add(web(1), after(60));
    order.add(PendingWrite { urgent: true, ..web(0) }, now);
    order.add(web(0), now);
    order.add(pending("ns", "shop", "a", false), after(60));
    assert_eq!(order.next(after(60)), Some(PendingWrite { urgent: true, ..web(1) }));
}

#[test]
fn a_failure_does_not_wait_for_a_refusal_that_comes_before_or_after_it() {
    let now = Instant::now();
    let later = now + Duration::from_mins(2);
    let refused = |urgent| PendingWrite { urgent, refusal: RefusalScope::Namespace, ..web(1) };
    let failure = || PendingWrite { urgent: true, ..web(0) };
    // While the write runs that is refused, it may already wait for its turn.
    for mut both in [[(refused(false), later), (failure(), now)], [(refused(true), later), (failure(), now)]] {
        let is_new = !both[0].0.urgent;
        for _ in 0..2 {
            let mut order = WriteOrder::default();
            for (pending, at) in both.clone() {
                order.add(pending, at);
            }
            let due = order.next(now);
            assert_eq!(due, is_new.then(|| refused(true)), "{both:?}");
            both.reverse();
        }
    }
}

#[test]
fn the_oldest_write_counts_that_can_succeed() {
    let (mut order, now) = (WriteOrder::default(), Instant::now());
    let since = |name: &str, seconds: Option<u64>| PendingWrite {
        since: seconds.map(|seconds| now - Duration::from_secs(seconds)),
        ..pending("ns", "shop", name, false)
    };
    assert_eq!(order.longest_waits(None, now), Waits::default());
    for (name, seconds) in [("refused", None), ("a", Some(5)), ("b", Some(9)), ("b", Some(1))] {
        order.add(since(name, seconds), now);
    }
    assert_eq!(order.longest_waits(None, now), Waits { shared: Duration::from_secs(9), failing: Vec::new() });
}

#[test]
fn what_fails_counts_for_its_namespace_unless_it_does_in_many() {
    let (mut order, now) = (WriteOrder::default(), Instant::now());
    let ago = |seconds: u64| Some(now - Duration::from_secs(seconds));
    order.add(PendingWrite { since: ago(90), failing_since: ago(80), ..pending("bad", "shop", "a", false) }, now);
    order.add(PendingWrite { since: ago(5), ..pending("good", "shop", "a", false) }, now);
    // And so it stays, whatever is wished.
    order.add(PendingWrite { since: ago(70), ..pending("bad", "shop", "a", false) }, now);
    let oldest = |order: &WriteOrder, written| {
        let Waits { shared, failing } = order.longest_waits(written, now);
        let named = failing.into_iter().map(|(namespace, wait)| format!("{namespace} {}", wait.as_secs()));
        (shared.as_secs(), named.collect::<Vec<_>>().join(", "))
    };
    for written in [None, ago(81), ago(79)] {
        assert_eq!(oldest(&order, written), (5, "bad 90".to_owned()), "of one namespace alone");
    }
    for (number, namespace) in ["c", "d", "e"].into_iter().enumerate() {
        let since = ago(60 - number as u64);
        order.add(PendingWrite { since, failing_since: ago(50), ..pending(namespace, "shop", "a", false) }, now);
    }
    assert_eq!(oldest(&order, None), (5, "bad 90, c 60, d 59, e 58".to_owned()));
    order.add(PendingWrite { since: ago(60), failing_since: ago(50), ..pending("f", "shop", "a", false) }, now);
    assert_eq!(oldest(&order, None), (90, String::new()), "of many, it is of all");
    assert_eq!(oldest(&order, ago(49)), (5, "bad 90, c 60, f 60, d 59".to_owned()), "others are written");
}

proptest! {
    /// Whatever is added, a config that has a pod due waits for one pod of each other namespace and, at each turn of
    /// its own, of each other config at most.
    #[test]
    fn nobody_waits_longer_than_a_round(adds in proptest::collection::vec((0_u8..4, 0_u8..4, 0_u16..40), 1..200)) {
        let (mut order, now) = (WriteOrder::default(), Instant::now());
        let mut left: HashMap<(String, String), BTreeSet<String>> = HashMap::new();
        for (namespace, config, name) in adds {
            let (namespace, config, name) = (namespace.to_string(), config.to_string(), format!("{config}-{name}"));
            order.add(pending(&namespace, &config, &name, false), now);
            left.entry((namespace, config)).or_default().insert(name);
        }
        let mut waited: HashMap<(String, String), usize> = HashMap::new();
        while let Some(pending) = order.next(now) {
            let of = (pending.pod.namespace.clone(), pending.config.clone());
            prop_assert!(left.get_mut(&of).unwrap().remove(&pending.pod.name), "each pod once");
            waited.insert(of, 0);
            for (of, names) in &left {
                if !names.is_empty() {
                    let waited = waited.entry(of.clone()).or_default();
                    *waited += 1;
                    prop_assert!(*waited <= 16);
                }
            }
        }
        prop_assert!(left.values().all(BTreeSet::is_empty) && is_empty(&order));
    }
}
