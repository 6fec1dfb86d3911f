//! Operations on a key of any type: deletion, existence, expiry, and moving a whole value.

mod object;

pub use object::ObjectField;

use crate::observation::Footprint;
use crate::{Aspect, Cell, Context, Items, Kind, Observation, Patch, Value};
use std::borrow::Cow;
use types::{Error, ErrorCode, Malformed, Reader, ReplySink, Wire, put_bytes, wire_enum};

/// When EXPIRE takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireCondition {
    /// NX: only without a deadline.
    pub if_none: bool,
    /// XX: only with a deadline.
    pub if_some: bool,
    /// GT: only if later than the present one (none counts as infinitely late).
    pub if_later: bool,
    /// LT: only if earlier than the present one.
    pub if_earlier: bool,
}
types::wire_struct!(ExpireCondition { if_none, if_some, if_later, if_earlier });

impl ExpireCondition {
    /// True if it holds where the deadline is `present`, 0 for none, and shall be another one; both in milliseconds since
    /// 1970.
    pub(crate) fn allows(self, present: u64, at_millis: u64) -> bool {
        !((self.if_none && present != 0)
            || (self.if_some && present == 0)
            || (self.if_later && (present == 0 || at_millis <= present))
            || (self.if_earlier && present != 0 && at_millis >= present))
    }
}

/// The format of a deadline in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// Seconds left, rounded (TTL).
    SecondsLeft,
    /// Milliseconds left (PTTL).
    MillisLeft,
    /// Seconds since 1970, rounded (EXPIRETIME).
    SecondsAt,
    /// Milliseconds since 1970 (PEXPIRETIME).
    MillisAt,
}
wire_enum!(TimeFormat { 0 => SecondsLeft, 1 => MillisLeft, 2 => SecondsAt, 3 => MillisAt });

/// An operation on a key of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Removes the key: 1 if it was there, else 0.
    Delete,
    /// 1 if the key is there, else 0.
    Exists,
    /// The type's name, `none` if absent.
    Type,
    /// Sets the deadline: 1 if set. One in the past deletes.
    ExpireAt {
        /// Milliseconds since 1970.
        at_millis: u64,
        /// When to do it.
        condition: ExpireCondition,
    },
    /// The deadline: -2 if the key is absent, -1 if it has none.
    Deadline(TimeFormat),
    /// Drops the deadline: 1 if there was one.
    Persist,
    /// The whole cell in its binary form, or null; the key stays.
    Copy,
    /// The whole cell in its binary form, or null; the key is removed.
    Take,
    /// Replaces whatever is there by a cell in its binary form: `OK`.
    Restore(Cow<'a, [u8]>),
    /// Puts a cell in its binary form under a key that is absent: `OK`, else an error.
    RestoreAbsent(Cow<'a, [u8]>),
    /// The value in Redis's own form ([`crate::dump`]), or null.
    Dump,
    /// What OBJECT tells, null of an absent key.
    Object(ObjectField),
    /// Every value that the key has: the one that is shown, and those of concurrent writes. Only a keyspace that keeps these
    /// knows them.
    Siblings,
    /// Takes recorded losses off the key's list, all of them if none is named: how many there were. Only a model that
    /// records what concurrent writes lose ([`crate::merge::lost`]) knows any.
    Resolve {
        /// The names of losses; empty for all.
        losses: Items<'a>,
    },
    /// The value of a register, or null; it gets another deadline, and one in the past deletes it (GETEX).
    GetAndExpire {
        /// Milliseconds since 1970; 0 for none.
        at_millis: u64,
    },
}

/// A mutation of a key of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// The key is gone.
    Delete,
    /// The deadline is this; 0 for none. Nothing happens to an absent key.
    SetDeadline(u64),
    /// The cell is this, in its binary form.
    Restore(Cow<'a, [u8]>),
    /// These recorded losses are settled. The state stays.
    Resolve {
        /// The names of losses.
        losses: Items<'a>,
    },
}

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Operation::Exists
                | Operation::Type
                | Operation::Deadline(_)
                | Operation::Copy
                | Operation::Dump
                | Operation::Object(_)
                | Operation::Siblings
        )
    }

    /// What its result reveals at most.
    pub fn observation(&self) -> Observation<'a> {
        match self {
            Operation::Restore(_) => Observation::NOTHING,
            // It observes what is beside the state, and that only grows or is settled.
            Operation::Resolve { .. } => Observation::NOTHING,
            // A key's type changes only through its disappearance.
            Operation::Delete
            | Operation::Exists
            | Operation::Type
            | Operation::RestoreAbsent(_)
            | Operation::Object(ObjectField::References | ObjectField::IdleTime | ObjectField::Frequency) => {
                Observation::any(Aspect::Existence)
            }
            Operation::ExpireAt { .. } | Operation::Deadline(_) | Operation::Persist => {
                Observation::any(Aspect::Whole)
            }
            Operation::Copy
            | Operation::Take
            | Operation::Dump
            | Operation::Object(ObjectField::Encoding)
            | Operation::Siblings => Observation::any(Aspect::Whole),
            Operation::GetAndExpire { .. } => Observation::of(Kind::Register, Aspect::Whole),
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Delete => Some(Effect::Delete),
            Operation::Restore(bytes) => Some(Effect::Restore(bytes.clone())),
            // Whoever drops a deadline must know whether it has passed: it would revive the key.
            _ => None,
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Delete => out.push(0),
            Operation::Exists => out.push(1),
            Operation::Type => out.push(2),
            Operation::ExpireAt { at_millis, condition } => {
                out.push(3);
                at_millis.encode(out);
                condition.encode(out);
            }
            Operation::Deadline(format) => {
                out.push(4);
                format.encode(out);
            }
            Operation::Persist => out.push(5),
            Operation::Copy => out.push(6),
            Operation::Take => out.push(7),
            Operation::Restore(bytes) => {
                out.push(8);
                put_bytes(out, bytes);
            }
            Operation::Resolve { losses } => {
                out.push(9);
                losses.encode(out);
            }
            Operation::Siblings => out.push(10),
            Operation::RestoreAbsent(bytes) => {
                out.push(11);
                put_bytes(out, bytes);
            }
            Operation::Dump => out.push(12),
            Operation::Object(field) => {
                out.push(13);
                field.encode(out);
            }
            Operation::GetAndExpire { at_millis } => {
                out.push(14);
                at_millis.encode(out);
            }
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Operation::Delete,
            1 => Operation::Exists,
            2 => Operation::Type,
            3 => Operation::ExpireAt { at_millis: Wire::decode(input)?, condition: Wire::decode(input)? },
            4 => Operation::Deadline(Wire::decode(input)?),
            5 => Operation::Persist,
            6 => Operation::Copy,
            7 => Operation::Take,
            8 => Operation::Restore(checked_cell(input)?),
            9 => Operation::Resolve { losses: Items::decode(input)? },
            10 => Operation::Siblings,
            11 => Operation::RestoreAbsent(checked_cell(input)?),
            12 => Operation::Dump,
            13 => Operation::Object(Wire::decode(input)?),
            14 => Operation::GetAndExpire { at_millis: Wire::decode(input)? },
            _ => return Err(Malformed("key operation tag")),
        })
    }
}

