//! Unions, intersections and differences of sorted sets, and of sets, whose members all have the score 1.

use super::scored_turns::cell_of;
use crate::plan::{Call, Plan};
use crate::turns::{Compute, Computed};
use datatypes::collections::{PackedSet, ScoredTree};
use datatypes::{Cell, Value};
use types::{Error, ReplyBuf, ReplySink};

/// How sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// What becomes of several scores of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number(score + other),
            Aggregate::Min if other < score => other,
            Aggregate::Max if other > score => other,
            Aggregate::Min | Aggregate::Max => score,
        }
    }
}

/// What infinities leave undefined is zero.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What is wanted of a combination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    List,
    Count,
    Store,
}

/// What follows the keys.
#[derive(Debug)]
struct Options {
    /// One for each key.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Members to count at most; 0 for all.
    limit: u64,
}

impl Options {
    fn parse(
        call: &Call<'_>,
        keys: usize,
        mut index: usize,
        of: Combination,
        wanted: Wanted,
    ) -> Result<Self, Error> {
        let mut options =
            Options { weights: vec![1.0; keys], aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        let has_scores = of != Combination::Difference && wanted != Wanted::Count;
        while index < call.len() {
            let behind = call.len() - index - 1;
            match () {
                () if has_scores && behind >= keys && call.is(index, "WEIGHTS") => {
                    for weight in &mut options.weights {
                        index += 1;
                        *weight = call.float(index).map_err(|_| Error::err("weight value is not a float"))?;
                    }
                }
                () if has_scores && behind >= 1 && call.is(index, "AGGREGATE") => {
                    index += 1;
                    options.aggregate = match () {
                        () if call.is(index, "SUM") => Aggregate::Sum,
                        () if call.is(index, "MIN") => Aggregate::Min,
                        () if call.is(index, "MAX") => Aggregate::Max,
                        () => return Err(Error::syntax()),
                    };
                }
                () if wanted == Wanted::List && call.is(index, "WITHSCORES") => options.with_scores = true,
                () if wanted == Wanted::Count && behind >= 1 && call.is(index, "LIMIT") => {
                    index += 1;
                    options.limit = call.count(index).map_err(|_| Error::err("LIMIT can't be negative"))?;
                }
                () => return Err(Error::syntax()),
            }
            index += 1;
        }
        Ok(options)
    }
}

/// The command's plan; the number of keys stands at an index.
fn plan<'a>(call: &Call<'a>, at: usize, of: Combination, wanted: Wanted) -> Result<Plan<'a>, Error> {
    let count = call.integer(at)?;
    if count < 1 {
        let name = call.command.name;
        return Err(Error::err(format!("at least 1 input key is needed for '{name}' command")));
    }
    let first = at + 1;
    let count = usize::try_from(count).ok().filter(|count| *count <= call.len() - first);
    let count = count.ok_or_else(Error::syntax)?;
    let options = Options::parse(call, count, first + count, of, wanted)?;
    let keys = (first..first + count).map(|index| call.bytes(index));
    if wanted == Wanted::Store {
        let destination: Box<[u8]> = call.bytes(1).into();
        return Ok(Compute::writing(keys, move |cells| {
            let result = combine(of, &sources(cells)?, &options);
            let mut reply = ReplyBuf::new();
            reply.integer(result.len() as i64);
            Ok(Computed { reply, writes: vec![(destination.clone(), cell_of(result))] })
        }));
    }
    Ok(Compute::reading(keys, move |cells| {
        let sources = sources(cells)?;
        let mut reply = ReplyBuf::new();
        match wanted {
            Wanted::Count => reply.integer(count_common(&sources, options.limit) as i64),
            _ => list(&combine(of, &sources, &options), options.with_scores, &mut reply),
        }
        Ok(Computed { reply, writes: Vec::new() })
    }))
}

fn list(result: &ScoredTree, with_scores: bool, reply: &mut ReplyBuf) {
    match with_scores {
        true => reply.pairs(result.len()),
        false => reply.array(result.len()),
    }
    for (score, member) in result.iter() {
        if with_scores {
            reply.pair();
        }
        reply.bulk(member);
        if with_scores {
            reply.double(score);
        }
    }
}

