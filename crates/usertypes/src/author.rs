//! What an author implements.

use crate::abi::{Argument, ArgumentSpec, Entry, Kind, MAX_MODES, ModeSpec, OperationSpec, Reply, Spec};
use crate::codec::{Codec, Input, put_bytes};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A data type. See the crate's documentation for an example.
pub trait UserType {
    /// What a key holds. An absent key is the default.
    type State: Codec + Default;
    /// What an operation commits: all that `apply` needs to know.
    type Effect: Codec;

    /// Its operations.
    const OPERATIONS: &'static [Operation];

    /// Its lock modes, 8 at most, for keyspaces with locks: transactions run side by side whose operations are in modes
    /// that may be held together. Whatever two operations in such modes do has to commute, whatever their arguments are.
    const MODES: &'static [LockMode] = &[];

    /// True if [`UserType::combine`] may answer something.
    const COMBINES: bool = false;

    /// Evaluates an operation, which changes nothing yet: the reply, and the effect that is to be committed.
    fn execute(state: &Self::State, call: &Call<'_>) -> Answer<Self::Effect>;

    /// Performs an effect, perhaps on another state than the one it was chosen on: any that commuting effects have made of
    /// it. Never fails.
    fn apply(state: &mut Self::State, effect: &Self::Effect);

    /// True if both orders of the two effects leave equal states, whatever the state is, and whatever other effects,
    /// each of which commutes with both, come between. Symmetric.
    fn commute(a: &Self::Effect, b: &Self::Effect) -> bool;

    /// True if a call would give the same reply after the effect, and choose an effect that does the same, whatever the
    /// state is. With `reply` it is enough that this holds in the states where the call gives this reply.
    fn unchanged(call: &Call<'_>, reply: Option<&Reply>, effect: &Self::Effect) -> bool;

    /// The effect that a call has in every state that does not refuse it, if there is one: what `BLIND` commits
    /// without a look at the state.
    fn blind(_call: &Call<'_>) -> Option<Self::Effect> {
        None
    }

    /// What `next` comes to right after `held`, which gave `reply`, on whatever state that was; `None` where `reply`
    /// does not determine that. With it, transactions that request the same key at the same time share one lock and
    /// one commit. Called only for two operations that both read or both write, where `held` was not refused.
    fn combine(_held: &Call<'_>, _reply: &Reply, _next: &Call<'_>) -> Option<Answer<Self::Effect>> {
        None
    }
}

/// A lock mode, in a constant.
#[derive(Clone, Copy, Debug)]
pub struct LockMode {
    name: &'static str,
    compatible_with: &'static [&'static str],
}

impl LockMode {
    /// One that may be held beside these, one of which may be itself. It is enough if one of two names the other.
    pub const fn new(name: &'static str, compatible_with: &'static [&'static str]) -> Self {
        LockMode { name, compatible_with }
    }

    fn names(&self, other: &LockMode) -> bool {
        self.compatible_with.contains(&other.name)
    }
}

/// An operation as it is called, in a constant.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    name: &'static str,
    reads: bool,
    arguments: &'static [(&'static str, Kind, &'static [&'static str])],
    mode: Option<&'static str>,
}

impl Operation {
    /// One that may have an effect. Arguments have a name, a kind, and values that the check tries besides its own.
    pub const fn writes(
        name: &'static str,
        arguments: &'static [(&'static str, Kind, &'static [&'static str])],
    ) -> Self {
        Operation { name, reads: false, arguments, mode: None }
    }

    /// One that never has an effect.
    pub const fn reads(
        name: &'static str,
        arguments: &'static [(&'static str, Kind, &'static [&'static str])],
    ) -> Self {
        Operation { name, reads: true, arguments, mode: None }
    }

    /// The same, in a lock mode.
    pub const fn in_mode(self, mode: &'static str) -> Self {
        Operation { mode: Some(mode), ..self }
    }

    /// A mode that is not there gets a number that no mode has: the module is refused then.
    fn spec(&self, modes: &[LockMode]) -> OperationSpec {
        let argument = |(name, kind, examples): &(&str, Kind, &[&str])| ArgumentSpec {
            name: name.to_string(),
            kind: *kind,
            examples: examples.iter().filter_map(|text| example(*kind, text)).collect(),
        };
        let arguments = self.arguments.iter().map(argument).collect();
        let number = |name| modes.iter().position(|mode| mode.name == name).unwrap_or(modes.len());
        let mode = self.mode.map(|name| number(name).min(MAX_MODES) as u8);
        OperationSpec { name: String::from(self.name), reads: self.reads, arguments, mode }
    }
}

