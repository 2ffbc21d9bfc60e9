//! The time for which nobody has needed a config that its namespace made.

use std::time::{Duration, Instant};

/// The default of the time after which a config goes that nobody needs: its objects are gone, and no pod uses it.
pub const MAX_UNUSED_TIME: Duration = Duration::from_mins(10);

/// Since when nobody needs a config, as one leader has seen it. A new leader begins again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedTime(Option<Instant>);

impl UnusedTime {
    /// Notes whether the config is needed at this time. Returns the time until it goes, which is after `limit`; `None`
    /// while it is needed.
    pub fn note(&mut self, is_needed: bool, now: Instant, limit: Duration) -> Option<Duration> {
        if is_needed {
            self.0 = None;
            return None;
        }
        let since = *self.0.get_or_insert(now);
        Some(limit.saturating_sub(now.saturating_duration_since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_goes_once_nobody_needed_it_for_ten_minutes_without_a_break() {
        let (mut unused, began) = (UnusedTime::default(), Instant::now());
        let mut note = |is_needed, now| unused.note(is_needed, now, MAX_UNUSED_TIME);
        let after = |minutes| began + Duration::from_mins(minutes);
        let minutes = |wait: Option<Duration>| wait.map(|wait| wait.as_secs() / 60);
        assert_eq!(note(true, began), None);
        assert_eq!(minutes(note(false, began)), Some(10));
        assert_eq!(minutes(note(false, after(9))), Some(1));
        assert_eq!(note(true, after(9)), None, "a pod reads it");
        assert_eq!(minutes(note(false, after(9))), Some(10));
        assert_eq!(minutes(note(false, after(18))), Some(1));
        assert_eq!(minutes(note(false, after(30))), Some(0));
    }
}
