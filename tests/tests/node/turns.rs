//! The order of the scenarios: most run at the same time; after all of these, the others run one after another.

use parking_lot::{Condvar, Mutex};

/// How many scenarios have ended.
#[derive(Default)]
pub(crate) struct Turns {
    ended: Mutex<usize>,
    changed: Condvar,
}

impl Turns {
    /// Waits until this many have ended. The scenario has ended when the turn is dropped, also by a panic.
    pub(crate) fn after(&self, count: usize) -> Turn<'_> {
        self.changed.wait_while(&mut self.ended.lock(), |ended| *ended < count);
        Turn(self)
    }
}

/// The turn of a running scenario.
pub(crate) struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.ended.lock() += 1;
        self.0.changed.notify_all();
    }
}
