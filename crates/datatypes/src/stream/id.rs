//! Ids of entries: what they are, how they read, how new ones are chosen.

use crate::codec::{Field, wire_fields};
use smallvec::SmallVec;
use types::{Error, Malformed, Reader, put_varint, wire_enum, wire_struct};

/// In keyspaces where several sites add entries, an id's sequence modulo this is the site's number.
const SITES: u64 = 1 << 16;
/// Redis refuses longer texts of ids.
const MAX_TEXT_BYTES: usize = 127;

/// The id of an entry. Ids order the entries of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, usually.
    pub millis: u64,
    /// Distinguishes ids of the same millisecond.
    pub sequence: u64,
}
wire_struct!(StreamId { millis, sequence });
wire_fields!(StreamId, Option<StreamId>);

impl StreamId {
    /// The id before all of entries.
    pub const ZERO: StreamId = StreamId { millis: 0, sequence: 0 };
    /// The greatest id.
    pub const MAX: StreamId = StreamId { millis: u64::MAX, sequence: u64::MAX };

    /// An id from its two parts.
    pub const fn new(millis: u64, sequence: u64) -> Self {
        StreamId { millis, sequence }
    }

    /// The next id, if there is one.
    pub fn next(self) -> Option<Self> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => Some(StreamId::new(self.millis.checked_add(1)?, 0)),
        }
    }

    /// The id before, if there is one.
    pub fn previous(self) -> Option<Self> {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => Some(StreamId::new(self.millis.checked_sub(1)?, u64::MAX)),
        }
    }

    /// The text of Redis: `milliseconds-sequence`.
    pub fn with_text<R>(self, read: impl FnOnce(&[u8]) -> R) -> R {
        let mut text: SmallVec<[u8; 41]> = SmallVec::new();
        text.extend_from_slice(itoa::Buffer::new().format(self.millis).as_bytes());
        text.push(b'-');
        text.extend_from_slice(itoa::Buffer::new().format(self.sequence).as_bytes());
        read(&text)
    }

    /// Reads `milliseconds` or `milliseconds-sequence`; without a sequence it is `missing`.
    ///
    /// # Errors
    /// It is no id.
    pub fn parse(text: &[u8], missing: u64) -> Result<Self, Error> {
        let id = match text.iter().position(|byte| *byte == b'-') {
            None => number(text).map(|millis| StreamId::new(millis, missing)),
            Some(dash) => number(&text[..dash])
                .zip(number(&text[dash + 1..]))
                .map(|(millis, sequence)| StreamId::new(millis, sequence)),
        };
        id.filter(|_| text.len() <= MAX_TEXT_BYTES).ok_or_else(invalid)
    }

    /// The same, with `-` for the least and `+` for the greatest id.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse_bound(text: &[u8], missing: u64) -> Result<Self, Error> {
        match text {
            b"-" => Ok(StreamId::ZERO),
            b"+" => Ok(StreamId::MAX),
            text => StreamId::parse(text, missing),
        }
    }

    /// The first id of an interval; after `(` the one behind it.
    ///
    /// # Errors
    /// It is no id, or there is none behind it.
    pub fn parse_start(text: &[u8]) -> Result<Self, Error> {
        match text.strip_prefix(b"(").filter(|rest| !rest.is_empty()) {
            None => StreamId::parse_bound(text, 0),
            Some(rest) => {
                let next = StreamId::parse(rest, 0)?.next();
                next.ok_or_else(|| Error::err("invalid start ID for the interval"))
            }
        }
    }

    /// The last id of an interval; after `(` the one before it.
    ///
    /// # Errors
    /// It is no id, or there is none before it.
    pub fn parse_end(text: &[u8]) -> Result<Self, Error> {
        match text.strip_prefix(b"(").filter(|rest| !rest.is_empty()) {
            None => StreamId::parse_bound(text, u64::MAX),
            Some(rest) => {
                let previous = StreamId::parse(rest, u64::MAX)?.previous();
                previous.ok_or_else(|| Error::err("invalid end ID for the interval"))
            }
        }
    }

    /// The least id behind this one that is the site's, of the same millisecond if `within`.
    fn behind(self, site: Option<u16>, within: bool) -> Option<Self> {
        let Some(site) = site else {
            return self.next().filter(|next| !within || next.millis == self.millis);
        };
        let of_site = self.sequence - self.sequence % SITES + u64::from(site);
        let sequence = if of_site > self.sequence { Some(of_site) } else { of_site.checked_add(SITES) };
        match sequence {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None if within => None,
            None => Some(StreamId::new(self.millis.checked_add(1)?, site.into())),
        }
    }
}

/// Redis's error for what is no id.
pub(crate) fn invalid() -> Error {
    Error::err("Invalid stream ID specified as stream command argument")
}

/// A number in decimal, as `strtoull` reads it.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_ascii_start().parse().ok()
}

/// Which id a new entry gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// The time, or the one behind the last if that is later (`*`).
    Next,
    /// The next of a millisecond (`ms-*`).
    Within {
        /// The millisecond.
        millis: u64,
    },
    /// This one.
    Given {
        /// The id.
        id: StreamId,
    },
}
wire_enum!(NewId { 0 => Next, 1 => Within { millis }, 2 => Given { id } });
wire_fields!(NewId);

