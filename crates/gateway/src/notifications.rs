//! Keyspace notifications: what `notify-keyspace-events` chooses, and which events the replies to commands tell of.
//!
//! An event is two messages, to `__keyspace@N__:key` and to `__keyevent@N__:event`, where N is the keyspace's number. They
//! travel as published ones do: when the transaction of their command has committed. Whether something has changed, the
//! reply tells. Where it does not, the command is [surrounded](surrounded) by steps that look, as long as notifications
//! are on.

use crate::combine::Combine;
use crate::news::Message;
use crate::plan::{Call, Plan};
use datatypes::{Items, Operation, key, scored_set, stream};
use protocol::{KeyedOperation, Step};
use resp::{Arguments, parse_integer};
use types::{KeyspaceId, Reply, ReplyBuf};

/// Redis's letters of the classes of events, in the order of their bits, and of its texts.
const CLASSES: &str = "g$lshzxetdn";
/// `A` stands for all but the last.
const ALL: u16 = (1 << 10) - 1;
const KEYSPACE: u16 = 1 << 11;
const KEYEVENT: u16 = 1 << 12;
const MISS: u16 = 1 << 13;

/// Which events are published: `notify-keyspace-events`.
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

    /// True if any event is published.
    #[inline]
    pub fn is_on(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0 && self.0 & !(KEYSPACE | KEYEVENT) != 0
    }

    /// True if events of keys that are gone though no command has deleted them are published.
    #[inline]
    pub fn tell_of_lapses(self) -> bool {
        self.is_on() && (self.has('x') || self.has('e'))
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

/// Why a key is gone that no command has deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    /// It has expired.
    Expired,
    /// The cache had no room for it.
    Evicted,
}

/// A key that is gone though no command has deleted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: Box<[u8]>,
    /// Why.
    pub why: Lapse,
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
    messages_of(chosen, keyspace, events(name, arguments, reply))
}

/// The messages that tell of a key that is gone.
pub(crate) fn of_lapsed(chosen: Notifications, lapsed: &Lapsed) -> Vec<Message> {
    let (class, name) = match lapsed.why {
        Lapse::Expired => ('x', "expired"),
        Lapse::Evicted => ('e', "evicted"),
    };
    messages_of(chosen, lapsed.keyspace, vec![Event { class, name, key: &lapsed.key }])
}

fn messages_of(chosen: Notifications, keyspace: KeyspaceId, events: Vec<Event<'_>>) -> Vec<Message> {
    let mut messages = Vec::new();
    for Event { class, name, key } in events {
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
        "xgroup|delconsumer" => {
            let (key, group) = (call.bytes(2), call.bytes(3));
            let consumers = stream::Operation::DescribeConsumers { key, group };
            let consumers = || look(Operation::Stream(consumers.clone()));
            let steps = vec![consumers(), Step::Key(operation), consumers()];
            Plan::Many { steps, combine: Combine::Pick(1) }
        }
        "xadd" => {
            let length = || look(Operation::Stream(stream::Operation::Length));
            let steps = vec![length(), Step::Key(operation), length()];
            Plan::Many { steps, combine: Combine::Pick(1) }
        }
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
fn events<'a>(name: &'a str, arguments: Arguments<'a>, reply: &'a ReplyBuf) -> Vec<Event<'a>> {
    if reply.elements().any(|element| matches!(element, Reply::Error(_))) {
        return Vec::new();
    }
    let done = Done { name, arguments, reply };
    let families = [
        Done::on_string,
        Done::on_key,
        Done::on_hash,
        Done::on_list,
        Done::on_set,
        Done::on_scored_set,
        Done::on_stream,
    ];
    families.iter().find_map(|family| family(&done)).unwrap_or_default()
}

/// A command that was carried out.
#[derive(Clone, Copy)]
struct Done<'a> {
    name: &'a str,
    arguments: Arguments<'a>,
    reply: &'a ReplyBuf,
}

