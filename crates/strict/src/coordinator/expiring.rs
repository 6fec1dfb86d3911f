//! Keys that had a deadline when a replica received a blind write on them.
//!
//! A write that is not evaluated cannot tell whether the key has expired, so replicas refuse one that does not replace
//! the key (Corrections 69). From then on such writes on the key are evaluated.

use std::collections::{BTreeSet, VecDeque};

/// How many keys are remembered. One that is forgotten costs a refusal.
const KEYS: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub struct Expiring {
    keys: BTreeSet<Box<[u8]>>,
    /// The same keys, the one learned first in front.
    order: VecDeque<Box<[u8]>>,
}

impl Expiring {
    /// The key has a deadline.
    pub fn learn(&mut self, key: &[u8]) {
        if !self.keys.insert(key.into()) {
            return;
        }
        self.order.push_back(key.into());
        if self.order.len() > KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    /// True if the key is known to have had one.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_learned_first_is_forgotten_first() {
        let mut expiring = Expiring::default();
        let keys: Vec<Vec<u8>> = (0..=KEYS).map(|number| number.to_string().into_bytes()).collect();
        keys.iter().for_each(|key| expiring.learn(key));
        keys.iter().skip(1).for_each(|key| expiring.learn(key));
        assert!(!expiring.contains(&keys[0]));
        assert!(keys[1..].iter().all(|key| expiring.contains(key)));
    }
}
