//! Times at random, so that replicas and tasks don't keep in step.

use std::time::Duration;

/// Give or take 20 %.
pub fn jittered(time: Duration) -> Duration {
    time.mul_f64(rand::random_range(0.8..1.2))
}
