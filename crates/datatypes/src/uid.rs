//! UidGenerator: unique identifiers, not sequential, so that requests for them never conflict (Claret, table 1).
//!
//! An identifier is a UUID of version 7 (RFC 9562): milliseconds, then 74 random bits. It needs no state; the key
//! holds that it is a generator, so that other operations are refused and `DEL`, `EXPIRE` and `TYPE` mean something.

use crate::observation::Footprint;
use crate::{Context, Kind, Observation};
use types::{Malformed, Reader, ReplySink, Rng, wire_enum};

/// An operation on a generator.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// One new identifier, or with a count an array of so many.
    Next {
        /// How many.
        count: Option<u64>,
    },
}
wire_enum!(Operation { 0 => Next { count } });

/// A mutation of a generator.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The key is a generator.
    Create,
}
wire_enum!(Effect { 0 => Create });

/// The state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UidGenerator {
    exists: bool,
}

impl UidGenerator {
    /// True before the first identifier.
    pub fn is_empty(&self) -> bool {
        !self.exists
    }
}

impl Operation {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        false
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'static> {
        Observation::only_kind(Kind::UidGenerator)
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect> {
        Some(Effect::Create)
    }
}

impl Effect {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }
}

/// It is the same, whichever client creates it.
pub fn effects_commute(_: &Effect, _: &Effect) -> bool {
    true
}

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare(
    _: Option<&UidGenerator>,
    operation: &Operation,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect> {
    let Operation::Next { count } = operation;
    if let Some(count) = count {
        sink.array(*count as usize);
    }
    for _ in 0..count.unwrap_or(1) {
        sink.bulk(&uuid(context.now_millis, context.random));
    }
    operation.blind_effect()
}

/// A UUID of version 7 in its text form.
fn uuid(now_millis: u64, random: &mut Rng) -> [u8; 36] {
    const VERSION: u128 = 7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    const FIXED: u128 = 0xf << 76 | 0b11 << 62;
    let drawn = u128::from(random.u64(..)) << 64 | u128::from(random.u64(..));
    let bits = u128::from(now_millis) << 80 | (drawn & !FIXED & ((1 << 80) - 1)) | VERSION | VARIANT;
    let mut text = [b'-'; 36];
    let places = (0..36).filter(|place| ![8, 13, 18, 23].contains(place));
    for (digit, place) in places.enumerate() {
        let value = (bits >> (4 * (31 - digit))) as u8 & 0xf;
        text[place] = b"0123456789abcdef"[usize::from(value)];
    }
    text
}

/// Swapped by existence alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    exists: bool,
}

/// Performs an effect; see [`crate::apply`].
pub fn apply<const UNDO: bool>(state: &mut UidGenerator, effect: &Effect) -> Option<Patch> {
    let Effect::Create = effect;
    let existed = std::mem::replace(&mut state.exists, true);
    (UNDO && !existed).then_some(Patch { exists: false })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut UidGenerator, patch: &mut Patch) {
    std::mem::swap(&mut state.exists, &mut patch.exists);
}

/// Appends a state's binary form, which is empty.
pub fn encode_state(_: &UidGenerator, _: &mut Vec<u8>) {}

/// Reads a state's binary form.
pub fn decode_state(_: &mut Reader<'_>) -> Result<UidGenerator, Malformed> {
    Ok(UidGenerator { exists: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_has_the_form_of_rfc_9562() {
        let mut random = Rng::with_seed(1);
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..1000u64 {
            let text = uuid(0x0123_4567_89ab + round, &mut random);
            let text = std::str::from_utf8(&text).unwrap().to_owned();
            let fields: Vec<&str> = text.split('-').collect();
            assert_eq!(fields.iter().map(|field| field.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            let millis = u64::from_str_radix(&format!("{}{}", fields[0], fields[1]), 16).unwrap();
            assert_eq!(millis, 0x0123_4567_89ab + round);
            assert!(fields[2].starts_with('7') && "89ab".contains(&fields[3][..1]), "{text}");
            assert!(seen.insert(text), "unique, and in the order of time");
        }
        assert!(seen.iter().zip(seen.iter().skip(1)).all(|(a, b)| a < b));
    }
}
