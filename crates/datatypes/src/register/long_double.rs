//! The 80-bit floating-point numbers of x87, in which Redis adds for INCRBYFLOAT.
//!
//! Sums depend on how they are rounded, so the same mantissa of 64 bits, the same range and the same rounding (to
//! nearest, ties to even) are computed here with integers: what comes out is what Redis on x86-64 replies, on every
//! machine. Numbers are read as C's `strtold` reads them and written as `%.17Lf` without zeros at the end.

use super::big::Big;
use types::{Malformed, Reader, Wire};

/// The exponent of the lowest bit of the smallest numbers.
const MIN_EXPONENT: i32 = -16445;
/// The exponent of the lowest bit of the largest numbers.
const MAX_EXPONENT: i32 = 16320;
/// The longest text that is read (Redis's MAX_LONG_DOUBLE_CHARS).
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;
/// How many digits stand after the point at most.
const FRACTION_DIGITS: usize = 17;
const FRACTION: u128 = 100_000_000_000_000_000;
/// Decimal exponents beyond this, either way, are beyond the range.
const MAX_DECIMAL_EXPONENT: i64 = 4990;

/// A finite number: `mantissa * 2^exponent`. The mantissa's highest bit is set, unless the exponent is the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// What a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A number.
    Finite(LongDouble),
    /// An infinity, to which nothing can be added.
    Infinite,
}

impl LongDouble {
    /// Nothing.
    pub const ZERO: LongDouble = LongDouble { negative: false, mantissa: 0, exponent: MIN_EXPONENT };

    /// An integer, exactly.
    pub fn from_integer(value: i64) -> Self {
        let exact = rounded(value < 0, u128::from(value.unsigned_abs()), 0, false);
        exact.unwrap_or(LongDouble::ZERO)
    }

    /// The number in a text, if it is one for Redis: read to the end, no blank in front, within the range.
    pub fn parse(text: &[u8]) -> Option<Parsed> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let (negative, magnitude) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"infinity") {
            return Some(Parsed::Infinite);
        }
        let number = match magnitude {
            [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(negative, digits),
            digits => parse_decimal(negative, digits),
        };
        number.map(Parsed::Finite)
    }

    /// The sum, rounded; `None` if it is infinite.
    pub fn plus(self, other: Self) -> Option<Self> {
        if self.mantissa == 0 || other.mantissa == 0 {
            return Some(if self.mantissa == 0 { other } else { self });
        }
        let (high, low) = match (self.exponent, self.mantissa) >= (other.exponent, other.mantissa) {
            true => (self, other),
            false => (other, self),
        };
        // The mantissas stand 63 bits up: what is shifted out below is only wanted for rounding.
        let distance = (high.exponent - low.exponent) as u32;
        let (wide, exponent) = (u128::from(high.mantissa) << 63, high.exponent - 63);
        let aligned = u128::from(low.mantissa) << 63;
        let shifted = aligned.checked_shr(distance).unwrap_or(0);
        let sticky = distance > 127 || shifted << distance != aligned;
        let sum = match high.negative == low.negative {
            true => wide + shifted,
            false => wide - shifted - u128::from(sticky),
        };
        if sum == 0 && !sticky {
            return Some(LongDouble::ZERO);
        }
        rounded(high.negative, sum, exponent, sticky)
    }

    /// The decimal form with at most 17 digits after the point.
    pub fn to_text(self) -> Vec<u8> {
        let digits = if self.exponent >= 0 {
            Big::from(self.mantissa).shifted(self.exponent as u32).into_decimal()
        } else {
            let text = fixed_point(self.mantissa, self.exponent.unsigned_abs());
            let text = text.trim_end_matches('0');
            text.trim_end_matches('.').to_owned()
        };
        let sign = if self.negative && digits != "0" { "-" } else { "" };
        [sign, &digits].concat().into_bytes()
    }
}

/// A fraction of two, rounded to 17 digits after the point.
fn fixed_point(mantissa: u64, shift: u32) -> String {
    let scaled = u128::from(mantissa) * FRACTION;
    // Further down, less than half of the last digit is left.
    let quotient = scaled.checked_shr(shift).unwrap_or(0);
    let rest = if shift < 128 { scaled - (quotient << shift) } else { 0 };
    let half = if shift < 128 { 1 << (shift - 1) } else { u128::MAX };
    let up = rest > half || (rest == half && quotient % 2 == 1);
    let quotient = quotient + u128::from(up);
    format!("{}.{:0width$}", quotient / FRACTION, quotient % FRACTION, width = FRACTION_DIGITS)
}

/// The nearest number to `mantissa * 2^exponent`, with a little more where `sticky` says so: then the mantissa must have
/// at least 66 bits. `None` beyond the range.
fn rounded(negative: bool, mantissa: u128, exponent: i32, sticky: bool) -> Option<LongDouble> {
    let bits = (128 - mantissa.leading_zeros()) as i32;
    let shift = (bits - 64).max(MIN_EXPONENT.saturating_sub(exponent));
    let exponent = exponent.saturating_add(shift);
    if shift <= 0 {
        let mantissa = (mantissa << shift.unsigned_abs().min(127)) as u64;
        let exponent = if mantissa == 0 { MIN_EXPONENT } else { exponent };
        let fits = exponent <= MAX_EXPONENT;
        return fits.then_some(LongDouble { negative, mantissa, exponent });
    }
    let shift = shift.unsigned_abs();
    let quotient = mantissa.checked_shr(shift).unwrap_or(0);
    let up = match shift {
        ..=127 => {
            let (rest, half) = (mantissa - (quotient << shift), 1u128 << (shift - 1));
            rest > half || (rest == half && (sticky || quotient % 2 == 1))
        }
        // A mantissa has at most 128 bits.
        128 => mantissa > 1 << 127 || (mantissa == 1 << 127 && sticky),
        _ => false,
    };
    let quotient = quotient + u128::from(up);
    let (mantissa, exponent) = match u64::try_from(quotient) {
        Ok(mantissa) => (mantissa, exponent),
        Err(_) => (1 << 63, exponent + 1),
    };
    (exponent <= MAX_EXPONENT).then_some(LongDouble { negative, mantissa, exponent })
}

