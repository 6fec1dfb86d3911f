//! What an evaluation saw above its base, as far as one replica knows the effects.

use super::{Access, Observed, Stamp, Undecided};
use datatypes::Effect;
use smallvec::SmallVec;

/// The effects that an evaluation saw. A result stays the same behind an effect that changes nothing of what it revealed; but
/// it may have revealed what others did after that effect, which then came to something else: a counter with a lid on it
/// does not rise. So what was not seen must commute with all that was seen above it, which is known of committed effects
/// and of those whose decision is on its way; of others nothing is known, and they stand in the way.
pub(crate) struct Seen<'a, 'e> {
    observed: Option<&'a Observed>,
    /// False if the result revealed at most the type: effects of the same type leave that, whatever comes first.
    reveals: bool,
    /// Those that are committed here, newest first.
    committed: SmallVec<[(Stamp, Effect<'e>); 1]>,
    prepared: &'a [Undecided<'e>],
}

impl<'a, 'e> Seen<'a, 'e> {
    pub fn new(access: &Access<'a>, prepared: &'a [Undecided<'e>]) -> Self {
        let reveals = access.invocation.observation.aspect.is_some();
        Seen { observed: access.observed, reveals, committed: SmallVec::new(), prepared }
    }

    /// Takes the next committed effect, from the newest on. Returns it if it was not seen.
    pub fn note(&mut self, stamp: Stamp, effect: Effect<'e>) -> Option<Effect<'e>> {
        if !self.contains(stamp) {
            return Some(effect);
        }
        self.committed.push((stamp, effect));
        None
    }

    fn contains(&self, stamp: Stamp) -> bool {
        self.observed.is_some_and(|observed| observed.contains(stamp))
    }

    /// True if an effect was seen, or may come before all that was seen above it: those committed above it are noted.
    pub fn commutes_with(&self, stamp: Stamp, effect: &Effect<'_>) -> bool {
        let Some(observed) = self.observed.filter(|_| self.reveals && !self.contains(stamp)) else {
            return true;
        };
        let mut above = observed.above().iter().rev().take_while(|seen| **seen > stamp).peekable();
        if above.peek().is_none() {
            return true;
        }
        let committed = self.committed.iter().take_while(|(seen, _)| *seen > stamp);
        let prepared = self.prepared.iter().filter(|other| other.stamp > stamp && self.contains(other.stamp));
        let decided = prepared.clone().filter_map(|other| other.access.invocation.effect.as_ref());
        committed.map(|(_, seen)| seen).chain(decided).all(|seen| seen.commutes_with(effect))
            && above.all(|seen| {
                let is_held = self.committed.binary_search_by(|(held, _)| seen.cmp(held)).is_ok();
                is_held || prepared.clone().any(|other| other.stamp == *seen && other.changes)
            })
    }
}
