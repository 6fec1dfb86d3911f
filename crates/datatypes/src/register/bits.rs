//! Bits of a string: the first is the highest of the first byte. Bytes beyond the end count as zero.

use super::MAX_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;
use types::{Malformed, Reader, ReplySink, Wire, wire_enum};

/// The first offset, in bits, that is too large (Redis's limit of a string's length).
pub const MAX_BITS: u64 = MAX_BYTES as u64 * 8;

/// What the ends of a range count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Byte,
    /// Bits.
    Bit,
}
wire_enum!(Unit { 0 => Byte, 1 => Bit });

/// A range, ends included; negative ends count from the string's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRange {
    /// The first.
    pub start: i64,
    /// The last; `None` for the string's end.
    pub end: Option<i64>,
    /// What they count.
    pub unit: Unit,
}
types::wire_struct!(BitRange { start, end, unit });

impl BitRange {
    /// The whole string.
    pub const WHOLE: BitRange = BitRange { start: 0, end: None, unit: Unit::Byte };

    /// The bits of a string of `len` bytes that are meant, by [`clipped`] or [`clamped`].
    fn of(self, len: usize, places: fn(i64, i64, i64) -> Range<i64>) -> Range<u64> {
        let (units, bits) = match self.unit {
            Unit::Byte => (len as i64, 8),
            Unit::Bit => (len as i64 * 8, 1),
        };
        let within = places(self.start, self.end.unwrap_or(-1), units);
        within.start as u64 * bits..within.end as u64 * bits
    }
}

/// As [`clamped`], but none if both ends count from the string's end, in the wrong order: Redis's rule of GETRANGE and
/// BITCOUNT.
pub(super) fn clipped(start: i64, end: i64, len: i64) -> Range<i64> {
    if start < 0 && end < 0 && start > end { 0..0 } else { clamped(start, end, len) }
}

/// The places from `start` to `end`, which is included, of `len`; negative ones count from the end. What is before the
/// first place is the first, as in Redis, at both ends.
fn clamped(start: i64, end: i64, len: i64) -> Range<i64> {
    let from_front = |place: i64| if place < 0 { place.saturating_add(len).max(0) } else { place };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if start > end { 0..0 } else { start..end + 1 }
}

