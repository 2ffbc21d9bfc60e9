//! For how long reports of agents wait in the line of a hub replica until their conditions are written: what each replica notes on its Lease,
//! and what is made of it. Pure.
//!
//! A pod whose report waits there is not silent. No clock is compared with another one: a note counts from when it was first seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

/// The annotation of a replica is this and its name.
const PREFIX: &str = "waiting.nudge.dev/";
/// Longest name in an annotation's key.
const NAME_BYTES: usize = 63;
/// A shorter time does not matter.
const MIN_NOTED_WAIT: Duration = Duration::from_secs(3);
/// For how long a note counts: replicas write it every few seconds while it matters.
const MAX_NOTE_AGE: Duration = Duration::from_secs(20);
/// A note that has not changed for so long is of a replica that is gone.
const GONE_REPLICA_AGE: Duration = Duration::from_mins(1);

/// The key of the annotation of this replica.
pub fn key(replica: &str) -> String {
    let is_edge = |one: char| !one.is_ascii_alphanumeric();
    let name: String = replica.chars().filter(|one| one.is_ascii_alphanumeric() || ".-_".contains(*one)).collect();
    let name = name.get(name.len().saturating_sub(NAME_BYTES)..).unwrap_or_default().trim_matches(is_edge);
    format!("{PREFIX}{}", if name.is_empty() { "hub" } else { name })
}

/// For how long the oldest reports of a replica have waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The oldest one that nothing but the hub or the API server holds up, as far as the replica can see.
    pub shared: Duration,
    /// Namespaces where writes fail, at most [`FAILING`], and the oldest one of each: what fails there may be a webhook of its own.
    pub failing: Vec<(String, Duration)>,
}

/// Where writes fail in more namespaces than these, the cause is taken for one that all share.
pub const FAILING: usize = 4;

/// The note of a replica whose oldest reports have waited for so long, such as `4 s at 2023-11-14T22:13:20Z` or
/// `0 s at 2023-11-14T22:13:20Z, 40 s in shop, 7 s in web`; `None` where that does not matter. The time makes each note another one.
pub fn note(waits: &Waits, now: Timestamp) -> Option<String> {
    let failing: Vec<_> = waits.failing.iter().filter(|(_, wait)| *wait >= MIN_NOTED_WAIT).take(FAILING).collect();
    if waits.shared < MIN_NOTED_WAIT && failing.is_empty() {
        return None;
    }
    let shared = format!("{} s at {}", waits.shared.as_secs(), now.strftime("%Y-%m-%dT%H:%M:%SZ"));
    let failing = failing.into_iter().map(|(namespace, wait)| format!(", {} s in {namespace}", wait.as_secs()));
    Some(std::iter::once(shared).chain(failing).collect())
}

fn parse_note(note: &str) -> Option<Waits> {
    let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
    let mut parts = note.split(", ");
    let shared = seconds(parts.next()?.split_once(' ')?.0)?;
    let failing = parts.take(FAILING).filter_map(|part| {
        let (wait, namespace) = part.split_once(" s in ")?;
        Some((namespace.to_owned(), seconds(wait)?))
    });
    Some(Waits { shared, failing: failing.collect() })
}

/// The notes of all replicas.
#[derive(Debug, Default)]
pub struct Lines {
    /// Each as it is, and when it was first seen.
    seen: BTreeMap<String, (String, Instant)>,
}

