//! States by value: for sites that lack a state whose transaction nobody keeps any more.

use super::Keyspace;
use crate::dag::MissingParent;
use crate::records::KeyValue;
use crate::{Change, StateId};
use datatypes::{Cell, Value};
use mvcc::CompactKey;
use types::{Malformed, Reader, Wire, put_bytes, put_varint};

/// A state with the values that its transaction gave to keys.
#[derive(Clone, Debug, PartialEq)]
pub struct ByValue {
    /// The state.
    pub id: StateId,
    /// Below which states, in ascending order.
    pub parents: Vec<StateId>,
    /// The keys it wrote, how, and what they are since.
    pub writes: Vec<(CompactKey, Change, Cell)>,
}

impl ByValue {
    /// About how many bytes it occupies.
    pub(crate) fn size(&self) -> usize {
        let value = |cell: &Cell| cell.value.as_ref().map_or(0, Value::memory);
        64 + self.writes.iter().map(|(key, _, cell)| key.len() + 16 + value(cell)).sum::<usize>()
    }
}

impl Wire for ByValue {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.parents.encode(out);
        put_varint(out, self.writes.len() as u64);
        for (key, change, cell) in &self.writes {
            put_bytes(out, key);
            change.encode(out);
            cell.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (id, parents) = (StateId::decode(input)?, Vec::<StateId>::decode(input)?);
        let mut writes = Vec::new();
        for _ in 0..input.count()? {
            let key = CompactKey::new(input.bytes()?);
            writes.push((key, Change::decode(input)?, Cell::decode(input)?));
        }
        if !parents.iter().all(|parent| *parent < id) {
            return Err(Malformed("order of a state"));
        }
        Ok(ByValue { id, parents, writes })
    }
}

impl Keyspace {
    /// A state that is here, by value. What joined its class from above is left out: who lacks the state has that.
    pub fn by_value(&mut self, id: StateId) -> Option<ByValue> {
        let node = self.dag.node(id)?;
        let mut parents: Vec<StateId> =
            self.dag.parents(node).iter().map(|parent| self.dag.id(*parent)).collect();
        parents.sort_unstable();
        let (view, written) = (self.dag.view(&[node]), self.dag.writes(node));
        let mut writes = Vec::new();
        for (key, change) in written.iter() {
            if self.records.newest(key, &view) == Some(id) {
                writes.push((key.clone(), change, self.records.cell(key, &view)));
            }
        }
        Some(ByValue { id, parents, writes })
    }

    /// Takes a state that came by value. Returns false if it is here already.
    ///
    /// # Errors
    /// As for [`Keyspace::apply`].
    pub fn apply_value(&mut self, state: &ByValue) -> Result<bool, MissingParent> {
        if self.dag.node(state.id).is_some() {
            return Ok(false);
        }
        self.have_parents(&state.parents)?;
        let writes = state.writes.iter().map(|(key, change, _)| (key.clone(), *change)).collect();
        let node = self.dag.insert(state.id, &state.parents, writes)?;
        let label = self.dag.versions(node);
        let whole =
            |(key, _, cell): &(CompactKey, Change, Cell)| KeyValue { key: key.clone(), cell: cell.clone() };
        self.records.restore_all(label, state.id, state.writes.iter().map(whole).collect());
        self.collector.wake();
        Ok(true)
    }
}
