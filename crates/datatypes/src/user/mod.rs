//! Types that users define (Claret, section 4): the registry of those that are loaded, and what the library does with them.
//!
//! A loaded type is a constant: its name means the same functions of bytes as long as the process runs, and the same
//! in every process that decodes it, because name and digest travel together ([`Type`]). So whoever evaluates, applies
//! or judges needs no registry as an argument. A name that is not loaded does not decode; drivers load it before the step
//! that meets it.
//!
//! States are byte strings that are shared, so the patch of an effect is the state before it.

mod mode;
mod registry;

pub use mode::{Mode, Modes};
pub use registry::{MAX_TYPES, Type, all, check_new, find, register};

use crate::observation::Footprint;
use crate::{Aspect, Cell, Kind, Observation, Value};
use std::borrow::Cow;
use std::sync::Arc;
use types::{Error, Malformed, Reader, Reply, ReplyBuf, ReplySink, put_bytes};
use usertypes::{Codec, Executed, Fault, Limits, abi};

/// The most bytes of a refusal's text.
const MAX_REASON_BYTES: usize = 500;
/// The most bytes of an effect that combining tells. Nobody tries it on a state before it commits, and 64 of them may
/// come together: so they stay small beside a state.
const MAX_COMBINED_EFFECT_BYTES: usize = 16 << 10;

/// An operation of a user-defined type.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation<'a> {
    of: Type,
    operation: u8,
    /// In the binary form of `usertypes`.
    arguments: Cow<'a, [u8]>,
    /// The reply, likewise, where there has been one.
    known: Option<Cow<'a, [u8]>>,
}

/// A mutation of a value of a user-defined type.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect<'a> {
    of: Type,
    /// That of the operation it came of.
    mode: Option<Mode>,
    /// The module's own.
    bytes: Cow<'a, [u8]>,
}

/// The state. Empty, it is that of an absent key.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    of: Type,
    bytes: Arc<[u8]>,
}

impl State {
    /// What an absent key holds.
    pub fn empty(of: Type) -> Self {
        State { of, bytes: Arc::default() }
    }

    /// Its type.
    pub fn of(&self) -> Type {
        self.of
    }

    /// True for an absent key.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes it occupies.
    pub fn memory(&self) -> usize {
        size_of::<State>() + self.bytes.len()
    }
}

impl<'a> Operation<'a> {
    /// A call as a command has it: the operation's name, and the text of its arguments.
    ///
    /// # Errors
    /// The type has no such operation, or it takes other arguments.
    pub fn new(of: Type, operation: &[u8], arguments: &[&[u8]]) -> Result<Self, Error> {
        let module = of.module();
        let Some(number) = module.operation(operation) else {
            let names: Vec<&str> = module.spec().operations.iter().map(|it| it.name.as_str()).collect();
            return Err(Error::err(format!(
                "type '{}' has these operations: {}",
                of.name(),
                names.join(", ")
            )));
        };
        let arguments = module
            .arguments(number, arguments)
            .map_err(|reason| Error::err(format!("type '{}': {reason}", of.name())))?;
        Ok(Operation { of, operation: number, arguments: Cow::Owned(arguments), known: None })
    }

    /// Its type.
    pub fn of(&self) -> Type {
        self.of
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        let found = self.of.module().spec().operations.get(usize::from(self.operation));
        found.map_or("", |operation| &operation.name)
    }

    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        self.of.module().is_read(self.operation)
    }

    /// The lock mode of its type's own that it is in.
    pub fn mode(&self) -> Option<Mode> {
        Mode::new(self.of, self.of.module().mode(self.operation)?)
    }

    fn effect(&self, bytes: Vec<u8>) -> Effect<'static> {
        Effect { of: self.of, mode: self.mode(), bytes: Cow::Owned(bytes) }
    }

    /// What its result, and the choice of its effect, reveal at most: as the module says.
    pub fn observation(&self) -> Observation<'a> {
        Observation::of(Kind::User(self.of), Aspect::Invoked(self.clone()))
    }

    /// See [`crate::Operation::narrowed`]. A refusal may come from a limit, which the module knows nothing of.
    pub fn narrowed(&self, reply: &ReplyBuf) -> Option<Operation<'static>> {
        let mut known = Vec::new();
        reply_of(&mut reply.elements())?.encode(&mut known);
        let arguments = Cow::Owned(self.arguments.to_vec());
        Some(Operation { of: self.of, operation: self.operation, arguments, known: Some(Cow::Owned(known)) })
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        let bytes = self.of.module().blind(self.operation, &self.arguments).ok()??;
        Some(self.effect(bytes))
    }

    /// What it comes to right after `held`, which gave this reply; see [`crate::combine`]. A refusal tells nothing: it may
    /// come from a limit.
    pub(crate) fn after(
        &self,
        held: &Operation<'_>,
        seen: &ReplyBuf,
    ) -> Option<(ReplyBuf, Option<Effect<'static>>)> {
        let module = self.of.module();
        if held.of != self.of || !module.spec().combines {
            return None;
        }
        let mut reply = Vec::new();
        reply_of(&mut seen.elements())?.encode(&mut reply);
        let (first, second) = ((held.operation, &*held.arguments), (self.operation, &*self.arguments));
        let Executed { reply, effect } = module.combine(first, &reply, second).ok()??;
        if effect.as_ref().is_some_and(|effect| effect.len() > MAX_COMBINED_EFFECT_BYTES) {
            return None;
        }
        let mut written = ReplyBuf::new();
        write_reply(&reply, &mut written);
        Some((written, effect.map(|bytes| self.effect(bytes))))
    }

    /// True if its result stays the same after `effect`.
    pub(crate) fn unchanged_by(&self, effect: &crate::Effect<'_>) -> bool {
        let crate::Effect::User(effect) = effect else { return false };
        let known = self.known.as_deref();
        effect.of == self.of
            && self.of.module().unchanged(self.operation, &self.arguments, known, &effect.bytes) == Ok(true)
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.of.encode(out);
        out.push(self.operation);
        put_bytes(out, &self.arguments);
        out.push(u8::from(self.known.is_some()));
        if let Some(known) = &self.known {
            put_bytes(out, known);
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let of = Type::decode(input)?;
        let operation = input.byte()?;
        if usize::from(operation) >= of.module().spec().operations.len() {
            return Err(Malformed("operation of a user-defined type"));
        }
        let arguments = Cow::Borrowed(input.bytes()?);
        let known = if input.byte()? == 0 { None } else { Some(Cow::Borrowed(input.bytes()?)) };
        Ok(Operation { of, operation, arguments, known })
    }
}

