//! LZF, the compression of long strings in RDB files: literal runs, and references to what came at most 8 KiB
//! before.
//!
//! ```text
//!   000LLLLL                     L + 1 literal bytes follow
//!   LLLooooo oooooooo            L + 2 bytes from o + 1 bytes back
//!   111ooooo LLLLLLLL oooooooo   L + 9 bytes from o + 1 bytes back
//! ```

const MAX_LITERALS: usize = 32;
const MAX_OFFSET: usize = 1 << 13;
const MAX_MATCH: usize = 264;
/// A reference of three bytes stands for at most [`MAX_MATCH`] ones.
const MAX_RATIO: usize = MAX_MATCH / 3;
const HASH_BITS: u32 = 14;

/// Compresses `input`, if that makes it shorter than `most` bytes.
pub(super) fn compress(input: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(most.min(input.len()));
    // Where three bytes with this hash were last; positions count from one.
    let mut seen = vec![0usize; 1 << HASH_BITS];
    let (mut position, mut literals_from) = (0, 0);
    while position + 2 < input.len() && out.len() <= most {
        let slot = &mut seen[hash(&input[position..position + 3])];
        let earlier = std::mem::replace(slot, position + 1);
        let found = earlier.checked_sub(1).filter(|earlier| position - earlier <= MAX_OFFSET);
        let len = found.map_or(0, |earlier| common(input, earlier, position));
        let Some(earlier) = found.filter(|_| len >= 3) else {
            position += 1;
            continue;
        };
        put_literals(&input[literals_from..position], &mut out);
        put_reference(position - earlier - 1, len, &mut out);
        position += len;
        literals_from = position;
    }
    put_literals(&input[literals_from..], &mut out);
    (out.len() < most).then_some(out)
}

fn hash(three: &[u8]) -> usize {
    let word = three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

/// How many bytes from `position` on are as they are from `earlier` on.
fn common(input: &[u8], earlier: usize, position: usize) -> usize {
    let pairs = input[earlier..].iter().zip(&input[position..]);
    pairs.take(MAX_MATCH).take_while(|(a, b)| a == b).count()
}

fn put_literals(literals: &[u8], out: &mut Vec<u8>) {
    for run in literals.chunks(MAX_LITERALS) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

fn put_reference(offset: usize, len: usize, out: &mut Vec<u8>) {
    let (high, low) = ((offset >> 8) as u8, offset as u8);
    match len - 2 {
        short @ ..7 => out.push((short as u8) << 5 | high),
        long => out.extend_from_slice(&[7 << 5 | high, (long - 7) as u8]),
    }
    out.push(low);
}

/// Decompresses to exactly `len` bytes; `None` if `input` is nothing compressed, or comes to another length.
pub(super) fn decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > input.len().saturating_mul(MAX_RATIO) {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = input;
    while let Some((control, tail)) = rest.split_first() {
        let control = usize::from(*control);
        if control < MAX_LITERALS {
            let (literals, tail) = tail.split_at_checked(control + 1)?;
            out.extend_from_slice(literals);
            rest = tail;
        } else {
            rest = copy(control, tail, &mut out)?;
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// Follows a reference; returns what comes behind it.
fn copy<'a>(control: usize, mut tail: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut len = control >> 5;
    if len == 7 {
        let (more, behind) = tail.split_first()?;
        len += usize::from(*more);
        tail = behind;
    }
    let (low, tail) = tail.split_first()?;
    let offset = (control & 0x1f) << 8 | usize::from(*low);
    let from = out.len().checked_sub(offset + 1)?;
    // What is copied may reach into what the copy itself writes.
    for place in from..from + len + 2 {
        out.push(out[place]);
    }
    Some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repetitions_become_references() {
        let long = b"abcabcabc".repeat(1000);
        let packed = compress(&long, long.len() - 4).expect("it repeats itself");
        assert!(packed.len() < 200, "{}", packed.len());
        assert_eq!(decompress(&packed, long.len()), Some(long));
        assert_eq!(compress(b"abcdefghijklmnopqrstuvwxyz", 22), None);
    }

    #[test]
    fn what_is_not_compressed_is_refused() {
        // A reference before the beginning, one that is cut off, literals that are missing, another length.
        for (input, len) in [(&[0x20, 0][..], 3), (&[0, b'a', 0xe0], 9), (&[5, b'a'], 6), (&[0, b'a'], 2)] {
            assert_eq!(decompress(input, len), None, "{input:?}");
        }
        assert_eq!(decompress(&[0, b'a'], usize::MAX), None);
    }

    proptest! {
        #[test]
        fn decompressing_undoes_compressing(input in proptest::collection::vec(0u8..4, 0..2000)) {
            if let Some(packed) = compress(&input, usize::MAX) {
                prop_assert_eq!(decompress(&packed, input.len()), Some(input));
            }
        }

        #[test]
        fn any_bytes_are_decompressed_or_refused(
            input in proptest::collection::vec(any::<u8>(), 0..200), len in 0usize..5000,
        ) {
            let out = decompress(&input, len);
            prop_assert!(out.is_none_or(|out| out.len() == len));
        }
    }
}
