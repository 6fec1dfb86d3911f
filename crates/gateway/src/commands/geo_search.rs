//! Searches for members on the map, listed or stored.

use super::geo::{point, size, unit};
use super::scored_turns;
use crate::plan::{Call, Plan};
use crate::table::flag::WRITE;
use crate::table::lossy;
use datatypes::Operation::ScoredSet;
use datatypes::geo::Shape;
use datatypes::scored_set::{Center, Listing, Operation, Order, Search};
use types::Error;

/// The four commands, apart from whether they may write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS and GEORADIUSBYMEMBER: center and shape have places of their own.
    Radius,
    /// GEOSEARCH
    Search,
    /// GEOSEARCHSTORE
    SearchStore,
}

/// What the arguments say.
struct Options<'a> {
    center: Option<Center<'a>>,
    shape: Option<Shape>,
    order: Order,
    limit: Option<u64>,
    any: bool,
    listing: Listing,
    destination: Option<&'a [u8]>,
    by_distance: bool,
}

impl<'a> Options<'a> {
    fn new(center: Option<Center<'a>>, shape: Option<Shape>) -> Self {
        Options {
            center,
            shape,
            order: Order::Any,
            limit: None,
            any: false,
            listing: Listing::default(),
            destination: None,
            by_distance: false,
        }
    }

    /// Reads the arguments from an index on.
    fn parse(mut self, call: &Call<'a>, form: Form, mut index: usize) -> Result<Self, Error> {
        while index < call.len() {
            index += match () {
                () if call.is(index, "WITHDIST") => set(&mut self.listing.distances, true),
                () if call.is(index, "WITHHASH") => set(&mut self.listing.hashes, true),
                () if call.is(index, "WITHCOORD") => set(&mut self.listing.coordinates, true),
                () if call.is(index, "ANY") => set(&mut self.any, true),
                () if call.is(index, "ASC") => set(&mut self.order, Order::Nearest),
                () if call.is(index, "DESC") => set(&mut self.order, Order::Farthest),
                () if call.is(index, "COUNT") && index + 1 < call.len() => {
                    let limit = u64::try_from(call.integer(index + 1)?).ok().filter(|limit| *limit > 0);
                    self.limit = Some(limit.ok_or_else(|| Error::err("COUNT must be > 0"))?);
                    2
                }
                () => match form {
                    Form::Radius => self.parse_destination(call, index)?,
                    Form::SearchStore if call.is(index, "STOREDIST") => set(&mut self.by_distance, true),
                    Form::Search | Form::SearchStore => self.parse_area(call, index)?,
                },
            };
        }
        Ok(self)
    }

    /// `STORE key` or `STOREDIST key`; how many arguments that is.
    fn parse_destination(&mut self, call: &Call<'a>, index: usize) -> Result<usize, Error> {
        let stores_distances = call.is(index, "STOREDIST");
        if !(stores_distances || call.is(index, "STORE"))
            || !call.command.is(WRITE)
            || index + 1 == call.len()
        {
            return Err(Error::syntax());
        }
        (self.destination, self.by_distance) = (Some(call.bytes(index + 1)), stores_distances);
        Ok(2)
    }

    /// Where a search looks; how many arguments that is.
    fn parse_area(&mut self, call: &Call<'a>, index: usize) -> Result<usize, Error> {
        let behind = call.len() - index - 1;
        let from_point = matches!(self.center, Some(Center::Point { .. }));
        let from_member = self.center.is_some() && !from_point;
        let by_box = matches!(self.shape, Some(Shape::Box { .. }));
        let by_circle = self.shape.is_some() && !by_box;
        match () {
            () if behind >= 1 && !from_point && call.is(index, "FROMMEMBER") => {
                self.center = Some(Center::Member { member: call.bytes(index + 1) });
                Ok(2)
            }
            () if behind >= 2 && !from_member && call.is(index, "FROMLONLAT") => {
                self.center = Some(Center::Point { point: point(call, index + 1)? });
                Ok(3)
            }
            () if behind >= 2 && !by_box && call.is(index, "BYRADIUS") => {
                self.shape = Some(circle(call, index + 1)?);
                Ok(3)
            }
            () if behind >= 3 && !by_circle && call.is(index, "BYBOX") => {
                self.shape = Some(rectangle(call, index + 1)?);
                Ok(4)
            }
            () => Err(Error::syntax()),
        }
    }

    /// The plan, on the key with this index.
    fn plan(self, call: &Call<'a>, form: Form, key: usize) -> Result<Plan<'a>, Error> {
        if self.destination.is_some() && self.listing != Listing::default() {
            let what = if form == Form::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let text = format!("{what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(Error::err(text));
        }
        let one_of = |options: &str| {
            let name = lossy(call.bytes(0));
            Error::err(format!("exactly one of {options} can be specified for {name}"))
        };
        let center = self.center.ok_or_else(|| one_of("FROMMEMBER or FROMLONLAT"))?;
        let shape = self.shape.ok_or_else(|| one_of("BYRADIUS and BYBOX"))?;
        if self.any && self.limit.is_none() {
            return Err(Error::err("the ANY argument requires COUNT argument"));
        }
        // The nearest ones are meant, unless any will do.
        let order = match self.order {
            Order::Any if self.limit.is_some() && !self.any => Order::Nearest,
            order => order,
        };
        let search = Search { center, shape, order, limit: self.limit, any: self.any };
        Ok(match self.destination {
            None => Plan::One(
                call.on(call.bytes(key), ScoredSet(Operation::Search { search, listing: self.listing })),
            ),
            Some(destination) => {
                let read = Operation::SearchScores { search, by_distance: self.by_distance };
                scored_turns::store(destination, call.bytes(key), read)
            }
        })
    }
}

/// Notes an option of one argument.
fn set<T>(option: &mut T, value: T) -> usize {
    *option = value;
    1
}

fn circle(call: &Call<'_>, index: usize) -> Result<Shape, Error> {
    let radius = size(call, index, "radius")?;
    if radius < 0.0 {
        return Err(Error::err("radius cannot be negative"));
    }
    Ok(Shape::Circle { radius, unit: unit(call, index + 1)? })
}

fn rectangle(call: &Call<'_>, index: usize) -> Result<Shape, Error> {
    let (width, height) = (size(call, index, "width")?, size(call, index + 1, "height")?);
    if width < 0.0 || height < 0.0 {
        return Err(Error::err("height or width cannot be negative"));
    }
    Ok(Shape::Box { width, height, unit: unit(call, index + 2)? })
}

/// GEOSEARCH
pub(crate) fn search<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    Options::new(None, None).parse(call, Form::Search, 2)?.plan(call, Form::Search, 1)
}

/// GEOSEARCHSTORE
pub(crate) fn search_and_store<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let mut options = Options::new(None, None).parse(call, Form::SearchStore, 3)?;
    options.destination = Some(call.bytes(1));
    options.plan(call, Form::SearchStore, 2)
}

/// GEORADIUS, GEORADIUS_RO
pub(crate) fn around_point<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let center = Center::Point { point: point(call, 2)? };
    let options = Options::new(Some(center), Some(circle(call, 4)?));
    options.parse(call, Form::Radius, 6)?.plan(call, Form::Radius, 1)
}

/// GEORADIUSBYMEMBER, GEORADIUSBYMEMBER_RO
pub(crate) fn around_member<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let center = Center::Member { member: call.bytes(2) };
    let options = Options::new(Some(center), Some(circle(call, 3)?));
    options.parse(call, Form::Radius, 5)?.plan(call, Form::Radius, 1)
}
