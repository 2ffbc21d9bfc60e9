//! Whose turn it is. Conditions that show a failure come first. Namespaces take turns, and in each of them the configs do: one with many
//! pods that are due delays the others by one pod each. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use nudge_core::keys::PodKey;
use nudge_core::line::{FAILING, Waits};
use nudge_core::pods::PodState;
use tokio::time::{Duration, Instant};

/// After so many turns of failures in a row, the others have one.
const FAILURES: u32 = 7;

/// A pod whose condition may have to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) pod: PodKey,
    /// The config whose turn it takes: the first one of the pod.
    pub(super) config: String,
    /// The agent has reported a failure.
    pub(super) urgent: bool,
    /// How often it was tried in vain.
    pub(super) failures: u32,
    /// Whether the API server has refused it.
    pub(super) refusal: Refusal,
    /// Since when it waits; `None` where nothing but others can end that.
    pub(super) since: Option<Instant>,
    /// When it, or others of its namespace, began to fail though the API server answers.
    pub(super) failing: Option<Instant>,
}

/// Whether the API server has refused what is wished, and what a refusal is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has not.
    #[default]
    None,
    /// Of the namespace: it is over when another write is taken there.
    Namespace,
    /// Of the pod: it was refused again after that.
    Pod,
}

impl Wish {
    pub(super) fn new(pod: &PodState, urgent: bool) -> Self {
        let config = pod.configs.first().map(ToString::to_string).unwrap_or_default();
        Self { pod: pod.key(), config, urgent, failures: 0, refusal: Refusal::None, since: None, failing: None }
    }
}

