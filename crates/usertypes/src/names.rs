//! What types and operations may be called.

/// The longest name of a type or of an operation, in bytes.
pub const MAX_NAME_BYTES: usize = 32;

/// True for 1 to 32 lower-case letters, digits, `_`, `-`, `.` and `@`, a letter first: `auction`, `auction@2`.
pub fn is_name(name: &[u8]) -> bool {
    let allowed = |byte: &u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.' | b'@')
    };
    name.len() <= MAX_NAME_BYTES
        && name.first().is_some_and(u8::is_ascii_lowercase)
        && name.iter().all(allowed)
}
