//! Does everything to the store and to the model, and compares all that can be read.

use crate::Stamp;
use crate::actions::{Action, Change, KEYS};
use crate::naive::NaiveKey;
use crate::strategies::encoded;
use datatypes::{Cell, Context, Effect, apply, key, prepare};
use mvcc::Store;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use types::{HashSeed, ReplyBuf, Rng};

/// The time at which operations are evaluated; every deadline that a strategy makes is later.
const NOW_MILLIS: u64 = 1000;

pub struct Checker {
    pub store: Store<Stamp>,
    model: [NaiveKey; KEYS.len()],
    /// The latest time of a commit.
    latest: u32,
    random: Rng,
}

impl Checker {
    pub fn new() -> Self {
        let store = Store::new(HashSeed(3), (0, false));
        Checker { store, model: Default::default(), latest: 1, random: Rng::with_seed(7) }
    }

    pub fn perform(&mut self, action: &Action) -> TestCaseResult {
        match action {
            Action::Commit { key, ago, remote, changes } => {
                self.latest += u32::from(*ago == 0);
                let stamp = (self.latest.saturating_sub(*ago).max(1), *remote);
                changes.iter().for_each(|change| self.commit(*key, stamp, change));
            }
            Action::Read { key, view, own } => {
                let name = KEYS[*key];
                let shown = self.model[*key].state(|stamp| view.shows(stamp), own);
                let hash = self.store.hash(name);
                let read = self.store.with_state(hash, name, |stamp| view.shows(*stamp), own, Cell::clone);
                prop_assert_eq!(read, shown, "{:?} of {}", view, name.escape_ascii());
            }
            Action::Retract { key, which } => self.retract(*key, *which)?,
            Action::Horizon { ago } => {
                let wanted = (self.latest.saturating_sub(*ago), true);
                self.set_horizon(Some(self.store.horizon().map_or(wanted, |held| held.max(wanted))));
            }
            Action::NoHorizon => self.set_horizon(None),
            Action::Fold { limit } => {
                self.store.fold_some(*limit);
            }
            Action::Restore { key, ago, cell } => self.restore(*key, *ago, cell),
            Action::Clear { put_back } => self.clear(*put_back)?,
            Action::Update { key, effect } if !self.store.retains() => self.update(*key, effect),
            Action::Update { .. } => {}
        }
        self.compare()
    }

    fn commit(&mut self, key: usize, stamp: Stamp, change: &Change) {
        let effect = match change {
            Change::Effect(effect) => Some(effect.clone()),
            Change::Operation(operation) => {
                let mut context = Context { now_millis: NOW_MILLIS, random: &mut self.random, site: None };
                let newest = self.model[key].newest();
                prepare(&newest, operation, &mut context, &mut ReplyBuf::new())
            }
        };
        let Some(effect) = effect else { return };
        let name = KEYS[key];
        self.store.commit(self.store.hash(name), name, stamp, &effect);
        self.model[key].commit(self.store.horizon(), stamp, effect);
    }

    fn retract(&mut self, key: usize, which: Option<prop::sample::Index>) -> TestCaseResult {
        let retained = &self.model[key].retained;
        let stamp = match which {
            Some(index) if !retained.is_empty() => retained[index.index(retained.len())].0,
            _ => (self.latest.saturating_sub(20), false),
        };
        let found = self.store.retract(self.store.hash(KEYS[key]), KEYS[key], stamp);
        prop_assert_eq!(found, self.model[key].retract(stamp));
        Ok(())
    }

    fn set_horizon(&mut self, horizon: Option<Stamp>) {
        self.store.set_horizon(horizon);
        self.model.iter_mut().for_each(|key| key.settle(horizon));
    }

    /// Restoring is a commit of the whole cell, unless the record is as new.
    fn restore(&mut self, key: usize, ago: u32, cell: &Cell) {
        let (name, stamp) = (KEYS[key], (self.latest - ago.min(self.latest), true));
        let known = self.store.record(self.store.hash(name), name).map(|record| record.stamp());
        self.store.restore(name, stamp, cell.clone());
        if known.is_none_or(|known| known < stamp) {
            let effect = Effect::Key(key::Effect::Restore(encoded(cell).into()));
            self.model[key].commit(self.store.horizon(), stamp, effect);
        }
    }

    fn update(&mut self, key: usize, effect: &Effect<'static>) {
        self.latest += 1;
        let (name, stamp) = (KEYS[key], (self.latest, false));
        let changed = self.store.update(self.store.hash(name), name, |cell| {
            apply::<false>(cell, effect);
            ("changed", Some(stamp))
        });
        assert_eq!(changed, "changed");
        self.model[key].commit(None, stamp, effect.clone());
    }

