//! Work that all processors share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};

/// Runs `work` once on each processor at a time, until all have returned; the first error, if there is one.
pub fn on_all_processors(work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => bail!("a worker panicked; its message is above"),
        })
    })
}

/// What the mutex holds, also after a panic elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
