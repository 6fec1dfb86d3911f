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

mod sparse;

use sparse::{MAX_SPARSE_BYTES, Runs, SparseWriter, each_pair, each_register, encode_sparse};
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
                registers.0.iter_mut().zip(dense_registers(packed)).for_each(|(to, value)| *to = value);
            }
            Body::Sparse(runs) => {
                let mut from = 0;
                for run in Runs::new(runs) {
                    let (len, value) = run?;
                    registers.0[from..from + len].fill(value);
                    from += len;
                }
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
        encode_sparse(self.0.iter().copied()).unwrap_or_else(|| self.encode_dense())
    }

    fn encode_dense(&self) -> Vec<u8> {
        let mut out = header(DENSE, DENSE_BYTES);
        // Four registers have three bytes.
        for four in self.0.as_chunks::<4>().0 {
            let packed = four.iter().rev().fold(0u32, |packed, value| packed << 6 | u32::from(*value));
            out.extend_from_slice(&packed.to_le_bytes()[..3]);
        }
        out
    }

    /// About how many different elements were added.
    pub fn count(&self) -> u64 {
        let mut histogram = [0; 64];
        self.0.iter().for_each(|value| histogram[usize::from(*value & 63)] += 1);
        estimate(&histogram)
    }
}

/// About how many different elements were added, of how many registers have each value (Ertl, New cardinality estimation
/// algorithms for HyperLogLog sketches, algorithm 6): in the order of Redis's operations, so that the last digit is the
/// same.
fn estimate(histogram: &[u32; 64]) -> u64 {
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let registers = REGISTERS as f64;
    let highest = VALUE_BITS as usize + 1;
    let mut z = registers * tau((registers - f64::from(histogram[highest])) / registers);
    for count in histogram[1..highest].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += registers * sigma(f64::from(histogram[0]) / registers);
    (ALPHA * registers * registers / z).round() as u64
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

/// The header of a changed string, with room for so many bytes of registers.
fn header(encoding: u8, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + bytes);
    out.extend_from_slice(MAGIC);
    out.push(encoding);
    out.resize(HEADER_BYTES, 0);
    out[HEADER_BYTES - 1] = OUT_OF_DATE;
    out
}

fn dense_register(packed: &[u8], index: usize) -> u8 {
    let (byte, bit) = (index * 6 / 8, index * 6 % 8);
    let next = packed.get(byte + 1).copied().unwrap_or(0);
    ((u16::from(packed[byte]) | u16::from(next) << 8) >> bit) as u8 & 63
}

/// The registers of a dense string, in order.
fn dense_registers(packed: &[u8]) -> impl Iterator<Item = u8> {
    packed.as_chunks::<3>().0.iter().flat_map(four_registers)
}

/// Four registers have three bytes.
fn four_registers(packed: &[u8; 3]) -> [u8; 4] {
    let [first, second, third] = *packed;
    [first & 63, (first >> 6 | second << 2) & 63, (second >> 4 | third << 4) & 63, third >> 2]
}

