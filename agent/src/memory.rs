//! Keeps the process small: one allocation arena, and freed memory given back after bursts.
//!
//! glibc keeps what was freed in the middle of its heap. After 250 connections have come and gone that is megabytes, paid
//! for once per pod.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long after a connection's end freed memory is given back, so that many ends cost one trim.
const TRIM_DELAY: Duration = Duration::from_millis(500);

/// Makes glibc use one arena: the runtime has one thread, and helpers that read files should not each get their own.
pub fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    {
        // M_ARENA_MAX, see mallopt(3); the libc crate does not name it.
        const M_ARENA_MAX: libc::c_int = -8;
        // SAFETY: mallopt only sets a number inside the allocator and takes any value; it is called before other threads.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(M_ARENA_MAX, 1);
        }
    }
}

/// Gives freed memory back to the operating system (malloc_trim(3)).
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only memory that is not in use.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Trims a moment after connections have ended, and never while nothing happens.
#[derive(Clone, Debug, Default)]
pub struct Trimmer {
    planned: Arc<AtomicBool>,
}

impl Trimmer {
    /// Plans a trim, unless one is planned already. Needs a tokio runtime.
    pub fn connection_closed(&self) {
        if !self.planned.swap(true, Ordering::Relaxed) {
            let planned = Arc::clone(&self.planned);
            tokio::spawn(async move {
                tokio::time::sleep(TRIM_DELAY).await;
                planned.store(false, Ordering::Relaxed);
                trim();
            });
        }
    }
}
