//! Which connections of a gateway have subscribed to what.

use crate::gateway::ConnectionId;
use datatypes::glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a client subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The messages of a channel: `SUBSCRIBE`.
    Channel,
    /// Those of all channels whose names match a pattern: `PSUBSCRIBE`.
    Pattern,
    /// Those of a shard channel: `SSUBSCRIBE`.
    Shard,
}

impl Topic {
    /// All.
    pub(crate) const ALL: [Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::Shard];

    /// Those that a message may belong to: a channel, or a shard channel.
    pub(crate) fn of_message(sharded: bool) -> Self {
        if sharded { Topic::Shard } else { Topic::Channel }
    }

    /// The pattern that this name is.
    pub(crate) fn pattern(self, name: &[u8]) -> Option<Pattern> {
        matches!(self, Topic::Pattern).then(|| Pattern::new(name, false))
    }
}

/// See the module. Subscribers of a name are in the order of their connections, names in that of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    names: [BTreeMap<Arc<[u8]>, Subscribers>; 3],
    own: BTreeMap<ConnectionId, [BTreeSet<Arc<[u8]>>; 3]>,
}

#[derive(Debug)]
struct Subscribers {
    /// In order.
    list: Vec<ConnectionId>,
    /// Of a pattern.
    pattern: Option<Pattern>,
}

impl Subscriptions {
    /// The connection subscribes. False if it had.
    pub(crate) fn add(&mut self, topic: Topic, name: &[u8], id: ConnectionId) -> bool {
        let names = &mut self.names[topic as usize];
        let shared = match names.get_key_value(name) {
            Some((shared, _)) => Arc::clone(shared),
            None => name.into(),
        };
        if !self.own.entry(id).or_default()[topic as usize].insert(Arc::clone(&shared)) {
            return false;
        }
        let subscribers = names
            .entry(shared)
            .or_insert_with(|| Subscribers { list: Vec::new(), pattern: topic.pattern(name) });
        if let Err(position) = subscribers.list.binary_search(&id) {
            subscribers.list.insert(position, id);
        }
        true
    }

    /// The connection does not subscribe any more. False if it did not.
    pub(crate) fn remove(&mut self, topic: Topic, name: &[u8], id: ConnectionId) -> bool {
        let Some(own) = self.own.get_mut(&id) else { return false };
        if !own[topic as usize].remove(name) {
            return false;
        }
        if own.iter().all(BTreeSet::is_empty) {
            self.own.remove(&id);
        }
        let names = &mut self.names[topic as usize];
        if let Some(subscribers) = names.get_mut(name) {
            if let Ok(position) = subscribers.list.binary_search(&id) {
                subscribers.list.remove(position);
            }
            if subscribers.list.is_empty() {
                names.remove(name);
            }
        }
        true
    }

    /// What the connection has subscribed to, in order.
    pub(crate) fn of(&self, topic: Topic, id: ConnectionId) -> Vec<Arc<[u8]>> {
        self.own.get(&id).map(|own| own[topic as usize].iter().cloned().collect()).unwrap_or_default()
    }

    /// To how many names the connection has subscribed, by topic.
    pub(crate) fn counts(&self, id: ConnectionId) -> [usize; 3] {
        self.own.get(&id).map_or([0; 3], |own| [own[0].len(), own[1].len(), own[2].len()])
    }

    /// The subscribers of a channel, or of a shard channel.
    pub(crate) fn subscribers(&self, topic: Topic, name: &[u8]) -> &[ConnectionId] {
        self.names[topic as usize].get(name).map_or(&[], |subscribers| &subscribers.list)
    }

