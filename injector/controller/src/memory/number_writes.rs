//! The times of writes of numbers of pods into the status of configs. Numbers change with every report, but no decision
//! depends on their write.

use std::time::{Duration, Instant};

/// The minimum time between two writes of one config that bring numbers alone.
const CONFIG_WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// The minimum time between two such writes of all configs.
const TOTAL_WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// The last and the planned write of one config.
#[derive(Clone, Copy, Default)]
pub(crate) struct NumberWrites {
    last: Option<Instant>,
    planned: Option<Instant>,
}

impl NumberWrites {
    /// Plans a write of the config's numbers. `free_at` is the earliest time of the next write of any config. Fails
    /// with the time to wait; the plan stays.
    pub(crate) fn plan(&mut self, free_at: &mut Option<Instant>, now: Instant) -> Result<(), Duration> {
        let write_time = if let Some(write_time) = self.planned {
            write_time
        } else {
            if let Some(next) =
                self.last.map(|write_time| write_time + CONFIG_WRITE_INTERVAL).filter(|write_time| *write_time > now)
            {
                return Err(next - now);
            }
            let write_time = free_at.map_or(now, |free| free.max(now));
            *free_at = Some(write_time + TOTAL_WRITE_INTERVAL);
            *self.planned.insert(write_time)
        };
        if write_time > now {
            return Err(write_time - now);
        }
        *self = Self::after_write(now);
        Ok(())
    }

    /// Returns the state after a write of the status, which brought the numbers, too.
    pub(crate) fn after_write(now: Instant) -> Self {
        Self { last: Some(now), planned: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_every_two_seconds_and_twenty_times_a_second_in_turns() {
        let (mut free_at, began) = (None, Instant::now());
        let mut configs: Vec<(NumberWrites, Vec<u64>)> = vec![Default::default(); 200];
        let mut times = Vec::new();
        // Each of them changes every 10 ms, for a minute.
        for millis in (0..60_000).step_by(10) {
            for (config, writes) in &mut configs {
                if config.plan(&mut free_at, began + Duration::from_millis(millis)).is_ok() {
                    writes.push(millis);
                    times.push(millis);
                }
            }
        }
        for second in 0..60 {
            let count = times.iter().filter(|at| **at / 1000 == second).count();
            assert!((19..=21).contains(&count), "{count} in second {second}");
        }
        assert!(configs.iter().all(|(_, writes)| (5..=7).contains(&writes.len())), "each is written");
        // One alone.
        let later = began + Duration::from_mins(2);
        let mut alone = NumberWrites::after_write(later);
        assert_eq!(
            alone.plan(&mut free_at, later),
            Err(CONFIG_WRITE_INTERVAL),
            "what was written a moment ago has them"
        );
        let mut is_written = |millis| alone.plan(&mut free_at, later + Duration::from_millis(millis)).is_ok();
        assert_eq!((0..10_000).filter(|millis| is_written(*millis)).count(), 4);
    }
}