/// A cell's binary form, checked so that applying it cannot fail.
fn checked_cell<'a>(input: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, Malformed> {
    let bytes = input.bytes()?;
    Cell::decode(&mut Reader::new(bytes))?;
    Ok(Cow::Borrowed(bytes))
}

impl<'a> Effect<'a> {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        match self {
            Effect::SetDeadline(0) => Footprint { aspects: smallvec::smallvec![Aspect::Expiry] },
            // Once it has passed, nothing is as it was: who commits later must have known of it (Corrections 69).
            Effect::SetDeadline(_) | Effect::Delete | Effect::Restore(_) => Footprint::whole(),
            Effect::Resolve { .. } => Footprint { aspects: smallvec::smallvec![] },
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Delete => out.push(0),
            Effect::SetDeadline(at_millis) => {
                out.push(1);
                at_millis.encode(out);
            }
            Effect::Restore(bytes) => {
                out.push(2);
                put_bytes(out, bytes);
            }
            Effect::Resolve { losses } => {
                out.push(3);
                losses.encode(out);
            }
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Effect::Delete,
            1 => Effect::SetDeadline(Wire::decode(input)?),
            2 => Effect::Restore(checked_cell(input)?),
            3 => Effect::Resolve { losses: Items::decode(input)? },
            _ => return Err(Malformed("key effect tag")),
        })
    }
}

