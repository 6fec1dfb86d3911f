//! Operations on a stream.

use super::{ENTRIES, Effect, Ids, NewId, StreamId};
use crate::codec::{Field, borrowed_enum, wire_fields};
use crate::{Aspect, Items, Kind, Observation};
use types::{Malformed, Reader, wire_enum, wire_struct};

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Behind this id.
    After {
        /// The id.
        id: StreamId,
    },
    /// Behind the last one there is (`$`).
    Last,
}
wire_enum!(Start { 0 => After { id }, 1 => Last });

/// Which entries are trimmed away, from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// All but the last so many.
    Length {
        /// How many stay.
        length: u64,
        /// Only what is easy to remove, at most so many, 0 for any number; `None` removes exactly.
        about: Option<u64>,
    },
    /// Those before an id.
    Id {
        /// The id.
        id: StreamId,
        /// See [`Trim::Length`].
        about: Option<u64>,
    },
}
wire_enum!(Trim { 0 => Length { length, about }, 1 => Id { id, about } });

/// How XCLAIM hands entries over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claiming {
    /// Only entries that were delivered at least so many milliseconds ago.
    pub min_idle_millis: u64,
    /// When they were delivered last; `None` is now, and so is what is to come.
    pub at: Option<DeliveredAt>,
    /// How often they were delivered; `None` is once more than before.
    pub count: Option<u64>,
    /// Entries without an owner are claimed, too.
    pub force: bool,
    /// Replies ids only, and leaves the counts.
    pub just_ids: bool,
    /// The group has read up to here, if not further.
    pub last: Option<StreamId>,
}
wire_struct!(Claiming { min_idle_millis, at, count, force, just_ids, last });

/// When an entry is said to have been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveredAt {
    /// So many milliseconds ago.
    Ago {
        /// How many.
        millis: i64,
    },
    /// Milliseconds since 1970.
    Time {
        /// How many.
        millis: i64,
    },
}
wire_enum!(DeliveredAt { 0 => Ago { millis }, 1 => Time { millis } });
wire_fields!(Start, Trim, Option<Trim>, Claiming);

impl<'a> Field<'a> for Option<&'a [u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(bytes) = self {
            bytes.put(out);
        }
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(None),
            1 => Ok(Some(input.bytes()?)),
            _ => Err(Malformed("optional bytes")),
        }
    }
}

/// An operation on a stream. `key` is the key's name, for errors.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Adds an entry: its id. Refused if that is not greater than all before.
    Add {
        /// Which id.
        id: NewId,
        /// Field, value, field, value, ...
        items: Items<'a>,
        /// Does nothing and replies null when the key is absent (NOMKSTREAM).
        only_if_exists: bool,
        /// What is trimmed afterwards.
        trim: Option<Trim>,
    },
    /// How many entries there are.
    Length,
    /// The entries from one id to another.
    Range {
        /// The first.
        from: StreamId,
        /// The last.
        to: StreamId,
        /// At most so many.
        count: Option<u64>,
        /// From the last to the first.
        reverse: bool,
    },
    /// The entries behind a place, at most so many, 0 for all; the null array if there is none.
    Read {
        /// Where to begin.
        start: Start,
        /// How many.
        count: u64,
    },
    /// Removes entries: how many were there.
    Delete {
        /// Their ids, in words.
        ids: Items<'a>,
    },
    /// Removes entries from the front: how many.
    Trim {
        /// Which.
        trim: Trim,
    },
    /// Sets what is known of ids: `OK`.
    SetLast {
        /// The greatest that was given.
        last: StreamId,
        /// How many entries were ever added.
        added: Option<u64>,
        /// The greatest that was removed.
        max_deleted: Option<StreamId>,
    },
    /// Creates a group: `OK`. Refused if it is there.
    CreateGroup {
        /// Its name.
        group: &'a [u8],
        /// Where it begins to read.
        start: Start,
        /// How many entries are before that, if known.
        read: Option<u64>,
        /// Creates the stream, too.
        create: bool,
    },
    /// Sets up to where a group has read: `OK`.
    SetGroup {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// Where it goes on.
        start: Start,
        /// How many entries are before that, if known.
        read: Option<u64>,
    },
    /// Removes a group: 1 if it was there, else 0.
    DestroyGroup {
        /// Its name.
        group: &'a [u8],
    },
    /// Creates a consumer: 1, or 0 if it was there.
    CreateConsumer {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
    },
    /// Removes a consumer: how many entries it had not acknowledged.
    DeleteConsumer {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
    },
    /// `OK` if a group is there that XREADGROUP may read, else its error.
    FindGroup {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
    },
    /// Delivers entries to a consumer: those that the group has not delivered, the null array if there is none; or again
    /// those that the consumer has not acknowledged.
    ReadGroup {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
        /// The consumer's own entries behind this id; `None` for new ones.
        own_after: Option<StreamId>,
        /// At most so many; 0 for all.
        count: u64,
        /// New ones need no acknowledgement.
        no_ack: bool,
    },
    /// Acknowledges entries: how many were pending.
    Acknowledge {
        /// The group's name.
        group: &'a [u8],
        /// Their ids, in words.
        ids: Items<'a>,
    },
    /// A summary of what is pending.
    Pending {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
    },
    /// What is pending, entry by entry.
    PendingEntries {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// The first.
        from: StreamId,
        /// The last.
        to: StreamId,
        /// At most so many.
        count: u64,
        /// Of this consumer only.
        consumer: Option<&'a [u8]>,
        /// Only what was delivered at least so many milliseconds ago.
        min_idle_millis: u64,
    },
    /// Hands pending entries to a consumer: the entries, or their ids.
    Claim {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
        /// Their ids, in words, each checked.
        ids: Items<'a>,
        /// How.
        claiming: Claiming,
    },
    /// Hands pending entries from an id on to a consumer: where to go on, the entries, or their ids, and the ids of those
    /// that are not in the stream any more.
    AutoClaim {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
        /// Where to begin.
        from: StreamId,
        /// Only entries that were delivered at least so many milliseconds ago.
        min_idle_millis: u64,
        /// At most so many.
        count: u64,
        /// Replies ids only, and leaves the counts.
        just_ids: bool,
    },
    /// What there is to know of the stream.
    Describe,
    /// The same with at most so many entries and pending entries, 0 for all.
    DescribeAll {
        /// How many.
        count: u64,
    },
    /// What there is to know of the groups.
    DescribeGroups,
    /// What there is to know of a group's consumers.
    DescribeConsumers {
        /// The key.
        key: &'a [u8],
        /// The group's name.
        group: &'a [u8],
    },
}

