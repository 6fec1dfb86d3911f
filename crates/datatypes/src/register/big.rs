//! Whole numbers of any size, as far as decimal texts need them.

use std::cmp::Ordering;

const BILLION: u32 = 1_000_000_000;

/// How many bits a quotient has, or one more: enough to round it to 64.
const QUOTIENT_BITS: u32 = 68;

/// A whole number, in words from the lowest; the highest is not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Big(Vec<u32>);

impl From<u64> for Big {
    fn from(value: u64) -> Self {
        let mut big = Big(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big
    }
}

impl Big {
    /// Of decimal digits.
    pub(super) fn from_digits(digits: &[u8]) -> Self {
        let mut big = Big(Vec::new());
        for piece in digits.chunks(9) {
            let value = piece.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
            big.multiply_add(10u32.pow(piece.len() as u32), value);
        }
        big
    }

    fn trim(&mut self) {
        while self.0.pop_if(|word| *word == 0).is_some() {}
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.0 {
            let product = u64::from(*word) * u64::from(factor) + carry;
            (*word, carry) = (product as u32, product >> 32);
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    pub(super) fn times_power_of_ten(mut self, power: u32) -> Self {
        for _ in 0..power / 9 {
            self.multiply_add(BILLION, 0);
        }
        self.multiply_add(10u32.pow(power % 9), 0);
        self
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |top| self.0.len() as u32 * 32 - top.leading_zeros())
    }

    pub(super) fn shifted(mut self, bits: u32) -> Self {
        self.multiply_add(1 << (bits % 32), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
        self
    }

    /// The highest 128 bits, the exponent of the lowest of them, and whether anything but zeros is below.
    pub(super) fn top(&self) -> (u128, i32, bool) {
        let below = self.0.len().saturating_sub(4);
        let top = self.0[below..].iter().rev().fold(0, |top, word| top << 32 | u128::from(*word));
        (top, below as i32 * 32, self.0[..below].iter().any(|word| *word != 0))
    }

    /// The quotient's highest bits, the exponent of the lowest of them, and whether a rest is left.
    pub(super) fn divided_by(self, denominator: Big) -> (u128, i32, bool) {
        // Both get the same number of bits, so that the first bit of the quotient is that of one or of a half.
        let (of, by) = (self.bits(), denominator.bits());
        let mut rest = self.shifted(by.saturating_sub(of));
        let denominator = denominator.shifted(of.saturating_sub(by));
        let mut quotient = 0u128;
        for _ in 0..QUOTIENT_BITS {
            let fits = rest.cmp(&denominator) != Ordering::Less;
            if fits {
                rest.subtract(&denominator);
            }
            quotient = quotient << 1 | u128::from(fits);
            rest.multiply_add(2, 0);
        }
        (quotient, of as i32 - by as i32 - (QUOTIENT_BITS as i32 - 1), !rest.0.is_empty())
    }

    fn cmp(&self, other: &Big) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Takes away what is not more than this.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (place, word) in self.0.iter_mut().enumerate() {
            let (less, first) = word.overflowing_sub(other.0.get(place).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u32::from(borrow));
            (*word, borrow) = (less, first || second);
        }
        self.trim();
    }

    /// Decimal digits.
    pub(super) fn into_decimal(mut self) -> String {
        let mut pieces = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0u64;
            for word in self.0.iter_mut().rev() {
                let value = rest << 32 | u64::from(*word);
                (*word, rest) = ((value / u64::from(BILLION)) as u32, value % u64::from(BILLION));
            }
            self.trim();
            pieces.push(rest);
        }
        let mut text = pieces.pop().unwrap_or(0).to_string();
        for piece in pieces.iter().rev() {
            text.push_str(&format!("{piece:09}"));
        }
        text
    }
}
