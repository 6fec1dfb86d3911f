//! Points on Earth as Redis keeps them: a geohash of 52 bits, which is a score of a sorted set.
//!
//! A geohash is the number of a cell in a grid over the Mercator map: with a *step* of 26 there are
//! 2^26 columns and as many rows, and the bits of the two numbers alternate. Cells of a smaller step
//! are ranges of scores, so a search reads the ranges of the cell around its center and of the cells
//! beside it.
//!
//! All formulas are those of Redis (`geohash.c`, `geohash_helper.c`, `geo.c`), in the same order of
//! operations: scores, distances, and what a search finds in which order are the same to the last
//! digit.

use crate::codec::Field;
use std::ops::Range;
use types::{Malformed, Reader};

/// Longitudes are between minus this and this, in degrees.
pub const MAX_LONGITUDE: f64 = 180.0;
/// Latitudes are between minus this and this, in degrees: the Mercator map ends there.
pub const MAX_LATITUDE: f64 = 85.051_128_78;

/// In meters, as Redis has it.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the circumference, in meters.
const MERCATOR_MAX: f64 = 20_037_726.37;
/// The step of a score.
const FINEST: u32 = 26;
/// The bits of a geohash that tell the latitude.
const LATITUDES: u64 = 0x5555_5555_5555_5555;
/// The bits of a geohash that tell the longitude.
const LONGITUDES: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    longitude: f64,
    latitude: f64,
}

impl Point {
    /// A point that is on the map.
    pub fn new(longitude: f64, latitude: f64) -> Option<Point> {
        let is_on_map = longitude.abs() <= MAX_LONGITUDE && latitude.abs() <= MAX_LATITUDE;
        is_on_map.then_some(Point { longitude, latitude })
    }

    /// East of Greenwich, in degrees.
    pub fn longitude(self) -> f64 {
        self.longitude
    }

    /// North of the equator, in degrees.
    pub fn latitude(self) -> f64 {
        self.latitude
    }

    /// The score that stands for the point.
    pub fn score(self) -> f64 {
        GridCell::around(self, FINEST, MAX_LATITUDE).bits as f64
    }

    /// The middle of the cell that a score stands for. Every score stands for one, whatever command wrote it.
    pub fn of_score(score: f64) -> Point {
        let area = GridCell { bits: score_bits(score), step: FINEST }.area();
        let middle = |(low, high): (f64, f64), most: f64| ((low + high) / 2.0).clamp(-most, most);
        Point {
            longitude: middle(area.longitudes, MAX_LONGITUDE),
            latitude: middle(area.latitudes, MAX_LATITUDE),
        }
    }

    /// The standard geohash text, of which the last character is always `0`: 52 bits make ten characters.
    pub fn geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = GridCell::around(self, FINEST, 90.0).bits;
        let mut text = [b'0'; 11];
        for (place, character) in text[..10].iter_mut().enumerate() {
            *character = ALPHABET[(bits >> (47 - 5 * place) & 0x1f) as usize];
        }
        text
    }

    /// The distance in meters, by the haversine formula.
    pub fn distance(self, other: Point) -> f64 {
        let half_longitude = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if half_longitude == 0.0 {
            return latitude_distance(self.latitude, other.latitude);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let half_latitude = ((to - from) / 2.0).sin();
        let a = half_latitude * half_latitude + from.cos() * to.cos() * half_longitude * half_longitude;
        2.0 * EARTH_RADIUS * a.sqrt().min(1.0).asin()
    }
}

impl Field<'_> for Point {
    fn put(&self, out: &mut Vec<u8>) {
        Field::put(&self.longitude, out);
        Field::put(&self.latitude, out);
    }

    fn take(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Point::new(Field::take(input)?, Field::take(input)?).ok_or(Malformed("point"))
    }
}

const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// With Redis's rounding.
fn radians(degrees: f64) -> f64 {
    degrees * RADIANS_PER_DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / RADIANS_PER_DEGREE
}

fn latitude_distance(from: f64, to: f64) -> f64 {
    EARTH_RADIUS * (radians(to) - radians(from)).abs()
}

/// What a search covers, around its center.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// What is not farther away than this.
    Circle {
        /// In units.
        radius: f64,
        /// The unit in meters.
        unit: f64,
    },
    /// What is not farther east, west, north or south than half of these.
    Box {
        /// From west to east, in units.
        width: f64,
        /// From south to north, in units.
        height: f64,
        /// The unit in meters.
        unit: f64,
    },
}

impl Shape {
    /// The unit in meters.
    pub fn unit(self) -> f64 {
        let (Shape::Circle { unit, .. } | Shape::Box { unit, .. }) = self;
        unit
    }

