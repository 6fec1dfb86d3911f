//! Scored sets as maps: members whose scores are geohashes ([`crate::geo`]).

use crate::Items;
use crate::codec::{Field, borrowed_enum, wire_fields};
use crate::collections::ScoredTree;
use crate::geo::{Point, Shape, coordinate};
use std::ops::Bound;
use types::{Error, Malformed, Reader, ReplySink, wire_enum, wire_struct};

/// Around what a search looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Center<'a> {
    /// A point.
    Point {
        /// Where.
        point: Point,
    },
    /// A member, which must be there.
    Member {
        /// Its name.
        member: &'a [u8],
    },
}
borrowed_enum!(Center, "search center tag", {
    0 => Point { point },
    1 => Member { member },
});

/// In which order a search lists what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As it comes.
    Any,
    /// The nearest first.
    Nearest,
    /// The farthest first.
    Farthest,
}
wire_enum!(Order { 0 => Any, 1 => Nearest, 2 => Farthest });
wire_fields!(Order);

/// Which members a search finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search<'a> {
    /// Around what.
    pub center: Center<'a>,
    /// How far.
    pub shape: Shape,
    /// In which order.
    pub order: Order,
    /// How many at most.
    pub limit: Option<u64>,
    /// Any of them, when there are more: not the first ones of the order, only listed in it.
    pub any: bool,
}

impl<'a> Field<'a> for Search<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.center.encode(out);
        self.shape.put(out);
        self.order.put(out);
        self.limit.put(out);
        self.any.put(out);
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Search {
            center: Center::decode(input)?,
            shape: Field::take(input)?,
            order: Field::take(input)?,
            limit: Field::take(input)?,
            any: Field::take(input)?,
        })
    }
}

/// What a search replies of each member beside its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// WITHDIST: how far from the center it is, in the search's unit.
    pub distances: bool,
    /// WITHHASH: its score.
    pub hashes: bool,
    /// WITHCOORD: where it is.
    pub coordinates: bool,
}
wire_struct!(Listing { distances, hashes, coordinates });
wire_fields!(Listing);

/// A member that was found.
struct Found<'s> {
    member: &'s [u8],
    score: f64,
    point: Point,
    /// In meters.
    distance: f64,
}

/// Replies where members are.
pub(super) fn positions(state: Option<&ScoredTree>, members: &Items<'_>, sink: &mut dyn ReplySink) {
    sink.array(members.len());
    for member in members.iter() {
        match state.and_then(|state| state.score(member)) {
            Some(score) => reply_point(Point::of_score(score), sink),
            None => sink.null_array(),
        }
    }
}

fn reply_point(point: Point, sink: &mut dyn ReplySink) {
    sink.array(2);
    sink.number(&coordinate(point.longitude()));
    sink.number(&coordinate(point.latitude()));
}

/// Replies the geohashes of members as texts.
pub(super) fn geohashes(state: Option<&ScoredTree>, members: &Items<'_>, sink: &mut dyn ReplySink) {
    sink.array(members.len());
    for member in members.iter() {
        match state.and_then(|state| state.score(member)) {
            Some(score) => sink.bulk(&Point::of_score(score).geohash()),
            None => sink.null(),
        }
    }
}

/// Replies how far two scores are apart.
pub(super) fn distance(from: Option<f64>, to: Option<f64>, unit: f64, sink: &mut dyn ReplySink) {
    match (from, to) {
        (Some(from), Some(to)) => {
            reply_distance(Point::of_score(from).distance(Point::of_score(to)) / unit, sink);
        }
        _ => sink.null(),
    }
}

fn reply_distance(distance: f64, sink: &mut dyn ReplySink) {
    sink.bulk(format!("{distance:.4}").as_bytes());
}

/// Replies the members that a search finds.
pub(super) fn list(
    state: Option<&ScoredTree>,
    search: &Search<'_>,
    listing: Listing,
    sink: &mut dyn ReplySink,
) {
    let found = match search.find(state) {
        Ok(found) => found,
        Err(error) => return sink.error(&error),
    };
    let Listing { distances, hashes, coordinates } = listing;
    let details = [distances, hashes, coordinates].into_iter().filter(|wanted| *wanted).count();
    sink.array(found.len());
    for Found { member, score, point, distance } in found {
        if details > 0 {
            sink.array(1 + details);
        }
        sink.bulk(member);
        if distances {
            reply_distance(distance / search.shape.unit(), sink);
        }
        if hashes {
            sink.integer(score as i64);
        }
        if coordinates {
            reply_point(point, sink);
        }
    }
}

/// Replies the members that a search finds with their scores, or with their distances in the search's unit.
pub(super) fn list_scores(
    state: Option<&ScoredTree>,
    search: &Search<'_>,
    by_distance: bool,
    sink: &mut dyn ReplySink,
) {
    let found = match search.find(state) {
        Ok(found) => found,
        Err(error) => return sink.error(&error),
    };
    sink.pairs(found.len());
    for found in found {
        sink.pair();
        sink.bulk(found.member);
        sink.double(if by_distance { found.distance / search.shape.unit() } else { found.score });
    }
}

impl Search<'_> {
    fn find<'s>(&self, state: Option<&'s ScoredTree>) -> Result<Vec<Found<'s>>, Error> {
        let Some(state) = state else { return Ok(Vec::new()) };
        let center = match self.center {
            Center::Point { point } => point,
            Center::Member { member } => match state.score(member) {
                Some(score) => Point::of_score(score),
                None => return Err(Error::err("could not decode requested zset member")),
            },
        };
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let in_order = self.matches(state, center);
        let mut found: Vec<Found<'s>> =
            if self.any { in_order.take(limit).collect() } else { in_order.collect() };
        match self.order {
            Order::Any => {}
            Order::Nearest => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Order::Farthest => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        }
        found.truncate(limit);
        Ok(found)
    }

    fn matches<'s>(&self, state: &'s ScoredTree, center: Point) -> impl Iterator<Item = Found<'s>> {
        let shape = self.shape;
        let ranges = shape.score_ranges(center).into_iter();
        let entries = ranges.flat_map(move |range| {
            let (from, to) = (Bound::Included(range.start), Bound::Excluded(range.end));
            state.range(state.score_range(from, to))
        });
        entries.filter_map(move |(score, member)| {
            let point = Point::of_score(score);
            let distance = shape.distance_within(center, point)?;
            Some(Found { member, score, point, distance })
        })
    }
}
