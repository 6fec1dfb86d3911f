//! Stream: entries in the order of their ids, and groups of consumers that read them. Redis's stream.
//!
//! An operation chooses ids, once; effects name them, so replicas never choose again. What removes or acknowledges
//! names what it saw. What concurrent effects come to is in [`crate::merge`]: an entry whose id is taken gets the next
//! free one, acknowledgements win over deliveries, and deliveries of one entry to several consumers stay side by side.

mod apply;
mod claiming;
mod codec;
mod entries;
mod execute;
mod group;
mod groups;
mod id;
mod info;
mod operation;

pub use apply::{Patch, apply, exchange};
pub use codec::{decode_state, encode_state};
pub use entries::{Entries, Entry};
pub use execute::prepare;
pub use group::{Consumer, Group, Owner, Owners};
pub use id::{Delivery, Ids, NewId, StreamId};
pub use operation::{Claiming, DeliveredAt, Operation, Start, Trim};

use crate::codec::borrowed_enum;
use crate::observation::Footprint;
use crate::{Aspect, Items};
use std::collections::BTreeMap;

/// The state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// A stream without entries exists too.
    exists: bool,
    /// The entries.
    pub entries: Entries,
    /// The greatest id that was ever given; later ones are greater.
    pub last: StreamId,
    /// How many entries were ever added.
    pub added: u64,
    /// The greatest id that was removed by its name.
    pub max_deleted: StreamId,
    /// The groups by name.
    groups: BTreeMap<Box<[u8]>, Group>,
}

impl Stream {
    /// A stream, with or without entries.
    pub fn new(entries: Entries, last: StreamId, added: u64, max_deleted: StreamId) -> Self {
        Stream { exists: true, entries, last, added, max_deleted, groups: BTreeMap::new() }
    }

    /// True before it is created.
    pub fn is_empty(&self) -> bool {
        !self.exists
    }

    /// The groups by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// A group.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Puts a group in place of the one of its name.
    pub fn put_group(&mut self, name: &[u8], group: Group) {
        self.groups.insert(name.into(), group);
    }

    /// The bytes it occupies, allocator rounding estimated.
    pub fn memory(&self) -> usize {
        let groups = self.groups.iter().map(|(name, group)| name.len() + group.memory());
        size_of::<Stream>() + self.entries.memory() + groups.sum::<usize>()
    }

    /// About how many bytes a clone and a first write to it copy: clones share chunks of entries.
    pub fn copied(&self) -> usize {
        /// How many bytes a chunk has at least for each that it takes in the tree.
        const LISTED: usize = 16;
        /// A few chunks.
        const CHUNKS: usize = 16 << 10;
        let entries = self.entries.memory();
        self.memory() - entries + entries.min(CHUNKS + entries / LISTED)
    }
}

/// A mutation of a stream. What names a group or an entry that is not there does nothing to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// An entry is added, and others are trimmed away. If the id is taken, the entry gets the next free one.
    Add {
        /// Its id.
        id: StreamId,
        /// Field, value, field, value, ...
        items: Items<'a>,
        /// What is trimmed.
        trimmed: Ids,
    },
    /// Entries are gone.
    Remove {
        /// Which.
        ids: Ids,
        /// They were trimmed, not removed by their names.
        trims: bool,
    },
    /// What is known of ids is this.
    SetLast {
        /// The greatest that was given; never less than the last entry's.
        last: StreamId,
        /// How many entries were ever added.
        added: Option<u64>,
        /// The greatest that was removed.
        max_deleted: Option<StreamId>,
    },
    /// There is a group. If there was, it has read up to the later of the two places.
    CreateGroup {
        /// Its name.
        group: &'a [u8],
        /// What it does not deliver any more.
        last: StreamId,
        /// How many entries that are.
        read: Option<u64>,
    },
    /// A group has read up to here.
    SetGroup {
        /// Its name.
        group: &'a [u8],
        /// What it does not deliver any more.
        last: StreamId,
        /// How many entries that are.
        read: Option<u64>,
    },
    /// A group is gone.
    DestroyGroup {
        /// Its name.
        group: &'a [u8],
    },
    /// A group has a consumer.
    CreateConsumer {
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
        /// The time.
        now_millis: u64,
    },
    /// A consumer is gone, with what it had not acknowledged.
    DeleteConsumer {
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
    },
    /// A consumer has entries, which it got from the stream or from others.
    Deliver {
        /// The group's name.
        group: &'a [u8],
        /// The consumer's.
        consumer: &'a [u8],
        /// The time.
        now_millis: u64,
        /// What it has.
        deliveries: Vec<Delivery>,
        /// Nobody has these any more.
        gone: Ids,
        /// The group has read up to here, if not further.
        last: Option<StreamId>,
        /// How many entries that are, if it has.
        read: Option<u64>,
        /// Other consumers keep the entries too: how concurrent deliveries are merged.
        shared: bool,
    },
    /// Nobody has these entries any more.
    Acknowledge {
        /// The group's name.
        group: &'a [u8],
        /// Which.
        ids: Ids,
    },
}

borrowed_enum!(Effect, "stream effect tag", {
    0 => Add { id, items, trimmed },
    1 => Remove { ids, trims },
    2 => SetLast { last, added, max_deleted },
    3 => CreateGroup { group, last, read },
    4 => SetGroup { group, last, read },
    5 => DestroyGroup { group },
    6 => CreateConsumer { group, consumer, now_millis },
    7 => DeleteConsumer { group, consumer },
    8 => Deliver { group, consumer, now_millis, deliveries, gone, last, read, shared },
    9 => Acknowledge { group, ids },
});

/// The element that stands for all entries among the aspects of a stream. A group of this name conflicts with them, too.
pub(crate) const ENTRIES: &[u8] = b"\0entries";

impl<'a> Effect<'a> {
    /// The group that it changes, if it changes one.
    pub fn group(&self) -> Option<&'a [u8]> {
        match self {
            Effect::Add { .. } | Effect::Remove { .. } | Effect::SetLast { .. } => None,
            Effect::CreateGroup { group, .. }
            | Effect::SetGroup { group, .. }
            | Effect::DestroyGroup { group }
            | Effect::CreateConsumer { group, .. }
            | Effect::DeleteConsumer { group, .. }
            | Effect::Deliver { group, .. }
            | Effect::Acknowledge { group, .. } => Some(group),
        }
    }

    /// True if a stream that was absent exists after it.
    pub fn creates(&self) -> bool {
        matches!(self, Effect::Add { .. } | Effect::SetLast { .. } | Effect::CreateGroup { .. })
    }

    /// True if it does the same whatever it observed: others need it as it is.
    pub(crate) fn stands_alone(&self) -> bool {
        self.creates() || matches!(self, Effect::SetGroup { .. } | Effect::CreateConsumer { .. })
    }

    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        match self {
            Effect::CreateGroup { .. } => Footprint::whole(),
            effect => match effect.group() {
                None => Footprint::elements(Items::one(ENTRIES)),
                Some(group) => {
                    Footprint { aspects: smallvec::smallvec![Aspect::Elements(Items::one(group))] }
                }
            },
        }
    }
}

/// Effects on entries commute with effects on groups, and effects on different groups with each other. Of one group
/// acknowledgements commute; of entries removals do, unless one is by name and the other a trimming.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Acknowledge { .. }, Effect::Acknowledge { .. }) => true,
        (Effect::Remove { trims: a, .. }, Effect::Remove { trims: b, .. }) => a == b,
        _ => a.group() != b.group(),
    }
}
