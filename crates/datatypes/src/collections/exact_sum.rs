//! A sum of floating-point numbers without rounding (Kulisch's long accumulator): a fixed-point number wide enough
//! for every finite `f64` and 2^64 additions. Equal numbers added in any order give equal sums, and adding the
//! negative takes a number back exactly.

use types::{Malformed, Reader, Wire, put_varint};

/// The lowest bit weighs 2^-1074, the least positive `f64`: 1074 bits are below the point, 1024 above it, 64 for
/// carries, one for the sign, rounded up.
const LIMBS: usize = 34;
const MANTISSA_BITS: usize = 53;

/// The sum, in two's complement, the lowest limb first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactSum([u64; LIMBS]);

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum([0; LIMBS])
    }
}

impl ExactSum {
    /// Adds a finite number; any other is not added.
    pub fn add(&mut self, number: f64) {
        if !number.is_finite() {
            return;
        }
        let bits = number.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let wide = u128::from(mantissa) << (shift % 64);
        let parts = [wide as u64, (wide >> 64) as u64];
        self.add_at(shift / 64, parts, number.is_sign_negative());
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &ExactSum) {
        let mut carry = false;
        for (limb, part) in self.0.iter_mut().zip(other.0) {
            let (sum, over) = limb.overflowing_add(part);
            let (total, again) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (total, over || again);
        }
    }

    /// Takes another sum back.
    pub fn subtract_sum(&mut self, other: &ExactSum) {
        self.add_sum(&ExactSum(other.negated()));
    }

    /// Adds or subtracts two limbs from the given one on, with the carry through the rest.
    fn add_at(&mut self, first: usize, parts: [u64; 2], negative: bool) {
        let mut carry = false;
        let parts = parts.into_iter().chain(std::iter::repeat(0));
        for (place, (limb, part)) in self.0[first..].iter_mut().zip(parts).enumerate() {
            if place >= 2 && !carry {
                break;
            }
            let ((sum, over), (total, again)) = if negative {
                let (sum, over) = limb.overflowing_sub(part);
                ((sum, over), sum.overflowing_sub(u64::from(carry)))
            } else {
                let (sum, over) = limb.overflowing_add(part);
                ((sum, over), sum.overflowing_add(u64::from(carry)))
            };
            let _ = sum;
            (*limb, carry) = (total, over || again);
        }
    }

    fn is_negative(&self) -> bool {
        self.0[LIMBS - 1] >> 63 == 1
    }

    /// The nearest `f64`, ties to even; infinite beyond the greatest.
    pub fn rounded(&self) -> f64 {
        let magnitude = if self.is_negative() { self.negated() } else { self.0 };
        let Some(top) = magnitude.iter().rposition(|limb| *limb != 0) else { return 0.0 };
        let highest = top * 64 + 63 - magnitude[top].leading_zeros() as usize;
        let bit = |place: usize| magnitude[place / 64] >> (place % 64) & 1;
        let lowest = (highest + 1).saturating_sub(MANTISSA_BITS);
        let mut mantissa = (lowest..=highest).rev().fold(0u64, |mantissa, place| mantissa << 1 | bit(place));
        // A mantissa at place 0 is subnormal, or has the lowest exponent: its bits are the number's.
        let mut exponent = if highest >= MANTISSA_BITS - 1 { lowest as u64 + 1 } else { 0 };
        if lowest > 0 && bit(lowest - 1) == 1 {
            let sticky = (0..lowest - 1).any(|place| bit(place) == 1);
            if sticky || mantissa & 1 == 1 {
                mantissa += 1;
            }
            if mantissa >> MANTISSA_BITS == 1 {
                mantissa >>= 1;
                exponent += 1;
            }
        }
        let value = if exponent >= 0x7ff {
            f64::INFINITY
        } else {
            f64::from_bits(exponent << 52 | mantissa & ((1 << 52) - 1))
        };
        if self.is_negative() { -value } else { value }
    }

    fn negated(&self) -> [u64; LIMBS] {
        let mut carry = true;
        self.0.map(|limb| {
            let (value, over) = (!limb).overflowing_add(u64::from(carry));
            carry = over;
            value
        })
    }

    /// What the limbs above the given ones are: all ones below zero.
    fn fill(&self) -> u64 {
        if self.is_negative() { u64::MAX } else { 0 }
    }
}

