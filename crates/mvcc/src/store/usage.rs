//! How keys are used, for stores that are caches: which key goes when memory is used up.
//!
//! A store that tracks usage has an array of words, one to two a key. A key's word is that of its hash; keys that share one
//! count as used alike. So it costs four to eight bytes a key, nothing in a record, and nothing in stores that do not track.
//! When the keys outgrow the array, one twice as long takes its place, and each use moves some words over (Corrections 87).

use super::{Stamp, Store};
use crate::CompactKey;
use types::{KeyHash, Rng};

/// Words of the first array; an empty store has none.
const LEAST_WORDS: usize = 64;
/// How many words a use moves to the next array.
const MOVED_PER_USE: usize = 16;
/// Recency is stored in units of so many milliseconds: a word reaches for more than a year.
const UNIT_MILLIS: u64 = 10;
const MINUTE_MILLIS: u64 = 60_000;
/// Frequency, as in Redis: a counter that grows by one in `10 * counter` uses and falls by one a minute; the first value.
const FIRST_COUNT: u32 = 5;
const GROWTH_FACTOR: u32 = 10;
const MOST: u32 = 255;
/// Marks a word of frequency as one that was used.
const USED: u32 = 1 << 31;
/// How many keys are drawn for one that has a deadline, before it is looked for among the deadlines.
const DRAWS: usize = 8;
/// How many deadlines are looked at for one of a key: hashes stand there for their fields, too.
const LOOKS: usize = 64;

/// What a store remembers of the use of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// When a key was used last.
    Recency,
    /// How often it was, lately.
    Frequency,
}

/// Which key [`Store::victim`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Only keys with a deadline; those of a hash's fields do not count.
    pub volatile: bool,
    /// Which of them.
    pub by: By,
}

/// See [`Choice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The least used of so many that are drawn, by what the store tracks.
    Usage(usize),
    /// Any.
    Chance,
    /// The one whose deadline is first. A hash stands where the first one of its fields does, if that is earlier.
    Deadline,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Usage {
    tracked: Tracked,
    /// By the low bits of a hash; 0: never used.
    words: Vec<u32>,
    /// The array before, as far as it is not moved.
    earlier: Vec<u32>,
    moved: usize,
    /// Draws whether a frequent key counts again.
    random: Rng,
}

impl Usage {
    pub(super) fn new(tracked: Tracked) -> Self {
        let random = Rng::with_seed(LEAST_WORDS as u64);
        Usage { tracked, words: Vec::new(), earlier: Vec::new(), moved: 0, random }
    }

    pub(super) fn tracked(&self) -> Tracked {
        self.tracked
    }

    pub(super) fn memory(&self) -> usize {
        (self.words.capacity() + self.earlier.capacity()) * size_of::<u32>()
    }

    fn word(&self, hash: KeyHash) -> u32 {
        let at = |words: &[u32]| match words.len() {
            0 => 0,
            len => words[hash.0 as usize & (len - 1)],
        };
        match at(&self.words) {
            0 => at(&self.earlier),
            word => word,
        }
    }

    /// A key is used, one of so many.
    pub(super) fn touch(&mut self, hash: KeyHash, now_millis: u64, keys: usize) {
        self.grow(keys);
        let word = match self.tracked {
            Tracked::Recency => moment(now_millis),
            Tracked::Frequency => {
                let count = counted_now(self.word(hash), now_millis);
                let rise = count.saturating_sub(FIRST_COUNT) * GROWTH_FACTOR + 1;
                let count = if self.random.u32(0..rise) == 0 { (count + 1).min(MOST) } else { count };
                USED | minute(now_millis) << 8 | count
            }
        };
        let mask = self.words.len() - 1;
        self.words[hash.0 as usize & mask] = word;
    }

    fn grow(&mut self, keys: usize) {
        if self.words.is_empty() {
            self.words = vec![0; LEAST_WORDS];
        }
        if self.earlier.is_empty() {
            if keys > self.words.len() {
                let next = vec![0; 2 * self.words.len()];
                (self.earlier, self.moved) = (std::mem::replace(&mut self.words, next), 0);
            }
            return;
        }
        let (half, end) = (self.earlier.len(), self.earlier.len().min(self.moved + MOVED_PER_USE));
        for index in self.moved..end {
            for place in [index, index + half] {
                if self.words[place] == 0 {
                    self.words[place] = self.earlier[index];
                }
            }
        }
        self.moved = end;
        if end == half {
            self.earlier = Vec::new();
        }
    }

    /// How little a key is used: the greatest goes first.
    fn disuse(&self, hash: KeyHash, now_millis: u64) -> u32 {
        match (self.tracked, self.word(hash)) {
            (_, 0) => u32::MAX,
            (Tracked::Recency, word) => moment(now_millis).wrapping_sub(word),
            (Tracked::Frequency, word) => MOST - counted_now(word, now_millis),
        }
    }
}

