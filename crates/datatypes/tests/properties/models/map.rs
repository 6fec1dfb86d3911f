//! A naive map: every member is looked at. A circle or a box finds what is inside, wherever its geohash is.

use super::scored_set::{State, list, score_of};
use super::{Bytes, expect};
use datatypes::geo::Point;
use datatypes::scored_set::{Center, Listing, Operation, Order, Search};
use std::collections::BTreeSet;
use types::{Error, ReplyBuf, ReplySink};

pub(super) fn read(state: &State, operation: &Operation<'_>) -> ReplyBuf {
    let point = |member: &[u8]| score_of(state, member).map(Point::of_score);
    match operation {
        Operation::Positions { members } => expect(|reply| {
            reply.array(members.len());
            members.iter().for_each(|member| match point(member) {
                Some(point) => position(reply, point),
                None => reply.null_array(),
            });
        }),
        Operation::Geohashes { members } => expect(|reply| {
            reply.array(members.len());
            members.iter().for_each(|member| match point(member) {
                Some(point) => reply.bulk(&point.geohash()),
                None => reply.null(),
            });
        }),
        Operation::Distance { from, to, unit } => expect(|reply| match point(from).zip(point(to)) {
            Some((from, to)) => reply.bulk(format!("{:.4}", from.distance(to) / unit).as_bytes()),
            None => reply.null(),
        }),
        Operation::Search { search, listing } => match find(state, search) {
            Ok(found) => expect(|reply| {
                reply.array(found.len());
                found.iter().for_each(|found| describe(reply, search, *listing, found));
            }),
            Err(error) => error,
        },
        Operation::SearchScores { search, by_distance } => match find(state, search) {
            Ok(found) => {
                let number =
                    |found: &Found| if *by_distance { found.1 / search.shape.unit() } else { found.0.0 };
                let entries: State = found.iter().map(|found| (number(found), found.0.1.clone())).collect();
                expect(|reply| list(reply, &entries, true))
            }
            Err(error) => error,
        },
        other => unreachable!("{other:?} is not about the map"),
    }
}

/// A member with its score, and its distance in meters.
type Found = ((f64, Bytes), f64);

fn position(reply: &mut ReplyBuf, point: Point) {
    reply.array(2);
    for degrees in [point.longitude(), point.latitude()] {
        let digits = format!("{degrees:.17}");
        reply.number(digits.trim_end_matches('0').trim_end_matches('.'));
    }
}

fn describe(
    reply: &mut ReplyBuf,
    search: &Search<'_>,
    listing: Listing,
    ((score, member), distance): &Found,
) {
    let Listing { distances, hashes, coordinates } = listing;
    let details = usize::from(distances) + usize::from(hashes) + usize::from(coordinates);
    if details > 0 {
        reply.array(1 + details);
    }
    reply.bulk(member);
    if distances {
        reply.bulk(format!("{:.4}", distance / search.shape.unit()).as_bytes());
    }
    if hashes {
        reply.integer(*score as i64);
    }
    if coordinates {
        position(reply, Point::of_score(*score));
    }
}

/// What a search finds, or its error. The order of cells is taken over; what is in them is not.
fn find(state: &State, search: &Search<'_>) -> Result<Vec<Found>, ReplyBuf> {
    let center = match search.center {
        Center::Point { point } => point,
        _ if state.is_empty() => return Ok(Vec::new()),
        Center::Member { member } => Point::of_score(score_of(state, member).ok_or_else(|| {
            expect(|reply| reply.error(&Error::err("could not decode requested zset member")))
        })?),
    };
    let found = |entry: &(f64, Bytes)| {
        let distance = search.shape.distance_within(center, Point::of_score(entry.0))?;
        Some((entry.clone(), distance))
    };
    // What is no geohash is nowhere.
    let inside = state.iter().filter(|(score, _)| (0.0..4_503_599_627_370_496.0).contains(score));
    let everything: Vec<Found> = inside.filter_map(found).collect();
    let ranges = search.shape.score_ranges(center);
    let of_range =
        |range| everything.iter().filter(move |((score, _), _)| std::ops::Range::contains(range, score));
    let mut listed: Vec<Found> = ranges.iter().flat_map(of_range).cloned().collect();
    let names =
        |found: &[Found]| found.iter().map(|((_, member), _)| member.clone()).collect::<BTreeSet<_>>();
    assert_eq!((names(&listed), listed.len()), (names(&everything), everything.len()));
    let limit = search.limit.map_or(usize::MAX, |limit| limit as usize);
    if search.any {
        listed.truncate(limit);
    }
    match search.order {
        Order::Any => {}
        Order::Nearest => listed.sort_by(|a, b| a.1.total_cmp(&b.1)),
        Order::Farthest => listed.sort_by(|a, b| b.1.total_cmp(&a.1)),
    }
    listed.truncate(limit);
    Ok(listed)
}
