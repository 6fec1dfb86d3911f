//! Passwords, of which only the SHA-256 is stored.

use sha2::Sha256;

/// The SHA-256 of a password.
pub(super) type Digest = [u8; 32];

/// The digest of a password.
pub(super) fn digest(password: &[u8]) -> Digest {
    <Sha256 as sha2::Digest>::digest(password).into()
}

/// A digest as rules write it: 64 lower case hexadecimal digits.
pub(super) fn hex(digest: &Digest) -> String {
    digest
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// The digest that rules write so.
pub(super) fn from_hex(text: &[u8]) -> Option<Digest> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digest = Digest::default();
    if text.len() != 2 * digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(digest)
}

/// True if both are the same. It looks at every byte, so that the time tells nothing.
pub(super) fn are_equal(one: &Digest, other: &Digest) -> bool {
    one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_and_read_as_the_standard_has_them() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&digest(b"abc")), abc);
        assert_eq!(from_hex(abc.as_bytes()), Some(digest(b"abc")));
        assert_eq!(from_hex(abc.to_ascii_uppercase().as_bytes()), None);
        assert_eq!(from_hex(&abc.as_bytes()[1..]), None);
        assert!(!are_equal(&digest(b"a"), &digest(b"b")));
    }
}
