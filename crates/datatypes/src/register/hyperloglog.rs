//! HyperLogLog: about how many different elements were added, in the string format of Redis.
//!
//! ```text
//!   HYLL | encoding | 0 0 0 | cached count (8 bytes, little endian; the highest bit: out of date) | registers
//! ```
//!
//! There are 16384 registers. An element's hash chooses one and says how high it is at least. Dense strings have 6 bits
//! for each; sparse ones have runs: `00nnnnnn` n+1 zeros, `01nnnnnn nnnnnnnn` n+1 zeros, `1vvvvvnn` n+1 times v+1.
//!
//! Here a changed string is written in one way for its registers, whatever it was before: sparse if no register is
//! above 32 and the runs have at most 3000 bytes, else dense. So unions of registers commute, down to the bytes. Redis
//! never turns a dense string into a sparse one; it reads both.

use std::borrow::Cow;
use types::{Error, ErrorCode};

/// How many registers there are.
pub const REGISTERS: usize = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 14;
/// The highest value of a register that a hash gives, less one.
const VALUE_BITS: u32 = 64 - INDEX_BITS;
const MAGIC: &[u8] = b"HYLL";
const HEADER_BYTES: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const DENSE_BYTES: usize = REGISTERS * 6 / 8;
/// The most bytes of runs (Redis's hll-sparse-max-bytes).
const MAX_SPARSE_BYTES: usize = 3000;
/// The highest value of a register in a run.
const MAX_SPARSE_VALUE: u8 = 32;
/// The longest run of other values than zero.
const MAX_RUN: usize = 4;
const OUT_OF_DATE: u8 = 0x80;

/// Why a string is no HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not begin as one, or has another length.
    NotOne,
    /// Its runs are not those of 16384 registers.
    Corrupt,
}

impl Fault {
    /// Redis's reply.
    pub fn error(self) -> Error {
        match self {
            Fault::NotOne => Error::new(ErrorCode::WrongType, "Key is not a valid HyperLogLog string value."),
            Fault::Corrupt => Error::new(ErrorCode::InvalidObject, "Corrupted HLL object detected"),
        }
    }
}

/// All registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(Vec<u8>);

impl Default for Registers {
    fn default() -> Self {
        Registers(vec![0; REGISTERS])
    }
}

impl Registers {
    /// Those of a string.
    ///
    /// # Errors
    /// It is no HyperLogLog.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut registers = Registers::default();
        match body(bytes)? {
            Body::Dense(packed) => {
                (0..REGISTERS).for_each(|index| registers.0[index] = dense_register(packed, index));
            }
            Body::Sparse(runs) => {
                each_run(runs, |from, len, value| registers.0[from..from + len].fill(value))?
            }
        }
        Ok(registers)
    }

    /// Raises each register to the other's.
    pub fn unite(&mut self, other: &Registers) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }

    /// The string with these registers.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = SparseWriter::default();
        let raised = self.0.iter().enumerate().filter(|(_, value)| **value > 0);
        let mut fits = true;
        for (index, value) in raised {
            fits = writer.push(index, *value);
            if !fits {
                break;
            }
        }
        writer.finish().filter(|_| fits).unwrap_or_else(|| self.encode_dense())
    }

    fn encode_dense(&self) -> Vec<u8> {
        let mut out = header(DENSE, true);
        // Four registers have three bytes.
        for four in self.0.as_chunks::<4>().0 {
            let packed = four.iter().rev().fold(0u32, |packed, value| packed << 6 | u32::from(*value));
            out.extend_from_slice(&packed.to_le_bytes()[..3]);
        }
        out
    }

    /// About how many different elements were added (Ertl, New cardinality estimation algorithms for HyperLogLog
    /// sketches, algorithm 6): in the order of Redis's operations, so that the last digit is the same.
    pub fn count(&self) -> u64 {
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let mut histogram = [0u32; 64];
        self.0.iter().for_each(|value| histogram[usize::from(*value & 63)] += 1);
        let registers = REGISTERS as f64;
        let highest = VALUE_BITS as usize + 1;
        let mut z = registers * tau((registers - f64::from(histogram[highest])) / registers);
        for count in histogram[1..highest].iter().rev() {
            z = (z + f64::from(*count)) * 0.5;
        }
        z += registers * sigma(f64::from(histogram[0]) / registers);
        (ALPHA * registers * registers / z).round() as u64
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

enum Body<'a> {
    Dense(&'a [u8]),
    Sparse(&'a [u8]),
}

fn body(bytes: &[u8]) -> Result<Body<'_>, Fault> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return Err(Fault::NotOne);
    }
    let rest = &bytes[HEADER_BYTES..];
    match bytes[MAGIC.len()] {
        DENSE if rest.len() == DENSE_BYTES => Ok(Body::Dense(rest)),
        SPARSE => Ok(Body::Sparse(rest)),
        _ => Err(Fault::NotOne),
    }
}

