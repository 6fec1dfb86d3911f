//! A key drawn at random of those that a snapshot shows.

use super::Partition;
use crate::stable::Times;
use crate::stable::message::{Answer, Part, Work};
use mvcc::CompactKey;
use std::collections::BTreeSet;
use types::{ReplyBuf, ReplySink, Rng};

/// How many keys are drawn, and not shown by the snapshot, before all are looked at.
const DRAWS: usize = 64;

impl<S: Times> Partition<S> {
    /// The answer to a draw: of how many keys, a random number, and the key. The session's own writes among the parts
    /// count as it left them.
    pub(super) fn draw(
        &mut self,
        snapshot: S,
        now_millis: u64,
        step: u32,
        parts: &[Part<S>],
        random: &mut Rng,
    ) -> Answer {
        let (mut own, mut shown) = (BTreeSet::new(), Vec::new());
        for part in parts.iter().filter(|part| part.work.contains(&Work::Candidate)) {
            own.insert(&*part.key);
            let mut before = part.overlay.clone();
            before.extend(part.work.iter().filter_map(|work| match work {
                Work::Effect { effect } => Some(effect.clone()),
                _ => None,
            }));
            let on_top = (part.cached.as_slice(), before.as_slice());
            if self.shows_key(snapshot, &part.key, on_top, now_millis, random) {
                shown.push(part.key.clone());
            }
        }
        let stored = |key: &&&[u8]| {
            self.store.record(self.store.hash(key), key).is_some_and(|record| record.cell().value.is_some())
        };
        let keys = self.store.len() - own.iter().filter(stored).count() + shown.len();
        let mut reply = ReplyBuf::new();
        reply.integer(keys as i64);
        reply.integer(random.i64(0..));
        match self.draw_key(snapshot, now_millis, (&own, &shown), random) {
            Some(key) => reply.bulk(&key),
            None => reply.null(),
        }
        Answer::new(step, reply)
    }

    fn draw_key(
        &mut self,
        snapshot: S,
        now_millis: u64,
        (own, shown): (&BTreeSet<&[u8]>, &[CompactKey]),
        random: &mut Rng,
    ) -> Option<CompactKey> {
        for _ in 0..DRAWS {
            let known = self.store.known();
            let place = random.usize(0..(known + shown.len()).max(1));
            if let Some(own) = place.checked_sub(known).and_then(|place| shown.get(place)) {
                return Some(own.clone());
            }
            let key: CompactKey = self.store.random_known(random)?.into();
            let fits = !own.contains(&*key)
                && self.shows_key(snapshot, &key, Default::default(), now_millis, random);
            if fits {
                return Some(key);
            }
        }
        let (mut all, mut cursor): (Vec<CompactKey>, u64) = (Vec::new(), 0);
        loop {
            cursor = self.store.scan_all(cursor, |key| all.push(key.into()));
            if cursor == 0 {
                break;
            }
        }
        random.shuffle(&mut all);
        let mut others = all.into_iter().filter(|key| !own.contains(&**key));
        let found = others.find(|key| self.shows_key(snapshot, key, Default::default(), now_millis, random));
        found.or_else(|| shown.first().cloned())
    }
}