/// What takes turns with others, the next one in front. Nothing empty stays.
#[derive(Debug)]
struct Ring<T> {
    by_name: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { by_name: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T: Default> Ring<T> {
    fn of(&mut self, name: &str) -> &mut T {
        if !self.by_name.contains_key(name) {
            self.order.push_back(name.to_owned());
        }
        self.by_name.entry(name.to_owned()).or_default()
    }

    /// Takes from the first one of which `take` takes something, which then is the last. Returns its name, too.
    fn turn<R>(&mut self, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<(String, R)> {
        let Self { by_name, order } = self;
        let mut taken = None;
        let at = order.iter().position(|name| {
            taken = by_name.get_mut(name).and_then(&mut take);
            taken.is_some()
        })?;
        let name = order.remove(at)?;
        order.push_back(name.clone());
        Some((name, taken?))
    }

    fn remove(&mut self, name: &str, remove: impl FnOnce(&mut T), is_empty: impl FnOnce(&T) -> bool) {
        let Some(one) = self.by_name.get_mut(name) else { return };
        remove(one);
        if is_empty(one) {
            self.by_name.remove(name);
            self.order.retain(|known| known != name);
        }
    }
}

/// The pods of a config, by the time at which they are due.
type Due = BTreeSet<(Instant, String)>;
type Namespaces = Ring<Ring<Due>>;

/// The pods that are due at some time: each once, so no more than there are pods.
#[derive(Debug, Default)]
pub(super) struct Turns {
    wishes: HashMap<PodKey, (Instant, Wish)>,
    times: BTreeSet<(Instant, PodKey)>,
    failures: Namespaces,
    others: Namespaces,
    /// Those whose refusal is over when another write is taken in their namespace.
    refused: BTreeSet<PodKey>,
    /// Turns of failures since the others had one.
    in_a_row: u32,
}

impl Turns {
    /// Makes the pod due at `at`, unless it is due earlier. One that was tried in vain is due when its pause is over and not before,
    /// whatever is wished; but the first failure to be reported does not wait until a refusal is over.
    pub(super) fn add(&mut self, wish: Wish, at: Instant) {
        let (at, wish) = match self.remove(&wish.pod) {
            None => (at, wish),
            Some((known_at, known)) => {
                let urgent = wish.urgent || known.urgent;
                if wish.failures > 0 || known.failures > 0 {
                    let ((tried_at, tried), (other_at, other)) = if wish.failures > 0 {
                        ((at, wish), (known_at, known))
                    } else {
                        ((known_at, known), (at, wish))
                    };
                    let sooner = tried.refusal != Refusal::None && other.urgent && !tried.urgent;
                    (if sooner { tried_at.min(other_at) } else { tried_at }, Wish { urgent, ..tried })
                } else {
                    let since = known.since.into_iter().chain(wish.since).min();
                    (known_at.min(at), Wish { urgent, since, failing: known.failing.or(wish.failing), ..wish })
                }
            }
        };
        self.ring(wish.urgent).of(&wish.pod.namespace).of(&wish.config).insert((at, wish.pod.name.clone()));
        self.times.insert((at, wish.pod.clone()));
        if wish.refusal == Refusal::Namespace {
            self.refused.insert(wish.pod.clone());
        }
        self.wishes.insert(wish.pod.clone(), (at, wish));
    }

    /// A write was taken in this namespace: what was refused there is due now. What is refused again is refused for itself.
    pub(super) fn taken(&mut self, namespace: &str, now: Instant) {
        let there = self.refused.range(PodKey::new(namespace, "")..).take_while(|pod| pod.namespace == namespace);
        for pod in there.cloned().collect::<Vec<_>>() {
            if let Some((_, wish)) = self.remove(&pod) {
                self.add(Wish { refusal: Refusal::Pod, ..wish }, now);
            }
        }
    }

    fn ring(&mut self, urgent: bool) -> &mut Namespaces {
        if urgent { &mut self.failures } else { &mut self.others }
    }

    fn remove(&mut self, pod: &PodKey) -> Option<(Instant, Wish)> {
        let (at, wish) = self.wishes.remove(pod)?;
        self.times.remove(&(at, pod.clone()));
        self.refused.remove(pod);
        let due = (at, wish.pod.name.clone());
        let of_config = |of: &mut Due| {
            of.remove(&due);
        };
        let of_namespace = |configs: &mut Ring<Due>| configs.remove(&wish.config, of_config, BTreeSet::is_empty);
        self.ring(wish.urgent).remove(&wish.pod.namespace, of_namespace, |configs| configs.order.is_empty());
        Some((at, wish))
    }

    /// Takes the pod whose turn it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<Wish> {
        let first = |due: &mut Due| due.first().filter(|(at, _)| *at <= now).map(|(_, name)| name.clone());
        let mut both = [(true, &mut self.failures), (false, &mut self.others)];
        if self.in_a_row >= FAILURES {
            both.reverse();
        }
        let (urgent, (namespace, (_, name))) = both
            .into_iter()
            .find_map(|(urgent, namespaces)| Some((urgent, namespaces.turn(|configs| configs.turn(first))?)))?;
        self.in_a_row = if urgent { self.in_a_row + 1 } else { 0 };
        self.remove(&PodKey::new(namespace, name)).map(|(_, wish)| wish)
    }

    /// When the next pod is due.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// For how long the oldest wishes that can be fulfilled have waited. What fails counts for its namespace alone, unless it does so in many
    /// and nothing was fulfilled since, the last time at `fulfilled`.
    pub(super) fn oldest(&self, fulfilled: Option<Instant>, now: Instant) -> Waits {
        let (mut shared, mut all_fail) = (Duration::ZERO, true);
        let mut failing = BTreeMap::<&str, Duration>::new();
        for (_, wish) in self.wishes.values() {
            let Some(since) = wish.since else { continue };
            let oldest = match wish.failing {
                None => &mut shared,
                Some(began) => {
                    all_fail &= fulfilled < Some(began);
                    failing.entry(&wish.pod.namespace).or_default()
                }
            };
            *oldest = now.saturating_duration_since(since).max(*oldest);
        }
        if failing.len() > FAILING && all_fail {
            return Waits { shared: failing.into_values().fold(shared, Duration::max), failing: Vec::new() };
        }
        let mut failing: Vec<_> = failing.into_iter().map(|(namespace, wait)| (namespace.to_owned(), wait)).collect();
        failing.sort_by_key(|(_, wait)| Reverse(*wait));
        failing.truncate(FAILING);
        Waits { shared, failing }
    }
}

#[cfg(test)]
mod tests {
    use nudge_protocol::ConfigName;
    use proptest::prelude::*;

    use super::*;

    fn wish(namespace: &str, config: &str, name: &str, urgent: bool) -> Wish {
        let state = PodState {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            configs: vec![ConfigName::new(config).unwrap()],
            ..PodState::default()
        };
        Wish::new(&state, urgent)
    }

    fn web(failures: u32) -> Wish {
        Wish { failures, ..wish("ns", "shop", "web", false) }
    }

    fn taken(turns: &mut Turns, now: Instant, count: usize) -> Vec<String> {
        std::iter::from_fn(|| turns.next(now)).take(count).map(|wish| wish.pod.to_string()).collect()
    }

    fn is_empty(turns: &Turns) -> bool {
        let Turns { wishes, times, failures, others, refused, .. } = turns;
        wishes.is_empty()
            && refused.is_empty()
            && times.is_empty()
            && [failures, others].iter().all(|it| it.order.is_empty() && it.by_name.is_empty())
    }

    #[test]
    fn namespaces_and_their_configs_take_turns_and_pods_come_by_their_time() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for number in 0..1000 {
            turns.add(wish("loud", "big", &format!("{number:04}"), false), now);
        }
        turns.add(wish("loud", "small", "one", false), now);
        turns.add(wish("quiet", "a", "b", false), now);
        turns.add(wish("quiet", "a", "a", false), now - Duration::from_secs(1));
        turns.add(wish("quiet", "a", "later", false), now + Duration::from_secs(1));
        let first = ["loud/0000", "quiet/a", "loud/one", "quiet/b", "loud/0001", "loud/0002"];
        assert_eq!(taken(&mut turns, now, 6), first);
        assert_eq!(turns.earliest(), Some(now));
        assert_eq!(taken(&mut turns, now, 2000).len(), 997);
        assert_eq!(turns.earliest(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn failures_come_first_and_the_others_have_a_turn_now_and_then() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for number in 0..100 {
            turns.add(wish("ns", "shop", &format!("good-{number:02}"), false), now);
            turns.add(wish("ns", "shop", &format!("bad-{number:02}"), true), now);
        }
        let first = taken(&mut turns, now, 16);
        let good: Vec<usize> = (0..16).filter(|at| first[*at].contains("good")).collect();
        assert_eq!(good, [7, 15], "{first:?}");
        // One that is due becomes urgent, and stays so until it was looked at.
        turns.add(wish("ns", "shop", "good-99", true), now);
        turns.add(wish("ns", "shop", "good-99", false), now);
        turns.add(wish("ns", "shop", "good-98", false), now);
        let rest = taken(&mut turns, now, 200);
        let at = |name: &str| rest.iter().position(|taken| taken.ends_with(name)).unwrap();
        assert!(at("good-99") < at("good-98") && rest.len() == 184 && is_empty(&turns));
    }

    #[test]
    fn a_pod_is_due_once_at_its_earliest_time() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for seconds in [5, 1, 9] {
            turns.add(web(0), now + Duration::from_secs(seconds));
        }
        assert_eq!(turns.earliest(), Some(now + Duration::from_secs(1)));
        assert!(turns.next(now).is_none());
        assert!(turns.next(now + Duration::from_secs(1)).is_some());
        assert!(is_empty(&turns), "nothing is left behind");
    }

    #[test]
    fn a_pause_after_failures_is_kept_whatever_is_added() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        turns.add(web(0), now);
        turns.add(web(3), after(60));
        for _ in 0..1000 {
            turns.add(web(0), now);
        }
        assert!(turns.next(after(59)).is_none());
        assert_eq!(turns.next(after(60)), Some(web(3)));
        assert!(is_empty(&turns));
        // A failure that is reported meanwhile comes before others when it is over.
        turns.add(Wish { urgent: true, ..web(0) }, now);
        turns.add(web(1), after(60));
        assert!(turns.remove(&web(0).pod).unwrap().1.urgent);
        turns.add(web(1), after(60));
        turns.add(Wish { urgent: true, ..web(0) }, now);
        turns.add(web(0), now);
        turns.add(wish("ns", "shop", "a", false), after(60));
        assert_eq!(turns.next(after(60)), Some(Wish { urgent: true, ..web(1) }));
    }

    #[test]
    fn a_failure_does_not_wait_for_a_refusal_that_comes_before_or_after_it() {
        let now = Instant::now();
        let later = now + Duration::from_mins(2);
        let refused = |urgent| Wish { urgent, refusal: Refusal::Namespace, ..web(1) };
        let failure = || Wish { urgent: true, ..web(0) };
        // While the write runs that is refused, it may already wait for its turn.
        for mut both in [[(refused(false), later), (failure(), now)], [(refused(true), later), (failure(), now)]] {
            let is_new = !both[0].0.urgent;
            for _ in 0..2 {
                let mut turns = Turns::default();
                for (wish, at) in both.clone() {
                    turns.add(wish, at);
                }
                let due = turns.next(now);
                assert_eq!(due, is_new.then(|| refused(true)), "{both:?}");
                both.reverse();
            }
        }
    }

    #[test]
    fn the_oldest_wish_counts_that_the_hub_can_fulfil() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let since = |name: &str, seconds: Option<u64>| Wish {
            since: seconds.map(|seconds| now - Duration::from_secs(seconds)),
            ..wish("ns", "shop", name, false)
        };
        assert_eq!(turns.oldest(None, now), Waits::default());
        for (name, seconds) in [("refused", None), ("a", Some(5)), ("b", Some(9)), ("b", Some(1))] {
            turns.add(since(name, seconds), now);
        }
        assert_eq!(turns.oldest(None, now), Waits { shared: Duration::from_secs(9), failing: Vec::new() });
    }