impl<'a> Effect<'a> {
    /// Its type.
    pub fn of(&self) -> Type {
        self.of
    }

    /// The lock mode of its type's own that it is in.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Which aspects it may change. Of its own type's observations, the module says.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.of.encode(out);
        if !self.of.modes().is_empty() {
            out.push(self.mode.map_or(0, |mode| mode.number() + 1));
        }
        put_bytes(out, &self.bytes);
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let of = Type::decode(input)?;
        // A type without modes has them nowhere: its effects are what they were before there were any.
        let number = if of.modes().is_empty() { None } else { input.byte()?.checked_sub(1) };
        let known = |number| Mode::new(of, number).ok_or(Malformed("lock mode of a user-defined type"));
        Ok(Effect { of, mode: number.map(known).transpose()?, bytes: Cow::Borrowed(input.bytes()?) })
    }
}

/// What the module says; not, if it does not say.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    a.of == b.of && a.of.module().commute(&a.bytes, &b.bytes) == Ok(true)
}

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare(cell: &Cell, operation: &Operation<'_>, sink: &mut dyn ReplySink) -> Option<Effect<'static>> {
    let state: &[u8] = match &cell.value {
        None => &[],
        Some(Value::User(state)) if state.of == operation.of => &state.bytes,
        Some(_) => {
            sink.error(&Error::wrong_type());
            return None;
        }
    };
    match evaluate(state, operation) {
        Ok(Executed { reply, effect }) => {
            write_reply(&reply, sink);
            effect.map(|bytes| operation.effect(bytes))
        }
        Err(fault) => {
            let (name, of) = (operation.name(), operation.of.name());
            sink.error(&Error::err(format!("'{name}' of type '{of}': {fault}; nothing was changed")));
            None
        }
    }
}

/// What an operation comes to, and that its effect can be performed.
fn evaluate(state: &[u8], operation: &Operation<'_>) -> Result<Executed, Fault> {
    let module = operation.of.module();
    let executed = module.execute(state, operation.operation, &operation.arguments)?;
    if let Some(effect) = &executed.effect {
        module.apply(state, effect, Limits::CALL)?;
    }
    Ok(executed)
}

fn write_reply(reply: &abi::Reply, sink: &mut dyn ReplySink) {
    match reply {
        abi::Reply::Ok => sink.simple("OK"),
        abi::Reply::Integer(value) => sink.integer(*value),
        abi::Reply::Bytes(bytes) => sink.bulk(bytes),
        abi::Reply::Null => sink.null(),
        abi::Reply::Array(replies) => {
            sink.array(replies.len());
            replies.iter().for_each(|reply| write_reply(reply, sink));
        }
        abi::Reply::Error(reason) => {
            let line: String = reason.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
            sink.error(&Error::err(line[..line.floor_char_boundary(MAX_REASON_BYTES)].to_owned()));
        }
    }
}

/// The module's reply that was written as this one; `None` for one that it did not write, and for refusals.
fn reply_of<'r>(elements: &mut impl Iterator<Item = Reply<'r>>) -> Option<abi::Reply> {
    Some(match elements.next()? {
        Reply::Simple(_) => abi::Reply::Ok,
        Reply::Integer(value) => abi::Reply::Integer(value),
        Reply::Bulk(bytes) => abi::Reply::Bytes(bytes.to_vec()),
        Reply::Null => abi::Reply::Null,
        Reply::Array(len) => abi::Reply::Array((0..len).map(|_| reply_of(elements)).collect::<Option<_>>()?),
        _ => return None,
    })
}

/// The state before an effect.
pub type Patch = State;

/// Performs an effect; see [`crate::apply`]. One that fails, as one that was evaluated has not, changes nothing.
pub fn apply<const UNDO: bool>(state: &mut State, effect: &Effect<'_>) -> Option<Patch> {
    if state.of != effect.of {
        return None;
    }
    let after = state.of.module().apply(&state.bytes, &effect.bytes, Limits::COMMITTED).ok()?;
    let before = std::mem::replace(&mut state.bytes, after.into());
    UNDO.then_some(State { of: state.of, bytes: before })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut State, patch: &mut Patch) {
    std::mem::swap(state, patch);
}

/// Appends a state's binary form.
pub fn encode_state(state: &State, out: &mut Vec<u8>) {
    state.of.encode(out);
    put_bytes(out, &state.bytes);
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<State, Malformed> {
    Ok(State { of: Type::decode(input)?, bytes: input.bytes()?.into() })
}