/// What a key holds.
enum Source {
    Nothing,
    Set(Box<PackedSet>),
    Scored(Box<ScoredTree>),
}

fn sources(cells: Vec<Cell>) -> Result<Vec<Source>, Error> {
    let source = |cell: Cell| match cell.value {
        None => Ok(Source::Nothing),
        Some(Value::Set(set)) => Ok(Source::Set(set)),
        Some(Value::ScoredSet(scored)) => Ok(Source::Scored(scored)),
        Some(_) => Err(Error::wrong_type()),
    };
    cells.into_iter().map(source).collect()
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Source::Nothing => 0,
            Source::Set(set) => set.len(),
            Source::Scored(scored) => scored.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Nothing => None,
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::Scored(scored) => scored.score(member),
        }
    }

    /// Visits the members until `visit` says false.
    fn visit(&self, mut visit: impl FnMut(f64, &[u8]) -> bool) {
        match self {
            Source::Nothing => {}
            Source::Set(set) => _ = set.iter().all(|member| visit(1.0, &member)),
            Source::Scored(scored) => _ = scored.iter().all(|(score, member)| visit(score, member)),
        }
    }
}

/// Sources with their weights, the smallest first: this is also the order in which Redis adds scores up.
fn by_size<'s>(sources: &'s [Source], options: &Options) -> Vec<(&'s Source, f64)> {
    let mut weighted: Vec<(&Source, f64)> = sources.iter().zip(options.weights.iter().copied()).collect();
    weighted.sort_by_key(|(source, _)| source.len());
    weighted
}

fn combine(of: Combination, sources: &[Source], options: &Options) -> ScoredTree {
    match of {
        Combination::Union => unite(&by_size(sources, options), options.aggregate),
        Combination::Intersection => intersect(&by_size(sources, options), options.aggregate),
        Combination::Difference => subtract(sources),
    }
}

fn unite(sources: &[(&Source, f64)], aggregate: Aggregate) -> ScoredTree {
    let mut result = ScoredTree::default();
    for (source, weight) in sources {
        source.visit(|score, member| {
            let score = number(weight * score);
            let united = result.score(member).map_or(score, |other| aggregate.of(other, score));
            result.insert(member, united);
            true
        });
    }
    result
}

fn intersect(sources: &[(&Source, f64)], aggregate: Aggregate) -> ScoredTree {
    let mut result = ScoredTree::default();
    let Some(((smallest, weight), others)) = sources.split_first() else { return result };
    smallest.visit(|score, member| {
        let first = Some(number(weight * score));
        let common = others.iter().fold(first, |score, (other, weight)| {
            let more = other.score(member)? * weight;
            Some(aggregate.of(score?, more))
        });
        if let Some(score) = common {
            result.insert(member, score);
        }
        true
    });
    result
}

fn subtract(sources: &[Source]) -> ScoredTree {
    let mut result = ScoredTree::default();
    let Some((first, others)) = sources.split_first() else { return result };
    first.visit(|score, member| {
        if others.iter().all(|other| other.score(member).is_none()) {
            result.insert(member, score);
        }
        true
    });
    result
}

fn count_common(sources: &[Source], limit: u64) -> u64 {
    let Some(smallest) = sources.iter().min_by_key(|source| source.len()) else { return 0 };
    let mut count = 0;
    smallest.visit(|_, member| {
        count += u64::from(sources.iter().all(|source| source.score(member).is_some()));
        limit == 0 || count < limit
    });
    count
}

/// ZUNION
pub(crate) fn union<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 1, Combination::Union, Wanted::List)
}

/// ZINTER
pub(crate) fn intersection<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 1, Combination::Intersection, Wanted::List)
}

/// ZDIFF
pub(crate) fn difference<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 1, Combination::Difference, Wanted::List)
}

/// ZINTERCARD
pub(crate) fn count_intersection<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 1, Combination::Intersection, Wanted::Count)
}

/// ZUNIONSTORE
pub(crate) fn store_union<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 2, Combination::Union, Wanted::Store)
}

/// ZINTERSTORE
pub(crate) fn store_intersection<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 2, Combination::Intersection, Wanted::Store)
}

/// ZDIFFSTORE
pub(crate) fn store_difference<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, 2, Combination::Difference, Wanted::Store)
}
