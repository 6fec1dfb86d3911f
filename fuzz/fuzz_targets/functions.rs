//! Any bytes as a library of functions, and behind a good checksum as a payload of `FUNCTION RESTORE`: no panic; what is
//! accepted is written as it was read, and a library has the name that its first line says.
#![no_main]

use datatypes::dump::{decode_functions, encode_functions, sign};
use gateway::{function_name, library_name};
use libfuzzer_sys::fuzz_target;
use scripts::load_library;

fuzz_target!(|bytes: &[u8]| {
    let mut payload = bytes.to_vec();
    sign(&mut payload);
    if let Ok(sources) = decode_functions(&payload) {
        let again = encode_functions(sources.iter().map(Vec::as_slice));
        assert_eq!(decode_functions(&again), Ok(sources));
    }
    let Ok(name) = library_name(bytes) else { return };
    if let Ok(library) = load_library(bytes) {
        assert_eq!(library.name, name);
        assert_eq!(&*library.source, bytes);
        assert!(!library.functions.is_empty());
        let is_name = |name: &str| function_name(name.as_bytes()).is_some();
        assert!(library.functions.iter().all(|function| is_name(&function.name)));
    }
});
