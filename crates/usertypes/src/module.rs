//! A type as a server calls it, wherever its code runs.

use crate::abi::{Argument, Entry, Kind, MAX_MODES, Reply, Spec};
use crate::codec::{Codec, Input, put_bytes};
use crate::{UserType, is_name, serve};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// How much a call may take. They say nothing of time: equal calls come to equal ends everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions, about.
    pub fuel: u64,
    /// Bytes of memory.
    pub memory: usize,
    /// Bytes of a state.
    pub state: usize,
}

impl Limits {
    /// Of everything that may still be refused.
    pub const CALL: Limits = Limits { fuel: 1_000_000, memory: 16 << 20, state: 1 << 20 };
    /// Of an effect that is committed, and was tried within [`Limits::CALL`] on a state that it commutes to.
    pub const COMMITTED: Limits = Limits { fuel: 16_000_000, memory: 32 << 20, state: 4 << 20 };
}

/// The most bytes of an effect or of a reply.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The most operations of a type, and arguments of an operation.
const MAX_OPERATIONS: usize = 64;
const MAX_ARGUMENTS: usize = 16;

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not end within its fuel.
    Fuel(u64),
    /// It needed more memory than it may have, in bytes.
    Memory(usize),
    /// It made something larger than it may be: what, and how many bytes are allowed.
    TooLarge(&'static str, usize),
    /// It ended in an error of its own.
    Trap(String),
    /// Its answer makes no sense.
    Nonsense(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Fuel(fuel) => write!(f, "it did not end within {fuel} units of fuel"),
            Fault::Memory(bytes) => write!(f, "it asked for more than {bytes} bytes of memory"),
            Fault::TooLarge(what, bytes) => write!(f, "{what} would be larger than {bytes} bytes"),
            Fault::Trap(reason) => write!(f, "it failed: {reason}"),
            Fault::Nonsense(what) => write!(f, "its answer is not {what}"),
        }
    }
}

/// Where a type's code runs.
pub trait Machine: Send + Sync {
    /// Answers a question within limits. Depends on the question and the limits alone.
    ///
    /// # Errors
    /// It did not answer.
    fn call(&self, entry: Entry, input: &[u8], limits: Limits) -> Result<Vec<u8>, Fault>;
}

struct Native<T>(core::marker::PhantomData<fn() -> T>);

impl<T: UserType> Machine for Native<T> {
    fn call(&self, entry: Entry, input: &[u8], _: Limits) -> Result<Vec<u8>, Fault> {
        serve::<T>(entry as u32, input).ok_or_else(|| Fault::Trap("the question makes no sense".to_string()))
    }
}

/// What an evaluation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// What the caller sees.
    pub reply: Reply,
    /// The effect to commit.
    pub effect: Option<Vec<u8>>,
}

/// A type: its specification and its code. States are byte strings, an empty one that of an absent key.
pub struct Module {
    spec: Spec,
    machine: Box<dyn Machine>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Module {
    /// Asks a machine what type it is.
    ///
    /// # Errors
    /// It does not say, or nobody could call what it says: why.
    pub fn new(machine: Box<dyn Machine>) -> Result<Self, String> {
        let answer = machine.call(Entry::Describe, &[], Limits::CALL);
        let answer = answer.map_err(|fault| format!("the module does not describe itself: {fault}"))?;
        let mut input = Input::new(&answer);
        let spec = Spec::decode(&mut input).filter(|_| input.is_empty());
        let spec = spec.ok_or_else(|| {
            format!(
                "the module's description makes no sense; this server knows versions 1 and {}",
                crate::abi::VERSION
            )
        })?;
        check_spec(&spec)?;
        Ok(Module { spec, machine })
    }

    /// A type that is compiled in: for tests, and for authors.
    ///
    /// # Panics
    /// If its operations have impossible names.
    pub fn native<T: UserType + 'static>() -> Self {
        match Module::new(Box::new(Native::<T>(core::marker::PhantomData))) {
            Ok(module) => module,
            Err(reason) => panic!("{reason}"),
        }
    }

    /// What it says of itself.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Evaluates an operation.
    ///
    /// # Errors
    /// It did not come to an end, or to none that makes sense.
    pub fn execute(&self, state: &[u8], operation: u8, arguments: &[u8]) -> Result<Executed, Fault> {
        let mut question = Vec::with_capacity(state.len() + arguments.len() + 5);
        put_bytes(&mut question, state);
        question.push(operation);
        question.extend_from_slice(arguments);
        let answer = self.machine.call(Entry::Execute, &question, Limits::CALL)?;
        executed(&answer)
    }

