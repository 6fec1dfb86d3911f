//! Commands on points on the map: sorted sets whose scores are geohashes. Searches are in `geo_search`.

use super::geo_search as search;
use crate::number::parse_float;
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, READONLY, WRITE};
use crate::table::{Command, Handler::Data};
use datatypes::Operation::ScoredSet;
use datatypes::geo::Point;
use datatypes::scored_set::{AddFlags, Operation, ScoredItems};
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("geoadd", -5, WRITE | DENYOOM, "3.2.0", "Writes where members are", Data(add)).keys(1, 1, 1),
    Command::new("geodist", -4, READONLY, "3.2.0", "Tells how far two members are apart", Data(distance)).keys(1, 1, 1),
    Command::new("geohash", -2, READONLY, "3.2.0", "Reads the geohashes of members as texts", Data(geohashes)).keys(1, 1, 1),
    Command::new("geopos", -2, READONLY, "3.2.0", "Reads where members are", Data(positions)).keys(1, 1, 1),
    Command::new("geosearch", -7, READONLY, "6.2.0", "Lists the members in a circle or a box", Data(search::search)).keys(1, 1, 1),
    Command::new("geosearchstore", -8, WRITE | DENYOOM, "6.2.0", "Stores the members in a circle or a box", Data(search::search_and_store)).keys(1, 2, 1),
    Command::new("georadius", -6, WRITE | DENYOOM, "3.2.0", "Lists the members in a circle, or stores them", Data(search::around_point)).keys(1, 1, 1).storing_from(6),
    Command::new("georadius_ro", -6, READONLY, "3.2.10", "Lists the members in a circle", Data(search::around_point)).keys(1, 1, 1),
    Command::new("georadiusbymember", -5, WRITE | DENYOOM, "3.2.0", "Lists the members in a circle around one of them, or stores them", Data(search::around_member)).keys(1, 1, 1).storing_from(5),
    Command::new("georadiusbymember_ro", -5, READONLY, "3.2.10", "Lists the members in a circle around one of them", Data(search::around_member)).keys(1, 1, 1),
];

/// The point that two arguments are, longitude first.
///
/// # Errors
/// They are no numbers, or it is not on the map.
pub(super) fn point(call: &Call<'_>, index: usize) -> Result<Point, Error> {
    let (longitude, latitude) = (call.float(index)?, call.float(index + 1)?);
    Point::new(longitude, latitude)
        .ok_or_else(|| Error::err(format!("invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// The unit that an argument names, in meters.
///
/// # Errors
/// There is no such unit.
pub(super) fn unit(call: &Call<'_>, index: usize) -> Result<f64, Error> {
    match () {
        () if call.is(index, "m") => Ok(1.0),
        () if call.is(index, "km") => Ok(1000.0),
        () if call.is(index, "ft") => Ok(0.3048),
        () if call.is(index, "mi") => Ok(1609.34),
        () => Err(Error::err("unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// The size that an argument is; `what` it is says the error.
///
/// # Errors
/// It is no number.
pub(super) fn size(call: &Call<'_>, index: usize, what: &str) -> Result<f64, Error> {
    parse_float(call.bytes(index)).ok_or_else(|| Error::err(format!("need numeric {what}")))
}

fn add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (mut flags, mut first) = (AddFlags::default(), 2);
    while first < call.len() {
        match () {
            () if call.is(first, "NX") => flags.if_absent = true,
            () if call.is(first, "XX") => flags.if_present = true,
            () if call.is(first, "CH") => flags.count_changed = true,
            () => break,
        }
        first += 1;
    }
    let arguments = call.len() - first;
    if arguments == 0 || !arguments.is_multiple_of(3) || (flags.if_absent && flags.if_present) {
        return Err(Error::syntax());
    }
    let mut items = ScoredItems::default();
    for index in (first..call.len()).step_by(3) {
        items.push((point(call, index)?.score(), call.bytes(index + 2)));
    }
    call.one(ScoredSet(Operation::Add { flags, items }))
}

fn distance<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let unit = match call.len() {
        4 => 1.0,
        5 => unit(call, 4)?,
        _ => return Err(Error::syntax()),
    };
    call.one(ScoredSet(Operation::Distance { from: call.bytes(2), to: call.bytes(3), unit }))
}

fn geohashes<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::Geohashes { members: call.items(2) }))
}

fn positions<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::Positions { members: call.items(2) }))
}
