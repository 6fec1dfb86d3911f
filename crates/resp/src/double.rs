//! Floating-point numbers in decimal, as Redis 7.0 replies with them.

use std::fmt::{self, Write};
use std::ops::Deref;

use crate::integer::format_integer;

/// Significant digits: enough to tell every two doubles apart.
const DIGITS: usize = 17;
/// The longest text: sign, leading `0.000`, 17 digits; or sign, point, 17 digits and `e-308`.
const MAX_LEN: usize = 32;
/// Integers of a smaller magnitude are written digit by digit: exact in a double, and at most 15 digits.
const EXACT_INTEGERS_BELOW: f64 = 1e15;

/// The text of a double, on the stack.
#[derive(Clone, Copy)]
pub struct DoubleText {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl DoubleText {
    const EMPTY: DoubleText = DoubleText { bytes: [0; MAX_LEN], len: 0 };

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl Deref for DoubleText {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for DoubleText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.len + text.len() > MAX_LEN {
            return Err(fmt::Error);
        }
        self.push(text.as_bytes());
        Ok(())
    }
}

/// `value` as C's `printf("%.17g")` writes it, which is how Redis 7.0 replies with scores in both protocol
/// versions (`addReplyDouble`): `3`, `0.10000000000000001`, `1e+20`, `inf`, `-0`. Not a number is `nan`.
pub fn format_double(value: f64) -> DoubleText {
    let mut text = DoubleText::EMPTY;
    if value.is_nan() {
        text.push(b"nan");
    } else if value.is_infinite() {
        text.push(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        text.push(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() < EXACT_INTEGERS_BELOW && value.trunc() == value {
        text.push(&format_integer(value as i64));
    } else {
        format_general(value, &mut text);
    }
    text
}

/// The rules of `%g` for finite numbers other than zero: 17 rounded digits without trailing zeros, in scientific
/// form when the exponent is below -4 or at least 17.
fn format_general(value: f64, text: &mut DoubleText) {
    let (digits, exponent) = digits_and_exponent(value.abs());
    let significant = DIGITS - digits.iter().rev().take_while(|digit| **digit == b'0').count();
    let digits = &digits[..significant];
    if value < 0.0 {
        text.push(b"-");
    }
    if !(-4..DIGITS as i32).contains(&exponent) {
        text.push(&digits[..1]);
        if significant > 1 {
            text.push(b".");
            text.push(&digits[1..]);
        }
        text.push(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.abs() < 10 {
            text.push(b"0");
        }
        text.push(&format_integer(i64::from(exponent.abs())));
    } else if exponent < 0 {
        text.push(b"0.");
        text.push(&b"000"[..(-exponent - 1) as usize]);
        text.push(digits);
    } else {
        let whole = exponent as usize + 1;
        text.push(&digits[..whole.min(significant)]);
        text.push(&[b'0'; DIGITS][..whole.saturating_sub(significant)]);
        if significant > whole {
            text.push(b".");
            text.push(&digits[whole..]);
        }
    }
}

/// The 17 significant digits of a positive finite number, correctly rounded, and the decimal exponent of the
/// first.
fn digits_and_exponent(value: f64) -> ([u8; DIGITS], i32) {
    let mut scientific = DoubleText::EMPTY;
    let written = write!(scientific, "{value:.16e}");
    debug_assert!(written.is_ok(), "1.{{16 digits}}e-308 fits");
    let mut digits = [b'0'; DIGITS];
    digits[0] = scientific[0];
    digits[1..].copy_from_slice(&scientific[2..][..DIGITS - 1]);
    let exponent = std::str::from_utf8(&scientific[DIGITS + 2..]).ok().and_then(|text| text.parse().ok());
    (digits, exponent.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::format_double;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        String::from_utf8(format_double(value).to_vec()).expect("ascii")
    }

    /// Recorded from `ZSCORE` of Redis 7.0.15, which gave the same texts under RESP2 and RESP3. The last two
    /// cannot be a score there; they are `printf`'s.
    #[test]
    fn texts_recorded_from_redis() {
        let table = [
            (3.0, "3"),
            (0.1, "0.10000000000000001"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (9.5e16, "95000000000000000"),
            (1e17, "1e+17"),
            (1e20, "1e+20"),
            (1e23, "9.9999999999999992e+22"),
            (1e100, "1e+100"),
            (1.5e300, "1.5000000000000001e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "4.9406564584124654e-324"),
            (123456789.123, "123456789.123"),
            (123456.7890625, "123456.7890625"),
            (1e-4, "0.0001"),
            (0.0001234, "0.00012339999999999999"),
            (1e-5, "1.0000000000000001e-05"),
            (0.00001234, "1.234e-05"),
            (1e-10, "1e-10"),
            (9007199254740993.0, "9007199254740992"),
            (12345678901234567.0, "12345678901234568"),
            (18014398509481984.0, "18014398509481984"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (999999999999999999.0, "1e+18"),
            (0.3, "0.29999999999999999"),
            (4.35, "4.3499999999999996"),
            (-2.5, "-2.5"),
            (-17.0, "-17"),
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::NAN, "nan"),
        ];
        for (value, expected) in table {
            assert_eq!(text(value), expected);
        }
    }

    proptest! {
        #[test]
        fn every_double_is_read_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(text(value).parse::<f64>().expect("a number").to_bits(), bits);
        }

        #[test]
        fn decimal_fractions_are_read_back(mantissa in -1_000_000_000i64..1_000_000_000, exponent in -12i32..12) {
            let value = mantissa as f64 * 10f64.powi(exponent);
            prop_assert_eq!(text(value).parse::<f64>().expect("a number").to_bits(), value.to_bits());
        }
    }
}
