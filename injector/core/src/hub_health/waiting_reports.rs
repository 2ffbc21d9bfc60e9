//! The time that reports of agents wait in a hub replica until their conditions are written. Each replica writes a note
//! on the hub's Lease, and the leader draws conclusions from all notes.
//!
//! A pod whose report waits in a replica is not silent. Clocks of machines are not compared: a note counts from when
//! the leader first saw it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

/// The prefix of the annotations' keys, which the replica's name follows.
const PREFIX: &str = "waiting.nudge.dev/";
/// The maximum length of the name in an annotation's key.
const MAX_NAME_BYTES: usize = 63;
/// The minimum wait that a replica notes.
const MIN_NOTED_WAIT: Duration = Duration::from_secs(3);
/// The maximum age of a note that counts: replicas write a new one every few seconds while reports wait.
const MAX_NOTE_AGE: Duration = Duration::from_secs(20);
/// The age of an unchanged note that shows that its replica is gone.
const GONE_REPLICA_AGE: Duration = Duration::from_mins(1);
/// The maximum number of namespaces that fail by themselves. If writes fail in more namespaces, the cause counts as
/// shared by all.
pub const MAX_FAILING_NAMESPACES: usize = 4;

/// Returns the key of the annotation of this replica.
pub fn annotation_key(replica: &str) -> String {
    let is_edge = |letter: char| !letter.is_ascii_alphanumeric();
    let name: String = replica.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c)).collect();
    let name = name.get(name.len().saturating_sub(MAX_NAME_BYTES)..).unwrap_or_default().trim_matches(is_edge);
    format!("{PREFIX}{}", if name.is_empty() { "hub" } else { name })
}

/// The waits of the oldest reports of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The wait of the oldest report that only the hub or the API server holds up, as far as the replica can see.
    pub shared: Duration,
    /// The namespaces whose writes fail, at most [`MAX_FAILING_NAMESPACES`], each with the wait of its oldest report:
    /// the cause may be a webhook of that namespace.
    pub failing: Vec<(String, Duration)>,
}

/// Returns the note of a replica about the waits of its oldest reports, such as `4 s at 2023-11-14T22:13:20Z` or `0 s
/// at 2023-11-14T22:13:20Z, 40 s in shop, 7 s in web`; `None` if the waits are short. The time makes each note differ
/// from the previous note.
pub fn format_note(waits: &Waits, now: Timestamp) -> Option<String> {
    let failing: Vec<_> =
        waits.failing.iter().filter(|(_, wait)| *wait >= MIN_NOTED_WAIT).take(MAX_FAILING_NAMESPACES).collect();
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
    let failing = parts.take(MAX_FAILING_NAMESPACES).filter_map(|part| {
        let (wait, namespace) = part.split_once(" s in ")?;
        Some((namespace.to_owned(), seconds(wait)?))
    });
    Some(Waits { shared, failing: failing.collect() })
}

/// The note of a replica, as it was last read.
#[derive(Debug)]
struct WaitNote {
    text: String,
    first_seen: Instant,
}

impl WaitNote {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.first_seen)
    }
}

/// The notes of all replicas, by the keys of their annotations.
#[derive(Debug, Default)]
pub struct ReplicaNotes(BTreeMap<String, WaitNote>);

