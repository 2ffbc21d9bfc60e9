//! Random periods, so that replicas and tasks do not keep in step.

use std::time::Duration;

/// `time` give or take 20 %.
pub fn with_jitter(time: Duration) -> Duration {
    time.mul_f64(rand::random_range(0.8..1.2))
}
