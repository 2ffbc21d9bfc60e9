//! Access to what a mutex guards, also after a panic of its holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders leave nothing half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
