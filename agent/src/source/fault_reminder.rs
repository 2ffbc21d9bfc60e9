//! Decides when to log again that a fault lasts: less and less often.

use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;

/// The waits until reminders.
const REMINDER_BACKOFF: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_hours(1) };

/// The reminder of a lasting fault. Pure: the time is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultReminder(Option<NextReminder>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextReminder {
    time: Instant,
    number: u32,
}

impl FaultReminder {
    /// Returns whether a reminder is due. The caller logs the fault itself when it begins.
    pub fn is_due(&mut self, has_fault: bool, now: Instant) -> bool {
        let last = self.0.filter(|_| has_fault);
        if last.is_some_and(|next| now < next.time) {
            return false;
        }
        let number = last.map_or(1, |next| next.number.saturating_add(1));
        self.0 = has_fault.then(|| NextReminder { time: now + REMINDER_BACKOFF.wait(number), number });
        last.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_fault_is_logged_less_and_less_often() {
        let start = Instant::now();
        let mut reminder = FaultReminder::default();
        let minutes = |n: u64| Duration::from_mins(n);
        let logged: Vec<u64> = (0..240).filter(|&n| reminder.is_due(true, start + minutes(n))).collect();
        assert_eq!(logged, [1, 3, 7, 15, 31, 63, 123, 183]);
        assert!(!reminder.is_due(false, start + minutes(500)));
        assert!(!reminder.is_due(true, start + minutes(501)), "a new fault is a new beginning");
        assert!(reminder.is_due(true, start + minutes(502)));
    }
}
