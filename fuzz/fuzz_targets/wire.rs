//! Any bytes as an operation, an effect, a cell, a reply or a stream frame: no panic; what decodes survives.
#![no_main]

use datatypes::{Cell, Effect, Operation, apply, exchange};
use libfuzzer_sys::fuzz_target;
use types::{Reader, ReplyBuf, Wire};

fuzz_target!(|data: &[u8]| {
    if let Ok(operation) = Operation::decode(&mut Reader::new(data)) {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        assert_eq!(Operation::decode(&mut Reader::new(&bytes)).as_ref(), Ok(&operation));
    }
    let mut reader = Reader::new(data);
    let mut cell = Cell::decode(&mut reader).unwrap_or(Cell::ABSENT);
    while let Ok(effect) = Effect::decode(&mut reader) {
        let before = cell.clone();
        let mut patch = apply::<true>(&mut cell, &effect);
        let after = cell.clone();
        exchange(&mut cell, &mut patch);
        assert_eq!(cell, before, "undone");
        exchange(&mut cell, &mut patch);
        assert_eq!(cell, after, "redone");
    }
    if let Ok(reply) = ReplyBuf::decode(&mut Reader::new(data)) {
        let mut copy = ReplyBuf::new();
        reply.replay(&mut copy);
        assert_eq!(copy, reply);
    }
    let _ = protocol::Frame::decode(&mut Reader::new(data));
});