impl Lines {
    /// Takes in the annotations of a Lease as they are now.
    pub fn take(&mut self, annotations: &BTreeMap<String, String>, now: Instant) {
        self.seen.retain(|key, _| annotations.contains_key(key));
        for (key, note) in annotations.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let same = self.seen.get(key).is_some_and(|(known, _)| known == note);
            if !same {
                self.seen.insert(key.clone(), (note.clone(), now));
            }
        }
    }

    /// For how long the oldest report of all replicas has waited that may be of this namespace.
    pub fn longest(&self, namespace: &str, now: Instant) -> Duration {
        let waits = self.counting(now).map(|(Waits { shared, failing }, since)| {
            let of_it = failing.into_iter().filter(|(other, _)| other == namespace).map(|(_, wait)| wait);
            let oldest = of_it.fold(shared, Duration::max);
            if oldest.is_zero() { oldest } else { oldest.saturating_add(since) }
        });
        waits.max().unwrap_or_default()
    }

    /// Whether reports of all namespaces wait for at least so long, and otherwise those of which namespaces do.
    pub fn waiting(&self, at_least: Duration, now: Instant) -> (bool, BTreeSet<String>) {
        let (mut all, mut namespaces) = (false, BTreeSet::new());
        for (Waits { shared, failing }, since) in self.counting(now) {
            all |= !shared.is_zero() && shared.saturating_add(since) >= at_least;
            let failing = failing.into_iter().filter(|(_, wait)| wait.saturating_add(since) >= at_least);
            namespaces.extend(failing.map(|(namespace, _)| namespace));
        }
        (all, namespaces)
    }

    /// The notes that count, and for how long each has been as it is.
    fn counting(&self, now: Instant) -> impl Iterator<Item = (Waits, Duration)> {
        let since = move |at: &Instant| now.saturating_duration_since(*at);
        let notes =
            self.seen.values().map(move |(note, at)| (note, since(at))).filter(|(_, since)| *since <= MAX_NOTE_AGE);
        notes.filter_map(|(note, since)| Some((parse_note(note)?, since)))
    }

    /// The notes of replicas that are gone.
    pub fn gone(&self, now: Instant) -> impl Iterator<Item = &String> {
        let is_gone = move |at: &Instant| now.saturating_duration_since(*at) > GONE_REPLICA_AGE;
        self.seen.iter().filter(move |(_, (_, at))| is_gone(at)).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn annotations(notes: &[(&str, &str)]) -> BTreeMap<String, String> {
        notes.iter().map(|(replica, note)| (key(replica), (*note).to_owned())).collect()
    }

    #[test]
    fn a_note_is_written_where_it_matters_and_read_back() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let waits = |shared: u64, failing: u64| {
            let failing = [("shop".to_owned(), seconds(failing)), ("web".to_owned(), seconds(failing / 5))];
            Waits { shared: seconds(shared), failing: failing.into() }
        };
        assert_eq!((note(&waits(0, 0), now), note(&waits(2, 2), now)), (None, None));
        for (shared, failing, text) in [
            (12, 2, "12 s at 2023-11-14T22:13:20Z"),
            (0, 12, "0 s at 2023-11-14T22:13:20Z, 12 s in shop"),
            (5, 40, "5 s at 2023-11-14T22:13:20Z, 40 s in shop, 8 s in web"),
        ] {
            assert_eq!(note(&waits(shared, failing), now).as_deref(), Some(text));
            let read = parse_note(text).unwrap();
            assert_eq!((read.shared.as_secs(), read.failing.len()), (shared, text.matches(" in ").count()));
        }
        let text = note(&waits(12, 0), now).unwrap();
        let (mut lines, now) = (Lines::default(), Instant::now());
        lines.take(&annotations(&[("a", &text), ("b", "40 s at noon"), ("c", "hostile"), ("d", "")]), now);
        assert_eq!(lines.longest("ns", now), seconds(40));
        assert_eq!(lines.longest("ns", now + seconds(3)), seconds(43), "it goes on waiting");
        lines.take(&BTreeMap::from([("another.example/x".to_owned(), "99 s".to_owned())]), now);
        assert_eq!(lines.longest("ns", now), Duration::ZERO);
    }

    #[test]
    fn what_fails_in_one_namespace_alone_is_not_of_the_others() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        lines.take(&annotations(&[("a", "0 s at noon, 40 s in bad, 35 s in worse"), ("b", "7 s at noon")]), now);
        let longest = |namespace| lines.longest(namespace, now + seconds(3));
        assert_eq!([longest("bad"), longest("worse"), longest("shop")], [43, 38, 10].map(seconds));
        let both = || ["bad", "worse"].map(str::to_owned).into();
        assert_eq!(lines.waiting(seconds(30), now), (false, both()));
        assert_eq!(lines.waiting(seconds(7), now), (true, both()));
        assert_eq!(lines.waiting(seconds(41), now), (false, BTreeSet::new()));
    }

    #[test]
    fn a_note_that_nobody_renews_does_not_count_and_is_removed() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        for second in 0..100 {
            let live = format!("5 s at {second}");
            lines.take(&annotations(&[("dead", "50 s at 0"), ("live", &live)]), start + seconds(second));
        }
        assert_eq!(lines.longest("ns", start + seconds(20)), seconds(70));
        assert_eq!(lines.longest("ns", start + seconds(100)), seconds(6));
        assert_eq!(lines.gone(start + seconds(100)).collect::<Vec<_>>(), [&key("dead")]);
        assert_eq!(lines.gone(start + seconds(60)).count(), 0);
    }

    #[test]
    fn every_replica_has_a_key_that_the_api_server_takes() {
        assert_eq!(key("nudge-hub-7d4b9c-x2x4z"), "waiting.nudge.dev/nudge-hub-7d4b9c-x2x4z");
        let long = key(&format!("-{}.end", "n-".repeat(100)));
        assert!(long.len() <= PREFIX.len() + NAME_BYTES && long.ends_with("n-.end") && !long.contains("/-"), "{long}");
        assert_eq!((key("ä/b"), key("")), ("waiting.nudge.dev/b".to_owned(), "waiting.nudge.dev/hub".to_owned()));
    }
}
