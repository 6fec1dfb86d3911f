//! A key drawn at random over all shards. Each shard draws one of its own keys and says how many it has; the
//! coordinator chooses one of the drawn keys, weighted by these numbers. The result is a hint: replicas may be behind.
//! A command that depends on the key reads it next.

use super::steps::Steps;
use crate::Invoked;
use datatypes::Effect;
use mvcc::{Record, Store};
use std::collections::{BTreeMap, BTreeSet};
use types::{ReplySink, Rng};

/// What the asking transaction did to keys so far.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The keys that it wrote, with their shards, and whether the last that it did to each was not to delete it.
    keys: BTreeMap<Box<[u8]>, (u16, bool)>,
    /// It has deleted all others.
    flushed: bool,
}

impl Own {
    pub fn of(steps: &Steps) -> Self {
        let mut own = Own::default();
        let expired = steps.expiries.iter();
        let may_exist = |invoked: &Invoked| !matches!(invoked.effect(), Ok(Some(Effect::DELETE)));
        own.keys
            .extend(expired.map(|(key, (shard, invoked))| ((**key).into(), (*shard, may_exist(invoked)))));
        for (step, done) in steps.done() {
            let shard = step.call.shard;
            if step.call.is_flush() {
                own.flushed = true;
                let deleted = own.keys.values_mut().filter(|(on, _)| *on == shard);
                deleted.for_each(|(_, may_exist)| *may_exist = false);
            } else if let Ok(Some(effect)) = done.invoked.effect() {
                own.keys.insert((*step.call.key).into(), (shard, effect != Effect::DELETE));
            }
        }
        own
    }
}

/// A draw in progress.
#[derive(Clone, Debug)]
pub struct Draw {
    own: Own,
    /// From how many keys `chosen` was drawn so far.
    keys: u64,
    chosen: Option<Box<[u8]>>,
}

/// What came of it.
#[derive(Debug, PartialEq)]
pub struct Drawn(Option<Box<[u8]>>);

impl Drawn {
    /// Replies the key, or that none was found, for which nobody vouches.
    pub fn reply(&self, sink: &mut dyn ReplySink) {
        match &self.0 {
            Some(key) => sink.bulk(key),
            None => sink.integer(0),
        }
    }
}

impl Draw {
    /// Begins with what the transaction has written itself.
    ///
    /// # Errors
    /// It ends with that: the transaction has deleted all others.
    pub fn new(own: Own, random: &mut Rng) -> Result<Self, Drawn> {
        let exist = own.keys.iter().filter(|(_, (_, may_exist))| *may_exist).map(|(key, _)| key.clone());
        let mut exist: Vec<Box<[u8]>> = exist.collect();
        let keys = exist.len() as u64;
        let chosen = (keys > 0).then(|| exist.swap_remove(random.usize(0..exist.len())));
        if own.flushed { Err(Drawn(chosen)) } else { Ok(Draw { own, keys, chosen }) }
    }

    /// The keys that a shard must not draw: they are drawn here.
    pub fn except(&self, shard: u16) -> Vec<Box<[u8]>> {
        let here = self.own.keys.iter().filter(|(_, (of, _))| *of == shard);
        here.map(|(key, _)| key.clone()).collect()
    }

    /// A shard has drawn a key of so many.
    pub fn take(&mut self, keys: u64, key: Option<Box<[u8]>>, random: &mut Rng) {
        let Some(key) = key else { return };
        let keys = keys.max(1);
        self.keys = self.keys.saturating_add(keys);
        if random.u64(0..self.keys) < keys {
            self.chosen = Some(key);
        }
    }

    pub fn drawn(self) -> Drawn {
        Drawn(self.chosen)
    }
}

/// A replica's answer: a key drawn at random, and of how many.
pub fn draw_from<S: mvcc::Stamp>(
    store: &Store<S>,
    except: &[Box<[u8]>],
    now_millis: u64,
    random: &mut Rng,
) -> (u64, Option<Box<[u8]>>) {
    let except: BTreeSet<&[u8]> = except.iter().map(|key| &**key).collect();
    let exists =
        |key: &&&[u8]| store.record(store.hash(key), key).is_some_and(|it| it.cell().value.is_some());
    let left_out = except.iter().filter(exists).count();
    let wanted =
        |key: &[u8], record: &Record<S>| !record.cell().is_expired(now_millis) && !except.contains(key);
    let key = store.random_key(random, wanted).map(Box::from);
    ((store.len() - left_out) as u64, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_as_likely_as_any_other_however_they_are_spread() {
        let random = &mut Rng::with_seed(7);
        let mut counts: BTreeMap<Box<[u8]>, u32> = BTreeMap::new();
        for _ in 0..6000 {
            let keys = [(b"own".as_slice(), true), (b"gone".as_slice(), false)];
            let keys = keys.map(|(key, may_exist)| (key.into(), (1, may_exist)));
            let mut draw = Draw::new(Own { keys: keys.into(), flushed: false }, random).expect("others");
            // Three keys in one shard, none in the next, two in the last.
            draw.take(3, Some([b"a", b"b", b"c"][random.usize(0..3)].as_slice().into()), random);
            draw.take(0, None, random);
            draw.take(2, Some([b"d", b"e"][random.usize(0..2)].as_slice().into()), random);
            *counts.entry(draw.drawn().0.expect("a key")).or_default() += 1;
        }
        assert_eq!(counts.len(), 6, "{counts:?}");
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn after_a_deletion_of_everything_only_own_keys_are_left() {
        let random = &mut Rng::with_seed(7);
        let own = Own { keys: BTreeMap::new(), flushed: true };
        assert_eq!(Draw::new(own, random).expect_err("nothing is asked"), Drawn(None));
        let keys = [(b"k".as_slice().into(), (0, true))];
        let drawn =
            Draw::new(Own { keys: keys.into(), flushed: true }, random).expect_err("nothing is asked");
        assert_eq!(drawn, Drawn(Some(b"k".as_slice().into())));
    }
}
