//! The heads that a site merges by itself (T15): when, and how much of it at a time.

use super::{COLLECT_PAUSE, MERGER, Merging, SWEEP_EVERY, Site, Timer};
use crate::instance::Instance;
use crate::{Commit, Effort, Policy, Refusal, StateId};
use protocol::{Now, Outputs};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Address, Instant};

/// What each head and key of a merge costs, about, where that is not counted.
const MERGED_EACH: Duration = Duration::from_nanos(500);
/// How many times what a merge took a site then has nothing to do before it merges again; and after how many times as long it does
/// so all the same.
const FREE_SHARE: u32 = 3;
const MERGE_SHARE: u32 = 20;
/// About the overhead of an operation's request, without the keyspace's own work.
const REQUEST_EACH: Duration = Duration::from_micros(1);
/// The longest that heads wait because merging takes so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often heads are left for another site to merge.
const PATIENCE: u32 = 40;

/// How far a site is with merging.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How often heads that others are to merge were left alone.
    passed_over: u32,
    /// When the merge that is worked out was begun, and what it has taken so far.
    began: Instant,
    took: Effort,
    /// The sites of which it merges heads.
    with: BTreeSet<Address>,
    /// The last merge: for a while after it, the site only rebases concurrent states onto it.
    last: Last,
}

/// A merge that was made, and what a site has done since.
#[derive(Debug, Default)]
struct Last {
    at: Instant,
    /// About how long it took, including the rebase of concurrent writes.
    took: Duration,
    /// How many times as long as is counted things take: processors are slower, or others have more to do in between. Nothing if that
    /// is not known.
    slowness: Option<f64>,
    /// What the keyspace had done by then.
    done: Effort,
    /// How many operations clients have requested since.
    requested: u32,
}

impl Last {
    /// Something was merged beside it.
    fn takes(&mut self, more: Effort) {
        self.took += more.time().mul_f64(self.slowness.unwrap_or(1.0));
    }

    /// Where many clients always have a transaction open, hardly any meets the others' work in what it reads next: heads stay
    /// many, and a site that has no time to spare would do little but merge them. One that has, merges: as long as heads lie side by
    /// side, each has versions of its own.
    fn is_rest_over(&self, now: Instant, done: Effort) -> bool {
        let passed = now - self.at;
        let busy = (done - self.done).time() + REQUEST_EACH.saturating_mul(self.requested);
        let has_spared =
            |slowness| passed.saturating_sub(busy.mul_f64(slowness)) >= self.took.saturating_mul(FREE_SHARE);
        self.slowness.is_some_and(has_spared)
            || passed >= self.took.saturating_mul(MERGE_SHARE).min(LONGEST_PAUSE)
    }
}

impl Site {
    /// Merges heads: by the types' rules, and what no rule joins goes to the newer side; or by the handler.
    pub(super) fn merge(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        if self.keyspace.is_merging() {
            return self.go_on_merging(self.options.pace.piece, now, out);
        }
        let (Merging::Auto { every } | Merging::Handler { every }) = self.options.merging else {
            return out.arm(Timer::Merge, now.instant + SWEEP_EVERY);
        };
        out.arm(Timer::Merge, now.instant + every);
        if self.rebase_leftover(now, out) || !self.is_rested(now) {
            return;
        }
        self.gossip.look_for_backlogs(&self.topology.sites[..self.index], self.written, now.instant);
        let heads = self.keyspace.heads();
        if heads.len() < 2 {
            self.merging.passed_over = 0;
            return;
        }
        let mut meant = self.gossip.to_merge(self, &heads, now.instant);
        self.merging.passed_over += u32::from(!self.gossip.waits_for_backlogs(now.instant));
        if self.merging.passed_over > PATIENCE {
            meant = heads;
        }
        if meant.len() < 2 {
            return;
        }
        if !self.keyspace.fetch_conflicts(&meant) {
            return out.arm(Timer::Merge, now.instant + self.partitions.look_again_after(every));
        }
        self.merging.passed_over = 0;
        self.merging.with = self.gossip.senders_of(&meant);
        (self.merging.began, self.merging.took) = (now.instant, Effort::default());
        let is_handled = matches!(self.options.merging, Merging::Handler { .. });
        if is_handled || self.keyspace.is_parted() {
            let before = self.keyspace.effort();
            let outcome = self.merge_heads(&meant, now);
            self.merging.took = self.keyspace.effort() - before;
            return self.merged(outcome, every, now, out);
        }
        match self.keyspace.begin_merging(MERGER, &meant, Policy::Newest) {
            Ok(true) => self.go_on_merging(self.options.pace.piece, now, out),
            Ok(false) => out.arm(Timer::Merge, now.instant + COLLECT_PAUSE),
            Err(refusal) => debug_assert_eq!(refusal, Refusal::NothingToMerge),
        }
    }

    /// Goes on with the merge that is worked out.
    fn go_on_merging(&mut self, limit: Duration, now: Now, out: &mut Outputs<'_, Instance>) {
        let before = self.keyspace.effort();
        let outcome = self.keyspace.go_on_merging(limit);
        let took = self.keyspace.effort() - before;
        self.merging.took = self.merging.took + took;
        match outcome {
            None => out.arm(Timer::Merge, now.instant + self.options.pace.next_after(took.time())),
            Some(outcome) => self.merged(outcome, COLLECT_PAUSE, now, out),
        }
    }

