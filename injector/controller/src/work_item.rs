//! A key of a queue that is worked on.

use nudge_cluster::queue::Queue;
use nudge_core::keys::ConfigKey;

/// A key that is worked on. It goes back to the queue however that ends, even by a panic or the loss of leadership.
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
