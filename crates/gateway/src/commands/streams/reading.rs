//! XREAD and XREADGROUP. How they wait is in [`crate::blocking`].

use crate::combine::copy_value;
use crate::commands::streams::count_or_zero;
use crate::plan::{Call, Plan};
use crate::turns::{self, On, Turns, first_error};
use datatypes::Operation::{Key, Stream};
use datatypes::key;
use datatypes::stream::{Operation, Start, StreamId};
use protocol::Step;
use resp::{Encoder, ProtocolVersion};
use std::time::Duration;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// What stands before the keys.
#[derive(Debug)]
struct Options<'a> {
    count: u64,
    /// How long to wait for entries, in milliseconds, 0 for ever.
    block_millis: Option<u64>,
    group: Option<(&'a [u8], &'a [u8])>,
    no_ack: bool,
    /// The indexes of the first key and of the first id.
    keys: usize,
    ids: usize,
}

fn options<'a>(call: &Call<'a>, of_group: bool) -> Result<Options<'a>, Error> {
    let mut options = Options { count: 0, block_millis: None, group: None, no_ack: false, keys: 0, ids: 0 };
    let only = |option| {
        let name = "is only supported by XREADGROUP. You called XREAD instead.";
        Err(Error::err(format!("The {option} option {name}")))
    };
    let mut at = 1;
    while at < call.len() {
        let more = call.len() - at - 1;
        match () {
            () if call.is(at, "BLOCK") && more > 0 => {
                at += 1;
                options.block_millis = Some(timeout(call, at)?);
            }
            () if call.is(at, "COUNT") && more > 0 => {
                at += 1;
                options.count = count_or_zero(call, at)?;
            }
            () if call.is(at, "STREAMS") && more > 0 => {
                if !more.is_multiple_of(2) {
                    return Err(unbalanced());
                }
                (options.keys, options.ids) = (at + 1, at + 1 + more / 2);
                break;
            }
            () if call.is(at, "GROUP") && more > 1 => {
                if !of_group {
                    return only("GROUP");
                }
                options.group = Some((call.bytes(at + 1), call.bytes(at + 2)));
                at += 2;
            }
            () if call.is(at, "NOACK") => {
                if !of_group {
                    return only("NOACK");
                }
                options.no_ack = true;
            }
            () => return Err(Error::syntax()),
        }
        at += 1;
    }
    if options.keys == 0 { Err(Error::syntax()) } else { Ok(options) }
}

/// How long `BLOCK` waits, in milliseconds.
fn timeout(call: &Call<'_>, index: usize) -> Result<u64, Error> {
    let millis = call.integer(index).map_err(|_| Error::err("timeout is not an integer or out of range"))?;
    u64::try_from(millis).map_err(|_| Error::err("timeout is negative"))
}

/// As Redis has it, whichever command it is.
fn unbalanced() -> Error {
    Error::err("Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.")
}

/// Streams that are read: what each of them has, in one turn. Where it waits for entries behind the last one, a turn before
/// that asks which this is.
#[derive(Debug)]
struct Read {
    keys: Vec<(Box<[u8]>, Start)>,
    count: u64,
    waits: bool,
    /// A key of another type has no entries, and is no error.
    skips_other_types: bool,
    /// Where it reads from was not what the client said, but the last ids that it found.
    resolved: bool,
}

impl Read {
    /// The command that reads from here on, in RESP.
    fn in_words(&self) -> Vec<u8> {
        let mut source = Vec::new();
        let mut encoder = Encoder::new(&mut source, ProtocolVersion::Resp2);
        encoder.array(4 + 2 * self.keys.len());
        [&b"XREAD"[..], b"COUNT", self.count.to_string().as_bytes(), b"STREAMS"]
            .iter()
            .for_each(|word| encoder.bulk(word));
        self.keys.iter().for_each(|(key, _)| encoder.bulk(key));
        for (_, start) in &self.keys {
            match start {
                Start::After { id } => id.with_text(|text| encoder.bulk(text)),
                Start::Last => encoder.bulk(b"$"),
            }
        }
        source
    }

    /// The streams whose last id the command must read.
    fn unresolved(&self) -> impl Iterator<Item = usize> + use<'_> {
        let starts = self.keys.iter().enumerate().filter(|_| self.waits);
        starts.filter(|(_, (_, start))| *start == Start::Last).map(|(index, _)| index)
    }

    /// Reads the last ids of the unresolved streams.
    fn resolve(&mut self, reply: &ReplyBuf) -> Result<(), Error> {
        let mut values = reply.elements();
        for index in self.unresolved().collect::<Vec<_>>() {
            let mut value = ReplyBuf::new();
            copy_value(&mut values, &mut value);
            let id = match value.as_error() {
                None => last_id(&value)?,
                Some(error) if error.code == ErrorCode::Err => StreamId::ZERO,
                Some(error) => return Err(error),
            };
            self.keys[index].1 = Start::After { id };
        }
        self.resolved = true;
        Ok(())
    }
}

