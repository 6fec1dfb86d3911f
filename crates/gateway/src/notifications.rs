//! Keyspace notifications: what `notify-keyspace-events` chooses, and which events the replies to commands tell of.
//!
//! An event is two messages, to `__keyspace@N__:key` and to `__keyevent@N__:event`, where N is the keyspace's number. They
//! travel as published ones do: when the transaction of their command has committed. Whether something has changed, the
//! reply tells. Where it does not, the command is [surrounded](surrounded) by steps that look, as long as notifications
//! are on.

use crate::combine::Combine;
use crate::news::Message;
use crate::plan::{Call, Plan};
use datatypes::{Items, Operation, key, scored_set};
use protocol::{KeyedOperation, Step};
use resp::Arguments;
use types::{KeyspaceId, Reply, ReplyBuf};

/// Redis's letters of the classes of events, in the order of their bits, and of its texts.
const CLASSES: &str = "g$lshzxetdn";
/// `A` stands for all but the last.
const ALL: u16 = (1 << 10) - 1;
const KEYSPACE: u16 = 1 << 11;
const KEYEVENT: u16 = 1 << 12;
const MISS: u16 = 1 << 13;

/// Which events are told of: `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notifications(u16);

impl Notifications {
    /// Reads Redis's letters; `None` if one is none of them.
    pub fn parse(text: &str) -> Option<Self> {
        text.chars().try_fold(0, |flags, letter| Some(flags | bits_of(letter)?)).map(Notifications)
    }

    /// As one number.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// What [`Notifications::bits`] gave.
    pub fn from_bits(bits: u16) -> Self {
        Notifications(bits)
    }

    /// True if anything is told of.
    #[inline]
    pub fn is_on(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0 && self.0 & !(KEYSPACE | KEYEVENT) != 0
    }

    /// The letters, as `CONFIG GET` shows them.
    pub fn text(self) -> String {
        let mut text = String::new();
        if self.0 & ALL == ALL {
            text.push('A');
        } else {
            let chosen = CLASSES.chars().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
            text.extend(chosen.map(|(_, letter)| letter));
        }
        let others = [(KEYSPACE, 'K'), (KEYEVENT, 'E'), (MISS, 'm')];
        text.extend(others.iter().filter(|(flag, _)| self.0 & flag != 0).map(|(_, letter)| letter));
        text
    }

    fn has(self, class: char) -> bool {
        bits_of(class).is_some_and(|bit| self.0 & bit != 0)
    }
}

fn bits_of(letter: char) -> Option<u16> {
    match letter {
        'A' => Some(ALL),
        'K' => Some(KEYSPACE),
        'E' => Some(KEYEVENT),
        'm' => Some(MISS),
        class => CLASSES.find(class).map(|bit| 1 << bit),
    }
}

/// What happened to a key.
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    class: char,
    name: &'a str,
    key: &'a [u8],
}

