//! Reads lengths and strings of an RDB value.

use super::blobs::signed;
use super::{MAX_BYTES, Refusal, length, lzf};
use std::borrow::Cow;

/// What has not been read of a value.
#[derive(Debug)]
pub(super) struct Input<'a> {
    rest: &'a [u8],
    /// How many bytes compressed strings may still come to.
    budget: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes, budget: MAX_BYTES }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Refusal::Format)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Refusal> {
        Ok(self.take(1)?[0])
    }

    /// A length: how many elements or bytes follow. Nothing vouches for it.
    pub(super) fn length(&mut self) -> Result<u64, Refusal> {
        let first = self.byte()?;
        self.length_after(first)
    }

    fn length_after(&mut self, first: u8) -> Result<u64, Refusal> {
        let size = match first {
            small @ ..length::BITS_14 => return Ok(u64::from(small)),
            high @ ..length::BITS_32 => {
                let low = self.byte()?;
                return Ok(u64::from(high & 0x3f) << 8 | u64::from(low));
            }
            length::BITS_32 => 4,
            length::BITS_64 => 8,
            _ => return Err(Refusal::Format),
        };
        Ok(self.take(size)?.iter().fold(0, |len, byte| len << 8 | u64::from(*byte)))
    }

    /// A length that must lie in memory.
    fn size(&mut self) -> Result<usize, Refusal> {
        usize::try_from(self.length()?).map_err(|_| Refusal::Format)
    }

    /// A string in any of its forms.
    pub(super) fn string(&mut self) -> Result<Cow<'a, [u8]>, Refusal> {
        let first = self.byte()?;
        let size = match first {
            length::INT_8 => 1,
            length::INT_16 => 2,
            length::INT_32 => 4,
            length::LZF => return self.compressed().map(Cow::Owned),
            _ => {
                let len = usize::try_from(self.length_after(first)?).map_err(|_| Refusal::Format)?;
                return self.take(len).map(Cow::Borrowed);
            }
        };
        let number = signed(self.take(size)?);
        Ok(Cow::Owned(itoa::Buffer::new().format(number).as_bytes().to_vec()))
    }

    fn compressed(&mut self) -> Result<Vec<u8>, Refusal> {
        let (packed_len, len) = (self.size()?, self.size()?);
        let packed = self.take(packed_len)?;
        self.budget = self.budget.checked_sub(len).ok_or(Refusal::Format)?;
        lzf::decompress(packed, len).ok_or(Refusal::Format)
    }

    /// A number in eight bytes.
    pub(super) fn double(&mut self) -> Result<f64, Refusal> {
        let bytes = self.take(8)?.first_chunk().ok_or(Refusal::Format)?;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// A number as text with its length, or one of three that have no digits.
    pub(super) fn decimal(&mut self) -> Result<f64, Refusal> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Ok(f64::NAN),
            len => parse_decimal(self.take(usize::from(len))?),
        }
    }
}

/// A number in decimal form.
pub(super) fn parse_decimal(text: &[u8]) -> Result<f64, Refusal> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Refusal::Format)
}
