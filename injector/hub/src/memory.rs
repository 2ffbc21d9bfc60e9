//! Keeps the process small: few allocation arenas, and freed memory given back after storms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long after a connection's end memory is given back, so that a storm costs few trims.
const DELAY: Duration = Duration::from_secs(5);

/// Makes glibc use few arenas: each thread would else get its own, and keep what storms have left in it. Call it first of all.
pub fn use_few_arenas() {
    #[cfg(target_env = "gnu")]
    {
        // M_ARENA_MAX, see mallopt(3); the libc crate does not name it.
        const M_ARENA_MAX: libc::c_int = -8;
        // SAFETY: mallopt only sets a number inside the allocator and takes any value; it is called before other threads.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(M_ARENA_MAX, 2);
        }
    }
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only memory that is not in use.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Trims a moment after connections have come or gone, and never while nothing happens.
#[derive(Clone, Debug, Default)]
pub(super) struct Trimmer(Arc<AtomicBool>);

impl Trimmer {
    pub(super) fn plan(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            let planned = Arc::clone(&self.0);
            tokio::spawn(async move {
                tokio::time::sleep(DELAY).await;
                planned.store(false, Ordering::Relaxed);
                // With a large heap this takes milliseconds, which no request should wait for.
                let _ = tokio::task::spawn_blocking(trim).await;
            });
        }
    }
}

/// Plans a trim when dropped.
pub(super) struct TrimAfter<'a>(pub(super) &'a Trimmer);

impl Drop for TrimAfter<'_> {
    fn drop(&mut self) {
        self.0.plan();
    }
}