    /// What an operation comes to right after another one that gave this reply, if the reply determines it. Operations
    /// come with their arguments.
    ///
    /// # Errors
    /// It did not say.
    pub fn combine(
        &self,
        held: (u8, &[u8]),
        reply: &[u8],
        next: (u8, &[u8]),
    ) -> Result<Option<Executed>, Fault> {
        if !self.spec.combines {
            return Ok(None);
        }
        let mut question = Vec::with_capacity(held.1.len() + reply.len() + next.1.len() + 2);
        question.push(held.0);
        question.extend_from_slice(held.1);
        question.extend_from_slice(reply);
        question.push(next.0);
        question.extend_from_slice(next.1);
        match self.machine.call(Entry::Combine, &question, Limits::CALL)?.as_slice() {
            [0] => Ok(None),
            [1, answer @ ..] => executed(answer).map(Some),
            _ => Err(Fault::Nonsense("what an operation comes to, or nothing")),
        }
    }

    /// The state after an effect.
    ///
    /// # Errors
    /// It did not come to an end within the limits, or to none that makes sense.
    pub fn apply(&self, state: &[u8], effect: &[u8], limits: Limits) -> Result<Vec<u8>, Fault> {
        let mut question = Vec::with_capacity(state.len() + effect.len() + 8);
        put_bytes(&mut question, state);
        put_bytes(&mut question, effect);
        let after = self.machine.call(Entry::Apply, &question, limits)?;
        if after.is_empty() {
            return Err(Fault::Nonsense("a state, which is not empty"));
        }
        if after.len() > limits.state {
            return Err(Fault::TooLarge("the value", limits.state));
        }
        Ok(after)
    }

    /// Do these effects commute? Those of a call that fails are said not to.
    pub fn commute(&self, a: &[u8], b: &[u8]) -> Result<bool, Fault> {
        let mut question = Vec::with_capacity(a.len() + b.len() + 8);
        put_bytes(&mut question, a);
        put_bytes(&mut question, b);
        yes_or_no(&self.machine.call(Entry::Commute, &question, Limits::CALL)?)
    }

    /// Is the reply, which may be known, the same after the effect?
    ///
    /// # Errors
    /// It did not say.
    pub fn unchanged(
        &self,
        operation: u8,
        arguments: &[u8],
        reply: Option<&[u8]>,
        effect: &[u8],
    ) -> Result<bool, Fault> {
        let mut question = Vec::with_capacity(arguments.len() + effect.len() + 16);
        question.push(operation);
        question.extend_from_slice(arguments);
        reply.is_some().encode(&mut question);
        question.extend_from_slice(reply.unwrap_or_default());
        put_bytes(&mut question, effect);
        yes_or_no(&self.machine.call(Entry::Unchanged, &question, Limits::CALL)?)
    }

    /// The effect that an operation has in every state that does not refuse it, if there is one.
    ///
    /// # Errors
    /// It did not say.
    pub fn blind(&self, operation: u8, arguments: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let mut question = Vec::with_capacity(arguments.len() + 1);
        question.push(operation);
        question.extend_from_slice(arguments);
        let answer = self.machine.call(Entry::Blind, &question, Limits::CALL)?;
        let mut input = Input::new(&answer);
        let effect = optional_bytes(&mut input).filter(|_| input.is_empty());
        effect.ok_or(Fault::Nonsense("an effect or none"))
    }

    /// The number of an operation.
    pub fn operation(&self, name: &[u8]) -> Option<u8> {
        let found = self.spec.operations.iter().position(|operation| operation.name.as_bytes() == name);
        found.and_then(|place| u8::try_from(place).ok())
    }

    /// True if the operation never has an effect.
    pub fn is_read(&self, operation: u8) -> bool {
        self.spec.operations.get(usize::from(operation)).is_some_and(|operation| operation.reads)
    }

    /// The number of an operation's lock mode, if it has one.
    pub fn mode(&self, operation: u8) -> Option<u8> {
        self.spec.operations.get(usize::from(operation))?.mode
    }