    fn clear(&mut self, put_back: bool) -> TestCaseResult {
        if put_back {
            let taken = self.store.take((self.latest, true));
            prop_assert!(self.store.is_empty() && self.store.retains() == taken.retains());
            self.store.assert_consistent();
            self.store = taken;
            return Ok(());
        }
        let mut deferred_drop = self.store.take((self.latest, true)).into_deferred_drop();
        let rounds = (0..100).take_while(|_| deferred_drop.free_some(2)).count();
        prop_assert!(rounds < 99, "it is freed in pieces that come to an end");
        prop_assert_eq!(self.store.watermark(), (self.latest, true));
        self.model = Default::default();
        Ok(())
    }

    /// Compares all that a caller can see.
    fn compare(&self) -> TestCaseResult {
        self.store.assert_consistent();
        let newest = self.model.each_ref().map(NaiveKey::newest);
        let mut deadlines = Vec::new();
        for (key, cell) in newest.iter().enumerate() {
            let (name, hash) = (KEYS[key], self.store.hash(KEYS[key]));
            prop_assert_eq!(self.store.cell(hash, name, NOW_MILLIS), cell, "{}", name.escape_ascii());
            let deadline = cell.next_deadline(0);
            if deadline != 0 {
                deadlines.push((deadline, name));
            }
            if cell.expires_at != 0 {
                prop_assert_eq!(self.store.cell(hash, name, cell.expires_at), &Cell::ABSENT);
            }
            self.compare_history(key, cell)?;
        }
        deadlines.sort_unstable();
        prop_assert_eq!(self.store.deadlines(), deadlines.len());
        prop_assert_eq!(self.store.next_deadline(), deadlines.first().map(|(at, _)| *at));
        let expired: Vec<&[u8]> = self.store.expired(2000, usize::MAX).collect();
        let expected: Vec<&[u8]> =
            deadlines.iter().filter(|(at, _)| *at <= 2000).map(|(_, key)| *key).collect();
        prop_assert_eq!(expired, expected);
        let present = newest.iter().filter(|cell| cell.value.is_some()).count();
        prop_assert_eq!(self.store.len(), present);
        prop_assert_eq!(self.store.is_empty(), present == 0);
        let random = &mut Rng::with_seed(u64::from(self.latest));
        prop_assert_eq!(self.store.random_key(random, |_, _| true).is_some(), present > 0);
        // Of several keys the one that is wanted is found, however rare.
        for (key, cell) in newest.iter().enumerate() {
            let drawn = self.store.random_key(random, |name, _| name == KEYS[key]);
            prop_assert_eq!(drawn, cell.value.as_ref().map(|_| KEYS[key]));
        }
        prop_assert_eq!(self.store.random_known(random).is_some(), self.store.known() > 0);
        Ok(())
    }

    fn compare_history(&self, key: usize, newest: &Cell) -> TestCaseResult {
        let (name, hash, model) = (KEYS[key], self.store.hash(KEYS[key]), &self.model[key]);
        let held: Vec<_> =
            self.store.effects(hash, name).map(|(stamp, effect)| (stamp, bytes(&effect))).collect();
        let retained: Vec<_> = model.retained.iter().map(|(stamp, effect)| (*stamp, bytes(effect))).collect();
        prop_assert_eq!(held, retained, "history of {}", name.escape_ascii());
        for at in self.latest.saturating_sub(10)..=self.latest {
            for stamp in [(at, false), (at, true)] {
                let expected = model.retained.iter().any(|(other, _)| *other == stamp);
                prop_assert_eq!(self.store.has_effect(hash, name, stamp), expected);
            }
        }
        let retained = model.retained.last().map(|(stamp, _)| *stamp);
        prop_assert!(Some(self.store.stamp(hash, name)) >= retained);
        if newest.value.is_none() {
            prop_assert!(Some(self.store.stamp(hash, name)) >= model.stamp(), "what was forgotten is below");
        }
        Ok(())
    }

    /// Deletes everything and lets go of every snapshot: nothing is left.
    pub fn finish(mut self) -> TestCaseResult {
        let empty = Store::new(HashSeed(3), (0u32, false)).memory();
        for key in 0..KEYS.len() {
            self.commit(key, (self.latest + 1, false), &Change::Effect(Effect::DELETE));
        }
        self.set_horizon(None);
        self.compare()?;
        prop_assert!(!self.store.fold_some(usize::MAX));
        self.compare()?;
        for name in KEYS {
            prop_assert!(self.store.record(self.store.hash(name), name).is_none(), "a tombstone is left");
        }
        prop_assert!(self.store.memory() < empty + 2048, "{} > {empty}", self.store.memory());
        Ok(())
    }
}

fn bytes(effect: &Effect<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes
}
