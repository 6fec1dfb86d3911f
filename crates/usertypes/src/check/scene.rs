//! One scene: built, judged, made smaller.

use super::draw::{Draw, Drawn};
use super::{Tried, Unfit, show};
use crate::abi::Reply;
use crate::codec::Codec;
use crate::{Executed, Fault, Limits, Module};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How many operations build a state.
const BUILDING: usize = 6;

/// A state and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Each performed on what those before it left, from an absent key.
    pub(crate) before: Vec<Drawn>,
    pub(crate) steps: Vec<Step>,
}

/// One of the things that may commute.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operation: Drawn,
    /// Where the effect was chosen, for one that comes blindly; `None` for one that is evaluated in the scene.
    pub(crate) elsewhere: Option<Vec<Drawn>>,
    /// The specification gets the reply.
    pub(crate) narrowed: bool,
}

/// What judging a scene came to.
pub(crate) enum Verdict {
    /// All orders gave the same.
    Commuted,
    /// The specification says that they do not commute.
    Conflicting,
    /// It says something that is not so.
    Refuted(Refutation),
}

/// What a type says, and how that is not so.
#[derive(Debug, Default)]
pub(crate) struct Refutation {
    pub(crate) claim: &'static str,
    pub(crate) how: String,
}

const COMMUTE: &str = "it says that these commute, and they do not";

impl Scene {
    /// Steps of these operations.
    pub(crate) fn draw(draw: &mut Draw<'_>, steps: usize, operations: &[u8]) -> Self {
        let before = draw.operations(BUILDING);
        let step = |_| Step {
            operation: draw.one_of(operations),
            elsewhere: (draw.below(3) == 0).then(|| draw.operations(BUILDING)),
            narrowed: draw.below(2) == 0,
        };
        Scene { before, steps: (0..steps).map(step).collect() }
    }

    /// Two calls of one operation, both seen.
    pub(crate) fn draw_again(draw: &mut Draw<'_>) -> Self {
        let before = draw.operations(BUILDING);
        let first = draw.operation();
        let second = draw.call(first.operation);
        let step = |operation| Step { operation, elsewhere: None, narrowed: true };
        Scene { before, steps: [first, second].map(step).into() }
    }

    /// This scene with one thing left out, in every way.
    pub(crate) fn smaller(&self) -> Vec<Scene> {
        let mut all = Vec::new();
        for place in 0..self.before.len() {
            let mut smaller = self.clone();
            smaller.before.remove(place);
            all.push(smaller);
        }
        for place in 0..self.steps.len() {
            if self.steps.len() > 2 {
                let mut smaller = self.clone();
                smaller.steps.remove(place);
                all.push(smaller);
            }
            for built in 0..self.steps[place].elsewhere.as_ref().map_or(0, Vec::len) {
                let mut smaller = self.clone();
                if let Some(elsewhere) = &mut smaller.steps[place].elsewhere {
                    elsewhere.remove(built);
                }
                all.push(smaller);
            }
        }
        all
    }
}

/// A step that was evaluated.
pub(super) struct Taken<'s> {
    pub(super) step: &'s Step,
    pub(super) arguments: Vec<u8>,
    /// What it showed; `None` if nobody saw it.
    pub(super) seen: Option<Executed>,
    pub(super) effect: Option<Vec<u8>>,
}

/// The module under check. Its calls have names, for messages.
pub(super) struct Subject<'m> {
    pub(super) module: &'m Module,
    pub(super) tried: &'m mut Tried,
}