/// The bit at an offset.
pub(super) fn bit(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

/// Writes the bit at an offset, which is within the bytes.
pub(super) fn set_bit(bytes: &mut [u8], offset: u64, bit: bool) {
    if let Some(byte) = bytes.get_mut((offset / 8) as usize) {
        let mask = 0x80 >> (offset % 8);
        *byte = if bit { *byte | mask } else { *byte & !mask };
    }
}

/// The bytes that bits lie in, cut off at both ends: those of the range stay, the others become `filling`.
fn pieces(bytes: &[u8], bits: &Range<u64>, filling: bool) -> (Range<usize>, impl Fn(usize) -> u8) {
    let (start, end) = (bits.start, bits.end);
    let within = (start / 8) as usize..end.div_ceil(8) as usize;
    let last = within.end.wrapping_sub(1);
    let first = within.start;
    let byte = move |at: usize| {
        let mut mask = 0xff;
        if at == first {
            mask &= 0xff >> (start % 8);
        }
        if at == last && !end.is_multiple_of(8) {
            mask &= !(0xff >> (end % 8));
        }
        if filling { bytes[at] | !mask } else { bytes[at] & mask }
    };
    (within, byte)
}

/// How many bits of a range are set.
pub(super) fn count(bytes: &[u8], range: BitRange) -> u64 {
    let bits = range.of(bytes.len(), clipped);
    if bits.is_empty() {
        return 0;
    }
    let (within, byte) = pieces(bytes, &bits, false);
    let ends = u64::from(byte(within.start).count_ones());
    if within.len() == 1 {
        return ends;
    }
    let ends = ends + u64::from(byte(within.end - 1).count_ones());
    let (words, rest) = bytes[within.start + 1..within.end - 1].as_chunks::<8>();
    let words = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum::<u64>();
    ends + words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// Where the first bit of this value is in a range; -1 for nowhere. Where a string is all ones and the range has no end,
/// the first zero is behind it.
pub(super) fn position(bytes: Option<&[u8]>, bit: bool, range: BitRange) -> i64 {
    let Some(bytes) = bytes else { return if bit { -1 } else { 0 } };
    let bits = range.of(bytes.len(), clamped);
    if bits.is_empty() {
        return -1;
    }
    let (within, byte) = pieces(bytes, &bits, !bit);
    let nothing = if bit { 0 } else { 0xff };
    let inner = within.start + 1..(within.end - 1).max(within.start + 1);
    let skipped = bytes[inner.clone()].iter().position(|byte| *byte != nothing);
    let candidates = [Some(within.start), skipped.map(|at| inner.start + at), Some(within.end - 1)];
    let found = candidates.into_iter().flatten().find(|at| byte(*at) != nothing);
    match found {
        Some(at) => {
            let zeros = (byte(at) ^ nothing).leading_zeros();
            at as i64 * 8 + i64::from(zeros)
        }
        None if !bit && range.end.is_none() => bytes.len() as i64 * 8,
        None => -1,
    }
}

/// An integer in a string's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// It has a sign, in two's complement.
    pub signed: bool,
    /// How many bits it has: up to 64 with a sign, up to 63 without.
    pub bits: u8,
    /// Where its highest bit is.
    pub offset: u64,
}

impl Wire for Field {
    fn encode(&self, out: &mut Vec<u8>) {
        self.signed.encode(out);
        self.bits.encode(out);
        self.offset.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (signed, bits, offset) = (bool::decode(input)?, u8::decode(input)?, u64::decode(input)?);
        let fits = (1..=Field::most_bits(signed)).contains(&bits) && offset < MAX_BITS;
        fits.then_some(Field { signed, bits, offset }).ok_or(Malformed("bit field"))
    }
}

impl Field {
    /// How many bits one may have.
    pub fn most_bits(signed: bool) -> u8 {
        63 + u8::from(signed)
    }

    /// The bytes that it lies in.
    pub(super) fn bytes(self) -> Range<usize> {
        (self.offset / 8) as usize..(self.offset + u64::from(self.bits)).div_ceil(8) as usize
    }

    fn read(self, byte: impl Fn(usize) -> u8) -> i64 {
        let bytes = self.bytes();
        let unused = bytes.end as u64 * 8 - self.offset - u64::from(self.bits);
        let all = bytes.fold(0u128, |all, at| all << 8 | u128::from(byte(at)));
        let value = (all >> unused) as u64 & self.mask();
        let spare = 64 - u32::from(self.bits);
        if self.signed { (value << spare) as i64 >> spare } else { value as i64 }
    }

    fn write(self, value: i64, mut byte: impl FnMut(usize, u8, u8)) {
        let bytes = self.bytes();
        let unused = bytes.end as u64 * 8 - self.offset - u64::from(self.bits);
        let (mask, value) =
            (u128::from(self.mask()) << unused, u128::from(value as u64 & self.mask()) << unused);
        let last = bytes.end - 1;
        for at in bytes {
            let shift = (last - at) * 8;
            byte(at, (mask >> shift) as u8, (value >> shift) as u8);
        }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - u32::from(self.bits))
    }

    /// What a value that is too large or too small becomes; `None` if the write is left out then.
    fn fitted(self, value: i128, overflow: Overflow) -> Option<i64> {
        let bits = u32::from(self.bits);
        let (min, max) = match self.signed {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        match overflow {
            _ if (min..=max).contains(&value) => Some(value as i64),
            Overflow::Wrap => {
                let low = value as u64 & self.mask();
                let spare = 64 - bits;
                Some(if self.signed { (low << spare) as i64 >> spare } else { low as i64 })
            }
            Overflow::Saturate => Some(value.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }
}

/// What becomes of a value that its field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Its lowest bits stay.
    Wrap,
    /// The nearest value that fits is taken.
    Saturate,
    /// Nothing is written.
    Fail,
}
wire_enum!(Overflow { 0 => Wrap, 1 => Saturate, 2 => Fail });

/// What is done to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is read.
    Get,
    /// It becomes this: the old value.
    Set {
        /// The new value.
        value: i64,
        /// What if that does not fit.
        overflow: Overflow,
    },
    /// It is added to: the new value.
    Add {
        /// The summand.
        by: i64,
        /// What if the sum does not fit.
        overflow: Overflow,
    },
}
wire_enum!(Change { 0 => Get, 1 => Set { value, overflow }, 2 => Add { by, overflow } });

/// A step of BITFIELD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldStep {
    /// The field.
    pub field: Field,
    /// What is done to it.
    pub change: Change,
}
types::wire_struct!(FieldStep { field, change });

impl FieldStep {
    /// True if it only reads.
    pub fn is_read(&self) -> bool {
        self.change == Change::Get
    }

    /// What the field is, and what it becomes; `None` if it stays because the value does not fit.
    fn outcome(&self, byte: impl Fn(usize) -> u8) -> (i64, Option<i64>) {
        let old = self.field.read(byte);
        let new = match self.change {
            Change::Get => Some(old),
            // A field without a sign takes a negative number for a large one.
            Change::Set { value, overflow } if !self.field.signed => {
                self.field.fitted(i128::from(value as u64), overflow)
            }
            Change::Set { value, overflow } => self.field.fitted(i128::from(value), overflow),
            Change::Add { by, overflow } => self.field.fitted(i128::from(old) + i128::from(by), overflow),
        };
        (old, new)
    }

    /// The same step on what follows a byte.
    pub(super) fn after_byte(self, at: usize) -> Self {
        let field = Field { offset: self.field.offset - at as u64 * 8, ..self.field };
        FieldStep { field, ..self }
    }