    /// The patterns that match a channel, with their subscribers.
    pub(crate) fn matching<'a>(
        &'a self,
        channel: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a [ConnectionId])> {
        let matches = |subscribers: &Subscribers| {
            subscribers.pattern.as_ref().is_some_and(|pattern| pattern.matches(channel))
        };
        let patterns = self.names[Topic::Pattern as usize].iter();
        let found = patterns.filter(move |(_, subscribers)| matches(subscribers));
        found.map(|(name, subscribers)| (&**name, &*subscribers.list))
    }

    /// True if somebody would get a message of this channel.
    pub(crate) fn has_any(&self, topic: Topic, channel: &[u8]) -> bool {
        !self.subscribers(topic, channel).is_empty()
            || (topic == Topic::Channel && self.matching(channel).next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[Arc<[u8]>]) -> Vec<&[u8]> {
        names.iter().map(|name| &**name).collect()
    }

    #[test]
    fn a_name_stays_as_long_as_somebody_has_subscribed() {
        let mut subscriptions = Subscriptions::default();
        let (a, b) = (ConnectionId::numbered(1), ConnectionId::numbered(2));
        assert!(subscriptions.add(Topic::Channel, b"news", b));
        assert!(subscriptions.add(Topic::Channel, b"news", a));
        assert!(!subscriptions.add(Topic::Channel, b"news", a), "twice");
        assert!(subscriptions.add(Topic::Shard, b"news", a), "another topic");
        assert_eq!(subscriptions.subscribers(Topic::Channel, b"news"), [a, b]);
        assert_eq!(subscriptions.counts(a), [1, 0, 1]);
        assert!(subscriptions.remove(Topic::Channel, b"news", b));
        assert!(!subscriptions.remove(Topic::Channel, b"news", b));
        assert_eq!(subscriptions.subscribers(Topic::Channel, b"news"), [a]);
        assert!(subscriptions.remove(Topic::Channel, b"news", a));
        assert!(!subscriptions.has_any(Topic::Channel, b"news"));
        assert!(subscriptions.has_any(Topic::Shard, b"news"));
        assert!(subscriptions.remove(Topic::Shard, b"news", a));
        assert!(subscriptions.own.is_empty() && subscriptions.names.iter().all(BTreeMap::is_empty));
    }

    #[test]
    fn patterns_match_channels_and_no_shard_channels() {
        let mut subscriptions = Subscriptions::default();
        let id = ConnectionId::numbered(7);
        for pattern in [&b"n*"[..], b"*s", b"N*", b"n[aeiou]ws"] {
            subscriptions.add(Topic::Pattern, pattern, id);
        }
        let matching: Vec<&[u8]> = subscriptions.matching(b"news").map(|(name, _)| name).collect();
        assert_eq!(matching, [&b"*s"[..], b"n*", b"n[aeiou]ws"]);
        assert!(
            subscriptions.has_any(Topic::Channel, b"news") && !subscriptions.has_any(Topic::Shard, b"news")
        );
        let own = subscriptions.of(Topic::Pattern, id);
        assert_eq!(named(&own), [&b"*s"[..], b"N*", b"n*", b"n[aeiou]ws"]);
    }

    proptest::proptest! {
        /// As many sets of pairs would have it.
        #[test]
        fn a_registry_is_a_set_of_pairs(script in proptest::collection::vec((0..2u8, 0..3usize, 0..4u8, 0..4u32), 1..80)) {
            let (mut subscriptions, mut pairs) = (Subscriptions::default(), BTreeSet::new());
            for (action, topic, name, connection) in script {
                let (id, bytes) = (ConnectionId::numbered(connection), [name]);
                let changed = match action {
                    0 => (subscriptions.add(Topic::ALL[topic], &bytes, id), pairs.insert((topic, name, id))),
                    _ => (subscriptions.remove(Topic::ALL[topic], &bytes, id), pairs.remove(&(topic, name, id))),
                };
                proptest::prop_assert_eq!(changed.0, changed.1);
                for topic in [0, 2] {
                    for name in 0..4 {
                        let expected: Vec<_> = pairs.iter().filter(|pair| (pair.0, pair.1) == (topic, name)).map(|pair| pair.2).collect();
                        proptest::prop_assert_eq!(subscriptions.subscribers(Topic::ALL[topic], &[name]), expected);
                    }
                }
                for connection in 0..4 {
                    let id = ConnectionId::numbered(connection);
                    let count = |topic| pairs.iter().filter(|pair| (pair.0, pair.2) == (topic, id)).count();
                    proptest::prop_assert_eq!(subscriptions.counts(id), [count(0), count(1), count(2)]);
                }
            }
        }
    }
}