impl ReplicaNotes {
    /// Takes in the annotations of a Lease as they are now.
    pub fn observe(&mut self, annotations: &BTreeMap<String, String>, now: Instant) {
        self.0.retain(|key, note| annotations.get(key) == Some(&note.text));
        for (key, text) in annotations.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            self.0.entry(key.clone()).or_insert_with(|| WaitNote { text: text.clone(), first_seen: now });
        }
    }

    /// Returns how long the oldest report of all replicas has waited that may be of this namespace.
    pub fn longest_wait(&self, namespace: &str, now: Instant) -> Duration {
        let wait_ages = self.current_waits(now).map(|(Waits { shared, failing }, age)| {
            let of_namespace = failing.into_iter().filter(|(name, _)| name == namespace).map(|(_, wait)| wait);
            let oldest = of_namespace.fold(shared, Duration::max);
            if oldest.is_zero() { oldest } else { oldest.saturating_add(age) }
        });
        wait_ages.max().unwrap_or_default()
    }

    /// Returns whether reports in general have waited for at least `min_wait`, and the single namespaces with such
    /// reports.
    pub fn overdue_reports(&self, min_wait: Duration, now: Instant) -> (bool, BTreeSet<String>) {
        let (mut is_everywhere, mut namespaces) = (false, BTreeSet::new());
        for (Waits { shared, failing }, age) in self.current_waits(now) {
            is_everywhere |= !shared.is_zero() && shared.saturating_add(age) >= min_wait;
            let failing = failing.into_iter().filter(|(_, wait)| wait.saturating_add(age) >= min_wait);
            namespaces.extend(failing.map(|(namespace, _)| namespace));
        }
        (is_everywhere, namespaces)
    }

    /// Returns the waits of the notes that count, each with the age of its note.
    fn current_waits(&self, now: Instant) -> impl Iterator<Item = (Waits, Duration)> {
        let notes = self.0.values().map(move |note| (note, note.age(now))).filter(|(_, age)| *age <= MAX_NOTE_AGE);
        notes.filter_map(|(note, age)| Some((parse_note(&note.text)?, age)))
    }

    /// Returns the keys of the notes of replicas that are gone.
    pub fn gone_replicas(&self, now: Instant) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |(_, note)| note.age(now) > GONE_REPLICA_AGE).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn annotations(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        texts.iter().map(|(replica, text)| (annotation_key(replica), (*text).to_owned())).collect()
    }

    #[test]
    fn a_note_is_written_where_it_matters_and_read_back() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let waits = |shared: u64, failing: u64| {
            let failing = [("shop".to_owned(), seconds(failing)), ("web".to_owned(), seconds(failing / 5))];
            Waits { shared: seconds(shared), failing: failing.into() }
        };
        assert_eq!((format_note(&waits(0, 0), now), format_note(&waits(2, 2), now)), (None, None));
        for (shared, failing, text) in [
            (12, 2, "12 s at 2023-11-14T22:13:20Z"),
            (0, 12, "0 s at 2023-11-14T22:13:20Z, 12 s in shop"),
            (5, 40, "5 s at 2023-11-14T22:13:20Z, 40 s in shop, 8 s in web"),
        ] {
            assert_eq!(format_note(&waits(shared, failing), now).as_deref(), Some(text));
            let read = parse_note(text).unwrap();
            assert_eq!((read.shared.as_secs(), read.failing.len()), (shared, text.matches(" in ").count()));
        }
        let text = format_note(&waits(12, 0), now).unwrap();
        let (mut notes, now) = (ReplicaNotes::default(), Instant::now());
        notes.observe(&annotations(&[("a", &text), ("b", "40 s at noon"), ("c", "hostile"), ("d", "")]), now);
        assert_eq!(notes.longest_wait("ns", now), seconds(40));
        assert_eq!(notes.longest_wait("ns", now + seconds(3)), seconds(43), "it keeps waiting");
        notes.observe(&BTreeMap::from([("another.example/x".to_owned(), "99 s".to_owned())]), now);
        assert_eq!(notes.longest_wait("ns", now), Duration::ZERO);
    }

    #[test]
    fn what_fails_in_one_namespace_alone_is_not_of_the_others() {
        let (mut notes, now) = (ReplicaNotes::default(), Instant::now());
        notes.observe(&annotations(&[("a", "0 s at noon, 40 s in bad, 35 s in worse"), ("b", "7 s at noon")]), now);
        let longest = |namespace| notes.longest_wait(namespace, now + seconds(3));
        assert_eq!([longest("bad"), longest("worse"), longest("shop")], [43, 38, 10].map(seconds));
        let both = || ["bad", "worse"].map(str::to_owned).into();
        assert_eq!(notes.overdue_reports(seconds(30), now), (false, both()));
        assert_eq!(notes.overdue_reports(seconds(7), now), (true, both()));
        assert_eq!(notes.overdue_reports(seconds(41), now), (false, BTreeSet::new()));
    }

    #[test]
    fn a_note_that_nobody_renews_does_not_count_and_is_removed() {
        let (mut notes, start) = (ReplicaNotes::default(), Instant::now());
        for second in 0..100 {
            let live = format!("5 s at {second}");
            notes.observe(&annotations(&[("dead", "50 s at 0"), ("live", &live)]), start + seconds(second));
        }
        assert_eq!(notes.longest_wait("ns", start + seconds(20)), seconds(70));
        assert_eq!(notes.longest_wait("ns", start + seconds(100)), seconds(6));
        assert_eq!(notes.gone_replicas(start + seconds(100)).collect::<Vec<_>>(), [&annotation_key("dead")]);
        assert_eq!(notes.gone_replicas(start + seconds(60)).count(), 0);
    }

    #[test]
    fn every_replica_has_a_key_that_the_api_server_takes() {
        assert_eq!(annotation_key("nudge-hub-7d4b9c-x2x4z"), "waiting.nudge.dev/nudge-hub-7d4b9c-x2x4z");
        let long = annotation_key(&format!("-{}.end", "n-".repeat(100)));
        assert!(
            long.len() <= PREFIX.len() + MAX_NAME_BYTES && long.ends_with("n-.end") && !long.contains("/-"),
            "{long}"
        );
        assert_eq!(
            (annotation_key("ä/b"), annotation_key("")),
            ("waiting.nudge.dev/b".to_owned(), "waiting.nudge.dev/hub".to_owned())
        );
    }
}
