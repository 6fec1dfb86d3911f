//! Any text as a configuration file: no panic; it is refused by name, or read, and what is printed reads as the same.
#![no_main]

use anabranch_server::completed_configuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match completed_configuration(text, "fuzz.toml") {
        Ok(printed) => {
            let again = completed_configuration(&printed, "fuzz.toml").expect("what was printed is read");
            assert_eq!(again, printed);
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.toml"), "{error}"),
    }
});
