//! When to log again that a fault lasts: less and less often.

use std::time::{Duration, Instant};

/// The wait until the first reminder.
const FIRST: Duration = Duration::from_mins(1);
/// The longest wait between two reminders.
const LONGEST: Duration = Duration::from_hours(1);

/// Decides when a lasting fault is logged again. Pure: the time is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reminder(Option<(Instant, Duration)>);

impl Reminder {
    /// Whether a reminder is due. The caller logs the fault itself when it begins.
    pub fn is_due(&mut self, faulty: bool, now: Instant) -> bool {
        match self.0 {
            _ if !faulty => self.0 = None,
            None => self.0 = Some((now + FIRST, FIRST)),
            Some((at, _)) if now < at => {}
            Some((_, wait)) => {
                let wait = (wait * 2).min(LONGEST);
                self.0 = Some((now + wait, wait));
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
