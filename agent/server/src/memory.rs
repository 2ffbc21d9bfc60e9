//! Keeps the process small: few allocation arenas, and freed memory returned to the operating system after bursts.
//!
//! glibc keeps memory that was freed in the middle of its heap: megabytes after 250 connections have come and gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::sleep;

/// Limits the number of glibc's arenas; otherwise each thread would get its own. Call this before a second thread
/// starts.
pub fn limit_arenas(max_arenas: u8) {
    #[cfg(target_env = "gnu")]
    {
        // M_ARENA_MAX, see mallopt(3); the libc crate does not name it.
        const M_ARENA_MAX: libc::c_int = -8;
        // SAFETY: mallopt only sets a number inside the allocator and takes any value; it is called before other
        // threads.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(M_ARENA_MAX, max_arenas.into());
        }
    }
}

/// Returns freed memory to the operating system (malloc_trim(3)).
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only memory that is not in use.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A trimmer of the heap: a moment after connections have ended, and never while nothing happens.
#[derive(Clone, Debug)]
pub struct Trimmer {
    delay: Duration,
    planned: Arc<AtomicBool>,
}

impl Trimmer {
    /// Creates a trimmer that trims `delay` after the first of a burst of ends, so that many ends cost one trim.
    pub fn new(delay: Duration) -> Self {
        Self { delay, planned: Arc::default() }
    }

    /// Plans a trim, unless one is planned already. Needs a tokio runtime.
    pub fn plan(&self) {
        if self.planned.swap(true, Ordering::Relaxed) {
            return;
        }
        let Self { delay, planned } = self.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            planned.store(false, Ordering::Relaxed);
            if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
                // A helper thread would cost more than the trim of a small heap.
                trim();
            } else {
                // With a large heap this takes milliseconds, which no request should wait for.
                let _ = tokio::task::spawn_blocking(trim).await;
            }
        });
    }
}
