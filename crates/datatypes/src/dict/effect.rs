//! What operations on a dict commit.

use crate::observation::Footprint;
use crate::{Aspect, Items};
use std::collections::BTreeMap;
use types::{Malformed, Reader, Wire, put_bytes};

/// The deadlines of fields that are written, in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Until(Option<Box<[u64]>>);

impl Until {
    /// No field has one.
    pub const NEVER: Until = Until(None);

    /// One for each field, in the order in which they are written; 0 for none.
    pub fn each(deadlines: impl Iterator<Item = u64>) -> Until {
        let deadlines: Box<[u64]> = deadlines.collect();
        Until(Some(deadlines).filter(|deadlines| deadlines.iter().any(|at| *at != 0)))
    }

    /// That of the field that is written as so-manyeth; 0 for none.
    pub fn of(&self, place: usize) -> u64 {
        self.0.as_ref().and_then(|deadlines| deadlines.get(place)).copied().unwrap_or(0)
    }

    /// The earliest; `None` if no field has one.
    pub fn first(&self) -> Option<u64> {
        self.0.iter().flatten().copied().filter(|at| *at != 0).min()
    }
}

/// A mutation of a dict.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// These fields have these values, and these deadlines or none.
    Put {
        /// Field, value, field, value, ...
        pairs: Items<'a>,
        /// One for each pair.
        until: Until,
    },
    /// These fields are gone.
    Remove {
        /// The fields.
        fields: Items<'a>,
    },
    /// Adds to a field, wrapping, so that it commutes and cannot fail; a missing field counts as 0, and a value
    /// that is no integer stays. So does the deadline.
    Add {
        /// The field.
        field: &'a [u8],
        /// The summand.
        by: i64,
    },
    /// Those of these fields that are there have this deadline.
    SetDeadline {
        /// The fields.
        fields: Items<'a>,
        /// Milliseconds since 1970; 0 for none.
        at_millis: u64,
    },
}

impl<'a> Effect<'a> {
    /// These fields have these values and no deadlines.
    pub fn put(pairs: Items<'a>) -> Self {
        Effect::Put { pairs, until: Until::NEVER }
    }

    /// Appends the binary form.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Put { pairs, until: Until(None) } => {
                out.push(0);
                pairs.encode(out);
            }
            Effect::Remove { fields } => {
                out.push(1);
                fields.encode(out);
            }
            Effect::Add { field, by } => {
                out.push(2);
                put_bytes(out, field);
                by.encode(out);
            }
            Effect::Put { pairs, until: Until(Some(deadlines)) } => {
                out.push(3);
                pairs.encode(out);
                deadlines.iter().for_each(|at| at.encode(out));
            }
            Effect::SetDeadline { fields, at_millis } => {
                out.push(4);
                fields.encode(out);
                at_millis.encode(out);
            }
        }
    }

    /// Reads the binary form, borrowing byte strings from it.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Effect::put(Items::decode(input)?),
            1 => Effect::Remove { fields: Items::decode(input)? },
            2 => Effect::Add { field: input.bytes()?, by: i64::decode(input)? },
            3 => {
                let pairs = Items::decode(input)?;
                let deadlines: Vec<u64> =
                    (0..pairs.len() / 2).map(|_| u64::decode(input)).collect::<Result<_, _>>()?;
                Effect::Put { pairs, until: Until::each(deadlines.into_iter()) }
            }
            4 => Effect::SetDeadline { fields: Items::decode(input)?, at_millis: u64::decode(input)? },
            _ => return Err(Malformed("dict effect tag")),
        })
    }
}

impl Effect<'_> {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::elements(match self {
            Effect::Put { pairs, .. } => pairs.keys_of_pairs(),
            // Once a deadline has passed the field is gone: who commits later must have known of it (Corrections 69).
            Effect::Remove { fields } | Effect::SetDeadline { fields, .. } => fields.clone(),
            Effect::Add { field, .. } => Items::one(field),
        })
    }

    /// The fields that it gives values, with their values and deadlines (0 for none); of several that are the same the last
    /// one counts.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let put = match self {
            Effect::Put { pairs, until } => Some((pairs, until)),
            _ => None,
        };
        put.into_iter().flat_map(|(pairs, until)| {
            pairs.pairs().enumerate().map(|(place, (field, value))| (field, value, until.of(place)))
        })
    }

    fn writes_one(&self) -> bool {
        matches!(self, Effect::Put { pairs, .. } if pairs.len() == 2)
    }

    /// The value that it gives a field, and the deadline (0 for none).
    pub(crate) fn value_of(&self, field: &[u8]) -> Option<(&[u8], u64)> {
        let found = self.written().filter(|(other, ..)| *other == field).last();
        found.map(|(_, value, at)| (value, at))
    }

    /// What it says of the deadline of a field: 0 for none.
    pub(crate) fn deadline_of(&self, field: &[u8]) -> Option<u64> {
        match self {
            Effect::SetDeadline { fields, at_millis } => {
                fields.iter().any(|other| other == field).then_some(*at_millis)
            }
            put => put.value_of(field).map(|(_, at)| at),
        }
    }
}

/// Writes commute when the fields differ or the values are the same; removals commute; additions commute with each
/// other and with writes of other fields. An addition and a removal do not commute: a removal that empties the dict
/// drops its deadline. Deadlines of fields commute when they are the same, with whatever is done to other fields, and
/// with removals, which leave none.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Remove { .. }, Effect::Remove { .. }) | (Effect::Add { .. }, Effect::Add { .. }) => true,
        (Effect::Put { .. }, Effect::Put { .. }) => a == b || agree(a, b),
        (Effect::Put { pairs, .. }, Effect::Add { field, .. })
        | (Effect::Add { field, .. }, Effect::Put { pairs, .. }) => {
            pairs.pairs().all(|(other, _)| other != *field)
        }
        (
            Effect::SetDeadline { fields: a, at_millis: x },
            Effect::SetDeadline { fields: b, at_millis: y },
        ) => x == y || !a.intersects(b),
        (Effect::SetDeadline { .. }, Effect::Remove { .. })
        | (Effect::Remove { .. }, Effect::SetDeadline { .. }) => true,
        (Effect::SetDeadline { fields, .. }, other) | (other, Effect::SetDeadline { fields, .. }) => {
            let is_other = |aspect: &Aspect<'_>| match aspect {
                Aspect::Elements(elements) => !elements.intersects(fields),
                _ => true,
            };
            other.footprint().aspects.iter().all(is_other)
        }
        (Effect::Remove { .. }, _) | (_, Effect::Remove { .. }) => false,
    }
}

/// True when no field has different values or deadlines in the two.
fn agree(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    if a.writes_one() && b.writes_one() {
        return a.written().all(|(field, value, at)| {
            b.written().all(|(other, theirs, until)| field != other || (value, at) == (theirs, until))
        });
    }
    let mut values = BTreeMap::new();
    let mut written = a.written().chain(b.written());
    written.all(|(field, value, at)| *values.entry(field).or_insert((value, at)) == (value, at))
}
