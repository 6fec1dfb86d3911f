//! Integers in decimal, both ways.

use std::ops::Deref;

/// All pairs of digits, `00` to `99`.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// The longest text of an `i64`: a sign and 19 digits.
const MAX_LEN: usize = 20;

/// The decimal text of an integer, on the stack.
#[derive(Clone, Copy)]
pub struct IntegerText {
    bytes: [u8; MAX_LEN],
    start: usize,
}

impl Deref for IntegerText {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The shortest decimal text of `value`, the only one that [`parse_integer`] reads back.
#[inline]
pub fn format_integer(value: i64) -> IntegerText {
    let mut bytes = [0; MAX_LEN];
    let start = write_backwards(value, &mut bytes);
    IntegerText { bytes, start }
}

/// Writes the decimal text of `value` at the end of `bytes`, which must have room, and returns where it starts.
#[inline]
pub(crate) fn write_backwards(value: i64, bytes: &mut [u8]) -> usize {
    let mut start = bytes.len();
    let mut rest = value.unsigned_abs();
    while rest >= 100 {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        start -= 2;
        bytes[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        let pair = rest as usize * 2;
        start -= 2;
        bytes[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        bytes[start] = b'0' + rest as u8;
    }
    if value < 0 {
        start -= 1;
        bytes[start] = b'-';
    }
    start
}

/// The integer that `text` is the one canonical form of: no leading zero, no plus sign, no blank, no `-0`.
/// This is Redis's `string2ll`, which reads lengths in the protocol as well as numbers in commands.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > 19 || !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    // Nineteen digits always fit an unsigned 64-bit number.
    let magnitude = digits
        .iter()
        .try_fold(0u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::{format_integer, parse_integer};
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_form_is_read() {
        for text in ["", "-", "+1", "01", "-0", "-01", " 1", "1 ", "1.0", "0x1", "00", "9223372036854775808"]
        {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
        for text in ["-9223372036854775809", "18446744073709551616", "99999999999999999999"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
        for value in [0, 1, -1, 9, 10, 99, 100, 101, 999, 1000, i64::MAX, i64::MIN] {
            assert_eq!(&*format_integer(value), value.to_string().as_bytes());
            assert_eq!(parse_integer(&format_integer(value)), Some(value));
        }
    }

    proptest! {
        #[test]
        fn formatting_is_display(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            prop_assert_eq!(format_integer(value).to_vec(), value.to_string().into_bytes());
            prop_assert_eq!(parse_integer(&format_integer(value)), Some(value));
        }

        #[test]
        fn parsing_agrees_with_std(text in "-?[0-9]{1,21}") {
            let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_integer(text.as_bytes()), canonical);
        }
    }
}
