//! What DUMP and OBJECT tell of a key.

use crate::{Cell, dump};
use types::{Error, ReplySink, wire_enum};

/// What OBJECT tells of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectField {
    /// How Redis would store the value ([`crate::dump::Encoding`]).
    Encoding,
    /// How many share the value: nobody.
    References,
    /// How long nobody has read or written it: that is not stored.
    IdleTime,
    /// How often it is used: that is not stored.
    Frequency,
}
wire_enum!(ObjectField { 0 => Encoding, 1 => References, 2 => IdleTime, 3 => Frequency });

/// DUMP
pub(super) fn dump(cell: &Cell, sink: &mut dyn ReplySink) {
    let Some(value) = &cell.value else { return sink.null() };
    match dump::encode(value) {
        Some(payload) => sink.bulk(&payload),
        None => sink.error(&Error::err(format!(
            "DUMP has a form for the types of Redis only, and '{}' is none; COPY and RENAME take every type",
            value.kind().redis_name()
        ))),
    }
}

/// OBJECT
pub(super) fn describe(cell: &Cell, field: ObjectField, sink: &mut dyn ReplySink) {
    let Some(value) = &cell.value else { return sink.null() };
    match field {
        ObjectField::Encoding => sink.bulk(dump::encoding(value).as_str().as_bytes()),
        ObjectField::References => sink.integer(1),
        ObjectField::IdleTime => sink.error(&Error::err("idle time not tracked: no times of access are kept")),
        ObjectField::Frequency => sink.error(&Error::err(
            "An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        )),
    }
}