impl NewId {
    /// The id at this time behind `last`, if there is one. Sites never choose the same.
    pub(super) fn choose(self, last: StreamId, now_millis: u64, site: Option<u16>) -> Option<StreamId> {
        let first = |millis| StreamId::new(millis, site.unwrap_or(0).into());
        match self {
            NewId::Next if now_millis > last.millis => Some(first(now_millis)),
            NewId::Next => last.behind(site, false),
            NewId::Within { millis } if millis > last.millis => Some(first(millis)),
            NewId::Within { millis } if millis == last.millis => last.behind(site, true),
            NewId::Within { .. } => None,
            NewId::Given { id } => (id > last).then_some(id),
        }
    }
}

/// Ids in strictly ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids(SmallVec<[StreamId; 1]>);

impl Ids {
    /// No id.
    pub fn none() -> Self {
        Ids::default()
    }

    /// The ids, in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = StreamId> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it is among them.
    pub fn contains(&self, id: StreamId) -> bool {
        self.0.binary_search(&id).is_ok()
    }
}

impl FromIterator<StreamId> for Ids {
    fn from_iter<I: IntoIterator<Item = StreamId>>(ids: I) -> Self {
        let mut ids: SmallVec<[StreamId; 1]> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Ids(ids)
    }
}

/// Appends an id that is not before another one as the distance from there.
pub(super) fn put_after(id: StreamId, from: StreamId, out: &mut Vec<u8>) {
    put_varint(out, id.millis.wrapping_sub(from.millis));
    put_varint(
        out,
        if id.millis == from.millis { id.sequence.wrapping_sub(from.sequence) } else { id.sequence },
    );
}

/// Reads what [`put_after`] wrote.
pub(super) fn take_after(input: &mut Reader<'_>, from: StreamId) -> Result<StreamId, Malformed> {
    let (millis, sequence) = (input.varint()?, input.varint()?);
    let sequence = if millis == 0 { from.sequence.checked_add(sequence) } else { Some(sequence) };
    let millis = from.millis.checked_add(millis);
    millis.zip(sequence).map(|(millis, sequence)| StreamId { millis, sequence }).ok_or(Malformed("stream id"))
}

/// Count, then the distance of each from the one before.
impl Field<'_> for Ids {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        let mut before = StreamId::ZERO;
        for id in self.iter() {
            put_after(id, before, out);
            before = id;
        }
    }

    fn take(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut ids: SmallVec<[StreamId; 1]> = SmallVec::new();
        for _ in 0..input.count()? {
            let id = take_after(input, ids.last().copied().unwrap_or_default())?;
            if ids.last().is_some_and(|last| *last >= id) {
                return Err(Malformed("stream ids"));
            }
            ids.push(id);
        }
        Ok(Ids(ids))
    }
}

/// An entry that a consumer has and has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The entry.
    pub id: StreamId,
    /// When it was delivered last, in milliseconds since 1970.
    pub at_millis: u64,
    /// How often it was delivered.
    pub count: u64,
}
wire_struct!(Delivery { id, at_millis, count });
wire_fields!(Vec<Delivery>);

#[cfg(test)]
mod tests {
    use super::*;

    fn id(millis: u64, sequence: u64) -> StreamId {
        StreamId { millis, sequence }
    }

    #[test]
    fn sites_never_choose_the_same_id() {
        let mut chosen = std::collections::BTreeSet::new();
        for site in 0..3 {
            // None has seen what the others did.
            let mut last = id(5, 3);
            for now in [4, 5, 5, 6, 6, 6] {
                let next = NewId::Next.choose(last, now, Some(site)).expect("there are ids left");
                assert!(next > last && next.sequence % SITES == u64::from(site));
                assert!(chosen.insert(next), "{next:?}");
                last = next;
            }
        }
    }

    #[test]
    fn one_site_chooses_as_redis_does() {
        let next = |last, now| NewId::Next.choose(last, now, None);
        assert_eq!(next(id(5, 3), 7), Some(id(7, 0)));
        assert_eq!(next(id(5, 3), 5), Some(id(5, 4)));
        assert_eq!(next(id(5, u64::MAX), 5), Some(id(6, 0)));
        assert_eq!(next(StreamId::MAX, 5), None);
        let within = |last, millis| NewId::Within { millis }.choose(last, 9, None);
        assert_eq!(within(StreamId::ZERO, 0), Some(id(0, 1)));
        assert_eq!(within(id(5, 3), 5), Some(id(5, 4)));
        assert_eq!(within(id(5, 3), 6), Some(id(6, 0)));
        assert_eq!((within(id(5, 3), 4), within(id(5, u64::MAX), 5)), (None, None));
    }

    #[test]
    fn texts_are_read_as_redis_reads_them() {
        let parse = |text: &str| StreamId::parse(text.as_bytes(), 7).ok();
        assert_eq!(
            (parse("5"), parse("5-6"), parse("05-6")),
            (Some(id(5, 7)), Some(id(5, 6)), Some(id(5, 6)))
        );
        for text in ["", "-", "+", "5-", "-5", "5-6-7", "x", "5-*", "18446744073709551616"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(StreamId::parse_start(b"(5-6").ok(), Some(id(5, 7)));
        assert_eq!(StreamId::parse_end(b"(5-0").ok(), Some(id(4, u64::MAX)));
        assert!(StreamId::parse_start(b"(-").is_err() && StreamId::parse_end(b"(0-0").is_err());
        id(5, 6).with_text(|text| assert_eq!(text, b"5-6"));
    }
}