/// Digits with at most one point among them: the digits, and how many stand after the point.
fn split_point(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> Option<(Vec<u8>, i64)> {
    let mut parts = text.split(|byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let digits = [whole, fraction].concat();
    let well_formed = parts.next().is_none() && !digits.is_empty() && digits.iter().all(is_digit);
    well_formed.then_some((digits, fraction.len() as i64))
}

/// An exponent: digits with a sign or without. What is far beyond the range stays so.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1 << 40);
    let magnitude = digits.iter().fold(0, add);
    Some(if negative { -magnitude } else { magnitude })
}

fn parse_decimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (digits, after_point) = split_point(mantissa, u8::is_ascii_digit)?;
    let digits = &digits[digits.iter().take_while(|digit| **digit == b'0').count()..];
    let exponent = exponent - after_point;
    if digits.is_empty() {
        return Some(LongDouble { negative, ..LongDouble::ZERO });
    }
    let highest = digits.len() as i64 + exponent;
    if highest.abs() > MAX_DECIMAL_EXPONENT {
        return None;
    }
    let numerator = Big::from_digits(digits);
    let number = match u32::try_from(exponent) {
        Ok(power) => {
            let (top, shift, sticky) = numerator.times_power_of_ten(power).top();
            rounded(negative, top, shift, sticky)
        }
        Err(_) => {
            let denominator = Big::from(1).times_power_of_ten(exponent.unsigned_abs() as u32);
            let (quotient, shift, sticky) = numerator.divided_by(denominator);
            rounded(negative, quotient, shift, sticky)
        }
    };
    // What is rounded to nothing is out of range, too.
    number.filter(|number| number.mantissa != 0)
}

/// `strtold` also reads `0x1f`, `0x1.8p3`.
fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (digits, after_point) = split_point(mantissa, u8::is_ascii_hexdigit)?;
    let (mut value, mut dropped, mut sticky) = (0u128, 0i64, false);
    for digit in digits.iter().filter_map(|digit| char::from(*digit).to_digit(16)) {
        if value >> 124 == 0 {
            value = value << 4 | u128::from(digit);
        } else {
            dropped += 1;
            sticky |= digit != 0;
        }
    }
    if value == 0 {
        return Some(LongDouble { negative, ..LongDouble::ZERO });
    }
    let exponent = (exponent + 4 * (dropped - after_point)).clamp(-(1 << 20), 1 << 20);
    rounded(negative, value, exponent as i32, sticky).filter(|number| number.mantissa != 0)
}

impl Wire for LongDouble {
    fn encode(&self, out: &mut Vec<u8>) {
        self.negative.encode(out);
        self.mantissa.encode(out);
        i64::from(self.exponent).encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (negative, mantissa) = (bool::decode(input)?, u64::decode(input)?);
        let exponent = i32::try_from(i64::decode(input)?).map_err(|_| Malformed("exponent"))?;
        let is_normal = mantissa >> 63 == 1 && (MIN_EXPONENT..=MAX_EXPONENT).contains(&exponent);
        if !is_normal && exponent != MIN_EXPONENT {
            return Err(Malformed("long double"));
        }
        Ok(LongDouble { negative, mantissa, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<LongDouble> {
        match LongDouble::parse(text.as_bytes()) {
            Some(Parsed::Finite(number)) => Some(number),
            _ => None,
        }
    }

    fn sum(a: &str, b: &str) -> String {
        let sum = number(a).zip(number(b)).and_then(|(a, b)| a.plus(b));
        sum.map_or("infinite".into(), |sum| String::from_utf8_lossy(&sum.to_text()).into_owned())
    }

    /// As Redis 7.0.15 on x86-64 replies.
    #[test]
    fn sums_are_those_of_redis() {
        let table = [
            ("0.1", "0.2", "0.3"),
            ("3", "1.1", "4.1"),
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1", "0"),
            ("0", "-0", "0"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "5e-18", "0"),
            ("0", "5.1e-18", "0.00000000000000001"),
            ("0", "4e-18", "0"),
            ("0", "-4e-18", "0"),
            ("9007199254740993", "0.5", "9007199254740993.5"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "1.5", "18446744073709551618"),
            ("0", "0x1.8p3", "12"),
            ("0", "1e20", "100000000000000000000"),
            ("0", ".5", "0.5"),
            ("0", "5.", "5"),
            ("1e4932", "1e4932", "infinite"),
        ];
        for (a, b, expected) in table {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
            assert_eq!(sum(b, a), expected, "{b} + {a}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let texts = [
            "",
            " 1",
            "1 ",
            "nan",
            "a",
            "1a",
            "--1",
            "1e",
            "e5",
            ".",
            "1e5000",
            "1e-5000",
            "0x",
            "1_0",
            "1.2.3",
            "+-1",
            "0x1p",
            "1e99999999999999999999",
        ];
        for text in texts {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(LongDouble::parse(b"-Inf"), Some(Parsed::Infinite));
        assert!(number(&"9".repeat(4932)).is_some() && number(&"9".repeat(4933)).is_none());
        assert_eq!(number("3.6e-4951").map(|least| least.mantissa), Some(1));
        assert_eq!(number("1.8e-4951"), None, "less than half of the least number");
    }
}
