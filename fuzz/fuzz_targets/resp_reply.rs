//! Any bytes from a server: no panic, nothing consumed beyond the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::ReplyParser;

fuzz_target!(|data: &[u8]| {
    let mut parser = ReplyParser::default();
    let mut rest = data;
    while let Ok((consumed, Some(_))) = parser.parse(rest) {
        rest = &rest[consumed..];
    }
});