/// The last id that a stream has given, of what describes the stream.
fn last_id(description: &ReplyBuf) -> Result<StreamId, Error> {
    let mut fields = description.elements().skip_while(|field| *field != Reply::Bulk(b"last-generated-id"));
    match fields.nth(1) {
        Some(Reply::Bulk(id)) => StreamId::parse(id, 0),
        _ => Ok(StreamId::ZERO),
    }
}

impl Turns for Read {
    fn is_atomic(&self) -> bool {
        false
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let count = self.count;
        let unresolved =
            self.unresolved().map(|index| on.key(&self.keys[index].0, Stream(Operation::Describe)));
        let unresolved: Vec<_> = unresolved.collect();
        if !unresolved.is_empty() {
            return unresolved;
        }
        let read = |start| Stream(Operation::Read { start, count });
        self.keys.iter().map(|(key, start)| on.key(key, read(*start))).collect()
    }

    fn may_wait(&self) -> bool {
        self.waits
    }

    fn skip_other_types(&mut self) {
        self.skips_other_types = true;
    }

    fn again(&self) -> Option<Vec<u8>> {
        self.resolved.then(|| self.in_words())
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if self.unresolved().next().is_some() {
            let resolved = self.resolve(reply);
            if let Err(error) = &resolved {
                sink.error(error);
            }
            return resolved.is_err();
        }
        write_found(self.keys.iter().map(|(key, _)| &**key), reply, self.skips_other_types, sink);
        true
    }
}

/// Writes what was found, stream by stream; the null array if nothing was.
fn write_found<'k>(
    keys: impl Iterator<Item = &'k [u8]>,
    reply: &ReplyBuf,
    skips_other_types: bool,
    sink: &mut dyn ReplySink,
) {
    let is_skipped = |error: &Error| skips_other_types && error.code == ErrorCode::WrongType;
    let mut errors = reply.elements().filter_map(|element| match element {
        Reply::Error(error) => Some(error),
        _ => None,
    });
    if let Some(error) = errors.find(|error| !is_skipped(error)) {
        return sink.error(&error);
    }
    let mut values = reply.elements();
    let mut found: Vec<(&[u8], ReplyBuf)> = Vec::new();
    for key in keys {
        let mut value = ReplyBuf::new();
        copy_value(&mut values, &mut value);
        if value.first() != Some(Reply::NullArray) && value.as_error().is_none() {
            found.push((key, value));
        }
    }
    if found.is_empty() {
        return sink.null_array();
    }
    sink.entries(found.len());
    for (key, value) in found {
        sink.entry();
        sink.bulk(key);
        value.replay(sink);
    }
}

/// How long a command that has `BLOCK` waits, `None` for ever, and its group, if it reads through one.
///
/// # Errors
/// As the command.
pub(crate) fn waits_for<'a>(call: &Call<'a>) -> Result<(Option<Duration>, Option<&'a [u8]>), Error> {
    let options = options(call, call.command.name == "xreadgroup")?;
    let millis = options.block_millis.filter(|millis| *millis > 0);
    Ok((millis.map(Duration::from_millis), options.group.map(|(group, _)| group)))
}

/// True if the command is one of these and has `BLOCK`, whichever ids it reads from.
pub(crate) fn has_block(call: &Call<'_>) -> bool {
    let of_group = call.command.name == "xreadgroup";
    (of_group || call.command.name == "xread")
        && options(call, of_group).is_ok_and(|options| options.block_millis.is_some())
}

