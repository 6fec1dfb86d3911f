//! A sorted array of integers, each in as few bytes as the widest needs, and the decimal form of integers.

use super::buffer::{allocated, resize_gap};

/// A sorted set of integers in one buffer of 2, 4 or 8 bytes each.
#[derive(Clone)]
pub(super) struct IntSet {
    bytes: Vec<u8>,
    width: u8,
}

fn width_of(value: i64) -> u8 {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

impl IntSet {
    /// The empty set.
    pub(super) fn new() -> Self {
        IntSet { bytes: Vec::new(), width: 2 }
    }

    /// The number of integers.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / usize::from(self.width)
    }

    /// The bytes this takes from the allocator.
    pub(super) fn memory(&self) -> usize {
        allocated(self.bytes.capacity())
    }

    /// The integer at a position, in ascending order.
    pub(super) fn get(&self, position: usize) -> i64 {
        let at = position * usize::from(self.width);
        let mut wide = [0; 8];
        wide[..usize::from(self.width)].copy_from_slice(&self.bytes[at..at + usize::from(self.width)]);
        match self.width {
            2 => i64::from(i16::from_le_bytes([wide[0], wide[1]])),
            4 => i64::from(i32::from_le_bytes([wide[0], wide[1], wide[2], wide[3]])),
            _ => i64::from_le_bytes(wide),
        }
    }

    /// The position of an integer, or the position at which it would be inserted.
    pub(super) fn search(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).cmp(&value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Adds an integer; true when it is new.
    pub(super) fn insert(&mut self, value: i64) -> bool {
        let Err(position) = self.search(value) else { return false };
        if width_of(value) > self.width {
            let values = (0..self.len()).map(|position| self.get(position)).collect::<Vec<_>>();
            self.width = width_of(value);
            let width = usize::from(self.width);
            self.bytes = Vec::with_capacity(allocated((values.len() + 1) * width));
            values.iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()[..width]));
        }
        let width = usize::from(self.width);
        let at = position * width;
        resize_gap(&mut self.bytes, at, 0, width);
        self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        true
    }

    /// Removes an integer; true when the set had it.
    pub(super) fn remove(&mut self, value: i64) -> bool {
        let Ok(position) = self.search(value) else { return false };
        let width = usize::from(self.width);
        resize_gap(&mut self.bytes, position * width, width, 0);
        true
    }
}

/// The integer whose decimal form is exactly `bytes`: no plus sign, no leading zero, no negative zero.
#[inline]
pub(super) fn parse_canonical(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, bytes),
    };
    let leads = *digits.first()?;
    if digits.len() > 19 || (leads == b'0' && (digits.len() > 1 || negative)) {
        return None;
    }
    let mut magnitude = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Writes an integer's decimal form at the end of `buffer` and returns where it starts.
pub(super) fn write_decimal(buffer: &mut [u8; 20], value: i64) -> usize {
    let mut rest = value.unsigned_abs();
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_decimals_are_integers() {
        for value in [0, 1, -1, 9, 10, 32767, 32768, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 40] {
            let text = value.to_string();
            assert_eq!(parse_canonical(text.as_bytes()), Some(value));
            let mut buffer = [0; 20];
            let at = write_decimal(&mut buffer, value);
            assert_eq!(&buffer[at..], text.as_bytes());
        }
        for text in
            ["", "-", "+1", "01", "-0", "00", "1 ", "1a", "9223372036854775808", "-9223372036854775809"]
        {
            assert_eq!(parse_canonical(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_canonical(b"99999999999999999999999"), None);
    }
}