borrowed_enum!(Operation, "stream operation tag", {
    0 => Add { id, items, only_if_exists, trim },
    1 => Length,
    2 => Range { from, to, count, reverse },
    3 => Read { start, count },
    4 => Delete { ids },
    5 => Trim { trim },
    6 => SetLast { last, added, max_deleted },
    7 => CreateGroup { group, start, read, create },
    8 => SetGroup { key, group, start, read },
    9 => DestroyGroup { group },
    10 => CreateConsumer { key, group, consumer },
    11 => DeleteConsumer { key, group, consumer },
    12 => FindGroup { key, group },
    13 => ReadGroup { key, group, consumer, own_after, count, no_ack },
    14 => Acknowledge { group, ids },
    15 => Pending { key, group },
    16 => PendingEntries { key, group, from, to, count, consumer, min_idle_millis },
    17 => Claim { key, group, consumer, ids, claiming },
    18 => AutoClaim { key, group, consumer, from, min_idle_millis, count, just_ids },
    19 => Describe,
    20 => DescribeAll { count },
    21 => DescribeGroups,
    22 => DescribeConsumers { key, group },
});

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Operation::Length
                | Operation::Range { .. }
                | Operation::Read { .. }
                | Operation::FindGroup { .. }
                | Operation::Pending { .. }
                | Operation::PendingEntries { .. }
                | Operation::Describe
                | Operation::DescribeAll { .. }
                | Operation::DescribeGroups
                | Operation::DescribeConsumers { .. }
        )
    }

    /// True when its result depends on the time.
    pub fn tells_time(&self) -> bool {
        matches!(
            self,
            Operation::PendingEntries { .. }
                | Operation::DescribeAll { .. }
                | Operation::DescribeConsumers { .. }
        )
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        let entries_and = |group: &'a [u8]| Aspect::Elements(Items::two(ENTRIES, group));
        let aspect = match self {
            Operation::Length => Aspect::Size,
            // Whether the key is there, which any effect may change that creates it.
            Operation::Add { only_if_exists: true, .. } => Aspect::Whole,
            Operation::Add { .. }
            | Operation::Range { .. }
            | Operation::Read { .. }
            | Operation::Delete { .. }
            | Operation::Trim { .. } => Aspect::Elements(Items::one(ENTRIES)),
            Operation::Acknowledge { group, .. } => Aspect::Elements(Items::one(group)),
            Operation::ReadGroup { group, .. }
            | Operation::Claim { group, .. }
            | Operation::AutoClaim { group, .. } => entries_and(group),
            // Whether the key is there, too: what is replied without it differs.
            Operation::SetLast { .. }
            | Operation::CreateGroup { .. }
            | Operation::SetGroup { .. }
            | Operation::DestroyGroup { .. }
            | Operation::CreateConsumer { .. }
            | Operation::DeleteConsumer { .. }
            | Operation::Describe
            | Operation::DescribeAll { .. }
            | Operation::DescribeGroups
            | Operation::DescribeConsumers { .. } => Aspect::Whole,
            Operation::FindGroup { group, .. }
            | Operation::Pending { group, .. }
            | Operation::PendingEntries { group, .. } => Aspect::Elements(Items::one(group)),
        };
        Observation::of(Kind::Stream, aspect)
    }

    /// See [`crate::Operation::blind_effect`]. Where the id is not given, it depends on the stream.
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Add { id: NewId::Given { id }, items, only_if_exists: false, trim: None } => {
                Some(Effect::Add { id: *id, items: items.clone(), trimmed: Ids::none() })
            }
            _ => None,
        }
    }
}
