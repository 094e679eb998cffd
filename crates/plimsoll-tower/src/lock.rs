//! Locks that outlive a panic: the machines are whole between two calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic of another holder is no reason to fail.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
