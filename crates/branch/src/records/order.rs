//! Orders from a site's manager to its record partitions. A partition's state is a function of its orders, in sequence:
//! a partition decides nothing, and needs no State DAG.

use super::{Placed, Records};
use crate::StateId;
use crate::dag::{Branches, Label, PortableView};
use crate::transaction::Effects;
use datatypes::Cell;
use mvcc::CompactKey;
use std::ops::Bound;
use types::{Malformed, Reader, Wire, put_varint, wire_enum};

/// One step of a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// A state came about, here or at another site.
    Write {
        /// Of its versions.
        label: Label,
        /// The state.
        id: StateId,
        /// What its parents see: on top of that its effects stand.
        portable: PortableView,
        /// The keys of this partition that it wrote, with the effects.
        writes: Vec<(CompactKey, Effects)>,
    },
    /// Versions as they are.
    Restore {
        /// Theirs.
        label: Label,
        /// Who wrote them.
        id: StateId,
        /// The keys with their values.
        writes: Vec<KeyValue>,
    },
    /// Versions of one class join another one.
    Fold {
        /// Their label so far.
        from: Label,
        /// Their label from now on.
        to: Label,
        /// Every state sees what is labelled so from now on: there a key that is absent is forgotten.
        for_all: bool,
        /// The keys.
        keys: Vec<CompactKey>,
    },
    /// Nothing is left.
    Clear,
    /// A life of the manager began. Of labels on branches before this one no more are given: versions labelled so, but not
    /// by one of these labels, are of states that the manager's log has lost.
    Life {
        /// The branch.
        first: u64,
        /// The labels of versions that there are.
        labels: Vec<Label>,
    },
}
wire_enum!(Order {
    0 => Write { label, id, portable, writes },
    1 => Restore { label, id, writes },
    2 => Fold { from, to, for_all, keys },
    3 => Clear,
    4 => Life { first, labels },
});

impl Order {
    /// The bytes that it occupies, about.
    pub fn bytes(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        size_of::<Order>() + bytes.len()
    }

    /// What of it concerns some keys; nothing if it concerns none of them.
    pub(crate) fn of(&self, is_meant: impl Fn(&CompactKey) -> bool) -> Option<Order> {
        let part = match self {
            Order::Write { label, id, portable, writes } => {
                let writes: Vec<_> = writes.iter().filter(|(key, _)| is_meant(key)).cloned().collect();
                if writes.is_empty() {
                    return None;
                }
                Order::Write { label: *label, id: *id, portable: portable.clone(), writes }
            }
            Order::Restore { label, id, writes } => {
                let writes: Vec<_> = writes.iter().filter(|whole| is_meant(&whole.key)).cloned().collect();
                if writes.is_empty() {
                    return None;
                }
                Order::Restore { label: *label, id: *id, writes }
            }
            Order::Fold { from, to, for_all, keys } => {
                let keys: Vec<_> = keys.iter().filter(|key| is_meant(key)).cloned().collect();
                if keys.is_empty() {
                    return None;
                }
                Order::Fold { from: *from, to: *to, for_all: *for_all, keys }
            }
            Order::Clear => Order::Clear,
            Order::Life { .. } => return None,
        };
        Some(part)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    /// The key.
    pub key: CompactKey,
    /// The value.
    pub cell: Cell,
}

impl Wire for KeyValue {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.cell.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(KeyValue { key: CompactKey::decode(input)?, cell: Cell::decode(input)? })
    }
}

/// All versions of a key, as they travel and as checkpoints have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The key.
    pub key: CompactKey,
    /// Of every version its label, who wrote it, and its value.
    pub versions: Vec<(Label, StateId, Cell)>,
}

impl Wire for Stored {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        put_varint(out, self.versions.len() as u64);
        for (label, id, cell) in &self.versions {
            label.encode(out);
            id.encode(out);
            cell.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let key = CompactKey::decode(input)?;
        let version = |input: &mut Reader<'_>| {
            Ok((Label::decode(input)?, StateId::decode(input)?, Cell::decode(input)?))
        };
        let versions = (0..input.count()?).map(|_| version(input)).collect::<Result<_, _>>()?;
        Ok(Stored { key, versions })
    }
}

impl Records {
    /// Does what an order says, for the keys that are meant.
    pub(crate) fn obey(
        &mut self,
        order: &Order,
        meter: &Branches,
        is_meant: impl Fn(&Records, &CompactKey) -> bool,
    ) {
        match order {
            Order::Write { label, id, portable, writes } => {
                let view = portable.view(meter);
                for (key, effects) in writes {
                    if is_meant(self, key) {
                        self.put(key, &view, *label, *id, effects.iter().map(|effect| &**effect));
                    }
                }
            }
            Order::Restore { label, id, writes } => {
                for KeyValue { key, cell } in writes {
                    if is_meant(self, key) {
                        self.put_value(key, *label, *id, cell.clone());
                    }
                }
            }
            Order::Fold { from, to, for_all, keys } => {
                for key in keys {
                    if is_meant(self, key) {
                        self.join(key, &[*from], *to, *for_all);
                    }
                }
            }
            Order::Clear => self.keys.clear(),
            Order::Life { .. } => {}
        }
    }

    /// Frees what no state sees of some keys after one; returns the last of them, `None` behind the last of all.
    pub(crate) fn retain(
        &mut self,
        after: Option<&CompactKey>,
        count: usize,
        is_meant: impl Fn(Label) -> bool,
    ) -> Option<CompactKey> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(Placed::of(key)));
        let keys: Vec<Placed> =
            self.keys.range((from, Bound::Unbounded)).take(count).map(|(placed, _)| placed.clone()).collect();
        for placed in &keys {
            if let Some(versions) = self.keys.get_mut(placed) {
                versions.retain(&is_meant);
                if versions.len() == 0 {
                    self.keys.remove(placed);
                }
            }
        }
        keys.last().filter(|_| keys.len() == count).map(|Placed(_, key)| key.clone())
    }

    /// All versions of a key.
    pub(crate) fn stored(&mut self, key: &CompactKey) -> Stored {
        let mut versions = Vec::new();
        if let Some(known) = self.keys.get_mut(&Placed::of(key)) {
            known.each(|label, id, cell| versions.push((label, id, cell.clone())));
        }
        Stored { key: key.clone(), versions }
    }

    /// A key is here from now on, with these versions.
    pub(crate) fn take_stored(&mut self, stored: Stored) {
        let versions = self.keys.entry(Placed::of(&stored.key)).or_default();
        *versions = Default::default();
        for (label, id, cell) in stored.versions {
            versions.restore(label, id, cell);
        }
    }

    /// A key is not here any more.
    pub(crate) fn forget(&mut self, key: &CompactKey) {
        self.keys.remove(&Placed::of(key));
    }
}