/// The messages that tell of what a command did in a keyspace; `reply` is that to its steps, or its own.
pub(crate) fn messages(
    chosen: Notifications,
    keyspace: KeyspaceId,
    (name, arguments): (&str, Arguments<'_>),
    reply: &ReplyBuf,
) -> Vec<Message> {
    let mut messages = Vec::new();
    for Event { class, name, key } in events(name, arguments, reply) {
        if !chosen.has(class) {
            continue;
        }
        let mut add = |channel: &str, about: &[u8], payload: &[u8]| {
            let channel = [format!("__{channel}@{}__:", keyspace.0).as_bytes(), about].concat();
            let (channel, payload) = (channel.into(), payload.into());
            messages.push(Message { sharded: false, channel, payload, context: None });
        };
        if chosen.0 & KEYSPACE != 0 {
            add("keyspace", key, name.as_bytes());
        }
        if chosen.0 & KEYEVENT != 0 {
            add("keyevent", name.as_bytes(), key);
        }
    }
    messages
}

/// The command with steps around it that tell what its reply does not.
pub(crate) fn surrounded<'a>(plan: Plan<'a>, call: &Call<'a>) -> Plan<'a> {
    let Plan::One(operation) = plan else { return plan };
    let (key, hash) = (operation.key, operation.hash);
    let look = |operation| Step::Key(KeyedOperation { key, hash, operation, blind: false });
    let exists = || look(Operation::Key(key::Operation::Exists));
    match call.command.name {
        "hdel" | "lpop" | "rpop" | "lrem" | "srem" | "spop" | "zrem" | "zpopmin" | "zpopmax"
        | "zremrangebyrank" | "zremrangebyscore" | "zremrangebylex" | "expire" | "pexpire" | "expireat"
        | "pexpireat" => {
            Plan::Many { steps: vec![Step::Key(operation), exists()], combine: Combine::Pick(0) }
        }
        "ltrim" => {
            Plan::Many { steps: vec![exists(), Step::Key(operation), exists()], combine: Combine::Pick(1) }
        }
        _ => match &operation.operation {
            Operation::ScoredSet(scored_set::Operation::Add { items, .. }) => {
                let members = Items::collect(items.iter().map(|(_, member)| *member));
                let scores =
                    || look(Operation::ScoredSet(scored_set::Operation::Scores { members: members.clone() }));
                let (before, after) = (scores(), scores());
                Plan::Many { steps: vec![before, Step::Key(operation), after], combine: Combine::Pick(1) }
            }
            _ => Plan::One(operation),
        },
    }
}

/// The events of a command, in order.
fn events<'a>(name: &'a str, arguments: Arguments<'a>, reply: &ReplyBuf) -> Vec<Event<'a>> {
    if reply.elements().any(|element| matches!(element, Reply::Error(_))) {
        return Vec::new();
    }
    let argument = |index| arguments.get(index).unwrap_or_default();
    let is = |index, word: &str| argument(index).eq_ignore_ascii_case(word.as_bytes());
    let has = |from: usize, word: &str| (from..arguments.len()).any(|index| is(index, word));
    let on = |class, name, index| vec![Event { class, name, key: argument(index) }];
    let when = |happened: bool, events: Vec<Event<'a>>| if happened { events } else { Vec::new() };
    let (first, last) = (reply.first(), reply.elements().last());
    let is_positive = matches!(first, Some(Reply::Integer(1..)));
    let is_null =
        matches!(first, None | Some(Reply::Null | Reply::NullArray | Reply::Array(0) | Reply::Set(0)))
            || matches!(first, Some(Reply::Pairs(0) | Reply::Map(0)));
    // Of a command that looks whether the key is still there.
    let is_emptied = matches!(last, Some(Reply::Integer(0)));
    let removed = |happened: bool, class, name| {
        let mut events = when(happened, on(class, name, 1));
        if happened && is_emptied {
            events.extend(on('g', "del", 1));
        }
        events
    };
    match name {
        "set" => {
            let is_set = match (has(3, "GET"), has(3, "NX"), has(3, "XX")) {
                (false, ..) => !is_null,
                (true, true, _) => is_null,
                (true, _, true) => !is_null,
                (true, false, false) => true,
            };
            let expires = ["EX", "PX", "EXAT", "PXAT"].iter().any(|word| has(3, word));
            let mut events = when(is_set, on('$', "set", 1));
            events.extend(when(is_set && expires, on('g', "expire", 1)));
            events
        }
        "setex" | "psetex" => [on('$', "set", 1), on('g', "expire", 1)].into_iter().flatten().collect(),
        "getset" => on('$', "set", 1),
        "setnx" => when(is_positive, on('$', "set", 1)),
        "mset" => (1..arguments.len()).step_by(2).flat_map(|index| on('$', "set", index)).collect(),
        "msetnx" => {
            let all = (1..arguments.len()).step_by(2).flat_map(|index| on('$', "set", index));
            when(is_positive, all.collect())
        }
        "append" => on('$', "append", 1),
        "setrange" => when(is_positive && !argument(3).is_empty(), on('$', "setrange", 1)),
        "incr" | "decr" | "incrby" | "decrby" => on('$', "incrby", 1),
        "incrbyfloat" => on('$', "incrbyfloat", 1),
        "setbit" => on('$', "setbit", 1),
        "bitfield" => when(has(2, "SET") || has(2, "INCRBY"), on('$', "setbit", 1)),
        "bitop" => when(is_positive, on('$', "set", 2)),
        "pfadd" => when(is_positive, on('$', "pfadd", 1)),
        "pfmerge" => on('$', "pfadd", 1),
        "getdel" => when(!is_null, on('g', "del", 1)),
        "getex" => {
            let expires = ["EX", "PX", "EXAT", "PXAT"].iter().any(|word| is(2, word));
            when(!is_null && expires, on('g', "expire", 1))
        }
        "del" | "unlink" => {
            let deleted = |element| matches!(element, Reply::Integer(1));
            let each = reply.elements().map(deleted).enumerate().filter(|(_, deleted)| *deleted);
            each.flat_map(|(index, _)| on('g', "del", index + 1)).collect()
        }
        "expire" | "pexpire" | "expireat" | "pexpireat" => {
            when(is_positive, on('g', if is_emptied { "del" } else { "expire" }, 1))
        }
        "persist" => when(is_positive, on('g', "persist", 1)),
        "rename" | "renamenx" => {
            let moved = argument(1) != argument(2) && !matches!(first, Some(Reply::Integer(0)));
            let both = on('g', "rename_from", 1).into_iter().chain(on('g', "rename_to", 2));
            when(moved, both.collect())
        }
        "copy" => when(is_positive, on('g', "copy_to", 2)),
        "restore" => on('g', "restore", 1),
        "sort" => match (2..arguments.len()).rev().find(|index| is(index - 1, "STORE")) {
            Some(index) => when(is_positive, on('l', "sortstore", index)),
            None => Vec::new(),
        },
        "hset" | "hmset" => on('h', "hset", 1),
        "hsetnx" => when(is_positive, on('h', "hset", 1)),
        "hincrby" => on('h', "hincrby", 1),
        "hincrbyfloat" => on('h', "hincrbyfloat", 1),
        "hdel" => removed(is_positive, 'h', "hdel"),
        "lpush" => on('l', "lpush", 1),
        "rpush" => on('l', "rpush", 1),
        "lpushx" => when(is_positive, on('l', "lpush", 1)),
        "rpushx" => when(is_positive, on('l', "rpush", 1)),
        "linsert" => when(is_positive, on('l', "linsert", 1)),
        "lset" => on('l', "lset", 1),
        "lrem" => removed(is_positive, 'l', "lrem"),
        "ltrim" => removed(is_positive, 'l', "ltrim"),
        "lpop" | "rpop" => removed(!is_null, 'l', name),
        "rpoplpush" => when(!is_null, moved_elements(arguments, false, true)),
        "lmove" => when(!is_null, moved_elements(arguments, is(3, "LEFT"), is(4, "LEFT"))),
        "sadd" => when(is_positive, on('s', "sadd", 1)),
        "srem" => removed(is_positive, 's', "srem"),
        "spop" => removed(!is_null, 's', "spop"),
        "smove" => when(is_positive, on('s', "srem", 1).into_iter().chain(on('s', "sadd", 2)).collect()),
        "sinterstore" | "sunionstore" | "sdiffstore" => when(is_positive, on('s', name, 1)),
        "zadd" if has(2, "INCR") => when(!is_null, on('z', "zincr", 1)),
        "zadd" => when(scores_differ(reply), on('z', "zadd", 1)),
        "geoadd" => when(scores_differ(reply), on('z', "zadd", 1)),
        "zincrby" => on('z', "zincr", 1),
        "zrem" => removed(is_positive, 'z', "zrem"),
        "zpopmin" | "zpopmax" => removed(!is_null, 'z', name),
        "zremrangebyrank" | "zremrangebyscore" | "zremrangebylex" => removed(is_positive, 'z', name),
        "zunionstore" | "zinterstore" | "zdiffstore" | "zrangestore" | "geosearchstore" => {
            when(is_positive, on('z', name, 1))
        }
        _ => Vec::new(),
    }
}

/// An element went from one list to another, from and to the left or the right end.
fn moved_elements<'a>(arguments: Arguments<'a>, from_left: bool, to_left: bool) -> Vec<Event<'a>> {
    let event = |name, index| Event { class: 'l', name, key: arguments.get(index).unwrap_or_default() };
    vec![event(if from_left { "lpop" } else { "rpop" }, 1), event(if to_left { "lpush" } else { "rpush" }, 2)]
}

/// True if the arrays of scores before and after differ: the first half of the elements, around one, and the second.
fn scores_differ(reply: &ReplyBuf) -> bool {
    let elements: Vec<Reply<'_>> = reply.elements().collect();
    let half = elements.len() / 2;
    elements[..half] != elements[elements.len() - half..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_shown_as_redis_does() {
        for (text, shown) in [
            ("KEAx", "AKE"),
            ("Kg$", "g$K"),
            ("AKEmn", "AKEm"),
            ("", ""),
            ("$lshzxetgdE", "AE"),
            ("nK", "nK"),
        ] {
            assert_eq!(Notifications::parse(text).map(Notifications::text).as_deref(), Some(shown), "{text}");
        }
        assert_eq!(Notifications::parse("Kq"), None);
        let is_on = |text| Notifications::parse(text).is_some_and(Notifications::is_on);
        assert!(is_on("Kg") && is_on("EA") && !is_on("KE") && !is_on("A"));
        let kept = Notifications::parse("EA").unwrap_or_default();
        assert_eq!(Notifications::from_bits(kept.bits()), kept);
    }
}
