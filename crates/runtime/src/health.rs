//! Is the process well?

use crate::process::Process;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use types::Instant;

/// A worker whose loop has not turned for so long is stuck: an idle one turns ten times a second.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// So far back replies are looked at.
const LOOK_BACK: Duration = Duration::from_secs(10);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The process's state as a load balancer asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Serves reads and writes.
    pub ready: bool,
    /// What is wrong, or `ok`.
    pub detail: String,
}

/// How many replies on data there were in the last seconds, and how many of them were `UNAVAILABLE`.
#[derive(Debug, Default)]
pub(crate) struct Recent(VecDeque<(Instant, [u64; 2])>);

impl Recent {
    /// Takes a sample of the sums, if it is time.
    pub(crate) fn sample(&mut self, now: Instant, sums: [u64; 2]) {
        if self.0.back().is_some_and(|(last, _)| now - *last < SAMPLE_EVERY) {
            return;
        }
        // The statistics were reset.
        if self.0.back().is_some_and(|(_, last)| sums[0] < last[0]) {
            self.0.clear();
        }
        self.0.push_back((now, sums));
        while self.0.front().is_some_and(|(first, _)| now - *first > LOOK_BACK) {
            self.0.pop_front();
        }
    }

    /// True if there was at least one reply, and all were `UNAVAILABLE`.
    fn is_unavailable(&self, [answered, unavailable]: [u64; 2]) -> bool {
        let [answered_before, unavailable_before] = self.0.front().map_or([0; 2], |(_, sums)| *sums);
        let refused = unavailable - unavailable_before.min(unavailable);
        refused > 0 && answered >= answered_before && answered - answered_before <= refused
    }
}

/// The sums over all workers.
pub(crate) fn answered(process: &Process) -> [u64; 2] {
    let workers = process.workers.read();
    [0, 1].map(|index| workers.iter().map(|worker| worker.answered[index].load(Relaxed)).sum())
}

/// How the process is.
pub(crate) fn of(process: &Process) -> Health {
    let not_ready = |detail: &str| Health { ready: false, detail: detail.to_owned() };
    if process.is_stopping() {
        return not_ready("shutting down");
    }
    let now = process.now().instant;
    for (number, worker) in process.workers.read().iter().enumerate() {
        let still = now - Instant(worker.turned_at.load(Relaxed)).min(now);
        if still >= STUCK_AFTER {
            let seconds = still.as_secs();
            return not_ready(&format!(
                "worker {number} is stuck: its clients are not served for {seconds} s"
            ));
        }
    }
    if process.journal.as_ref().is_some_and(|journal| journal.is_suspended()) {
        return not_ready("the log cannot be written; writes are refused, reads go on");
    }
    if process.recent.lock().is_unavailable(answered(process)) {
        let seconds = LOOK_BACK.as_secs();
        return not_ready(&format!("every command of the last {seconds} s was answered with UNAVAILABLE"));
    }
    Health { ready: true, detail: "ok".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_every_reply_is_unavailable_is_not_ready() {
        let second = |number: u64| Instant(number * 1_000_000);
        let mut recent = Recent::default();
        recent.sample(second(1), [100, 3]);
        assert!(!recent.is_unavailable([100, 3]), "nobody has asked");
        assert!(!recent.is_unavailable([102, 4]), "one of two");
        assert!(recent.is_unavailable([102, 5]), "both");
        recent.sample(second(5), [102, 5]);
        recent.sample(second(13), [102, 5]);
        assert!(!recent.is_unavailable([102, 5]), "that was long ago");
    }
}