impl Subject<'_> {
    pub(super) fn fault(
        &self,
        what: &str,
        operation: Option<&Drawn>,
    ) -> impl FnOnce(Fault) -> Unfit + use<'_> {
        let of = operation.map_or(String::new(), |operation| show::call(self.module, operation));
        let what = format!("{what} {of}");
        move |fault| Unfit::Fault { what: what.trim_end().into(), fault }
    }

    pub(super) fn execute(&mut self, state: &[u8], operation: &Drawn) -> Result<Executed, Unfit> {
        let mut arguments = Vec::new();
        operation.arguments.encode(&mut arguments);
        let executed = self.module.execute(state, operation.operation, &arguments);
        let executed = executed.map_err(self.fault("evaluating", Some(operation)))?;
        if self.module.is_read(operation.operation) && executed.effect.is_some() {
            let text =
                format!("{} has an effect, although it is said to read", show::call(self.module, operation));
            return Err(Unfit::Wrong(text));
        }
        let accepted = !matches!(executed.reply, Reply::Error(_));
        self.tried.note(operation.operation, accepted, executed.effect.is_some());
        Ok(executed)
    }

    pub(super) fn apply(&self, state: &[u8], effect: Option<&Vec<u8>>, of: &Drawn) -> Result<Vec<u8>, Unfit> {
        let Some(effect) = effect else { return Ok(state.to_vec()) };
        self.module
            .apply(state, effect, Limits::CALL)
            .map_err(self.fault("performing the effect of", Some(of)))
    }

    fn build(&mut self, operations: &[Drawn]) -> Result<Vec<u8>, Unfit> {
        let mut state = Vec::new();
        for operation in operations {
            let executed = self.execute(&state, operation)?;
            state = self.apply(&state, executed.effect.as_ref(), operation)?;
        }
        Ok(state)
    }

    fn take<'s>(&mut self, state: &[u8], step: &'s Step) -> Result<Taken<'s>, Unfit> {
        let mut arguments = Vec::new();
        step.operation.arguments.encode(&mut arguments);
        let (seen, effect) = match &step.elsewhere {
            None => {
                let seen = self.execute(state, &step.operation)?;
                let effect = seen.effect.clone();
                (Some(seen), effect)
            }
            Some(elsewhere) => {
                let elsewhere = self.build(elsewhere)?;
                (None, self.execute(&elsewhere, &step.operation)?.effect)
            }
        };
        let blind = self.module.blind(step.operation.operation, &arguments);
        let blind = blind.map_err(self.fault("the blind effect of", Some(&step.operation)))?;
        // What BLIND commits does what the operation does unless it is refused.
        if let (Some(blind), Some(seen)) = (&blind, &seen)
            && !matches!(seen.reply, Reply::Error(_))
            && self.apply(state, Some(blind), &step.operation)?
                != self.apply(state, seen.effect.as_ref(), &step.operation)?
        {
            let call = show::call(self.module, &step.operation);
            return Err(Unfit::Wrong(format!(
                "the blind effect of {call} does something else than its effect"
            )));
        }
        Ok(Taken { step, arguments, seen, effect })
    }

    /// Does the specification say that these two commute?
    fn commute(&self, a: &Taken<'_>, b: &Taken<'_>) -> Result<bool, Unfit> {
        let is_unchanged =
            |seer: &Taken<'_>, other: &Taken<'_>| self.unchanged(seer, other, seer.step.narrowed);
        Ok(self.effects_commute(a, b)? && is_unchanged(a, b)? && is_unchanged(b, a)?)
    }

    /// The same of what they do alone.
    pub(super) fn effects_commute(&self, a: &Taken<'_>, b: &Taken<'_>) -> Result<bool, Unfit> {
        let effects = |x: &Taken<'_>, y: &Taken<'_>| match (&x.effect, &y.effect) {
            (Some(of_x), Some(of_y)) => self
                .module
                .commute(of_x, of_y)
                .map_err(self.fault("whether it commutes:", Some(&x.step.operation))),
            _ => Ok(true),
        };
        let (one, other) = (effects(a, b)?, effects(b, a)?);
        if one != other {
            let [a, b] = [a, b].map(|taken| show::call(self.module, &taken.step.operation));
            return Err(Unfit::Wrong(format!(
                "the effects of {a} and {b} commute in one order of asking only"
            )));
        }
        Ok(one)
    }

    /// Does the specification say that the other does not change what one has seen? The specification may get the
    /// reply.
    pub(super) fn unchanged(
        &self,
        seer: &Taken<'_>,
        other: &Taken<'_>,
        narrowed: bool,
    ) -> Result<bool, Unfit> {
        let (Some(seen), Some(effect)) = (&seer.seen, &other.effect) else { return Ok(true) };
        let mut reply = Vec::new();
        seen.reply.encode(&mut reply);
        let operation = &seer.step.operation;
        let ask = |reply: Option<&[u8]>| {
            let unchanged = self.module.unchanged(operation.operation, &seer.arguments, reply, effect);
            unchanged.map_err(self.fault("whether it changes what is seen by", Some(operation)))
        };
        ask(narrowed.then_some(reply.as_slice()))
    }
}