    /// A merge that comes from elsewhere may be the very one that is worked out here: then it is made before that.
    pub(super) fn be_first_to_merge(&mut self, to: StateId, now: Now, out: &mut Outputs<'_, Instance>) {
        if self.keyspace.merging_to() == Some(to) {
            self.go_on_merging(Duration::MAX, now, out);
        }
    }

    /// What a handler or a record partition does for a merge is not counted, but judged by heads and keys.
    fn rest_after(&self, merge: &Commit, at: Instant) -> Last {
        let counted = self.merging.took.time();
        let last = Last { at, done: self.keyspace.effort(), ..Last::default() };
        if matches!(self.options.merging, Merging::Auto { .. }) && !self.keyspace.is_parted() {
            let took = counted.max(self.options.pace.worked_in(at - self.merging.began));
            let slowness = if counted.is_zero() { 1.0 } else { took.as_secs_f64() / counted.as_secs_f64() };
            return Last { took, slowness: Some(slowness), ..last };
        }
        let parts = merge.parents.len().saturating_mul(merge.writes.len());
        let judged = MERGED_EACH.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX));
        Last { took: counted.max(judged), ..last }
    }

    fn is_rested(&self, now: Now) -> bool {
        self.merging.last.is_rest_over(now.instant, self.keyspace.effort())
    }

    /// A client asks for so many operations.
    pub(super) fn note_requested(&mut self, operations: usize) {
        let requested = u32::try_from(operations).unwrap_or(u32::MAX);
        self.merging.last.requested = self.merging.last.requested.saturating_add(requested);
    }

    fn merged(
        &mut self,
        outcome: Result<Commit, Refusal>,
        every: Duration,
        now: Now,
        out: &mut Outputs<'_, Instance>,
    ) {
        out.arm(Timer::Merge, now.instant + every);
        match outcome {
            Ok(commit) => {
                self.merging.last = self.rest_after(&commit, now.instant);
                let with = std::mem::take(&mut self.merging.with);
                self.gossip.merged(&with, commit.id, now.instant);
                self.claims.merged(&commit, &mut self.keyspace);
                self.made(&commit, false, now, out);
            }
            Err(Refusal::Elsewhere) => {
                out.arm(Timer::Merge, now.instant + self.partitions.look_again_after(every));
            }
            Err(refusal) => {
                let is_handled = matches!(self.options.merging, Merging::Handler { .. });
                debug_assert!(is_handled || refusal == Refusal::NothingToMerge, "{refusal}");
            }
        }
    }

    /// A client went on from what was merged while that was worked out, or had a transaction open. False if that is merged already,
    /// or is not for now.
    pub(super) fn rebase_onto_merge(
        &mut self,
        state: StateId,
        now: Now,
        out: &mut Outputs<'_, Instance>,
    ) -> bool {
        // While a merge is in progress, states concurrent with the merge before are concurrent with it too: merged
        // twice, merges would cross.
        let before = self.keyspace.effort();
        if matches!(self.options.merging, Merging::Auto { .. })
            && !self.keyspace.is_merging()
            && let Some(merge) =
                self.keyspace.rebase_onto_merge(MERGER, state, Policy::Newest, self.options.pace.rebase)
        {
            self.merging.last.takes(self.keyspace.effort() - before);
            self.claims.merged(&merge, &mut self.keyspace);
            self.made(&merge, false, now, out);
            return true;
        }
        false
    }

    /// The same for heads where nobody is at work. True if the merge continues soon.
    fn rebase_leftover(&mut self, now: Now, out: &mut Outputs<'_, Instance>) -> bool {
        let before = self.keyspace.effort();
        for head in self.keyspace.left_to_rebase() {
            if self.gossip.is_foreign(head) {
                continue;
            }
            while self.rebase_onto_merge(head, now, out) {
                let took = (self.keyspace.effort() - before).time();
                if took >= self.options.pace.piece {
                    out.arm(Timer::Merge, now.instant + self.options.pace.next_after(took));
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a site rests after a merge that took so long, if for that share of the time, in percent, something is counted, which
    /// takes so many times as long.
    fn rests(took: Duration, busy: u64, slowness: Option<f64>) -> Duration {
        let last = Last { took, slowness, at: Instant(1), ..Last::default() };
        let is_over = |millis: &u64| {
            let done = Effort { lookups: millis * busy * 10_000 / Effort::LOOKUP, ..Effort::default() };
            last.is_rest_over(last.at + Duration::from_millis(*millis), done)
        };
        Duration::from_millis((0..).find(is_over).unwrap_or_default())
    }

    #[test]
    fn a_site_rests_until_it_had_time_to_spare() {
        let (took, known) = (Duration::from_millis(5), Some(1.0));
        assert_eq!(rests(took, 0, known), took * FREE_SHARE);
        assert_eq!(rests(took, 50, known), took * FREE_SHARE * 2);
        assert_eq!(rests(took, 10, Some(5.0)), took * FREE_SHARE * 2);
        assert_eq!(rests(took, 95, known), took * MERGE_SHARE, "there is none");
        assert_eq!(rests(took, 200, known), took * MERGE_SHARE, "more is counted than there was time for");
        assert_eq!(rests(took, 0, None), took * MERGE_SHARE, "nobody knows");
        assert_eq!(rests(took * 100, 95, known), LONGEST_PAUSE);
        let last = Last { took, slowness: known, requested: 35_000, ..Last::default() };
        let over_at = last.at + took * FREE_SHARE + Duration::from_millis(35);
        assert!(last.is_rest_over(over_at, last.done), "what clients ask for counts");
        assert!(!last.is_rest_over(Instant(over_at.0 - 1), last.done));
    }
}