/// The string to which these elements were added.
pub fn of_elements<'e>(elements: impl Iterator<Item = &'e [u8]>) -> Vec<u8> {
    let mut raised: Vec<(usize, u8)> = elements.map(register_of).collect();
    raised.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    raised.dedup_by_key(|(index, _)| *index);
    let mut writer = SparseWriter::new((3 * raised.len() + 2).min(MAX_SPARSE_BYTES));
    let mut next = 0;
    for (index, value) in &raised {
        writer.push(index - next, 0);
        writer.push(1, *value);
        next = index + 1;
    }
    writer.push(REGISTERS - next, 0);
    writer.finish().unwrap_or_else(|| {
        let mut registers = Registers::default();
        raised.iter().for_each(|(index, value)| registers.0[*index] = *value);
        registers.encode_dense()
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
    let body = body(bytes)?;
    let cached = bytes[HEADER_BYTES - 8..HEADER_BYTES].iter().rev();
    let cached = cached.fold(0u64, |count, byte| count << 8 | u64::from(*byte));
    if cached >> 63 == 0 {
        return Ok(cached);
    }
    let mut histogram = [0; 64];
    match body {
        Body::Dense(packed) => dense_registers(packed).for_each(|value| histogram[usize::from(value)] += 1),
        Body::Sparse(runs) => {
            for run in Runs::new(runs) {
                let (len, value) = run?;
                histogram[usize::from(value)] += len as u32;
            }
        }
    }
    Ok(estimate(&histogram))
}

/// Nothing if the string is a HyperLogLog.
///
/// # Errors
/// It is none.
pub fn check(bytes: &[u8]) -> Result<(), Fault> {
    match body(bytes)? {
        Body::Dense(_) => Ok(()),
        Body::Sparse(runs) => Runs::new(runs).try_for_each(|run| run.map(|_| ())),
    }
}

/// The string with the same registers that is written here.
///
/// # Errors
/// It is no HyperLogLog.
pub fn normalized(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    if let Body::Sparse(runs) = body(bytes)? {
        let mut writer = SparseWriter::new(runs.len());
        for run in Runs::new(runs) {
            let (len, value) = run?;
            writer.push(len, value);
        }
        if let Some(string) = writer.finish() {
            return Ok(string);
        }
    }
    Ok(Registers::parse(bytes)?.encode())
}

/// True if some register of `other` is above that of `bytes`.
///
/// # Errors
/// One of them is no HyperLogLog.
pub fn raises(bytes: &[u8], other: &[u8]) -> Result<bool, Fault> {
    let mut raises = false;
    match (body(bytes)?, body(other)?) {
        (Body::Sparse(mine), Body::Sparse(theirs)) => {
            each_pair(mine, theirs, |_, mine, theirs| raises |= mine < theirs)?;
        }
        (Body::Dense(packed), Body::Sparse(runs)) => {
            each_register(runs, |index, value| raises |= dense_register(packed, index) < value)?;
        }
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
    if let (Body::Sparse(mine), Body::Sparse(theirs)) = (body(bytes)?, body(other)?) {
        let mut raises = false;
        let mut writer = SparseWriter::new(mine.len() + theirs.len());
        each_pair(mine, theirs, |len, mine, theirs| {
            raises |= mine < theirs;
            writer.push(len, mine.max(theirs));
        })?;
        match writer.finish() {
            _ if !raises => return Ok(Cow::Borrowed(bytes)),
            Some(union) => return Ok(Cow::Owned(union)),
            None => {}
        }
    } else if !raises(bytes, other)? {
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

    /// A sparse string of another writer: runs are split, and a zero run follows another.
    fn split(string: &[u8]) -> Vec<u8> {
        let mut out = header(SPARSE, 0);
        let Ok(Body::Sparse(runs)) = body(string) else { panic!("it is sparse") };
        for run in Runs::new(runs) {
            match run.expect("it was written here") {
                (len, 0) => {
                    out.extend(std::iter::repeat_n(63, len / 64));
                    out.extend(std::iter::repeat_n(0, len % 64));
                }
                (len, value) => out.extend(std::iter::repeat_n(0x80 | (value - 1) << 2, len)),
            }
        }
        out
    }

    #[test]
    fn what_is_found_in_place_is_what_the_registers_say() {
        let dense = |string: &[u8]| Registers::parse(string).expect("well formed").encode_dense();
        let mut strings: Vec<Vec<u8>> = [0..0, 0..1, 1..2, 0..40, 20..400, 300..1400, 0..1900, 0..2000]
            .map(of)
            .into_iter()
            .chain([0..5, 3000..3040].map(|range| split(&of(range))))
            .collect();
        strings.extend([dense(&strings[4]), dense(&of(0..50_000)), of(0..50_000)]);
        for mine in &strings {
            let registers = Registers::parse(mine).expect("well formed");
            let expected = if mine == &of(0..0) { 0 } else { registers.count() };
            assert_eq!((count(mine), check(mine)), (Ok(expected), Ok(())));
            assert_eq!(normalized(mine), Ok(registers.encode()));
            for theirs in &strings {
                let mut united = registers.clone();
                united.unite(&Registers::parse(theirs).expect("well formed"));
                let is_raised = united != registers;
                assert_eq!(raises(mine, theirs), Ok(is_raised));
                let expected = if is_raised { united.encode() } else { mine.clone() };
                assert_eq!(union(mine, theirs).expect("well formed").into_owned(), expected);
            }
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
        for damaged in [&string[..string.len() - 1], &[&string[..], &[0]].concat()] {
            assert_eq!(check(damaged), Err(Fault::Corrupt));
            assert_eq!(normalized(damaged), Err(Fault::Corrupt));
            assert_eq!(raises(damaged, &string), Err(Fault::Corrupt));
            assert_eq!(raises(&string, damaged), Err(Fault::Corrupt));
            assert_eq!(union(&string, damaged), Err(Fault::Corrupt));
            assert_eq!(union(damaged, &string), Err(Fault::Corrupt));
        }
        assert_eq!(count(&[header(DENSE, 0), vec![0; DENSE_BYTES - 1]].concat()), Err(Fault::NotOne));
        assert_eq!(count(&of(0..0)), Ok(0));
    }
}
