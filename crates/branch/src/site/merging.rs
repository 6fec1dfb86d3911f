//! The heads that a site merges by itself (T15): when, and how much of it at a time.

use super::{COLLECT_PAUSE, MERGER, Merging, SWEEP_EVERY, Site, Timer};
use crate::instance::Instance;
use crate::{Commit, Effort, Policy, Refusal, StateId};
use protocol::{Now, Outputs};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Address, Instant};

/// What each head and key of a merge costs, about; and how many times what a merge costs it leaves to others.
const MERGED_EACH: Duration = Duration::from_nanos(500);
const MERGE_SHARE: u32 = 20;
/// The longest that heads wait because merging takes so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often heads are left for another site to merge.
const PATIENCE: u32 = 40;

/// How far a site is with merging.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How often heads that others are to merge were left alone.
    passed_over: u32,
    /// What the merge that is worked out has taken so far.
    took: Effort,
    /// The sites of which it merges heads.
    with: BTreeSet<Address>,
    /// Nothing is merged before this but what was left beside the last merge.
    rests_until: Instant,
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
        if self.merge_left_beside(now, out) || now.instant < self.merging.rests_until {
            return;
        }
        let heads = self.keyspace.heads();
        if heads.len() < 2 {
            self.merging.passed_over = 0;
            return;
        }
        let mut meant = self.gossip.to_merge(self, &heads, now.instant);
        self.merging.passed_over += 1;
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
        self.merging.took = Effort::default();
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
                let pause = pause_after(&commit, self.merging.took);
                self.merging.rests_until = now.instant + pause;
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
    pub(super) fn merge_beside(&mut self, state: StateId, now: Now, out: &mut Outputs<'_, Instance>) -> bool {
        // While heads are worked out, what is beside the merge before is beside that one too: merged twice, merges would cross.
        if matches!(self.options.merging, Merging::Auto { .. })
            && !self.keyspace.is_merging()
            && let Some(merge) =
                self.keyspace.merge_beside(MERGER, state, Policy::Newest, self.options.pace.beside)
        {
            self.claims.merged(&merge, &mut self.keyspace);
            self.made(&merge, false, now, out);
            return true;
        }
        false
    }

    /// The same for heads where nobody is at work. True if it goes on soon.
    fn merge_left_beside(&mut self, now: Now, out: &mut Outputs<'_, Instance>) -> bool {
        let before = self.keyspace.effort();
        for head in self.keyspace.left_beside() {
            if self.gossip.is_foreign(head) {
                continue;
            }
            while self.merge_beside(head, now, out) {
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

/// Where many clients always have a transaction open, hardly any meets the others' work in what it reads next: heads stay
/// many, and whoever merged all the time would do little else. What a handler takes, and the many branches that a merge of many
/// heads leaves behind for everybody to look through, is judged by heads and keys.
fn pause_after(merge: &Commit, took: Effort) -> Duration {
    let parts = merge.parents.len().saturating_mul(merge.writes.len());
    let left_behind = MERGED_EACH.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX));
    took.time().max(left_behind).saturating_mul(MERGE_SHARE).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mvcc::CompactKey;

    #[test]
    fn a_large_merge_is_followed_by_a_pause() {
        let merge = |heads: usize, keys: usize| Commit {
            id: StateId::ROOT,
            parents: vec![StateId::ROOT; heads],
            writes: vec![(CompactKey::new(b"k"), Vec::new()); keys],
        };
        let small = Effort { states: 1_000, keys: 300, ..Effort::default() };
        assert!(pause_after(&merge(3, 100), small) < Duration::from_millis(5));
        assert_eq!(pause_after(&merge(64, 1_000), small), Duration::from_millis(640));
        let large = Effort { states: 100_000, keys: 20_000, ..Effort::default() };
        assert_eq!(pause_after(&merge(3, 100), large), Duration::from_millis(200));
        assert_eq!(pause_after(&merge(64, 100_000), small), LONGEST_PAUSE);
    }
}