    /// The distance of a point from the center, in meters, if the shape covers it.
    pub fn distance_within(self, center: Point, point: Point) -> Option<f64> {
        let distance = center.distance(point);
        let is_within = match self {
            Shape::Circle { radius, unit } => distance <= radius * unit,
            Shape::Box { width, height, unit } => {
                let on_meridian = Point { longitude: center.longitude, latitude: point.latitude };
                latitude_distance(point.latitude, center.latitude) <= height * unit / 2.0
                    && point.distance(on_meridian) <= width * unit / 2.0
            }
        };
        is_within.then_some(distance)
    }

    /// How far it reaches from its center: to the east and to the north, and at most in any direction, in meters.
    fn reach(self) -> (f64, f64, f64) {
        match self {
            Shape::Circle { radius, unit } => (radius * unit, radius * unit, radius * unit),
            Shape::Box { width, height, unit } => {
                let (east, north) = (width / 2.0, height / 2.0);
                (unit * east, unit * north, (east * east + north * north).sqrt() * unit)
            }
        }
    }

    /// The ranges of scores where a search has to look, in Redis's order.
    pub fn score_ranges(self, center: Point) -> Vec<Range<f64>> {
        let bounds = self.bounds(center);
        let (_, _, reach) = self.reach();
        let mut step = step_for(reach, center.latitude);
        let mut cell = GridCell::around(center, step, MAX_LATITUDE);
        if step > 1 && cell.neighbors_fall_short_of(&bounds) {
            step -= 1;
            cell = GridCell::around(center, step, MAX_LATITUDE);
        }
        let mut ranges: Vec<Range<f64>> = Vec::with_capacity(9);
        for neighbor in cell.neighbors_within(&bounds) {
            let range = neighbor.scores();
            // Around the whole Earth, cells are their own neighbors.
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
        ranges
    }

    /// The smallest box of degrees that has the shape in it, or nearly so.
    fn bounds(self, center: Point) -> Area {
        let (east, north, _) = self.reach();
        let north = degrees(north / EARTH_RADIUS);
        // The meridians are closest where the pole is.
        let polar = if center.latitude < 0.0 { center.latitude - north } else { center.latitude + north };
        let east = degrees(east / EARTH_RADIUS / radians(polar).cos());
        Area {
            longitudes: (center.longitude - east, center.longitude + east),
            latitudes: (center.latitude - north, center.latitude + north),
        }
    }
}

impl Field<'_> for Shape {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, sizes) = match *self {
            Shape::Circle { radius, unit } => (0, [radius, radius, unit]),
            Shape::Box { width, height, unit } => (1, [width, height, unit]),
        };
        out.push(tag);
        sizes.iter().for_each(|size| Field::put(size, out));
    }

    fn take(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let tag = input.byte()?;
        let (width, height, unit) = (f64::take(input)?, f64::take(input)?, f64::take(input)?);
        match tag {
            _ if width < 0.0 || height < 0.0 || unit <= 0.0 => Err(Malformed("shape")),
            0 => Ok(Shape::Circle { radius: width, unit }),
            1 => Ok(Shape::Box { width, height, unit }),
            _ => Err(Malformed("shape tag")),
        }
    }
}

/// The step whose cells are about as large as the shape.
fn step_for(reach: f64, latitude: f64) -> u32 {
    if reach <= 0.0 {
        return FINEST;
    }
    let (mut reach, mut step) = (reach, -1);
    while reach < MERCATOR_MAX {
        reach *= 2.0;
        step += 1;
    }
    // Towards the poles a cell is narrower.
    if latitude.abs() > 66.0 {
        step -= 1;
    }
    if latitude.abs() > 80.0 {
        step -= 1;
    }
    step.clamp(1, FINEST as i32) as u32
}

/// A part of the map: the lowest and the highest of each coordinate.
#[derive(Clone, Copy, Debug)]
struct Area {
    longitudes: (f64, f64),
    latitudes: (f64, f64),
}

/// A cell of the grid with `2^step` columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GridCell {
    bits: u64,
    step: u32,
}

impl GridCell {
    /// The cell in which a point is, where latitudes end at `most`.
    fn around(point: Point, step: u32, most: f64) -> GridCell {
        let cells = (1u64 << step) as f64;
        let place = |value: f64, most: f64| ((value + most) / (most + most) * cells) as u32;
        let (row, column) = (place(point.latitude, most), place(point.longitude, MAX_LONGITUDE));
        GridCell { bits: spread(row) | spread(column) << 1, step }
    }

    fn area(self) -> Area {
        let cells = (1u64 << self.step) as f64;
        let bound = |place: u32, most: f64| -most + f64::from(place) / cells * (most + most);
        let bounds = |place: u32, most: f64| (bound(place, most), bound(place.wrapping_add(1), most));
        Area {
            longitudes: bounds(squash(self.bits >> 1), MAX_LONGITUDE),
            latitudes: bounds(squash(self.bits), MAX_LATITUDE),
        }
    }