impl<'a> Done<'a> {
    fn argument(self, index: usize) -> &'a [u8] {
        self.arguments.get(index).unwrap_or_default()
    }

    fn is(self, index: usize, word: &str) -> bool {
        self.argument(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// True if a word stands from this argument on.
    fn has(self, from: usize, word: &str) -> bool {
        (from..self.arguments.len()).any(|index| self.is(index, word))
    }

    fn sets_deadline(self, from: usize) -> bool {
        ["EX", "PX", "EXAT", "PXAT"].iter().any(|word| self.has(from, word))
    }

    /// It replied a number above 0.
    fn is_positive(self) -> bool {
        matches!(self.reply.first(), Some(Reply::Integer(1..)))
    }

    /// It replied nothing.
    fn is_null(self) -> bool {
        use Reply::{Array, Map, Null, NullArray, Pairs, Set};
        matches!(self.reply.first(), None | Some(Null | NullArray | Array(0) | Set(0) | Pairs(0) | Map(0)))
    }

    /// Something happened to the key that this argument names.
    fn event(self, class: char, name: &'a str, index: usize) -> Event<'a> {
        Event { class, name, key: self.argument(index) }
    }

    fn always(self, class: char, name: &'a str) -> Option<Vec<Event<'a>>> {
        self.when(true, class, name, 1)
    }

    fn when(self, happened: bool, class: char, name: &'a str, index: usize) -> Option<Vec<Event<'a>>> {
        Some(if happened { vec![self.event(class, name, index)] } else { Vec::new() })
    }

    /// Something was removed; a step behind it has looked whether the key is still there.
    fn removed(self, happened: bool, class: char, name: &'a str) -> Option<Vec<Event<'a>>> {
        let mut events = self.when(happened, class, name, 1)?;
        if happened && matches!(self.reply.elements().last(), Some(Reply::Integer(0))) {
            events.push(self.event('g', "del", 1));
        }
        Some(events)
    }

    fn on_string(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "set" => {
                let is_set = match (self.has(3, "GET"), self.has(3, "NX"), self.has(3, "XX")) {
                    (false, ..) | (true, _, true) => !self.is_null(),
                    (true, true, false) => self.is_null(),
                    (true, false, false) => true,
                };
                let mut events = self.when(is_set, '$', "set", 1)?;
                if is_set && self.sets_deadline(3) {
                    events.push(self.event('g', "expire", 1));
                }
                Some(events)
            }
            "setex" | "psetex" => Some(vec![self.event('$', "set", 1), self.event('g', "expire", 1)]),
            "getset" => self.always('$', "set"),
            "setnx" => self.when(self.is_positive(), '$', "set", 1),
            "mset" | "msetnx" => {
                let is_set = self.name == "mset" || self.is_positive();
                let all = (1..self.arguments.len()).step_by(2).filter(|_| is_set);
                Some(all.map(|index| self.event('$', "set", index)).collect())
            }
            "append" | "setbit" | "incrbyfloat" => self.always('$', self.name),
            "setrange" => self.when(self.is_positive() && !self.argument(3).is_empty(), '$', "setrange", 1),
            "incr" | "decr" | "incrby" | "decrby" => self.always('$', "incrby"),
            "bitfield" => self.when(self.has(2, "SET") || self.has(2, "INCRBY"), '$', "setbit", 1),
            "bitop" => self.when(self.is_positive(), '$', "set", 2),
            "pfadd" => self.when(self.is_positive(), '$', "pfadd", 1),
            "pfmerge" => self.always('$', "pfadd"),
            _ => None,
        }
    }

    fn on_key(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "del" | "unlink" => {
                let deleted = |element| matches!(element, Reply::Integer(1));
                let each = self.reply.elements().map(deleted).enumerate().filter(|(_, deleted)| *deleted);
                Some(each.map(|(index, _)| self.event('g', "del", index + 1)).collect())
            }
            "getdel" => self.when(!self.is_null(), 'g', "del", 1),
            "getex" => self.when(!self.is_null() && self.sets_deadline(2), 'g', "expire", 1),
            "expire" | "pexpire" | "expireat" | "pexpireat" => {
                let is_gone = matches!(self.reply.elements().last(), Some(Reply::Integer(0)));
                self.when(self.is_positive(), 'g', if is_gone { "del" } else { "expire" }, 1)
            }
            "persist" => self.when(self.is_positive(), 'g', "persist", 1),
            "rename" | "renamenx" => {
                let is_moved = self.argument(1) != self.argument(2)
                    && !matches!(self.reply.first(), Some(Reply::Integer(0)));
                let mut events = self.when(is_moved, 'g', "rename_from", 1)?;
                events.extend(self.when(is_moved, 'g', "rename_to", 2)?);
                Some(events)
            }
            "copy" => self.when(self.is_positive(), 'g', "copy_to", 2),
            "restore" => self.always('g', "restore"),
            "sort" => {
                let target = (3..self.arguments.len()).rev().find(|index| self.is(index - 1, "STORE"));
                target.and_then(|index| self.when(self.is_positive(), 'l', "sortstore", index))
            }
            _ => None,
        }
    }

    fn on_hash(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "hset" | "hmset" => self.always('h', "hset"),
            "hsetnx" => self.when(self.is_positive(), 'h', "hset", 1),
            "hincrby" | "hincrbyfloat" => self.always('h', self.name),
            "hdel" => self.removed(self.is_positive(), 'h', "hdel"),
            _ => None,
        }
    }

    fn on_list(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "lpush" | "rpush" | "lset" => self.always('l', self.name),
            "lpushx" => self.when(self.is_positive(), 'l', "lpush", 1),
            "rpushx" => self.when(self.is_positive(), 'l', "rpush", 1),
            "linsert" => self.when(self.is_positive(), 'l', "linsert", 1),
            "lrem" | "ltrim" => self.removed(self.is_positive(), 'l', self.name),
            "lpop" | "rpop" => self.removed(!self.is_null(), 'l', self.name),
            "blpop" => Some(self.taken('l', "lpop")),
            "brpop" => Some(self.taken('l', "rpop")),
            "rpoplpush" | "brpoplpush" => Some(self.moved(false, true)),
            "lmove" | "blmove" => Some(self.moved(self.is(3, "LEFT"), self.is(4, "LEFT"))),
            "lmpop" => Some(self.popped(1, 'l', ("LEFT", "lpop"), "rpop")),
            "blmpop" => Some(self.popped(2, 'l', ("LEFT", "lpop"), "rpop")),
            _ => None,
        }
    }

    /// An element went from one list to another, from and to the left or the right end.
    fn moved(self, from_left: bool, to_left: bool) -> Vec<Event<'a>> {
        if self.is_null() {
            return Vec::new();
        }
        // As Redis tells it: where it is now, then where it was.
        let to = self.event('l', if to_left { "lpush" } else { "rpush" }, 2);
        vec![to, self.event('l', if from_left { "lpop" } else { "rpop" }, 1)]
    }

    /// The reply names the key of which elements were removed.
    fn taken(self, class: char, name: &'a str) -> Vec<Event<'a>> {
        match self.reply.elements().nth(1) {
            Some(Reply::Bulk(key)) => vec![Event { class, name, key }],
            _ => Vec::new(),
        }
    }

    /// The same, from the end that a word behind the keys chooses; how many keys there are tells the argument `count`.
    fn popped(
        self,
        count: usize,
        class: char,
        (word, name): (&str, &'a str),
        otherwise: &'a str,
    ) -> Vec<Event<'a>> {
        let keys = parse_integer(self.argument(count)).and_then(|keys| usize::try_from(keys).ok());
        let is_chosen = self.is(keys.unwrap_or(0).saturating_add(count + 1), word);
        self.taken(class, if is_chosen { name } else { otherwise })
    }

    fn on_set(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "sadd" => self.when(self.is_positive(), 's', "sadd", 1),
            "srem" => self.removed(self.is_positive(), 's', "srem"),
            "spop" => self.removed(!self.is_null(), 's', "spop"),
            "smove" => {
                let mut events = self.when(self.is_positive(), 's', "srem", 1)?;
                events.extend(self.when(self.is_positive(), 's', "sadd", 2)?);
                Some(events)
            }
            "sinterstore" | "sunionstore" | "sdiffstore" => self.when(self.is_positive(), 's', self.name, 1),
            _ => None,
        }
    }

    fn on_scored_set(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "zadd" if self.has(2, "INCR") => self.when(!self.is_null(), 'z', "zincr", 1),
            "zadd" | "geoadd" => self.when(differs(self.reply), 'z', "zadd", 1),
            "zincrby" => self.always('z', "zincr"),
            "zrem" | "zremrangebyrank" | "zremrangebyscore" | "zremrangebylex" => {
                self.removed(self.is_positive(), 'z', self.name)
            }
            "zpopmin" | "zpopmax" => self.removed(!self.is_null(), 'z', self.name),
            "bzpopmin" => Some(self.taken('z', "zpopmin")),
            "bzpopmax" => Some(self.taken('z', "zpopmax")),
            "zmpop" => Some(self.popped(1, 'z', ("MIN", "zpopmin"), "zpopmax")),
            "bzmpop" => Some(self.popped(2, 'z', ("MIN", "zpopmin"), "zpopmax")),
            "zunionstore" | "zinterstore" | "zdiffstore" | "zrangestore" | "geosearchstore" => {
                self.when(self.is_positive(), 'z', self.name, 1)
            }
            _ => None,
        }
    }
}