fn moment(now_millis: u64) -> u32 {
    ((now_millis / UNIT_MILLIS) as u32).max(1)
}

/// Of a word's 31 bits, 23 tell the minute.
fn minute(now_millis: u64) -> u32 {
    (now_millis / MINUTE_MILLIS) as u32 & 0x7f_ffff
}

/// A key's count, with what it has lost since it was used.
fn counted_now(word: u32, now_millis: u64) -> u32 {
    if word == 0 {
        return FIRST_COUNT;
    }
    let since = minute(now_millis).wrapping_sub(word >> 8 & 0x7f_ffff) & 0x7f_ffff;
    (word & MOST).saturating_sub(since)
}

impl<S: Stamp> Store<S> {
    /// Tracks the use of keys from now on, or no more. What is tracked already stays.
    pub fn track(&mut self, tracked: Option<Tracked>) {
        if self.usage.as_deref().map(Usage::tracked) != tracked {
            self.usage = tracked.map(|tracked| Box::new(Usage::new(tracked)));
        }
    }

    /// A key was used. Does nothing where that is not tracked.
    #[inline]
    pub fn touch(&mut self, hash: KeyHash, now_millis: u64) {
        if let Some(usage) = &mut self.usage {
            usage.touch(hash, now_millis, self.table.len());
        }
    }

    /// The key that a cache gives up next; `None` if no key may go, or if none is found among many hashes that have no
    /// deadline but those of fields.
    pub fn victim(&self, choice: Choice, now_millis: u64, random: &mut Rng) -> Option<&[u8]> {
        if choice.volatile && self.dated == 0 {
            return None;
        }
        match (choice.by, &self.usage) {
            (By::Deadline, _) => self.first_dated(0).or_else(|| self.candidate(true, random)),
            (By::Usage(samples), Some(usage)) => {
                let drawn = (0..samples.max(1)).filter_map(|_| self.candidate(choice.volatile, random));
                drawn.max_by_key(|key| usage.disuse(self.hash(key), now_millis))
            }
            (By::Usage(_) | By::Chance, _) => self.candidate(choice.volatile, random),
        }
    }

    /// A key by chance, of those with a deadline if only these may go.
    fn candidate(&self, volatile: bool, random: &mut Rng) -> Option<&[u8]> {
        if !volatile {
            return self.random_key(random, |_, _| true);
        }
        let (first, last) = (self.deadlines.first()?.0, self.deadlines.last()?.0);
        let drawn = (0..DRAWS).filter_map(|_| self.table.random(random));
        if let Some(record) = drawn.into_iter().find(|record| record.cell.expires_at != 0) {
            return Some(&record.key);
        }
        // Few keys have one: the next behind a moment that is drawn.
        let from_millis = random.u64(first..=last);
        self.first_dated(from_millis).or_else(|| self.first_dated(0))
    }