fn header(encoding: u8, out_of_date: bool) -> Vec<u8> {
    let mut out = [MAGIC, &[encoding, 0, 0, 0]].concat();
    out.extend_from_slice(&[0; 7]);
    out.push(if out_of_date { OUT_OF_DATE } else { 0 });
    out
}

fn dense_register(packed: &[u8], index: usize) -> u8 {
    let (byte, bit) = (index * 6 / 8, index * 6 % 8);
    let next = packed.get(byte + 1).copied().unwrap_or(0);
    ((u16::from(packed[byte]) | u16::from(next) << 8) >> bit) as u8 & 63
}

/// Calls `visit` with each run: the first register, how many, their value.
fn each_run(runs: &[u8], mut visit: impl FnMut(usize, usize, u8)) -> Result<(), Fault> {
    let (mut at, mut rest) = (0, runs);
    loop {
        let (len, value);
        (len, value, rest) = match rest {
            [] => break,
            [run @ 0x80..=0xff, rest @ ..] => (usize::from(run & 3) + 1, (run >> 2 & 31) + 1, rest),
            [high @ 0x40..=0x7f, low, rest @ ..] => {
                ((usize::from(high & 63) << 8 | usize::from(*low)) + 1, 0, rest)
            }
            [0x40..=0x7f] => return Err(Fault::Corrupt),
            [run, rest @ ..] => (usize::from(run & 63) + 1, 0, rest),
        };
        if at + len > REGISTERS {
            return Err(Fault::Corrupt);
        }
        visit(at, len, value);
        at += len;
    }
    if at == REGISTERS { Ok(()) } else { Err(Fault::Corrupt) }
}

/// Writes runs, from the registers that are not zero, in order.
struct SparseWriter {
    out: Vec<u8>,
    /// The register after the last run.
    next: usize,
    /// The value of a run that goes on, and how long it is.
    value: u8,
    len: usize,
}

impl Default for SparseWriter {
    fn default() -> Self {
        SparseWriter { out: header(SPARSE, false), next: 0, value: 0, len: 0 }
    }
}

impl SparseWriter {
    /// False if there is no sparse string with this register.
    fn push(&mut self, index: usize, value: u8) -> bool {
        let gap = index - self.next - self.len;
        if gap > 0 || value != self.value || self.len == MAX_RUN {
            self.end_run();
            self.zeros(gap);
            self.value = value;
        }
        self.len += 1;
        value <= MAX_SPARSE_VALUE && self.out.len() <= HEADER_BYTES + MAX_SPARSE_BYTES
    }

    fn end_run(&mut self) {
        if self.len > 0 {
            self.out.push(0x80 | (self.value - 1) << 2 | (self.len - 1) as u8);
        }
        self.next += std::mem::take(&mut self.len);
    }

    fn zeros(&mut self, count: usize) {
        match count {
            0 => {}
            1..=64 => self.out.push((count - 1) as u8),
            _ => self.out.extend_from_slice(&[0x40 | ((count - 1) >> 8) as u8, (count - 1) as u8]),
        }
        self.next += count;
    }

    /// The string; `None` if it is too long.
    fn finish(mut self) -> Option<Vec<u8>> {
        self.end_run();
        if self.next > 0 {
            self.out[HEADER_BYTES - 1] = OUT_OF_DATE;
        }
        self.zeros(REGISTERS - self.next);
        (self.out.len() <= HEADER_BYTES + MAX_SPARSE_BYTES).then_some(self.out)
    }
}

/// The string to which these elements were added.
pub fn of_elements<'e>(elements: impl Iterator<Item = &'e [u8]>) -> Vec<u8> {
    let mut raised: Vec<(usize, u8)> = elements.map(register_of).collect();
    raised.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    raised.dedup_by_key(|(index, _)| *index);
    let mut writer = SparseWriter::default();
    let fits = raised.iter().all(|(index, value)| writer.push(*index, *value));
    writer.finish().filter(|_| fits).unwrap_or_else(|| {
        let mut registers = Registers::default();
        raised.iter().for_each(|(index, value)| registers.0[*index] = *value);
        registers.encode()
    })
}

