//! Numbers as C writes them with `%.17g` and the like: Redis and its clients' scripts know these texts.

/// A number without what is behind the point, as C converts it on most processors: what no integer is becomes the least one.
pub(super) fn truncated(number: f64) -> i64 {
    /// 2^63.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&number) { number as i64 } else { i64::MIN }
}

/// A finite number with so many digits that count, without zeros at the end.
pub(super) fn general(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value.is_nan() {
        return "nan".to_owned();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let decimals = i32::try_from(digits).unwrap_or(i32::MAX) - 1 - exponent;
    match usize::try_from(decimals) {
        Ok(decimals) if exponent >= -4 => without_zeros(&format!("{value:.decimals$}")).to_owned(),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
        }
    }
}

fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{general, truncated};

    #[test]
    fn numbers_are_cut_as_by_c() {
        let cut = [2.9, -2.9, 2f64.powi(62), 2f64.powi(63), -1e300, f64::NAN].map(truncated);
        assert_eq!(cut, [2, -2, 1 << 62, i64::MIN, i64::MIN, i64::MIN]);
    }

    #[test]
    fn numbers_are_written_as_by_c() {
        let texts = [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (123_456.789, "123456.789"),
            (f64::INFINITY, "inf"),
            (-0.0, "-0"),
        ];
        for (value, text) in texts {
            assert_eq!(general(value, 17), text);
        }
        assert_eq!(
            [0.1, 1e14, 1e15, 2.0 / 3.0].map(|value| general(value, 14)),
            ["0.1", "1e+14", "1e+15", "0.66666666666667"]
        );
    }
}
