//! Any bytes from a client, in one piece and in two: no panic, nothing consumed beyond the input, the same commands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::{Parser, Pipeline};

fn commands(pieces: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, bool) {
    let (mut parser, mut pipeline) = (Parser::default(), Pipeline::default());
    let (mut unread, mut commands) = (Vec::new(), Vec::new());
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            let outcome = parser.parse(&unread, &mut pipeline);
            let parsed = pipeline.commands(&unread);
            commands.extend(parsed.map(|command| command.iter().map(<[u8]>::to_vec).collect()));
            match outcome {
                Ok(0) => break,
                Ok(consumed) => drop(unread.drain(..consumed)),
                Err(_) => return (commands, false),
            }
        }
    }
    (commands, true)
}

fuzz_target!(|data: &[u8]| {
    let whole = commands(&[data]);
    let (left, right) = data.split_at(data.len() / 2);
    assert_eq!(commands(&[left, right]), whole);
});
