//! Work on a thread of its own, with a stack for deep values and schemas.

use std::thread::{Builder, scope};

/// The size of the stack. Only its used part takes memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Does the work on a separate thread. Returns `None` if no thread can be started, or the work panics.
pub(crate) fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    scope(|threads| {
        let thread = Builder::new().name("validation".to_owned()).stack_size(STACK_BYTES).spawn_scoped(threads, work);
        thread.ok()?.join().ok()
    })
}
