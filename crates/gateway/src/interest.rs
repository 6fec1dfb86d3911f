//! Which channels the gateways of a process have subscribers of: what `PUBLISH` replies, and what `PUBSUB` tells.

use crate::news::Message;
use crate::subscriptions::Topic;
use datatypes::glob::Pattern;
use std::collections::BTreeMap;

/// See the module. A process has one, which its gateways share.
#[derive(Debug, Default)]
pub struct Interest {
    names: [BTreeMap<Box<[u8]>, Subscribed>; 3],
}

/// The subscribers of one name.
#[derive(Debug)]
struct Subscribed {
    /// How many each gateway has; none has 0.
    counts: Vec<(u16, u64)>,
    /// Of a pattern.
    pattern: Option<Pattern>,
}

/// Who gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// How often it is delivered in this process.
    pub(crate) receivers: u64,
    /// How often by the gateway that asks.
    pub(crate) own: u64,
}

impl Subscribed {
    fn sum(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

impl Interest {
    /// A connection of this gateway has subscribed to a name, or does not any more.
    pub(crate) fn change(&mut self, gateway: u16, topic: Topic, name: &[u8], subscribes: bool) {
        let names = &mut self.names[topic as usize];
        if subscribes && !names.contains_key(name) {
            names.insert(name.into(), Subscribed { counts: Vec::new(), pattern: topic.pattern(name) });
        }
        let Some(subscribed) = names.get_mut(name) else { return };
        let position = subscribed.counts.iter().position(|(its, _)| *its == gateway);
        match position {
            Some(position) if subscribes => subscribed.counts[position].1 += 1,
            Some(position) if subscribed.counts[position].1 > 1 => subscribed.counts[position].1 -= 1,
            Some(position) => {
                subscribed.counts.swap_remove(position);
            }
            None if subscribes => subscribed.counts.push((gateway, 1)),
            None => {}
        }
        if subscribed.counts.is_empty() {
            names.remove(name);
        }
    }

    /// Who would get the message, for this gateway.
    pub(crate) fn reached(&self, gateway: u16, message: &Message) -> Reached {
        let mut reached = Reached::default();
        let mut add = |subscribed: &Subscribed| {
            for (its, count) in &subscribed.counts {
                reached.receivers += count;
                reached.own += if *its == gateway { *count } else { 0 };
            }
        };
        let named = &self.names[Topic::of_message(message.sharded) as usize];
        named.get(&message.channel).into_iter().for_each(&mut add);
        if !message.sharded {
            let is_match = |subscribed: &&Subscribed| {
                subscribed.pattern.as_ref().is_some_and(|pattern| pattern.matches(&message.channel))
            };
            self.names[Topic::Pattern as usize].values().filter(is_match).for_each(add);
        }
        reached
    }

    /// How many names have subscribers: channels, patterns, shard channels.
    pub fn counts(&self) -> [usize; 3] {
        [self.names[0].len(), self.names[1].len(), self.names[2].len()]
    }

    /// How many subscribers a name has.
    pub(crate) fn subscribers(&self, topic: Topic, name: &[u8]) -> u64 {
        self.names[topic as usize].get(name).map_or(0, Subscribed::sum)
    }

    /// The names that match the pattern, or all, in order.
    pub(crate) fn names(&self, topic: Topic, pattern: Option<&Pattern>) -> Vec<&[u8]> {
        let names = self.names[topic as usize].keys().map(|name| &**name);
        names.filter(|name| pattern.is_none_or(|pattern| pattern.matches(name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: &[u8], sharded: bool) -> Message {
        Message { sharded, channel: channel.into(), payload: Box::default(), context: None }
    }

    #[test]
    fn receivers_are_counted_over_all_gateways() {
        let mut interest = Interest::default();
        interest.change(0, Topic::Channel, b"news", true);
        interest.change(1, Topic::Channel, b"news", true);
        interest.change(1, Topic::Channel, b"news", true);
        interest.change(1, Topic::Pattern, b"n*", true);
        interest.change(0, Topic::Shard, b"news", true);
        assert_eq!(interest.reached(0, &message(b"news", false)), Reached { receivers: 4, own: 1 });
        assert_eq!(interest.reached(1, &message(b"next", false)), Reached { receivers: 1, own: 1 });
        assert_eq!(interest.reached(1, &message(b"news", true)), Reached { receivers: 1, own: 0 });
        assert_eq!((interest.subscribers(Topic::Channel, b"news"), interest.counts()), (3, [1, 1, 1]));
        interest.change(2, Topic::Channel, b"news", false);
        for gateway in [0, 1, 1] {
            interest.change(gateway, Topic::Channel, b"news", false);
        }
        assert_eq!(interest.names(Topic::Channel, None), [b""; 0]);
        assert_eq!(interest.reached(0, &message(b"news", false)), Reached { receivers: 1, own: 0 });
    }

    #[test]
    fn names_are_found_by_pattern() {
        let mut interest = Interest::default();
        for name in [&b"b"[..], b"ab", b"aa"] {
            interest.change(3, Topic::Channel, name, true);
        }
        assert_eq!(interest.names(Topic::Channel, Some(&Pattern::new(b"a?", false))), [b"aa", b"ab"]);
        assert_eq!(interest.names(Topic::Shard, None), [b""; 0]);
    }
}
