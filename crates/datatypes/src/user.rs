//! Types that users define (Claret, section 4): the registry of those that are loaded, and what the library does with them.
//!
//! A loaded type is a constant: its name means the same functions of bytes as long as the process runs, and the same
//! in every process that decodes it, because name and digest travel together ([`Type`]). So whoever evaluates, applies
//! or judges needs no registry as an argument; who knows fewer of them decodes less, and nothing else.
//!
//! States are byte strings that are shared, so the patch of an effect is the state before it.

use crate::observation::Footprint;
use crate::{Aspect, Cell, Kind, Observation, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use types::{Error, Malformed, Reader, Reply, ReplyBuf, ReplySink, put_bytes};
use usertypes::{Codec, Executed, Fault, Limits, Module, abi};

/// The most types of a process.
pub const MAX_TYPES: usize = 100;
/// The most bytes of a refusal's text.
const MAX_REASON_BYTES: usize = 500;

struct Loaded {
    name: Box<str>,
    digest: u64,
    module: Module,
}

struct Registered {
    loaded: Loaded,
    next: OnceLock<&'static Registered>,
}

/// The first of the types that are loaded; each knows the next one. It only grows.
static FIRST: OnceLock<&'static Registered> = OnceLock::new();
/// Called for a name that is not loaded: it may load it.
static LOOK: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// A type that is loaded.
#[derive(Clone, Copy)]
pub struct Type(&'static Loaded);

/// Makes a type known to this process, for ever. One that is known already is the same.
///
/// # Errors
/// Another type has the name, or there are too many.
pub fn register(name: &str, digest: u64, module: Module) -> Result<Type, Error> {
    check_new(name, digest)?;
    if let Some(known) = known(name.as_bytes()) {
        return Ok(known);
    }
    let loaded = Loaded { name: name.into(), digest, module };
    let new: &'static Registered = Box::leak(Box::new(Registered { loaded, next: OnceLock::new() }));
    let mut slot = &FIRST;
    while slot.set(new).is_err() {
        // Whoever was quicker may have had the same name.
        match slot.get() {
            Some(other) if *other.loaded.name == *name => {
                return check_new(name, digest).map(|()| Type(&other.loaded));
            }
            Some(other) => slot = &other.next,
            None => {}
        }
    }
    Ok(Type(&new.loaded))
}

/// Can there be a type of this name and digest?
///
/// # Errors
/// Another one has the name, or there are too many.
pub fn check_new(name: &str, digest: u64) -> Result<(), Error> {
    match known(name.as_bytes()) {
        Some(known) if known.0.digest == digest => Ok(()),
        Some(_) => Err(Error::err(format!(
            "type '{name}' is loaded already, from another module, and values of it exist or may; load this one under \
             another name, such as '{name}@2'"
        ))),
        None if all().count() >= MAX_TYPES => {
            Err(Error::err(format!("{MAX_TYPES} types are loaded; no more")))
        }
        None => Ok(()),
    }
}

/// What is to be called when a name is met that is not loaded. The first one counts.
pub fn on_unknown(look: Box<dyn Fn() + Send + Sync>) {
    // A second deployment in one process finds what is loaded, as the first one does.
    let _ = LOOK.set(look);
}

/// Every type, in the order of loading.
pub fn all() -> impl Iterator<Item = Type> {
    std::iter::successors(FIRST.get(), |it| it.next.get()).map(|it| Type(&it.loaded))
}

fn known(name: &[u8]) -> Option<Type> {
    all().find(|it| it.0.name.as_bytes() == name)
}

/// The type of this name.
pub fn find(name: &[u8]) -> Option<Type> {
    known(name).or_else(|| {
        LOOK.get()?();
        known(name)
    })
}

impl Type {
    /// Its name.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The digest of its module.
    pub fn digest(self) -> u64 {
        self.0.digest
    }

    /// Its functions.
    pub fn module(self) -> &'static Module {
        &self.0.module
    }

    /// Appends name and digest.
    fn encode(self, out: &mut Vec<u8>) {
        put_bytes(out, self.0.name.as_bytes());
        out.extend_from_slice(&self.0.digest.to_le_bytes());
    }

    /// Reads name and digest of a type that must be loaded.
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let name = input.bytes()?;
        let digest = input.take(8)?;
        let found = find(name).ok_or(Malformed("user-defined type: it is not loaded"))?;
        if found.0.digest.to_le_bytes() == digest {
            Ok(found)
        } else {
            Err(Malformed("user-defined type: it is loaded from another module"))
        }
    }

    fn order(&self) -> (&str, u64) {
        (&self.0.name, self.0.digest)
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Type {}

impl PartialOrd for Type {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Type {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Hash for Type {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order().hash(state);
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
        Some(Effect { of: self.of, bytes: Cow::Owned(bytes) })
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

    /// Which aspects it may change. Of its own type's observations, the module says.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.of.encode(out);
        put_bytes(out, &self.bytes);
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Effect { of: Type::decode(input)?, bytes: Cow::Borrowed(input.bytes()?) })
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
            effect.map(|bytes| Effect { of: operation.of, bytes: Cow::Owned(bytes) })
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
