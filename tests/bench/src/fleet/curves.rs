//! The number of pods that have a version, over time: the data of the graph. Does no I/O.

use std::time::Duration;

use serde::Serialize;

use super::journal::{Event, What};

/// Points of a curve.
const POINTS: u32 = 300;

/// Curves of one rollout: at each time, pods whose agent has the version, whose application has acknowledged it, and
/// whose condition says so.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Curves {
    pub(super) name: String,
    pub(super) pods: usize,
    pub(super) seconds: Vec<f64>,
    pub(super) taken: Vec<usize>,
    pub(super) acknowledged: Vec<usize>,
    pub(super) proven: Vec<usize>,
}

/// Returns the curves of `version` in a span of time.
pub(super) fn curves(name: &str, pods: &[Vec<Event>], version: u32, from: Duration, until: Duration) -> Curves {
    let span = until.saturating_sub(from);
    let times: Vec<Duration> = (0..=POINTS).map(|point| from + span * point / POINTS).collect();
    let curve = |has: fn(What) -> Option<bool>| {
        // Pods that have it more, or less, from each moment on.
        let mut changes: Vec<(Duration, bool)> = Vec::new();
        for events in pods {
            let mut had = false;
            for event in events {
                let Some(kept) = has(event.what) else { continue };
                let has = kept && event.version == version;
                if has != had {
                    changes.push((event.at, has));
                    had = has;
                }
            }
        }
        changes.sort_unstable();
        let (mut next, mut count) = (changes.iter().peekable(), 0_usize);
        let at = |time: &Duration| {
            while let Some((_, more)) = next.next_if(|(at, _)| at <= time) {
                count = if *more { count + 1 } else { count.saturating_sub(1) };
            }
            count
        };
        times.iter().map(at).collect::<Vec<usize>>()
    };
    Curves {
        name: name.to_owned(),
        pods: pods.len(),
        seconds: times.iter().map(|time| time.saturating_sub(from).as_secs_f64()).collect(),
        taken: curve(|what| (what == What::Taken).then_some(true)),
        acknowledged: curve(|what| match what {
            What::Acknowledged => Some(true),
            What::Taken => Some(false),
            _ => None,
        }),
        proven: curve(|what| match what {
            What::Proven => Some(true),
            What::Unproven => Some(false),
            _ => None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_counts_from_when_it_has_the_version_until_it_has_another() {
        let event = |at, what, version| Event { at: Duration::from_secs(at), what, version };
        let pods = [vec![
            event(0, What::Taken, 1),
            event(1, What::Proven, 1),
            event(10, What::Taken, 2),
            event(11, What::Acknowledged, 2),
            event(12, What::Proven, 2),
            event(20, What::Taken, 1),
            event(21, What::Acknowledged, 1),
            event(22, What::Proven, 1),
        ]];
        let found = curves("x", &pods, 2, Duration::from_secs(5), Duration::from_secs(35));
        let of = |curve: &[usize]| {
            let time = |index: Option<usize>| found.seconds[index.unwrap()] + 5.0;
            (time(curve.iter().position(|count| *count == 1)), time(curve.iter().rposition(|count| *count == 1)))
        };
        assert_eq!((found.pods, found.seconds.len()), (1, 301));
        assert_eq!(of(&found.taken), (10.0, 19.9));
        assert_eq!(of(&found.acknowledged), (11.0, 19.9));
        assert_eq!(of(&found.proven), (12.0, 21.9));
    }
}
