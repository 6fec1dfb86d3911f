//! Lock modes of a user-defined type's own.

use super::Type;
use std::cmp::Ordering;
use types::{Malformed, Reader, Wire};
use usertypes::abi::MAX_MODES;

/// A lock mode that a type's author has declared, and that the check of the type has found right: operations in modes
/// that may be held together commute, whatever their arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// The type's place in this process.
    of: u8,
    number: u8,
    /// The type's modes that may be held beside it, a bit for each.
    compatible_with: u8,
    /// No operation of this mode has an effect.
    only_reads: bool,
}

impl Mode {
    /// The mode of this number; `None` if the type has no such mode.
    pub(super) fn new(of: Type, number: u8) -> Option<Self> {
        Mode::of_type_at(of.place(), of, number)
    }

    fn of_type_at(place: u8, of: Type, number: u8) -> Option<Self> {
        let spec = of.module().spec();
        let compatible_with = spec.modes.get(usize::from(number))?.compatible_with;
        Some(Mode { of: place, number, compatible_with, only_reads: spec.only_reads(number) })
    }

    pub(super) fn number(self) -> u8 {
        self.number
    }

    /// Its type.
    fn of(self) -> Option<Type> {
        Type::at(self.of)
    }

    /// The type's name and its own, for people: `auction:bid`.
    pub fn name(self) -> &'static str {
        self.of().map_or("", |of| &of.modes()[usize::from(self.number)])
    }

    /// True if it is held by those that look only.
    pub fn only_reads(self) -> bool {
        self.only_reads
    }

    /// True when holders of both always commute.
    pub fn compatible(self, other: Mode) -> bool {
        self.of == other.of && self.compatible_with >> other.number & 1 == 1
    }
}

/// By type and number, in every process alike.
impl Ord for Mode {
    fn cmp(&self, other: &Self) -> Ordering {
        let types = if self.of == other.of { Ordering::Equal } else { self.of().cmp(&other.of()) };
        types.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Mode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Wire for Mode {
    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(of) = self.of() {
            of.encode(out);
        }
        out.push(self.number);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let of = Type::decode(input)?;
        Mode::new(of, input.byte()?).ok_or(Malformed("lock mode of a user-defined type"))
    }
}

/// Several modes of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// The first of them that was put in.
    any: Mode,
    numbers: u8,
}

impl From<Mode> for Modes {
    fn from(mode: Mode) -> Self {
        Modes { any: mode, numbers: 1 << mode.number }
    }
}

impl Modes {
    /// These and one more; `None` if it is of another type.
    pub fn with(self, mode: Mode) -> Option<Self> {
        (self.any.of == mode.of).then_some(Modes { numbers: self.numbers | 1 << mode.number, ..self })
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = Mode> {
        let of = self.any.of();
        let numbers = (0..MAX_MODES as u8).filter(move |number| self.numbers >> number & 1 == 1);
        numbers.filter_map(move |number| Mode::of_type_at(self.any.of, of?, number))
    }
}