/// Which limbs differ from what surrounds them, and these.
impl Wire for ExactSum {
    fn encode(&self, out: &mut Vec<u8>) {
        let fill = self.fill();
        let end = self.0.iter().rposition(|limb| *limb != fill).map_or(0, |last| last + 1);
        let start = self.0[..end].iter().position(|limb| *limb != 0).unwrap_or(end);
        out.push(u8::from(fill != 0));
        put_varint(out, start as u64);
        put_varint(out, (end - start) as u64);
        self.0[start..end].iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes()));
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let malformed = Malformed("exact sum");
        let fill = match input.byte()? {
            0 => 0,
            1 => u64::MAX,
            _ => return Err(malformed),
        };
        let (start, len) = (usize::decode(input)?, usize::decode(input)?);
        let end = start.checked_add(len).filter(|end| *end <= LIMBS).ok_or(malformed)?;
        let mut limbs = [0; LIMBS];
        for limb in &mut limbs[start..end] {
            *limb = u64::from_le_bytes(input.take(8)?.try_into().map_err(|_| Malformed("exact sum"))?);
        }
        limbs[end..].fill(fill);
        Ok(ExactSum(limbs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(numbers: impl IntoIterator<Item = f64>) -> ExactSum {
        let mut sum = ExactSum::default();
        numbers.into_iter().for_each(|number| sum.add(number));
        sum
    }

    fn finite() -> impl Strategy<Value = f64> {
        any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |number| number.is_finite())
    }

    #[test]
    fn sums_are_exact_where_floating_point_addition_loses_digits() {
        assert_eq!(sum([0.1, 0.2, 0.3]).rounded(), 0.6);
        assert_eq!(sum([1e300, 1.0, -1e300]).rounded(), 1.0);
        assert_eq!(sum([f64::MAX, f64::MAX, -f64::MAX]).rounded(), f64::MAX);
        assert_eq!(sum([f64::MAX, f64::MAX]).rounded(), f64::INFINITY);
        assert_eq!(sum([-f64::MAX, -f64::MAX]).rounded(), f64::NEG_INFINITY);
        let least = f64::from_bits(1);
        assert_eq!(sum([least, least, least]).rounded(), f64::from_bits(3));
        assert_eq!(sum([f64::MIN_POSITIVE, -least]).rounded(), f64::from_bits((1 << 52) - 1));
        let half_way = 2f64.powi(53);
        assert_eq!(sum([half_way, 1.0]).rounded(), half_way, "ties to even");
        assert_eq!(sum([half_way, 1.0, least]).rounded(), half_way + 2.0);
        assert_eq!(sum([f64::NAN, f64::INFINITY, 2.0]).rounded(), 2.0);
    }

    proptest! {
        #[test]
        fn one_number_is_itself(number in finite()) {
            prop_assert_eq!(sum([number]).rounded(), number);
            prop_assert_eq!(sum([number, -number]), ExactSum::default());
        }

        #[test]
        fn integers_sum_as_integers_do(numbers in proptest::collection::vec(any::<i64>(), 0..20), scale in -900i32..800) {
            // Halves of 64-bit integers are exact.
            let halves = |n: &i64| [(n >> 32) as f64 * 2f64.powi(32), (n & 0xffff_ffff) as f64];
            let unscaled = sum(numbers.iter().flat_map(halves));
            let expected: i128 = numbers.iter().map(|n| i128::from(*n)).sum();
            prop_assert_eq!(unscaled.rounded(), expected as f64);
            let factor = 2f64.powi(scale);
            let scaled = sum(numbers.iter().flat_map(halves).map(|number| number * factor));
            prop_assert_eq!(scaled.rounded(), expected as f64 * factor);
        }

        #[test]
        fn neither_order_nor_a_binary_form_matters(numbers in proptest::collection::vec(finite(), 0..12), turn in 0usize..12) {
            let forward = sum(numbers.iter().copied());
            let mut other = numbers.clone();
            other.rotate_left(turn % numbers.len().max(1));
            prop_assert_eq!(&sum(other.into_iter().rev()), &forward);
            let mut bytes = Vec::new();
            forward.encode(&mut bytes);
            prop_assert_eq!(ExactSum::decode(&mut Reader::new(&bytes)), Ok(forward));
        }
    }
}
