//! The work on a key of a queue.

use nudge_cluster::queue::Queue;
use nudge_core::keys::ConfigKey;

/// The work on a key, which goes back to the queue however the work ends, even by a panic or the loss of leadership.
pub(super) struct WorkItem<'a> {
    pub(super) queue: &'a Queue,
    pub(super) key: &'a ConfigKey,
    pub(super) success: bool,
}

impl Drop for WorkItem<'_> {
    fn drop(&mut self) {
        self.queue.done(self.key, self.success, rand::random());
    }
}
