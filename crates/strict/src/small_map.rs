//! A sorted map of few entries, which lie in the value itself: transactions have few shards, and shards few replicas.

use smallvec::SmallVec;
use std::fmt;
use std::ops::Index;

/// See the module. Up to `N` entries need no allocation.
#[derive(Clone, PartialEq)]
pub struct SmallMap<K, V, const N: usize>(SmallVec<[(K, V); N]>);

impl<K: Ord, V, const N: usize> SmallMap<K, V, N> {
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(key))
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// True if the key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    /// Gives a key a value, in place of the one it had.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    /// The value of a key, to be changed; the default one if it had none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let place = self.place(&key).unwrap_or_else(|place| {
            self.0.insert(place, (key, V::default()));
            place
        });
        &mut self.0[place].1
    }

    /// How many keys have values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none has.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// All entries, by key, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values, by key, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The entries, by key.
    pub fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.0.into_iter()
    }
}

impl<K, V, const N: usize> Default for SmallMap<K, V, N> {
    fn default() -> Self {
        SmallMap(SmallVec::new())
    }
}

impl<K: Ord, V, const N: usize> FromIterator<(K, V)> for SmallMap<K, V, N> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = SmallMap::default();
        entries.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}

impl<K: Ord, V, const N: usize> Index<&K> for SmallMap<K, V, N> {
    type Output = V;

    /// Panics if the key has no value.
    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the key has a value")
    }
}

impl<K: fmt::Debug, V: fmt::Debug, const N: usize> fmt::Debug for SmallMap<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(changes in proptest::collection::vec((0u16..6, 0u32..9, any::<bool>()), 0..20)) {
            let (mut small, mut map) = (SmallMap::<u16, u32, 2>::default(), BTreeMap::new());
            for (key, value, set) in changes {
                if set {
                    small.insert(key, value);
                    map.insert(key, value);
                } else {
                    *small.or_default(key) += value;
                    *map.entry(key).or_default() += value;
                }
                prop_assert!(small.iter().eq(map.iter()) && small.keys().eq(map.keys()));
                prop_assert_eq!((small.len(), small.is_empty()), (map.len(), map.is_empty()));
                prop_assert_eq!((small.get(&3), small.contains_key(&4)), (map.get(&3), map.contains_key(&4)));
            }
            small.values_mut().for_each(|value| *value += 1);
            map.values_mut().for_each(|value| *value += 1);
            prop_assert!(small.iter_mut().map(|(key, value)| (*key, *value)).eq(map.clone()));
            prop_assert_eq!(small.get_mut(&1).copied(), map.get_mut(&1).copied());
            prop_assert_eq!(format!("{small:?}"), format!("{map:?}"));
            prop_assert!(small.clone().into_entries().collect::<SmallMap<u16, u32, 2>>() == small);
        }
    }
}
