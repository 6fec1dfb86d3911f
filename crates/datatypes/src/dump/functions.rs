//! Libraries of functions, as `FUNCTION DUMP` replies and `FUNCTION RESTORE` takes them: for each the byte 245 and its source
//! as a string, then version and checksum as of a value.

use super::decode::verified;
use super::encode::{put_string, sign_as};
use super::input::Input;
use super::{FUNCTIONS_VERSION, MAX_BYTES, Refusal};

/// Stands before the source of a library.
const LIBRARY: u8 = 245;

/// The payload of these sources.
pub fn encode_functions<'a>(sources: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for source in sources {
        out.push(LIBRARY);
        put_string(source, &mut out);
    }
    sign_as(FUNCTIONS_VERSION, &mut out);
    out
}

/// The sources that a payload holds.
///
/// # Errors
/// [`Refusal::Footer`]; [`Refusal::Type`] where something else than a library stands; [`Refusal::Format`] for a source that is
/// cut off or damaged.
pub fn decode_functions(payload: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut input = Input::new(verified(payload)?);
    let (mut sources, mut bytes) = (Vec::new(), 0);
    while !input.is_empty() {
        if input.byte()? != LIBRARY {
            return Err(Refusal::Type);
        }
        let source = input.string()?.into_owned();
        bytes += source.len();
        if bytes > MAX_BYTES {
            return Err(Refusal::Format);
        }
        sources.push(source);
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// What redis-server 7.0.15 replies to `FUNCTION DUMP` of one short library, and of none.
    const ONE: &[u8] =
        b"\xf58#!lua name=a\nredis.register_function('x',function() end)\n\x00\xb8\xa1\xed\x8a h\x90\x87";
    const NONE: &[u8] = b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda";

    /// The same with a checksum that vouches for it.
    fn signed(value: &[u8]) -> Vec<u8> {
        let mut out = value.to_vec();
        sign_as(FUNCTIONS_VERSION, &mut out);
        out
    }

    #[test]
    fn payloads_of_redis_are_read() {
        assert_eq!(decode_functions(NONE), Ok(Vec::new()));
        assert_eq!(encode_functions([]), NONE);
        let source = &ONE[2..ONE.len() - 10];
        assert_eq!(decode_functions(ONE), Ok(vec![source.to_vec()]));
        assert_eq!(encode_functions([source]), ONE);
        assert_eq!(decode_functions(&ONE[1..]), Err(Refusal::Footer));
    }

    #[test]
    fn what_is_no_library_is_refused() {
        for (value, refusal) in [
            (&b"\x00\x01v"[..], Refusal::Type),
            (b"\xf6@\x01x", Refusal::Type),
            (b"\xf5", Refusal::Format),
            (b"\xf5\x10abc", Refusal::Format),
            (b"\xf5\x01a\xf5", Refusal::Format),
            (b"\xf5\xc3\x03\xff\xff\xff\xff", Refusal::Format),
        ] {
            assert_eq!(decode_functions(&signed(value)), Err(refusal), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sources in vec(vec(0u8..4, 0..200), 0..4)) {
            let payload = encode_functions(sources.iter().map(Vec::as_slice));
            prop_assert_eq!(decode_functions(&payload), Ok(sources));
        }

        /// Whatever the bytes say that a checksum vouches for, decoding ends, with no more than there can be.
        #[test]
        fn mutated_payloads_are_read_or_refused(
            sources in vec(vec(0u8..4, 0..200), 1..4),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let payload = encode_functions(sources.iter().map(Vec::as_slice));
            let mut value = payload[..payload.len() - 10].to_vec();
            for (place, byte) in changes {
                let place = place.index(value.len());
                value[place] = byte;
            }
            for len in [value.len(), cut.index(value.len())] {
                if let Ok(read) = decode_functions(&signed(&value[..len])) {
                    prop_assert!(read.iter().map(Vec::len).sum::<usize>() <= MAX_BYTES);
                }
            }
        }
    }
}
