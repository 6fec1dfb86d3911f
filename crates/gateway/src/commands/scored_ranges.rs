//! Ranges of sorted sets: by place, by score, by name; listed, counted, removed.

use super::scored_turns;
use crate::number::parse_bound;
use crate::plan::{Call, Plan};
use datatypes::Operation::ScoredSet;
use datatypes::scored_set::{LexBound, Operation, RangeBy, ScoreBound};
use types::Error;

/// What a range is measured by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Index,
    Score,
    Lex,
}

/// What follows the two ends of a range.
#[derive(Default)]
struct Options {
    measure: Option<Measure>,
    reverse: Option<bool>,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl Options {
    /// Reads them from an index on; what is set already cannot be chosen.
    fn parse(mut self, call: &Call<'_>, mut index: usize, stores: bool) -> Result<Self, Error> {
        while index < call.len() {
            match () {
                () if !stores && call.is(index, "WITHSCORES") => self.with_scores = true,
                () if call.is(index, "LIMIT") && index + 2 < call.len() => {
                    self.limit = Some((call.integer(index + 1)?, call.integer(index + 2)?));
                    index += 2;
                }
                () if self.reverse.is_none() && call.is(index, "REV") => self.reverse = Some(true),
                () if self.measure.is_none() && call.is(index, "BYLEX") => self.measure = Some(Measure::Lex),
                () if self.measure.is_none() && call.is(index, "BYSCORE") => {
                    self.measure = Some(Measure::Score);
                }
                () => return Err(Error::syntax()),
            }
            index += 1;
        }
        Ok(self)
    }
}

fn list<'a>(call: &Call<'a>, options: Options) -> Result<Plan<'a>, Error> {
    let options = options.parse(call, 4, false)?;
    call.one(ScoredSet(read(call, 2, &options)?))
}

/// The range whose ends begin at an index.
fn read<'a>(call: &Call<'a>, first: usize, options: &Options) -> Result<Operation<'a>, Error> {
    let measure = options.measure.unwrap_or(Measure::Index);
    let reverse = options.reverse.unwrap_or(false);
    if measure == Measure::Index && options.limit.is_some_and(|(_, count)| count != -1) {
        let text = "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(Error::err(text));
    }
    if measure == Measure::Lex && options.with_scores {
        return Err(Error::err("syntax error, WITHSCORES not supported in combination with BYLEX"));
    }
    let limit = options.limit.filter(|_| measure != Measure::Index);
    let second = first + 1;
    // From the highest down, the higher end is named first.
    let (min, max) = if reverse && measure != Measure::Index { (second, first) } else { (first, second) };
    let by = match measure {
        Measure::Index => RangeBy::Index { start: call.integer(first)?, stop: call.integer(second)? },
        Measure::Score => score_range(call, min, max)?,
        Measure::Lex => lex_range(call, min, max)?,
    };
    Ok(Operation::Range { by, reverse, limit, with_scores: options.with_scores })
}

/// ZRANGESTORE
pub(crate) fn store<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = Options::default().parse(call, 5, true)?;
    let mut range = read(call, 3, &options)?;
    if let Operation::Range { with_scores, .. } = &mut range {
        *with_scores = true;
    }
    Ok(scored_turns::store(call.bytes(1), call.bytes(2), range))
}

fn fixed<'a>(call: &Call<'a>, measure: Measure, reverse: bool) -> Result<Plan<'a>, Error> {
    list(call, Options { measure: Some(measure), reverse: Some(reverse), ..Options::default() })
}

/// ZRANGE
pub(crate) fn range<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    list(call, Options::default())
}

/// ZREVRANGE
pub(crate) fn reverse<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    fixed(call, Measure::Index, true)
}

/// ZRANGEBYSCORE
pub(crate) fn by_score<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    fixed(call, Measure::Score, false)
}

/// ZREVRANGEBYSCORE
pub(crate) fn reverse_by_score<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    fixed(call, Measure::Score, true)
}

/// ZRANGEBYLEX
pub(crate) fn by_lex<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    fixed(call, Measure::Lex, false)
}

/// ZREVRANGEBYLEX
pub(crate) fn reverse_by_lex<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    fixed(call, Measure::Lex, true)
}

/// ZCOUNT
pub(crate) fn count<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (min, max) = (score_bound(call.bytes(2))?, score_bound(call.bytes(3))?);
    call.one(ScoredSet(Operation::Count { min, max }))
}

/// ZLEXCOUNT
pub(crate) fn lex_count<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (min, max) = (lex_bound(call.bytes(2))?, lex_bound(call.bytes(3))?);
    call.one(ScoredSet(Operation::LexCount { min, max }))
}

/// ZREMRANGEBYRANK
pub(crate) fn remove_by_rank<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let by = RangeBy::Index { start: call.integer(2)?, stop: call.integer(3)? };
    call.one(ScoredSet(Operation::RemoveRange { by }))
}

/// ZREMRANGEBYSCORE
pub(crate) fn remove_by_score<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::RemoveRange { by: score_range(call, 2, 3)? }))
}

/// ZREMRANGEBYLEX
pub(crate) fn remove_by_lex<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::RemoveRange { by: lex_range(call, 2, 3)? }))
}

fn score_range<'a>(call: &Call<'a>, min: usize, max: usize) -> Result<RangeBy<'a>, Error> {
    Ok(RangeBy::Score { min: score_bound(call.bytes(min))?, max: score_bound(call.bytes(max))? })
}

fn lex_range<'a>(call: &Call<'a>, min: usize, max: usize) -> Result<RangeBy<'a>, Error> {
    Ok(RangeBy::Lex { min: lex_bound(call.bytes(min))?, max: lex_bound(call.bytes(max))? })
}

/// A score, `(score` for an exclusive end, `-inf` or `+inf`. As in Redis, nothing counts as 0.
fn score_bound(text: &[u8]) -> Result<ScoreBound, Error> {
    let score = |text: &[u8]| match text {
        [] => Ok(0.0),
        // As in Redis, blanks may stand before the number of a bound, though before no other number.
        text => parse_bound(text.trim_ascii_start()).ok_or_else(|| Error::err("min or max is not a float")),
    };
    match text {
        [b'(', text @ ..] => Ok(ScoreBound::Exclusive(score(text)?)),
        text => Ok(ScoreBound::Inclusive(score(text)?)),
    }
}

/// `[name`, `(name` for an exclusive end, `-` or `+`.
fn lex_bound(text: &[u8]) -> Result<LexBound<'_>, Error> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', member @ ..] => Ok(LexBound::Inclusive(member)),
        [b'(', member @ ..] => Ok(LexBound::Exclusive(member)),
        _ => Err(Error::err("min or max not valid string range item")),
    }
}