    /// The scores of the points in it.
    fn scores(self) -> Range<f64> {
        let score = |bits: u64| (bits << (2 * (FINEST - self.step))) as f64;
        score(self.bits)..score(self.bits + 1)
    }

    /// The cell so many columns to the east and rows to the north, around the map: -1, 0 or 1.
    fn neighbor(self, east: i32, north: i32) -> GridCell {
        let unused = 64 - 2 * self.step;
        let moved = |mine: u64, others: u64, by: i32| {
            let (own, carry) = (self.bits & mine, others >> unused);
            let moved = match by {
                0 => own,
                1 => own.wrapping_add(carry + 1),
                _ => (own | carry).wrapping_sub(carry + 1),
            };
            moved & (mine >> unused)
        };
        let bits = moved(LONGITUDES, LATITUDES, east) | moved(LATITUDES, LONGITUDES, north);
        GridCell { bits, ..self }
    }

    /// True when a cell beside it ends before the bounds do.
    fn neighbors_fall_short_of(self, bounds: &Area) -> bool {
        self.neighbor(0, 1).area().latitudes.1 < bounds.latitudes.1
            || self.neighbor(0, -1).area().latitudes.0 > bounds.latitudes.0
            || self.neighbor(1, 0).area().longitudes.1 < bounds.longitudes.1
            || self.neighbor(-1, 0).area().longitudes.0 > bounds.longitudes.0
    }

    /// The cell, and those beside it where the bounds are beyond the cell's own: in Redis's order.
    fn neighbors_within(self, bounds: &Area) -> impl Iterator<Item = GridCell> {
        const ORDER: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let (own, bounds, may_skip) = (self.area(), *bounds, self.step >= 2);
        let is_needed = move |(east, north): &(i32, i32)| {
            !may_skip
                || !((*north < 0 && own.latitudes.0 < bounds.latitudes.0)
                    || (*north > 0 && own.latitudes.1 > bounds.latitudes.1)
                    || (*east < 0 && own.longitudes.0 < bounds.longitudes.0)
                    || (*east > 0 && own.longitudes.1 > bounds.longitudes.1))
        };
        ORDER.into_iter().filter(is_needed).map(move |(east, north)| self.neighbor(east, north))
    }
}

/// A score as bits, as C converts on the machines that Redis runs on where the standard leaves it open.
fn score_bits(score: f64) -> u64 {
    match score {
        ..0.0 => score as i64 as u64,
        18_446_744_073_709_551_616.0.. => 0,
        _ => score as u64,
    }
}

/// Every bit at twice its place.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, LATITUDES),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The bits at even places, close together.
fn squash(bits: u64) -> u32 {
    let mut bits = bits & LATITUDES;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// A coordinate in decimal, with 17 digits behind the point at most.
pub(crate) fn coordinate(degrees: f64) -> String {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(longitude: f64, latitude: f64) -> Point {
        Point::new(longitude, latitude).expect("it is on the map")
    }

    /// What Redis 7.0.15 says.
    #[test]
    fn points_of_redis() {
        let table = [
            (13.361389, 38.115556, 3_479_099_956_230_698.0, "sqc8b49rny0"),
            (15.087269, 37.502669, 3_479_447_370_796_909.0, "sqdtr74hyu0"),
            (-180.0, -85.05112878, 0.0, "00bh0hbj200"),
            (0.0, 0.0, 3_377_699_720_527_872.0, "s0000000000"),
        ];
        for (longitude, latitude, score, geohash) in table {
            let stored = Point::of_score(point(longitude, latitude).score());
            assert_eq!(point(longitude, latitude).score(), score);
            assert_eq!(std::str::from_utf8(&stored.geohash()), Ok(geohash));
            assert!(
                (stored.longitude() - longitude).abs() < 1e-5 && (stored.latitude() - latitude).abs() < 1e-5
            );
        }
        assert!(Point::new(180.1, 0.0).is_none() && Point::new(0.0, f64::NAN).is_none());
    }

    #[test]
    fn bits_are_spread_and_squashed() {
        for number in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
            assert_eq!(squash(spread(number)), number);
            assert_eq!(squash(spread(number) << 1), 0);
        }
    }

    #[test]
    fn neighbors_touch_and_go_around_the_map() {
        let cell = GridCell { bits: 0, step: 2 };
        let east = cell.neighbor(1, 0);
        assert_eq!(east.area().longitudes, (-90.0, 0.0));
        assert_eq!(east.neighbor(-1, 0), cell);
        assert_eq!(cell.neighbor(-1, 0).area().longitudes, (90.0, 180.0));
        assert_eq!(cell.neighbor(-1, -1).neighbor(1, 1), cell);
    }

    #[test]
    fn coordinates_have_the_digits_that_they_need() {
        assert_eq!(coordinate(13.361389338970184), "13.36138933897018433");
        assert_eq!((coordinate(-0.0), coordinate(180.0)), ("0".to_owned(), "180".to_owned()));
    }
}
