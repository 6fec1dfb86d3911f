//! Votes that are judged again, by the leader of a new view, because they may have succeeded on the fast path.
//!
//! A first vote must be stamped above everything committed on its keys in a mode that does not commute with it
//! (Corrections 71). Modes are coarse: HSET of one field and of another commute, and so the one may be accepted, and
//! commit with a higher stamp, while the other is prepared. When that one is judged again later, the stamp of the
//! first would stand in its way, and it would be refused though its client may have been told that it has committed. So
//! here only what really conflicts counts: of what has committed above it, as the record remembers it, the invocations
//! that do not commute with its own.
//!
//! If the greatest stamp of a mode is of a transaction that the record has forgotten, the modes count as ever: nobody
//! can tell what that one observed. A replica that has voted forgets nothing that ended after its vote
//! ([`Shard::forgettable`](super::Shard::forgettable)), so that takes a leader that missed the proposal.

use crate::part::Part;
use crate::tapir::operation::Decision;
use crate::validation::{Access, ModeStamps, Observed, Stamp};
use datatypes::commutes;
use std::collections::{BTreeMap, BTreeSet};
use types::TransactionId;

/// True if one of these parts names what was committed at a stamp as observed. Only what has been executed is observed, so the
/// transaction had committed, whatever has committed above it since: who holds a transaction undecided accepts those that
/// have observed it elsewhere, and may hear of their end first.
///
/// Who has it below a closed base does not name it, but what closed that base does: one that had not observed it would
/// be refused by those that hold it. That transaction had not ended when the replica voted, so no replica has forgotten
/// it (`ir/vote_retention.rs`), and f+1 replicas have accepted it, one of which reports it.
pub(super) fn is_observed<'p>(stamp: Stamp, parts: impl Iterator<Item = &'p Part>) -> bool {
    let names = |observed: &Observed| observed.base() == stamp || observed.above().contains(&stamp);
    let mut observed = parts.flat_map(|part| &part.invocations).filter_map(|it| it.observed.as_ref());
    observed.any(names)
}

/// What has committed above a stamp, by key.
#[derive(Debug, Default)]
pub(super) struct CommittedAbove(BTreeMap<Box<[u8]>, OnKey>);

#[derive(Debug, Default)]
struct OnKey {
    /// Everything that is remembered.
    stamps: BTreeSet<Stamp>,
    /// What conflicts.
    modes: ModeStamps,
}

impl CommittedAbove {
    /// What has committed above the stamp at which a part was prepared.
    pub fn new(stamp: Stamp, part: &Part, ended: &[(TransactionId, &Decision)]) -> Self {
        let mut above = CommittedAbove::default();
        for invoked in &part.invocations {
            above.0.entry((*invoked.key).into()).or_default();
        }
        for (id, decision) in ended {
            let Decision::Commit { at, part: theirs } = decision else { continue };
            let other = Stamp { at: *at, transaction: *id };
            if other > stamp {
                above.note(stamp, part, other, theirs);
            }
        }
        above
    }

    fn note(&mut self, stamp: Stamp, part: &Part, other: Stamp, theirs: &Part) {
        for invoked in &theirs.invocations {
            let Some(on_key) = self.0.get_mut(&*invoked.key) else { continue };
            on_key.stamps.insert(other);
            let Ok(access) = invoked.access() else { continue };
            let seen = access.observed.is_some_and(|observed| observed.contains(stamp));
            let mut own = part.on_key(&invoked.key);
            let conflicts = own.any(|own| {
                own.access().is_ok_and(|own| !commutes(&own.invocation, &access.invocation, None))
            });
            if seen || !conflicts {
                continue;
            }
            if let Some(effect) = &access.invocation.effect {
                on_key.modes.raise(effect.mode(), other);
            }
            if let Some(mode) = access.invocation.observed_mode() {
                on_key.modes.raise(mode, other);
            }
        }
    }

    /// The stamps by mode that count against an access.
    pub fn on<'a>(
        &'a self,
        stamp: Stamp,
        key: &[u8],
        access: &Access<'_>,
        all: &'a ModeStamps,
    ) -> &'a ModeStamps {
        let (Some(on_key), Some(effect)) = (self.0.get(key), &access.invocation.effect) else { return all };
        let greatest = all.against(effect.mode());
        let remembered = greatest <= stamp || on_key.stamps.contains(&greatest);
        if remembered { &on_key.modes } else { all }
    }
}
