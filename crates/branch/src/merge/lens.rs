//! Of a collection the elements that a merge is about. What no side has changed is the same on all of them, so that what a
//! merge costs grows with what was changed and not with what there is.

use datatypes::collections::{PackedMap, PackedSet, ScoredTree};
use datatypes::{Cell, Kind, Value};

/// Elements, in ascending order.
pub(super) type Elements = [Box<[u8]>];

/// Shows values as if they had no elements but some, and one that nobody changed: without that one a collection could seem
/// to be empty, which is no value at all.
#[derive(Debug)]
pub(super) struct Lens {
    elements: Vec<Box<[u8]>>,
    witness: Box<[u8]>,
    kind: Kind,
    expires_at: u64,
}

impl Lens {
    /// For changes of these elements and no others, of which one value is this; nothing, if the whole is hardly more.
    pub fn new(cell: &Cell, elements: Vec<Box<[u8]>>) -> Option<Lens> {
        let is_other = |element: &[u8]| elements.binary_search_by(|known| (**known).cmp(element)).is_err();
        let (len, witness) = match cell.value.as_ref()? {
            Value::Set(set) => {
                (set.len(), set.iter().find(|member| is_other(member)).map(|member| Box::from(&*member)))
            }
            Value::Dict(dict) => {
                (dict.len(), dict.iter().map(|(field, _)| field).find(|field| is_other(field)).map(Box::from))
            }
            Value::ScoredSet(set) => (
                set.len(),
                set.iter().map(|(_, member)| member).find(|member| is_other(member)).map(Box::from),
            ),
            _ => return None,
        };
        let is_less = 2 * elements.len() + 8 < len;
        let kind = cell.kind().filter(|_| is_less)?;
        Some(Lens { elements, witness: witness?, kind, expires_at: cell.expires_at })
    }

    /// What a value has of all elements it is for; nothing, if the value differs in more from others.
    pub fn see(&self, cell: &Cell) -> Option<Cell> {
        self.see_some(cell, &self.elements)
    }

    /// What a value has of some of these elements.
    pub fn see_some(&self, cell: &Cell, elements: &Elements) -> Option<Cell> {
        if cell.kind() != Some(self.kind) || cell.expires_at != self.expires_at {
            return None;
        }
        let mut seen = Cell { value: None, expires_at: cell.expires_at };
        copy(cell, &mut seen, elements.iter().chain([&self.witness]));
        has(&seen, &self.witness).then_some(seen)
    }
}

/// Gives one value of these elements what another one has of them.
pub(super) fn copy<'e>(from: &Cell, to: &mut Cell, elements: impl Iterator<Item = &'e Box<[u8]>>) {
    match from.value.as_ref() {
        Some(Value::Set(from)) => {
            let mut set = match to.value.take() {
                Some(Value::Set(set)) => set,
                _ => Box::new(PackedSet::default()),
            };
            for member in elements {
                if from.contains(member) {
                    set.insert(member)
                } else {
                    set.remove(member)
                };
            }
            to.value = Some(Value::Set(set));
        }
        Some(Value::Dict(from)) => {
            let mut dict = match to.value.take() {
                Some(Value::Dict(dict)) => dict,
                _ => Box::new(PackedMap::default()),
            };
            for field in elements {
                match from.get(field) {
                    Some(value) => dict.insert(field, value),
                    None => dict.remove(field),
                };
            }
            to.value = Some(Value::Dict(dict));
        }
        Some(Value::ScoredSet(from)) => {
            let mut set = match to.value.take() {
                Some(Value::ScoredSet(set)) => set,
                _ => Box::new(ScoredTree::default()),
            };
            for member in elements {
                match from.score(member) {
                    Some(score) => set.insert(member, score),
                    None => set.remove(member),
                };
            }
            to.value = Some(Value::ScoredSet(set));
        }
        _ => {}
    }
}

fn has(cell: &Cell, element: &[u8]) -> bool {
    match &cell.value {
        Some(Value::Set(set)) => set.contains(element),
        Some(Value::Dict(dict)) => dict.contains(element),
        Some(Value::ScoredSet(set)) => set.contains(element),
        _ => false,
    }
}
