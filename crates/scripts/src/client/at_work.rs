//! The scripts that are at work in a process, for whoever wants to end them.

use gateway::{RunningFunction, ScriptKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A script at work.
#[derive(Debug)]
pub(super) struct AtWork {
    began: Instant,
    killed: AtomicBool,
    /// The function's name, and the command that called it.
    function: Option<(String, Vec<Vec<u8>>)>,
    number: u64,
    all: Register,
}

impl AtWork {
    /// True if somebody has ended it.
    pub(super) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    fn kind(&self) -> ScriptKind {
        if self.function.is_some() { ScriptKind::Function } else { ScriptKind::Script }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.all.0.lock().scripts.remove(&self.0.number);
    }
}

/// Keeps a script among those at work.
#[derive(Debug)]
pub(super) struct Guard(pub(super) Arc<AtWork>);

/// All scripts at work. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub(super) struct Register(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    scripts: BTreeMap<u64, Arc<AtWork>>,
    next: u64,
}

impl Register {
    /// A script begins: of a function the name, and the command that calls it.
    pub(super) fn begin(&self, function: Option<(&str, &[&[u8]])>) -> Guard {
        let owned = |(name, command): (&str, &[&[u8]])| {
            (name.to_owned(), command.iter().map(|word| word.to_vec()).collect())
        };
        let mut known = self.0.lock();
        let number = known.next;
        known.next += 1;
        let at_work = Arc::new(AtWork {
            began: Instant::now(),
            killed: AtomicBool::new(false),
            function: function.map(owned),
            number,
            all: self.clone(),
        });
        known.scripts.insert(number, Arc::clone(&at_work));
        Guard(at_work)
    }

    /// Ends those of a kind that have run for so long; false if there are none.
    pub(super) fn kill(&self, kind: ScriptKind, least: Duration) -> bool {
        let known = self.0.lock();
        let ends = |script: &&Arc<AtWork>| script.kind() == kind && script.began.elapsed() >= least;
        let mut any = false;
        for script in known.scripts.values().filter(ends) {
            script.killed.store(true, Ordering::Relaxed);
            any = true;
        }
        any
    }

    /// The function that has run for longest.
    pub(super) fn longest_function(&self) -> Option<RunningFunction> {
        let known = self.0.lock();
        known.scripts.values().find_map(|script| {
            let (name, command) = script.function.clone()?;
            let millis = u64::try_from(script.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            Some(RunningFunction { name, command, millis })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_kind_end_that_have_run_for_long() {
        let all = Register::default();
        let (script, function) = (all.begin(None), all.begin(Some(("f", &[b"FCALL", b"f", b"0"]))));
        assert!(!all.kill(ScriptKind::Script, Duration::from_secs(3600)));
        assert!(all.kill(ScriptKind::Script, Duration::ZERO));
        assert_eq!([&script, &function].map(|guard| guard.0.is_killed()), [true, false]);
        let running = all.longest_function().expect("it runs");
        assert_eq!((&*running.name, running.command.len()), ("f", 3));
        drop(function);
        assert_eq!(all.longest_function(), None);
        assert!(!all.kill(ScriptKind::Function, Duration::ZERO), "it has ended");
    }
}
