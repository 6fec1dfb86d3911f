//! Reads of a dict's fields piece by piece and at random.

use crate::Items;
use crate::collections::PackedMap;
use crate::glob::Pattern;
use crate::set::{reply_piece, sample};
use types::{ReplySink, Rng, put_bytes};

/// Replies the piece at a cursor with about so many fields.
pub(super) fn scan(
    state: Option<&PackedMap>,
    (cursor, count): (u64, u64),
    pattern: &[u8],
    values: bool,
    sink: &mut dyn ReplySink,
) {
    let (mut found, mut bytes, pattern) = (0, Vec::new(), Pattern::new(pattern, false));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let next = state.map_or(0, |state| {
        state.scan(cursor, count, |field, value| {
            if pattern.matches(field) {
                put_bytes(&mut bytes, field);
                found += 1;
                if values {
                    put_bytes(&mut bytes, value);
                    found += 1;
                }
            }
        })
    });
    reply_piece(next, &Items::Packed { count: found, bytes: bytes.into() }, sink);
}

/// Replies fields at random.
pub(super) fn random(
    state: Option<&PackedMap>,
    count: Option<i64>,
    values: bool,
    random: &mut Rng,
    sink: &mut dyn ReplySink,
) {
    let Some(count) = count else {
        return match state.and_then(|state| state.random(random)) {
            Some((field, _)) => sink.bulk(field),
            None => sink.null(),
        };
    };
    let Some(state) = state else { return sink.array(0) };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let replied = if count < 0 { wanted } else { wanted.min(state.len()) };
    if values {
        sink.pairs(replied)
    } else {
        sink.array(replied)
    }
    let reply = |entry: Option<(&[u8], &[u8])>, sink: &mut dyn ReplySink| {
        let (field, value) = entry.unwrap_or_default();
        if values {
            sink.pair();
        }
        sink.bulk(field);
        if values {
            sink.bulk(value);
        }
    };
    match count {
        ..0 => {
            for _ in 0..wanted {
                reply(state.random(random), sink);
                if sink.is_full() {
                    break;
                }
            }
        }
        _ if replied == state.len() => state.iter().for_each(|entry| reply(Some(entry), sink)),
        _ => sample(state.len(), replied, random)
            .into_iter()
            .for_each(|position| reply(state.entry_at(position), sink)),
    }
}
