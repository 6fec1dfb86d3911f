//! Any bytes behind a good checksum as a payload of RESTORE: no panic; they are refused, or are a value that DUMP writes
//! and that reads as the same.
#![no_main]

use datatypes::dump::{decode, encode, sign};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut payload = bytes.to_vec();
    sign(&mut payload);
    if let Ok(value) = decode(&payload) {
        let again = encode(&value).expect("a type of Redis");
        assert_eq!(decode(&again), Ok(value));
    }
});
