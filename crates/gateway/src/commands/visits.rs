//! What commands that visit a collection piece by piece, or choose of it at random, have in common.

use crate::plan::{Call, Plan};
use crate::turns::{self, On, Turns};
use datatypes::Operation;
use datatypes::glob::Pattern;
use protocol::Step;
use types::{Error, Reply, ReplyBuf, ReplySink};

/// The most elements that one command repeats at random. Redis would fill its memory.
const MAX_REPEATED: i64 = 10_000_000;

/// How many elements a piece has about where nobody says it.
const DEFAULT_COUNT: u64 = 10;

/// The arguments of HSCAN and its like, behind the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Where it begins.
    pub(crate) cursor: u64,
    /// About how many elements are looked at.
    pub(crate) count: u64,
    /// Which of them are listed.
    pub(crate) pattern: &'a [u8],
    /// `NOVALUES` was given.
    pub(crate) no_values: bool,
}

/// The plan of HSCAN and its like: their arguments are `cursor [MATCH pattern] [COUNT count]` behind the key, of hashes
/// with `[NOVALUES]`.
///
/// # Errors
/// The cursor is none. What else is wrong matters only where there is something to visit: `length` counts that.
pub(crate) fn plan<'a>(
    call: &Call<'a>,
    of_hash: bool,
    length: Operation<'static>,
    operation: impl FnOnce(Piece<'a>) -> Operation<'a>,
) -> Result<Plan<'a>, Error> {
    let cursor = parse_cursor(call.bytes(2)).ok_or_else(|| Error::err("invalid cursor"))?;
    match piece(call, cursor, of_hash) {
        Ok(piece) => call.one(operation(piece)),
        Err(error) => Ok(turns::plan(Refusal { key: call.bytes(1).into(), length, error })),
    }
}

/// What C's `strtoul` reads, without a blank in front: negative numbers wrap, and nothing is 0.
fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

fn piece<'a>(call: &Call<'a>, cursor: u64, of_hash: bool) -> Result<Piece<'a>, Error> {
    let mut piece = Piece { cursor, count: DEFAULT_COUNT, pattern: b"*", no_values: false };
    let mut index = 3;
    while index < call.len() {
        let has_value = index + 1 < call.len();
        if has_value && call.is(index, "COUNT") {
            let count = u64::try_from(call.integer(index + 1)?).ok().filter(|count| *count > 0);
            piece.count = count.ok_or_else(Error::syntax)?;
            index += 2;
        } else if has_value && call.is(index, "MATCH") {
            piece.pattern = call.bytes(index + 1);
            Pattern::for_many(piece.pattern)?;
            index += 2;
        } else if of_hash && call.is(index, "NOVALUES") {
            piece.no_values = true;
            index += 1;
        } else {
            return Err(Error::syntax());
        }
    }
    Ok(piece)
}

/// A scan with wrong options, which Redis refuses unless the key is absent or holds another type.
#[derive(Debug)]
struct Refusal {
    key: Box<[u8]>,
    length: Operation<'static>,
    error: Error,
}

impl Turns for Refusal {
    fn is_atomic(&self) -> bool {
        false
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        vec![on.key(&self.key, self.length.clone())]
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        match reply.first() {
            Some(Reply::Integer(0)) => {
                sink.array(2);
                sink.bulk(b"0");
                sink.array(0);
            }
            Some(Reply::Error(error)) => sink.error(&error),
            _ => sink.error(&self.error),
        }
        true
    }
}

/// How many elements are chosen at random: so many different ones, or if negative so many that may repeat.
///
/// # Errors
/// It is no such number, or more than is repeated.
pub(crate) fn random_count(call: &Call<'_>, index: usize) -> Result<i64, Error> {
    match call.integer(index)? {
        i64::MIN => {
            let most = i64::MAX;
            Err(Error::err(format!("value is out of range, value must between -{most} and {most}")))
        }
        count if count < -MAX_REPEATED => Err(Error::err("value is out of range")),
        count => Ok(count),
    }
}

/// The keys that follow the number which says how many they are, where the table says, and the index behind them.
///
/// # Errors
/// There are not so many, or the number is none; `too_many` is the error where arguments are missing.
pub(crate) fn counted_keys<'a>(
    call: &Call<'a>,
    too_many: impl FnOnce() -> Error,
) -> Result<(impl Iterator<Item = &'a [u8]> + Clone, usize), Error> {
    let place = call.command.key_count;
    let count = call.integer(place).ok().filter(|count| *count > 0);
    let count = count.ok_or_else(|| Error::err("numkeys should be greater than 0"))?;
    let count = usize::try_from(count).ok().filter(|count| *count < call.len() - place);
    let count = count.ok_or_else(too_many)?;
    Ok((call.arguments.iter().skip(place + 1).take(count), place + 1 + count))
}