/// XREAD
pub(super) fn read<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = options(call, false)?;
    let start = |index: usize| match call.bytes(index) {
        b"$" => Ok(Start::Last),
        b">" => Err(Error::err(
            "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        text => StreamId::parse(text, 0).map(|id| Start::After { id }),
    };
    let keys = (options.keys..options.ids).zip(options.ids..);
    let keys = keys.map(|(key, id)| Ok((Box::from(call.bytes(key)), start(id)?)));
    let keys = keys.collect::<Result<Vec<_>, Error>>()?;
    let waits = options.block_millis.is_some();
    Ok(turns::plan(Read { keys, count: options.count, waits, skips_other_types: false, resolved: false }))
}

/// Streams that a consumer reads: first whether all of them have the group, if they are several, then what they deliver.
/// A consumer that has waited gets an error that names what is gone: the stream, or only the group.
#[derive(Debug)]
struct ReadGroup {
    group: Box<[u8]>,
    consumer: Box<[u8]>,
    /// Each with the id behind which the consumer's own entries are wanted, or else new ones.
    keys: Vec<(Box<[u8]>, Option<StreamId>)>,
    count: u64,
    no_ack: bool,
    /// All of them have the group, or there is one only.
    found: bool,
    waits: bool,
    /// See [`Turns::only_look`].
    only_looks: bool,
    has_waited: bool,
    /// Something is gone: it asks whether the streams are there.
    asks_types: bool,
}

/// The error of a consumer that has waited, when its group is gone, with the stream or without.
fn gone(is_stream_there: bool) -> Error {
    if is_stream_there {
        let text = "the consumer group this client was blocked on no longer exists";
        return Error::new(ErrorCode::NoGroup, text);
    }
    // A word of Redis that nothing else says.
    Error::new(ErrorCode::Scripted, "UNBLOCKED the stream key no longer exists")
}

impl Turns for ReadGroup {
    fn is_atomic(&self) -> bool {
        self.keys.len() > 1
    }

    fn skip_other_types(&mut self) {
        self.has_waited = true;
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        if self.asks_types {
            return self.keys.iter().map(|(key, _)| on.key(key, Key(key::Operation::Type))).collect();
        }
        let operation = |key, own_after| match self.found {
            false => Operation::FindGroup { key, group: &self.group },
            true => Operation::ReadGroup {
                key,
                group: &self.group,
                consumer: &self.consumer,
                own_after,
                count: self.count,
                no_ack: self.no_ack,
            },
        };
        self.keys.iter().map(|(key, own_after)| on.key(key, Stream(operation(key, *own_after)))).collect()
    }

    fn may_wait(&self) -> bool {
        self.waits
    }

    fn only_look(&mut self) {
        (self.only_looks, self.found) = (true, false);
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        let error = first_error(reply);
        if self.asks_types {
            let are_all_there = reply.elements().all(|kind| kind == Reply::Simple("stream"));
            sink.error(&error.unwrap_or_else(|| gone(are_all_there)));
            return true;
        }
        let is_gone = |error: &Error| matches!(error.code, ErrorCode::NoGroup | ErrorCode::WrongType);
        if self.has_waited && error.as_ref().is_some_and(is_gone) {
            self.asks_types = true;
            return false;
        }
        if !self.found && error.is_none() {
            if self.only_looks {
                sink.null_array();
            }
            self.found = true;
            return self.only_looks;
        }
        write_found(self.keys.iter().map(|(key, _)| &**key), reply, false, sink);
        true
    }
}

/// XREADGROUP
pub(super) fn read_group<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = options(call, true)?;
    let (group, consumer) = options.group.ok_or_else(|| Error::err("Missing GROUP option for XREADGROUP"))?;
    let own_after = |index: usize| match call.bytes(index) {
        b">" => Ok(None),
        b"$" => Err(Error::err(
            "The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
             specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
        )),
        text => StreamId::parse(text, 0).map(Some),
    };
    let keys = (options.keys..options.ids).zip(options.ids..);
    let keys = keys.map(|(key, id)| Ok((Box::from(call.bytes(key)), own_after(id)?)));
    let keys = keys.collect::<Result<Vec<(Box<[u8]>, _)>, Error>>()?;
    let turns = ReadGroup {
        group: group.into(),
        consumer: consumer.into(),
        found: keys.len() == 1,
        // What is the consumer's own already is there, or is not.
        waits: options.block_millis.is_some() && keys.iter().all(|(_, own_after)| own_after.is_none()),
        only_looks: false,
        has_waited: false,
        asks_types: false,
        keys,
        count: options.count,
        no_ack: options.no_ack,
    };
    Ok(turns::plan(turns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_not_hidden_behind_one_that_is_skipped() {
        let (mut reply, mut written) = (ReplyBuf::new(), ReplyBuf::new());
        reply.error(&Error::new(ErrorCode::WrongType, "no stream"));
        reply.error(&Error::new(ErrorCode::Unavailable, "retry"));
        write_found([&b"a"[..], b"b"].into_iter(), &reply, true, &mut written);
        assert_eq!(written.as_error().map(|error| error.code), Some(ErrorCode::Unavailable));
    }
}