/// Deletions commute, and so do equal deadlines and equal contents; a deadline beside anything else does not,
/// because a collection that becomes empty loses it.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    a == b
}

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare<'a>(
    cell: &Cell,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let exists = cell.value.is_some();
    match operation {
        Operation::Delete => {
            sink.integer(i64::from(exists));
            exists.then_some(Effect::Delete)
        }
        Operation::Exists => {
            sink.integer(i64::from(exists));
            None
        }
        Operation::Type => {
            sink.simple(cell.kind().map_or("none", |kind| kind.redis_name()));
            None
        }
        Operation::ExpireAt { at_millis, condition } => {
            let effect = expire(cell, *at_millis, *condition, context.now_millis);
            sink.integer(i64::from(effect.is_some()));
            effect
        }
        Operation::Deadline(format) => {
            sink.integer(deadline(cell, *format, context.now_millis));
            None
        }
        Operation::GetAndExpire { at_millis } => get_and_expire(cell, *at_millis, context.now_millis, sink),
        Operation::Persist => {
            let effective = cell.expires_at != 0;
            sink.integer(i64::from(effective));
            effective.then_some(Effect::SetDeadline(0))
        }
        Operation::Copy | Operation::Take => {
            if !exists {
                sink.null();
                return None;
            }
            let mut bytes = Vec::new();
            cell.encode(&mut bytes);
            sink.bulk(&bytes);
            matches!(operation, Operation::Take).then_some(Effect::Delete)
        }
        Operation::Restore(bytes) => {
            sink.simple("OK");
            Some(Effect::Restore(bytes.clone()))
        }
        Operation::RestoreAbsent(bytes) => {
            if exists {
                sink.error(&busy_key());
                return None;
            }
            sink.simple("OK");
            Some(Effect::Restore(bytes.clone()))
        }
        Operation::Dump => {
            object::dump(cell, sink);
            None
        }
        Operation::Object(field) => {
            object::describe(cell, *field, sink);
            None
        }
        Operation::Siblings => {
            let text = "this keyspace keeps one value of a key: those with PROTOCOL cops and CONFLICTS keep have siblings; in \
                        other causal ones CONFLICTS LIST tells which writes were lost";
            sink.error(&Error::err(text));
            None
        }
        Operation::Resolve { .. } => {
            let text = "there are no conflicts to resolve here: only causal keyspaces record them, and they are resolved \
                        outside of interactive transactions";
            sink.error(&Error::err(text));
            None
        }
    }
}

/// Redis's reply to RESTORE of a key that is there.
pub fn busy_key() -> Error {
    Error::new(ErrorCode::BusyKey, "Target key name already exists.")
}

fn expire(
    cell: &Cell,
    at_millis: u64,
    condition: ExpireCondition,
    now_millis: u64,
) -> Option<Effect<'static>> {
    if cell.value.is_none() || !condition.allows(cell.expires_at, at_millis) {
        None
    } else if at_millis <= now_millis {
        Some(Effect::Delete)
    } else {
        Some(Effect::SetDeadline(at_millis))
    }
}

fn get_and_expire(
    cell: &Cell,
    at_millis: u64,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'static>> {
    match &cell.value {
        None => {
            sink.null();
            return None;
        }
        Some(Value::Register(register)) => register.with_bytes(|bytes| sink.bulk(bytes)),
        Some(_) => {
            sink.error(&Error::wrong_type());
            return None;
        }
    }
    match at_millis {
        0 => (cell.expires_at != 0).then_some(Effect::SetDeadline(0)),
        _ if at_millis <= now_millis => Some(Effect::Delete),
        _ => Some(Effect::SetDeadline(at_millis)),
    }
}

fn deadline(cell: &Cell, format: TimeFormat, now_millis: u64) -> i64 {
    if cell.value.is_none() {
        return -2;
    }
    if cell.expires_at == 0 {
        return -1;
    }
    let left = cell.expires_at.saturating_sub(now_millis);
    let millis = match format {
        TimeFormat::MillisLeft => left,
        TimeFormat::SecondsLeft => (left + 500) / 1000,
        TimeFormat::MillisAt => cell.expires_at,
        TimeFormat::SecondsAt => (cell.expires_at + 500) / 1000,
    };
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// Performs an effect; see [`crate::apply`].
pub fn apply<const UNDO: bool>(cell: &mut Cell, effect: &Effect<'_>) -> Patch {
    let before = match effect {
        Effect::SetDeadline(_) | Effect::Delete if cell.value.is_none() => return Patch::Nothing,
        Effect::Resolve { .. } => return Patch::Nothing,
        Effect::SetDeadline(at_millis) => {
            let before = std::mem::replace(&mut cell.expires_at, *at_millis);
            return if UNDO { Patch::Expiry(before) } else { Patch::Nothing };
        }
        Effect::Delete => cell.clear(),
        Effect::Restore(bytes) => match Cell::decode(&mut Reader::new(bytes)) {
            Ok(restored) => std::mem::replace(cell, restored),
            Err(_) => return Patch::Nothing,
        },
    };
    if UNDO { Patch::Cell(before) } else { Patch::Nothing }
}
