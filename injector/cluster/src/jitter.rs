//! Random periods, so that replicas and tasks do not act in step.

use std::time::Duration;

/// Returns a random time, which differs from `time` by at most 20 %.
pub fn with_jitter(time: Duration) -> Duration {
    time.mul_f64(rand::random_range(0.8..1.2))
}
