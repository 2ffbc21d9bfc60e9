//! The limit on the work of one check. Work is counted before it is done, in steps of some 50 ns each in a release
//! build.
//!
//! The count belongs to the thread, because functions of CEL expressions can't carry any state.

use std::cell::Cell;

/// The maximum number of steps of one check.
pub(crate) const MAX_STEPS: u64 = 4_000_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static EXHAUSTED: Cell<bool> = const { Cell::new(false) };
}

/// Begins to count on this thread.
pub(crate) fn begin(steps: u64) {
    LEFT.set(steps);
    EXHAUSTED.set(false);
}

/// The error of a check that needs more than its maximum steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Counts steps. If too few are left, the count stays exhausted until the next check begins.
pub(crate) fn charge(steps: u64) -> Result<(), Exhausted> {
    let left = LEFT.get().checked_sub(steps).filter(|_| !EXHAUSTED.get());
    let Some(left) = left else {
        EXHAUSTED.set(true);
        return Err(Exhausted);
    };
    LEFT.set(left);
    Ok(())
}

/// Returns whether the check needed more steps than it had.
pub(crate) fn is_exhausted() -> bool {
    EXHAUSTED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exhausted_stays_so() {
        begin(10);
        assert_eq!((charge(10), charge(0)), (Ok(()), Ok(())));
        begin(10);
        assert_eq!((charge(11), charge(1), is_exhausted()), (Err(Exhausted), Err(Exhausted), true));
        begin(10);
        assert_eq!((charge(1), is_exhausted()), (Ok(()), false));
    }
}