impl<'a> Done<'a> {
    fn on_stream(&self) -> Option<Vec<Event<'a>>> {
        match self.name {
            "xadd" => {
                let lengths: Vec<Reply<'_>> = self.reply.elements().collect();
                let [Reply::Integer(before), Reply::Bulk(_), Reply::Integer(after)] = lengths[..] else {
                    return Some(Vec::new());
                };
                let mut events = vec![self.event('t', "xadd", 1)];
                // It has trimmed, too.
                events.extend((after <= before).then(|| self.event('t', "xtrim", 1)));
                Some(events)
            }
            "xdel" | "xtrim" => self.when(self.is_positive(), 't', self.name, 1),
            "xsetid" => self.always('t', "xsetid"),
            "xgroup|create" => self.when(true, 't', "xgroup-create", 2),
            "xgroup|setid" => self.when(true, 't', "xgroup-setid", 2),
            "xgroup|destroy" => self.when(self.is_positive(), 't', "xgroup-destroy", 2),
            "xgroup|delconsumer" => self.when(differs(self.reply), 't', "xgroup-delconsumer", 2),
            "xgroup|createconsumer" => self.when(self.is_positive(), 't', "xgroup-createconsumer", 2),
            _ => None,
        }
    }
}

/// True if what was looked at before and after differs: the first half of the elements, around one, and the second.
fn differs(reply: &ReplyBuf) -> bool {
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
        let flags = Notifications::parse("EA").unwrap_or_default();
        assert_eq!(Notifications::from_bits(flags.bits()), flags);
    }
}
