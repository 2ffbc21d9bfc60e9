//! Access to the data in a mutex, even after its holder has panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders leave nothing half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
