//! Operations and arguments, drawn from a seed.

use crate::abi::{Argument, ArgumentSpec, Kind, Spec};
use alloc::vec::Vec;

/// Numbers that meet often, and those at the ends.
const INTEGERS: [i64; 12] = [0, 1, 2, 3, 1, 2, 3, 10, -1, 100, i64::MAX, i64::MIN];
/// Byte strings that meet often, and strange ones.
const BYTES: [&[u8]; 8] = [b"a", b"b", b"c", b"a", b"b", b"1", b"", b"\xff\0 long and not a text"];

/// An operation with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) operation: u8,
    pub(crate) arguments: Vec<Argument>,
}

/// A source of operations.
pub(crate) struct Draw<'s> {
    state: u64,
    spec: &'s Spec,
}

impl<'s> Draw<'s> {
    pub(crate) fn new(seed: u64, spec: &'s Spec) -> Self {
        Draw { state: seed, spec }
    }

    /// A number below `bound` (Steele, Lea, Flood: SplitMix).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    /// Any operation.
    pub(crate) fn operation(&mut self) -> Drawn {
        let place = self.below(self.spec.operations.len());
        self.call(place as u8)
    }

    /// One of these operations, of which there are some.
    pub(crate) fn one_of(&mut self, operations: &[u8]) -> Drawn {
        let operation = operations[self.below(operations.len())];
        self.call(operation)
    }

    /// A call of this operation.
    pub(crate) fn call(&mut self, operation: u8) -> Drawn {
        let spec = &self.spec.operations[usize::from(operation)];
        let arguments = spec.arguments.iter().map(|argument| self.argument(argument));
        Drawn { operation, arguments: arguments.collect() }
    }

    fn argument(&mut self, spec: &ArgumentSpec) -> Argument {
        if !spec.examples.is_empty() && self.below(4) > 0 {
            return spec.examples[self.below(spec.examples.len())].clone();
        }
        match spec.kind {
            Kind::Integer => Argument::Integer(INTEGERS[self.below(INTEGERS.len())]),
            Kind::Bytes => Argument::Bytes(BYTES[self.below(BYTES.len())].into()),
        }
    }

    /// Up to `most` operations.
    pub(crate) fn operations(&mut self, most: usize) -> Vec<Drawn> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.operation()).collect()
    }
}