    /// Arguments of an operation from their text, in their binary form.
    ///
    /// # Errors
    /// They are too few, too many, or of the wrong kind: what the operation takes.
    pub fn arguments(&self, operation: u8, given: &[&[u8]]) -> Result<Vec<u8>, String> {
        let Some(spec) = self.spec.operations.get(usize::from(operation)) else {
            return Err("there is no such operation".to_string());
        };
        let takes = || {
            let names: Vec<&str> = spec.arguments.iter().map(|argument| argument.name.as_str()).collect();
            match names.as_slice() {
                [] => format!("'{}' takes no arguments", spec.name),
                names => format!("'{}' takes {}: {}", spec.name, names.len(), names.join(", ")),
            }
        };
        if given.len() != spec.arguments.len() {
            return Err(takes());
        }
        let argument = |(spec, given): (&crate::abi::ArgumentSpec, &&[u8])| match spec.kind {
            Kind::Bytes => Ok(Argument::Bytes(given.to_vec())),
            Kind::Integer => {
                let parsed = core::str::from_utf8(given).ok().and_then(|text| text.parse().ok());
                parsed
                    .map(Argument::Integer)
                    .ok_or_else(|| format!("'{}' is an integer; {}", spec.name, takes()))
            }
        };
        let arguments = spec.arguments.iter().zip(given).map(argument).collect::<Result<Vec<_>, _>>()?;
        let mut bytes = Vec::new();
        arguments.encode(&mut bytes);
        Ok(bytes)
    }
}

fn executed(answer: &[u8]) -> Result<Executed, Fault> {
    if answer.len() > MAX_ANSWER_BYTES {
        return Err(Fault::TooLarge("reply and effect", MAX_ANSWER_BYTES));
    }
    let mut input = Input::new(answer);
    let executed = Reply::decode(&mut input)
        .and_then(|reply| Some(Executed { reply, effect: optional_bytes(&mut input)? }))
        .filter(|_| input.is_empty());
    let executed = executed.ok_or(Fault::Nonsense("a reply and perhaps an effect"))?;
    let refused = matches!(executed.reply, Reply::Error(_));
    if refused && executed.effect.is_some() {
        return Err(Fault::Nonsense("a refusal without an effect"));
    }
    Ok(executed)
}

fn optional_bytes(input: &mut Input<'_>) -> Option<Option<Vec<u8>>> {
    if bool::decode(input)? { input.bytes().map(|bytes| Some(bytes.to_vec())) } else { Some(None) }
}

fn yes_or_no(answer: &[u8]) -> Result<bool, Fault> {
    match answer {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Fault::Nonsense("yes or no")),
    }
}

fn check_spec(spec: &Spec) -> Result<(), String> {
    if !(1..=MAX_OPERATIONS).contains(&spec.operations.len()) {
        return Err(format!("a type has 1 to {MAX_OPERATIONS} operations, not {}", spec.operations.len()));
    }
    for (place, operation) in spec.operations.iter().enumerate() {
        let name = &operation.name;
        if !is_name(name.as_bytes()) || operation.arguments.iter().any(|it| !is_name(it.name.as_bytes())) {
            return Err(format!(
                "operation {place}: names are lower-case letters, digits and '_-.@', 32 at most"
            ));
        }
        if spec.operations[..place].iter().any(|other| other.name == *name) {
            return Err(format!("two operations are called '{name}'"));
        }
        if operation.arguments.len() > MAX_ARGUMENTS {
            return Err(format!("operation '{name}' has more than {MAX_ARGUMENTS} arguments"));
        }
        let fits = |argument: &crate::abi::ArgumentSpec| {
            argument
                .examples
                .iter()
                .all(|it| matches!(it, Argument::Integer(_)) == (argument.kind == Kind::Integer))
        };
        if !operation.arguments.iter().all(fits) {
            return Err(format!("operation '{name}': an example is of another kind than its argument"));
        }
        if operation.mode.is_some_and(|mode| usize::from(mode) >= spec.modes.len()) {
            return Err(format!("operation '{name}' is in a lock mode that the type does not have"));
        }
    }
    check_modes(spec)
}

fn check_modes(spec: &Spec) -> Result<(), String> {
    let modes = &spec.modes;
    if modes.len() > MAX_MODES {
        return Err(format!("a type has {MAX_MODES} lock modes at most, not {}", modes.len()));
    }
    for (place, mode) in modes.iter().enumerate() {
        if !is_name(mode.name.as_bytes()) {
            return Err(format!(
                "lock mode {place}: names are lower-case letters, digits and '_-.@', 32 at most"
            ));
        }
        if modes[..place].iter().any(|other| other.name == mode.name) {
            return Err(format!("two lock modes are called '{}'", mode.name));
        }
        if u32::from(mode.compatible_with) >> modes.len() != 0 {
            return Err(format!("lock mode '{}' is held beside one that the type does not have", mode.name));
        }
        let one_sided = |other: &usize| {
            spec.are_compatible(place as u8, *other as u8) != spec.are_compatible(*other as u8, place as u8)
        };
        if let Some(other) = (0..place).find(one_sided) {
            let (one, other) = (&mode.name, &modes[other].name);
            return Err(format!("of lock modes '{one}' and '{other}' only one may be held beside the other"));
        }
    }
    Ok(())
}