/// Plays a scene.
pub(crate) fn judge(module: &Module, scene: &Scene, tried: &mut Tried) -> Result<Verdict, Unfit> {
    let mut subject = Subject { module, tried };
    let state = subject.build(&scene.before)?;
    let taken: Vec<Taken<'_>> =
        scene.steps.iter().map(|step| subject.take(&state, step)).collect::<Result<_, _>>()?;
    if let Some(how) = subject.combined(&state, &taken)? {
        return Ok(Verdict::Refuted(how));
    }
    let mut conflicting = false;
    for (b, other) in taken.iter().enumerate() {
        for (a, one) in taken[..b].iter().enumerate() {
            if subject.are_compatible(one, other) {
                if let Some(how) = subject.held_together((a, one), (b, other))? {
                    return Ok(Verdict::Refuted(how));
                }
            } else {
                conflicting |= !subject.commute(one, other)?;
            }
        }
    }
    if conflicting {
        return Ok(Verdict::Conflicting);
    }
    play_all(&mut subject, &state, &taken)
}

/// Plays every order of steps that are said to commute.
fn play_all(subject: &mut Subject<'_>, state: &[u8], taken: &[Taken<'_>]) -> Result<Verdict, Unfit> {
    let refuted = |how| Ok(Verdict::Refuted(Refutation { claim: COMMUTE, how }));
    let mut first: Option<(Vec<usize>, Vec<u8>)> = None;
    for order in orders(taken.len()) {
        let after = match play(subject, state, taken, &order)? {
            Ok(after) => after,
            Err(how) => return refuted(how),
        };
        match &first {
            None => first = Some((order, after)),
            Some((_, expected)) if *expected == after => {}
            Some((other, expected)) => {
                return refuted(show::different(subject.module, (other, expected), (&order, &after)));
            }
        }
    }
    Ok(Verdict::Commuted)
}

/// The state after an order, or how it differs from what each step saw.
fn play(
    subject: &mut Subject<'_>,
    state: &[u8],
    taken: &[Taken<'_>],
    order: &[usize],
) -> Result<Result<Vec<u8>, String>, Unfit> {
    let mut state = state.to_vec();
    for &place in order {
        let Taken { step, seen, effect, .. } = &taken[place];
        let after = subject.apply(&state, effect.as_ref(), &step.operation)?;
        if let Some(seen) = seen {
            let now = subject.execute(&state, &step.operation)?;
            if now.reply != seen.reply {
                return Ok(Err(show::reply(order, place, &seen.reply, &now.reply)));
            }
            if subject.apply(&state, now.effect.as_ref(), &step.operation)? != after {
                return Ok(Err(show::effect(order, place)));
            }
        }
        state = after;
    }
    Ok(Ok(state))
}

/// Every order of so many steps.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = alloc::vec![Vec::new()];
    for place in 0..count {
        let longer = |order: &Vec<usize>| {
            (0..=order.len())
                .map(|at| {
                    let mut longer = order.clone();
                    longer.insert(order.len() - at, place);
                    longer
                })
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
