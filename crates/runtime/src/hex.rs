//! Bytes as text, in the list of keyspaces.

/// Hexadecimal digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

/// The bytes of hexadecimal digits; `None` if the text is something else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    text.as_bytes().chunks(2).map(pair).collect()
}
