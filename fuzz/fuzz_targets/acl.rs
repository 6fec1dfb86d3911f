//! Any bytes as the file of users: no panic; it is refused with a line's number, or makes users that are written as a file
//! that makes the same ones again.
#![no_main]

use gateway::Users;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Making one reads the whole command table.
static FRESH: LazyLock<Users> = LazyLock::new(|| Users::new(None));

fuzz_target!(|text: &[u8]| {
    let mut users = FRESH.clone();
    match users.load(text, "fuzz.acl") {
        Err(error) => {
            assert!(error.contains("fuzz.acl:") || error.contains("on line"), "{error}");
            assert_eq!(users.file_text(), FRESH.file_text(), "a refused file changes nothing");
        }
        Ok(()) => {
            let written = users.file_text();
            let mut again = FRESH.clone();
            again.load(&written, "fuzz.acl").expect("what was written is read");
            assert_eq!(again.file_text(), written);
        }
    }
});