fn spec_of<T: UserType>() -> Spec {
    let compatible_with = |mode: &LockMode| {
        let others = T::MODES.iter().take(MAX_MODES).enumerate();
        let named = others.filter(|(_, other)| mode.names(other) || other.names(mode));
        named.fold(0, |bits, (number, _)| bits | 1 << number)
    };
    let modes = T::MODES
        .iter()
        .map(|mode| ModeSpec { name: mode.name.to_string(), compatible_with: compatible_with(mode) });
    Spec {
        operations: T::OPERATIONS.iter().map(|operation| operation.spec(T::MODES)).collect(),
        modes: modes.collect(),
        combines: T::COMBINES,
    }
}

fn example(kind: Kind, text: &str) -> Option<Argument> {
    match kind {
        Kind::Integer => text.parse().ok().map(Argument::Integer),
        Kind::Bytes => Some(Argument::Bytes(text.into())),
    }
}

/// An operation with its arguments, of the number and the kinds that it says.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operation's name.
    pub operation: &'a str,
    /// The arguments.
    pub arguments: &'a [Argument],
}

/// What evaluating an operation comes to.
#[derive(Clone, Debug)]
pub struct Answer<E> {
    /// What the caller sees.
    pub reply: Reply,
    /// What is to be committed. Nothing if the reply is an error.
    pub effect: Option<E>,
}

impl<E> Answer<E> {
    /// A reply and an effect.
    pub fn with(reply: Reply, effect: E) -> Self {
        Answer { reply, effect: Some(effect) }
    }

    /// A reply alone.
    pub fn only(reply: Reply) -> Self {
        Answer { reply, effect: None }
    }

    /// A refusal, with the reason.
    pub fn refused(reason: &str) -> Self {
        Answer::only(Reply::Error(reason.to_string()))
    }
}

/// Answers what a server asks of a type, from bytes to bytes; `None` if the question makes no sense.
pub fn serve<T: UserType>(entry: u32, input: &[u8]) -> Option<Vec<u8>> {
    let mut input = Input::new(input);
    let mut out = Vec::new();
    match Entry::of(entry)? {
        Entry::Describe => spec_of::<T>().encode(&mut out),
        Entry::Execute => {
            let state = state_of::<T>(&mut input)?;
            let (operation, arguments) = called::<T>(&mut input)?;
            put_answer::<T>(T::execute(&state, &Call { operation, arguments: &arguments }), &mut out);
        }
        Entry::Apply => {
            let mut state = state_of::<T>(&mut input)?;
            T::apply(&mut state, &effect_of::<T>(&mut input)?);
            state.encode(&mut out);
        }
        Entry::Commute => {
            let (a, b) = (effect_of::<T>(&mut input)?, effect_of::<T>(&mut input)?);
            T::commute(&a, &b).encode(&mut out);
        }
        Entry::Unchanged => {
            let (operation, arguments) = called::<T>(&mut input)?;
            let reply = Option::<Reply>::decode(&mut input)?;
            let effect = effect_of::<T>(&mut input)?;
            T::unchanged(&Call { operation, arguments: &arguments }, reply.as_ref(), &effect)
                .encode(&mut out);
        }
        Entry::Blind => {
            let (operation, arguments) = called::<T>(&mut input)?;
            put_effect::<T>(T::blind(&Call { operation, arguments: &arguments }), &mut out);
        }
        Entry::Combine => {
            let (held, of_held) = called::<T>(&mut input)?;
            let reply = Reply::decode(&mut input)?;
            let (next, of_next) = called::<T>(&mut input)?;
            let held = Call { operation: held, arguments: &of_held };
            let answer = T::combine(&held, &reply, &Call { operation: next, arguments: &of_next });
            answer.is_some().encode(&mut out);
            if let Some(answer) = answer {
                put_answer::<T>(answer, &mut out);
            }
        }
    }
    Some(out)
}

fn put_answer<T: UserType>(answer: Answer<T::Effect>, out: &mut Vec<u8>) {
    answer.reply.encode(out);
    put_effect::<T>(answer.effect, out);
}

fn state_of<T: UserType>(input: &mut Input<'_>) -> Option<T::State> {
    let bytes = input.bytes()?;
    if bytes.is_empty() { Some(T::State::default()) } else { T::State::decode(&mut Input::new(bytes)) }
}

fn effect_of<T: UserType>(input: &mut Input<'_>) -> Option<T::Effect> {
    T::Effect::decode(&mut Input::new(input.bytes()?))
}

fn called<T: UserType>(input: &mut Input<'_>) -> Option<(&'static str, Vec<Argument>)> {
    let operation = T::OPERATIONS.get(usize::from(u8::decode(input)?))?;
    Some((operation.name, Vec::decode(input)?))
}

fn put_effect<T: UserType>(effect: Option<T::Effect>, out: &mut Vec<u8>) {
    let bytes = effect.map(|effect| {
        let mut bytes = Vec::new();
        effect.encode(&mut bytes);
        bytes
    });
    bytes.is_some().encode(out);
    if let Some(bytes) = bytes {
        put_bytes(out, &bytes);
    }
}
