//! When to log again that a fault lasts: less and less often.

use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;

/// The waits until reminders.
const WAITS: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_hours(1) };

/// Decides when a lasting fault is logged again. Pure: the time is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reminder(Option<(Instant, u32)>);

impl Reminder {
    /// Returns whether a reminder is due. The caller logs the fault itself when it begins.
    pub fn is_due(&mut self, faulty: bool, now: Instant) -> bool {
        match self.0 {
            _ if !faulty => self.0 = None,
            None => self.0 = Some((now + WAITS.wait(1), 1)),
            Some((at, _)) if now < at => {}
            Some((_, waits)) => {
                let waits = waits.saturating_add(1);
                self.0 = Some((now + WAITS.wait(waits), waits));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_fault_is_logged_less_and_less_often() {
        let start = Instant::now();
        let mut reminder = Reminder::default();
        let minutes = |n: u64| Duration::from_mins(n);
        let logged: Vec<u64> = (0..240).filter(|&n| reminder.is_due(true, start + minutes(n))).collect();
        assert_eq!(logged, [1, 3, 7, 15, 31, 63, 123, 183]);
        assert!(!reminder.is_due(false, start + minutes(500)));
        assert!(!reminder.is_due(true, start + minutes(501)), "a new fault is a new beginning");
        assert!(reminder.is_due(true, start + minutes(502)));
    }
}