    /// Performs the step on bytes that have its field.
    pub(super) fn perform(&self, bytes: &mut [u8]) {
        let (_, new) = self.outcome(|at| bytes[at]);
        if let Some(new) = new.filter(|_| !self.is_read()) {
            self.field.write(new, |at, mask, value| bytes[at] = bytes[at] & !mask | value);
        }
    }
}

/// Evaluates steps one after the other, and writes what each replies. Returns those that write.
pub(super) fn evaluate(bytes: &[u8], steps: &[FieldStep], sink: &mut dyn ReplySink) -> Vec<FieldStep> {
    // What the steps wrote so far: the string may be long, and stays as it is.
    let mut written: BTreeMap<usize, u8> = BTreeMap::new();
    let mut writes = Vec::new();
    sink.array(steps.len());
    for step in steps {
        let byte = |at: usize| written.get(&at).or_else(|| bytes.get(at)).copied().unwrap_or(0);
        let (old, new) = step.outcome(byte);
        match (new, step.change) {
            (None, _) => sink.null(),
            (Some(_), Change::Get | Change::Set { .. }) => sink.integer(old),
            (Some(new), Change::Add { .. }) => sink.integer(new),
        }
        let Some(new) = new.filter(|_| !step.is_read()) else { continue };
        writes.push(*step);
        step.field.write(new, |at, mask, value| {
            let before = written.get(&at).or_else(|| bytes.get(at)).copied().unwrap_or(0);
            written.insert(at, before & !mask | value);
        });
    }
    writes
}

/// How long a string is at least after these steps: those that write reach so far, whether they do or not.
pub(super) fn reach(steps: &[FieldStep]) -> usize {
    steps.iter().filter(|step| !step.is_read()).map(|step| step.field.bytes().end).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = b"\xff\xf0\x00\x0f\x00";

    fn range(start: i64, end: Option<i64>, unit: Unit) -> BitRange {
        BitRange { start, end, unit }
    }

    /// Bit by bit, as the definition says.
    fn naive(bytes: &[u8], range: BitRange, wanted: bool) -> (u64, i64) {
        let hits = |places: fn(i64, i64, i64) -> Range<i64>| {
            range.of(bytes.len(), places).filter(|at| bit(bytes, *at) == wanted)
        };
        (hits(clipped).count() as u64, hits(clamped).next().map_or(-1, |at| at as i64))
    }

    #[test]
    fn counts_and_positions_are_those_of_the_single_bits() {
        let strings: [&[u8]; 6] =
            [BYTES, b"", b"\xff\xff\xff", b"\x00\x00", b"0123456789abcdefghijklmnop", b"\x80"];
        for bytes in strings {
            for unit in [Unit::Byte, Unit::Bit] {
                for (start, end) in (-45..45).flat_map(|start| (-45..45).map(move |end| (start, end))) {
                    let within = range(start, Some(end), unit);
                    assert_eq!(count(bytes, within), naive(bytes, within, true).0, "{within:?} of {bytes:?}");
                    for bit in [true, false] {
                        let first = naive(bytes, within, bit).1;
                        assert_eq!(
                            position(Some(bytes), bit, within),
                            first,
                            "{bit} {within:?} of {bytes:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_follow_a_string_of_ones_unless_the_range_ends() {
        let ones = Some(&b"\xff\xff"[..]);
        assert_eq!(position(ones, false, BitRange::WHOLE), 16);
        assert_eq!(position(ones, false, range(1, None, Unit::Byte)), 16);
        assert_eq!(position(ones, false, range(2, None, Unit::Byte)), -1);
        assert_eq!(position(ones, false, range(0, Some(-1), Unit::Byte)), -1);
        assert_eq!((position(None, false, BitRange::WHOLE), position(None, true, BitRange::WHOLE)), (0, -1));
    }

    #[test]
    fn fields_are_read_as_they_were_written() {
        for signed in [true, false] {
            for bits in 1..=Field::most_bits(signed) {
                for offset in 0..20 {
                    let field = Field { signed, bits, offset };
                    for value in [0, 1, -1, 0x5a5a_5a5a_5a5a_5a5a, i64::MIN, i64::MAX] {
                        let change = Change::Set { value, overflow: Overflow::Wrap };
                        let mut bytes = [0x33; 12];
                        let step = FieldStep { field, change };
                        step.perform(&mut bytes);
                        let fitted = field.fitted(i128::from(value), Overflow::Wrap);
                        assert_eq!(Some(field.read(|at| bytes[at])), fitted, "{field:?} {value}");
                        let outside = (0..96).filter(|at| !(offset..offset + u64::from(bits)).contains(at));
                        outside.for_each(|at| assert_eq!(bit(&bytes, at), bit(&[0x33; 12], at)));
                    }
                }
            }
        }
    }
}
