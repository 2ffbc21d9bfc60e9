//! Says again that a fault lasts, less and less often.

use std::time::{Duration, Instant};

/// Until it is said for the second time.
const FIRST: Duration = Duration::from_mins(1);
/// The longest silence.
const LONGEST: Duration = Duration::from_hours(1);

/// When a lasting fault is said again. Pure: the time is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reminder(Option<(Instant, Duration)>);

impl Reminder {
    /// Whether it is time to say it again. The first time is left to whoever found the fault.
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
    fn a_lasting_fault_is_said_less_and_less_often() {
        let start = Instant::now();
        let mut reminder = Reminder::default();
        let minutes = |n: u64| Duration::from_mins(n);
        let said: Vec<u64> = (0..240).filter(|&n| reminder.is_due(true, start + minutes(n))).collect();
        assert_eq!(said, [1, 3, 7, 15, 31, 63, 123, 183]);
        assert!(!reminder.is_due(false, start + minutes(500)));
        assert!(!reminder.is_due(true, start + minutes(501)), "a new fault is a new beginning");
        assert!(reminder.is_due(true, start + minutes(502)));
    }
}