/// The register of an element, and how high it is at least.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let (index, rest) = (hash as usize & (REGISTERS - 1), hash >> INDEX_BITS | 1 << VALUE_BITS);
    (index, rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash64A with Redis's seed.
fn murmur(key: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = SEED ^ (key.len() as u64).wrapping_mul(FACTOR);
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        hash = (hash ^ (word ^ word >> 47).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(FACTOR);
    hash ^ hash >> 47
}

/// About how many different elements were added to a string: what it says itself, if that is up to date.
///
/// # Errors
/// It is no HyperLogLog.
pub fn count(bytes: &[u8]) -> Result<u64, Fault> {
    body(bytes)?;
    let cached = bytes[HEADER_BYTES - 8..HEADER_BYTES].iter().rev();
    let cached = cached.fold(0u64, |count, byte| count << 8 | u64::from(*byte));
    if cached >> 63 == 0 { Ok(cached) } else { Ok(Registers::parse(bytes)?.count()) }
}

/// True if some register of `other` is above that of `bytes`.
///
/// # Errors
/// One of them is no HyperLogLog.
pub fn raises(bytes: &[u8], other: &[u8]) -> Result<bool, Fault> {
    let mut raises = false;
    match (body(bytes)?, body(other)?) {
        (Body::Dense(packed), Body::Sparse(runs)) => each_run(runs, |from, len, value| {
            raises |= value > 0 && (from..from + len).any(|index| dense_register(packed, index) < value);
        })?,
        _ => {
            let (mine, theirs) = (Registers::parse(bytes)?, Registers::parse(other)?);
            raises = mine.0.iter().zip(&theirs.0).any(|(mine, theirs)| mine < theirs);
        }
    }
    Ok(raises)
}

/// The union of two strings; the first as it is if nothing in it is raised.
///
/// # Errors
/// One of them is no HyperLogLog.
pub fn union<'a>(bytes: &'a [u8], other: &[u8]) -> Result<Cow<'a, [u8]>, Fault> {
    if !raises(bytes, other)? {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut registers = Registers::parse(bytes)?;
    registers.unite(&Registers::parse(other)?);
    Ok(Cow::Owned(registers.encode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: usize) -> Vec<u8> {
        format!("element {number}").into_bytes()
    }

    fn of(numbers: std::ops::Range<usize>) -> Vec<u8> {
        let elements: Vec<Vec<u8>> = numbers.map(text).collect();
        of_elements(elements.iter().map(Vec::as_slice))
    }

    #[test]
    fn a_string_says_its_registers_whether_it_is_sparse_or_dense() {
        for count in [0, 1, 2, 100, 1000, 1500, 2000, 5000, 100_000] {
            let string = of(0..count);
            let registers = Registers::parse(&string).expect("it was written here");
            assert_eq!(registers.encode(), string);
            let dense = registers.encode_dense();
            assert_eq!(Registers::parse(&dense).as_ref(), Ok(&registers));
            assert_eq!(string.len() == dense.len(), count > 1500, "{count}: {}", string.len());
            let counted = registers.count();
            assert!(counted.abs_diff(count as u64) <= count as u64 / 50, "{count}: {counted}");
        }
    }

    #[test]
    fn unions_come_to_the_same_bytes_in_any_order() {
        let parts = [of(0..900), of(500..1700), of(1700..1701), of(3000..3004)];
        let unite = |order: [usize; 4]| {
            order.iter().fold(of(0..0), |all, part| {
                union(&all, &parts[*part]).expect("they are well formed").into_owned()
            })
        };
        let expected = unite([0, 1, 2, 3]);
        for order in [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
            assert_eq!(unite(order), expected);
        }
        let together: Vec<Vec<u8>> = (0..1701).chain(3000..3004).map(text).collect();
        assert_eq!(of_elements(together.iter().map(Vec::as_slice)), expected);
    }

    #[test]
    fn what_is_damaged_is_no_hyperloglog() {
        let string = of(0..3);
        assert_eq!(count(&string[..10]), Err(Fault::NotOne));
        assert_eq!(count(b"HYLK\x01...0000000\x80..."), Err(Fault::NotOne));
        assert_eq!(count(&string[..string.len() - 1]), Err(Fault::Corrupt));
        assert_eq!(count(&[&string[..], &[0]].concat()), Err(Fault::Corrupt));
        assert_eq!(count(&[header(DENSE, true), vec![0; DENSE_BYTES - 1]].concat()), Err(Fault::NotOne));
        assert_eq!(count(&of(0..0)), Ok(0));
    }
}