    /// The first key with a deadline of its own, of a few that stand among the deadlines from a moment on.
    fn first_dated(&self, from_millis: u64) -> Option<&[u8]> {
        let few = self.deadlines.range((from_millis, CompactKey::new(b""))..).take(LOOKS);
        few.map(|(_, key)| &**key).find(|key| {
            let record = self.table.get(self.hash(key), key);
            record.is_some_and(|record| record.cell.expires_at != 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::{Effect, Items, dict, register};
    use types::HashSeed;

    fn filled(tracked: Option<Tracked>, keys: u64) -> Store<u64> {
        let mut store = Store::new(HashSeed::default(), 0);
        store.track(tracked);
        for number in 0..keys {
            let key = number.to_string();
            let deadline = register::Deadline::Clear;
            let effect = Effect::Register(register::Effect::Set { value: b"value", deadline });
            let hash = store.hash(key.as_bytes());
            store.commit(hash, key.as_bytes(), number + 1, &effect);
            store.touch(hash, 1_000_000 + number * UNIT_MILLIS);
        }
        store
    }

    /// Which of the first `keys` numbers go, if a tenth of them does.
    fn evicted(store: &mut Store<u64>, keys: u64, choice: Choice, now_millis: u64) -> Vec<u64> {
        let mut random = Rng::with_seed(7);
        let mut gone = Vec::new();
        for turn in 0..keys / 10 {
            let key = store.victim(choice, now_millis, &mut random).expect("there are keys").to_vec();
            gone.push(std::str::from_utf8(&key).expect("a number").parse().expect("a number"));
            store.commit(store.hash(&key), &key, keys + turn + 1, &Effect::DELETE);
        }
        gone
    }

    #[test]
    fn what_was_used_last_stays_and_usage_survives_growth_of_the_array() {
        let keys = 20_000;
        let mut store = filled(Some(Tracked::Recency), keys);
        let now = 1_000_000 + keys * UNIT_MILLIS;
        let choice = Choice { volatile: false, by: By::Usage(5) };
        let gone = evicted(&mut store, keys, choice, now);
        let young = gone.iter().filter(|number| **number >= keys * 3 / 4).count();
        assert!(young * 20 < gone.len(), "{young} of {} were among the last quarter", gone.len());
        let any = evicted(&mut filled(None, keys), keys, Choice { by: By::Chance, ..choice }, now);
        assert!(any.iter().filter(|number| **number >= keys * 3 / 4).count() * 6 > any.len());
        store.assert_consistent();
    }

    #[test]
    fn what_is_used_often_stays() {
        let keys = 4_000;
        let mut store = filled(Some(Tracked::Frequency), keys);
        let now = 1_000_000 + keys * UNIT_MILLIS;
        for _ in 0..50 {
            for number in 0..keys / 10 {
                store.touch(store.hash(number.to_string().as_bytes()), now);
            }
        }
        let choice = Choice { volatile: false, by: By::Usage(5) };
        let gone = evicted(&mut store, keys, choice, now);
        let hot = gone.iter().filter(|number| **number < keys / 10).count();
        assert!(hot * 50 < gone.len(), "{hot} of {} were the hot tenth", gone.len());
    }

    #[test]
    fn a_count_falls_by_one_a_minute() {
        let mut usage = Usage::new(Tracked::Frequency);
        let hash = KeyHash(5);
        for _ in 0..10_000 {
            usage.touch(hash, 0, 1);
        }
        let count = counted_now(usage.word(hash), 0);
        assert!(count > 20, "{count}");
        assert_eq!(counted_now(usage.word(hash), 10 * MINUTE_MILLIS), count - 10);
        assert_eq!(counted_now(usage.word(hash), 1_000 * MINUTE_MILLIS), 0);
    }

    #[test]
    fn only_keys_with_a_deadline_go_where_only_these_may() {
        let mut store = filled(Some(Tracked::Recency), 1_000);
        let mut random = Rng::with_seed(1);
        for by in [By::Usage(5), By::Chance, By::Deadline] {
            assert_eq!(store.victim(Choice { volatile: true, by }, 0, &mut random), None);
        }
        for number in [7_u64, 500] {
            let key = number.to_string();
            let effect = Effect::Key(datatypes::key::Effect::SetDeadline(1_000_000 + number));
            store.commit(store.hash(key.as_bytes()), key.as_bytes(), 2_000 + number, &effect);
        }
        for by in [By::Usage(5), By::Chance] {
            let key = store.victim(Choice { volatile: true, by }, 0, &mut random);
            assert!([Some(&b"7"[..]), Some(b"500")].contains(&key), "{key:?}");
        }
        let first = Choice { volatile: true, by: By::Deadline };
        assert_eq!(store.victim(first, 0, &mut random), Some(&b"7"[..]));
    }

    #[test]
    fn a_hash_does_not_go_for_the_deadlines_of_its_fields() {
        let mut store = filled(Some(Tracked::Recency), 1_000);
        let mut random = Rng::with_seed(1);
        for (number, at_millis) in [(0, 1_000), (1, 2_000_000)] {
            let key = format!("hash {number}");
            let (hash, pairs) = (store.hash(key.as_bytes()), Items::two(b"field", b"value"));
            store.commit(hash, key.as_bytes(), 2_000, &Effect::Dict(dict::Effect::put(pairs)));
            let deadline = dict::Effect::SetDeadline { fields: Items::one(b"field"), at_millis };
            store.commit(hash, key.as_bytes(), 2_001, &Effect::Dict(deadline));
        }
        assert_eq!((store.deadlines(), store.dated()), (2, 0));
        let all = [By::Usage(5), By::Chance, By::Deadline];
        for by in all {
            assert_eq!(store.victim(Choice { volatile: true, by }, 0, &mut random), None);
        }
        let effect = Effect::Key(datatypes::key::Effect::SetDeadline(1_000_000));
        store.commit(store.hash(b"7"), b"7", 2_002, &effect);
        for by in all.into_iter().cycle().take(60) {
            let key = store.victim(Choice { volatile: true, by }, 0, &mut random);
            assert_eq!(key, Some(&b"7"[..]), "{by:?}");
        }
        let late = Effect::Key(datatypes::key::Effect::SetDeadline(3_000_000));
        store.commit(store.hash(b"hash 0"), b"hash 0", 2_003, &late);
        assert_eq!((store.deadlines(), store.dated()), (3, 2));
        store.assert_consistent();
        for key in [&b"hash 0"[..], b"7"] {
            store.commit(store.hash(key), key, 2_004, &Effect::DELETE);
        }
        assert_eq!((store.deadlines(), store.dated()), (1, 0));
        store.assert_consistent();
    }
}
