//! For how long reports of agents wait in the line of a hub replica until their conditions are written: what each replica notes on its Lease,
//! and what is made of it. Pure.
//!
//! A pod whose report waits there is not silent. No clock is compared with another one: a note counts from when it was first seen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

/// The annotation of a replica is this and its name.
const PREFIX: &str = "waiting.nudge.dev/";
/// Longest name in an annotation's key.
const NAME_BYTES: usize = 63;
/// A shorter time does not matter.
const MATTERS: Duration = Duration::from_secs(3);
/// For how long a note counts: replicas write it every few seconds while it matters.
const COUNTS: Duration = Duration::from_secs(20);
/// A note that has not changed for so long is of a replica that is gone.
const GONE: Duration = Duration::from_mins(1);

/// The key of the annotation of this replica.
pub fn key(replica: &str) -> String {
    let is_edge = |one: char| !one.is_ascii_alphanumeric();
    let name: String = replica.chars().filter(|one| one.is_ascii_alphanumeric() || ".-_".contains(*one)).collect();
    let name = name.get(name.len().saturating_sub(NAME_BYTES)..).unwrap_or_default().trim_matches(is_edge);
    format!("{PREFIX}{}", if name.is_empty() { "hub" } else { name })
}

/// The note of a replica whose oldest report has waited for so long; `None` where that does not matter. The time makes each note another one.
pub fn note(oldest: Option<Duration>, now: Timestamp) -> Option<String> {
    let oldest = oldest.filter(|oldest| *oldest >= MATTERS)?;
    Some(format!("{} s at {}", oldest.as_secs(), now.strftime("%Y-%m-%dT%H:%M:%SZ")))
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

    /// For how long the oldest report of all replicas has waited.
    pub fn longest(&self, now: Instant) -> Duration {
        let waits = self.seen.values().filter_map(|(note, at)| {
            let since = now.saturating_duration_since(*at);
            let oldest = Duration::from_secs(note.split_once(' ')?.0.parse().ok()?);
            (since <= COUNTS).then(|| oldest.saturating_add(since))
        });
        waits.max().unwrap_or_default()
    }

    /// The notes of replicas that are gone.
    pub fn gone(&self, now: Instant) -> impl Iterator<Item = &String> {
        let is_gone = move |at: &Instant| now.saturating_duration_since(*at) > GONE;
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
        assert_eq!((note(None, now), note(Some(seconds(2)), now)), (None, None));
        let text = note(Some(seconds(12)), now).unwrap();
        assert_eq!(text, "12 s at 2023-11-14T22:13:20Z");
        let (mut lines, now) = (Lines::default(), Instant::now());
        lines.take(&annotations(&[("a", &text), ("b", "40 s at noon"), ("c", "hostile"), ("d", "")]), now);
        assert_eq!(lines.longest(now), seconds(40));
        assert_eq!(lines.longest(now + seconds(3)), seconds(43), "it goes on waiting");
        lines.take(&BTreeMap::from([("another.example/x".to_owned(), "99 s".to_owned())]), now);
        assert_eq!(lines.longest(now), Duration::ZERO);
    }

    #[test]
    fn a_note_that_nobody_renews_does_not_count_and_is_removed() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        for second in 0..100 {
            let live = format!("5 s at {second}");
            lines.take(&annotations(&[("dead", "50 s at 0"), ("live", &live)]), start + seconds(second));
        }
        assert_eq!(lines.longest(start + seconds(20)), seconds(70));
        assert_eq!(lines.longest(start + seconds(100)), seconds(6));
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