    #[test]
    fn what_fails_counts_for_its_namespace_unless_it_does_in_many() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let ago = |seconds: u64| Some(now - Duration::from_secs(seconds));
        turns.add(Wish { since: ago(90), failing: ago(80), ..wish("bad", "shop", "a", false) }, now);
        turns.add(Wish { since: ago(5), ..wish("good", "shop", "a", false) }, now);
        // And so it stays, whatever is wished.
        turns.add(Wish { since: ago(70), ..wish("bad", "shop", "a", false) }, now);
        let oldest = |turns: &Turns, fulfilled| {
            let Waits { shared, failing } = turns.oldest(fulfilled, now);
            let named = failing.into_iter().map(|(namespace, wait)| format!("{namespace} {}", wait.as_secs()));
            (shared.as_secs(), named.collect::<Vec<_>>().join(", "))
        };
        for fulfilled in [None, ago(81), ago(79)] {
            assert_eq!(oldest(&turns, fulfilled), (5, "bad 90".to_owned()), "of one namespace alone");
        }
        for (number, namespace) in ["c", "d", "e"].into_iter().enumerate() {
            let since = ago(60 - number as u64);
            turns.add(Wish { since, failing: ago(50), ..wish(namespace, "shop", "a", false) }, now);
        }
        assert_eq!(oldest(&turns, None), (5, "bad 90, c 60, d 59, e 58".to_owned()));
        turns.add(Wish { since: ago(60), failing: ago(50), ..wish("f", "shop", "a", false) }, now);
        assert_eq!(oldest(&turns, None), (90, String::new()), "of many, it is of all");
        assert_eq!(oldest(&turns, ago(49)), (5, "bad 90, c 60, f 60, d 59".to_owned()), "others are written");
    }

    proptest! {
        /// Whatever is added, a config that has a pod due waits for one pod of each other namespace and, at each turn of its own, of each
        /// other config at most.
        #[test]
        fn nobody_waits_longer_than_a_round(adds in proptest::collection::vec((0_u8..4, 0_u8..4, 0_u16..40), 1..200)) {
            let (mut turns, now) = (Turns::default(), Instant::now());
            let mut left: HashMap<(String, String), BTreeSet<String>> = HashMap::new();
            for (namespace, config, name) in adds {
                let (namespace, config, name) = (namespace.to_string(), config.to_string(), format!("{config}-{name}"));
                turns.add(wish(&namespace, &config, &name, false), now);
                left.entry((namespace, config)).or_default().insert(name);
            }
            let mut waited: HashMap<(String, String), usize> = HashMap::new();
            while let Some(wish) = turns.next(now) {
                let of = (wish.pod.namespace.clone(), wish.config.clone());
                prop_assert!(left.get_mut(&of).unwrap().remove(&wish.pod.name), "each pod once");
                waited.insert(of, 0);
                for (of, names) in &left {
                    if !names.is_empty() {
                        let waited = waited.entry(of.clone()).or_default();
                        *waited += 1;
                        prop_assert!(*waited <= 16);
                    }
                }
            }
            prop_assert!(left.values().all(BTreeSet::is_empty) && is_empty(&turns));
        }
    }
}
