//! Which refusals are written to the log: a user reads why a Deployment makes no pods, and a client that posts reviews can't fill the disk.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nudge_server::rates::{Rate, Rates};
use nudge_server::slots::Peer;

/// Lines about one address: a rollout of a faulty template is seen whole.
const LINES: Rate = Rate { per_second: 1, burst: 50 };
/// Addresses that are counted. All others share one rate.
const ADDRESSES: usize = 1024;

/// The lines `request refused`.
pub(super) struct RefusalLog {
    lines: Rates<Peer>,
    left_out: AtomicU64,
}

impl RefusalLog {
    pub(super) fn new(now: Instant) -> Self {
        Self { lines: Rates::new(LINES, ADDRESSES, now), left_out: AtomicU64::default() }
    }

    /// Whether a refusal is written, and how many of all addresses were left out since the last one that was.
    pub(super) fn may_write(&self, address: IpAddr, now: Instant) -> Option<u64> {
        if self.lines.take(address.into(), now) {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    #[test]
    fn an_address_that_posts_many_has_a_line_a_second_and_the_rest_are_counted() {
        let now = Instant::now();
        let log = RefusalLog::new(now);
        let written = |number, at| (0..1000).filter_map(|_| log.may_write(address(number), at)).collect::<Vec<_>>();
        assert_eq!(written(1, now), [0; 50]);
        assert_eq!(log.may_write(address(2), now), Some(950), "another address is heard");
        assert_eq!(written(1, now + Duration::from_secs(1)), [0]);
        assert_eq!(written(1, now + Duration::from_secs(4)), [999, 0, 0]);
    }

    #[test]
    fn very_many_addresses_have_a_bounded_number_of_lines() {
        let now = Instant::now();
        let log = RefusalLog::new(now);
        let written = (0..100_000).filter(|number| log.may_write(address(*number), now).is_some()).count();
        assert_eq!(written, ADDRESSES + 50);
    }
}
