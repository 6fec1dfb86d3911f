//! Binary forms give back what was written, and anything else is refused without a panic.

use crate::properties::strategies::{cell, effect, encoded, operation};
use crate::properties::{evaluate, for_all};
use datatypes::{Cell, Effect, Operation, apply, dict, exchange, scored_set, set, uid};
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;
use types::{Malformed, Reader};

/// What was encoded is decoded, with nothing left over, and no proper prefix of it is.
fn round_trip<'b, T: PartialEq + Debug>(
    value: &T,
    bytes: &'b [u8],
    decode: impl Fn(&mut Reader<'b>) -> Result<T, Malformed>,
) -> Result<(), TestCaseError> {
    let mut reader = Reader::new(bytes);
    let decoded = decode(&mut reader);
    prop_assert_eq!(decoded.as_ref(), Ok(value));
    prop_assert!(reader.is_empty());
    for len in 0..bytes.len() {
        prop_assert!(decode(&mut Reader::new(&bytes[..len])).is_err(), "a cut form must not decode");
    }
    Ok(())
}

#[test]
fn operations_survive_their_binary_form() {
    for_all(1000, operation(), |operation| {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        round_trip(&operation, &bytes, Operation::decode)
    });
}

#[test]
fn effects_survive_their_binary_form() {
    for_all(1000, effect(), |effect| {
        let mut bytes = Vec::new();
        effect.encode(&mut bytes);
        round_trip(&effect, &bytes, Effect::decode)
    });
}

#[test]
fn cells_survive_their_binary_form() {
    for_all(600, cell(), |cell| round_trip(&cell, &encoded(&cell), Cell::decode));
}

/// Bytes that are nearly right: a valid form with some bytes changed.
fn damaged(form: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (form, vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4)).prop_map(|(mut bytes, changes)| {
        for (place, byte) in changes {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        bytes
    })
}

fn effect_form() -> impl Strategy<Value = Vec<u8>> {
    effect().prop_map(|effect| {
        let mut bytes = Vec::new();
        effect.encode(&mut bytes);
        bytes
    })
}

fn operation_form() -> impl Strategy<Value = Vec<u8>> {
    operation().prop_map(|operation| {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        bytes
    })
}

#[test]
fn whatever_decodes_as_an_effect_can_be_applied_to_any_cell_and_taken_back() {
    let form = prop_oneof![damaged(effect_form()), vec(any::<u8>(), 0..24)];
    for_all(2000, (cell(), form), |(cell, bytes)| {
        let Ok(effect) = Effect::decode(&mut Reader::new(&bytes)) else { return Ok(()) };
        let mut state = cell.clone();
        let mut patch = apply::<true>(&mut state, &effect);
        exchange(&mut state, &mut patch);
        prop_assert_eq!(state, cell);
        Ok(())
    });
}

#[test]
fn whatever_decodes_as_an_operation_can_be_evaluated_on_any_cell() {
    let form = prop_oneof![damaged(operation_form()), vec(any::<u8>(), 0..24)];
    for_all(2000, (cell(), form), |(cell, bytes)| {
        let Ok(operation) = Operation::decode(&mut Reader::new(&bytes)) else { return Ok(()) };
        // The gateway refuses such counts.
        let is_endless = match operation {
            Operation::Set(set::Operation::Random { count: Some(count) })
            | Operation::Dict(dict::Operation::Random { count: Some(count), .. })
            | Operation::ScoredSet(scored_set::Operation::Random { count: Some(count), .. }) => count < -1000,
            Operation::UidGenerator(uid::Operation::Next { count: Some(count) }) => count > 1000,
            _ => false,
        };
        if !is_endless {
            evaluate(&cell, &operation);
        }
        Ok(())
    });
}

#[test]
fn damaged_cells_decode_to_cells_or_not_at_all() {
    let form = prop_oneof![damaged(cell().prop_map(|cell| encoded(&cell))), vec(any::<u8>(), 0..24)];
    for_all(2000, form, |bytes| {
        if let Ok(cell) = Cell::decode(&mut Reader::new(&bytes)) {
            prop_assert_eq!(Cell::decode(&mut Reader::new(&encoded(&cell))), Ok(cell));
        }
        Ok(())
    });
}
