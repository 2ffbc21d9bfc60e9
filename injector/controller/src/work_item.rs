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
        if self.success {
            self.queue.note_success(self.key);
        } else {
            self.queue.note_failure(self.key, rand::random());
        }
    }
}
