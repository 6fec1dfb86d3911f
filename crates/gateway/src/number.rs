//! Floating-point numbers as clients write them.

/// The number that `text` is for Redis: what C's `strtod` reads to its end, but no NaN, no blank in front, and
/// nothing too large or too small for a double.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let value = parse_bound(text)?;
    let is_word = |byte: &u8| matches!(byte, b'i' | b'I');
    let is_digit = |byte: &u8| matches!(byte, b'1'..=b'9');
    // `strtod` reports overflow, and underflow to zero, as errors.
    let overflowed = value.is_infinite() && !text.iter().any(is_word);
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E' | b'p' | b'P')).next().unwrap_or_default();
    let underflowed = value == 0.0 && mantissa.iter().any(is_digit);
    (!overflowed && !underflowed).then_some(value)
}

/// The same for an end of a range, where what is too large counts as infinite and what is too small as zero.
pub(crate) fn parse_bound(text: &[u8]) -> Option<f64> {
    let (negative, magnitude) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = match magnitude {
        [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(digits)?,
        [b'0'..=b'9' | b'.', ..] => parse_decimal(magnitude)?,
        word if word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"infinity") => f64::INFINITY,
        _ => return None,
    };
    Some(if negative { -value } else { value })
}

fn parse_decimal(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `strtod` also reads `0x1f`, `0x1.8p3`.
fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let (mut value, mut exponent, mut digits, mut point) = (0f64, 0i32, 0usize, false);
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        match byte {
            b'.' if !point => point = true,
            b'p' | b'P' if digits > 0 => {
                let power = tail.strip_prefix(b"+").unwrap_or(tail);
                let power: i32 = std::str::from_utf8(power).ok()?.parse().ok()?;
                exponent = exponent.saturating_add(power);
                rest = &[];
                continue;
            }
            _ => {
                let digit = (*byte as char).to_digit(16)?;
                value = value * 16.0 + f64::from(digit);
                digits += 1;
                exponent -= if point { 4 } else { 0 };
            }
        }
        rest = tail;
    }
    let value = value * 2f64.powi(exponent);
    (digits > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{parse_bound, parse_float};

    #[test]
    fn what_redis_reads_as_a_number() {
        let table: &[(&str, f64)] = &[
            ("1", 1.0),
            ("-1.5", -1.5),
            ("+2", 2.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-2", 0.01),
            ("inf", f64::INFINITY),
            ("-Inf", f64::NEG_INFINITY),
            ("+infinity", f64::INFINITY),
            ("0x1f", 31.0),
            ("0x1.8p1", 3.0),
            ("0e5", 0.0),
        ];
        for (text, value) in table {
            assert_eq!(parse_float(text.as_bytes()), Some(*value), "{text}");
        }
        for text in
            ["", " 1", "1 ", "nan", "-nan", "a", "1a", "--1", "1e", "e5", ".", "1e400", "1e-400", "0x", "1_0"]
        {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_bound(b"1e400"), Some(f64::INFINITY));
        assert_eq!(parse_bound(b"-1e-400"), Some(-0.0));
    }
}
