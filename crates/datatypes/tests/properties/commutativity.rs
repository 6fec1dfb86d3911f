//! Whenever the rule says that invocations commute, every order gives the same results and equal states
//! (Corrections 60 and 66).

use crate::properties::runner::config;
use crate::properties::strategies::{
    auction, cell_of, effect, effect_of, kinds, operation, operation_of, scene,
};
use crate::properties::{evaluate, for_all};
use datatypes::{
    Cell, Effect, Invocation, Kind, Mode, Modes, Operation, apply, commutes, scored_set, top, user,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell as Counter;
use types::{Reader, Wire};

/// The rule under test.
type Rule = fn(&Invocation<'_>, &Invocation<'_>, Option<&Cell>) -> bool;

/// Something that happens to a key: an operation whose result is seen, or an effect that nobody observes.
#[derive(Clone, Debug)]
enum Step {
    Observed(Operation<'static>),
    Blind(Effect<'static>),
}

fn step_of(kind: Kind) -> BoxedStrategy<Step> {
    prop_oneof![operation_of(kind).prop_map(Step::Observed), effect_of(kind).prop_map(Step::Blind)].boxed()
}

fn any_step() -> BoxedStrategy<Step> {
    prop_oneof![operation().prop_map(Step::Observed), effect().prop_map(Step::Blind)].boxed()
}

fn scenes(count: usize) -> impl Strategy<Value = (Cell, Vec<Step>)> {
    scene(step_of, any_step, count)
}

impl Step {
    fn invocation(&self, cell: &Cell) -> Invocation<'static> {
        match self {
            Step::Observed(operation) => {
                let (reply, effect) = evaluate(cell, operation);
                match operation.narrowed(&reply) {
                    Some(narrowed) => known(&narrowed, effect),
                    None => Invocation::observed(operation, effect),
                }
            }
            Step::Blind(effect) => Invocation::blind(effect.clone()),
        }
    }
}

/// An invocation that observed what a narrowed operation does, in data of its own.
fn known(operation: &Operation<'_>, effect: Option<Effect<'static>>) -> Invocation<'static> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    let bytes: &'static [u8] = bytes.leak();
    let operation = Operation::decode(&mut Reader::new(bytes)).expect("it was encoded here");
    Invocation::observed(&operation, effect)
}

fn applied(cell: &Cell, effect: &Option<Effect<'_>>) -> Cell {
    let mut after = cell.clone();
    if let Some(effect) = effect {
        apply::<false>(&mut after, effect);
    }
    after
}

/// Executes steps that were all evaluated on `cell` in an order: each one's result must be what it was there,
/// and the effect it would choose now must do what the chosen one does.
fn execute(cell: &Cell, steps: &[Step], order: &[usize]) -> Result<Cell, TestCaseError> {
    let mut state = cell.clone();
    for step in order.iter().map(|&place| &steps[place]) {
        let chosen = step.invocation(cell).effect;
        let after = applied(&state, &chosen);
        if let Step::Observed(operation) = step {
            let (reply, effect) = evaluate(&state, operation);
            prop_assert_eq!(
                &reply,
                &evaluate(cell, operation).0,
                "result of {:?} in order {:?}",
                operation,
                order
            );
            prop_assert_eq!(
                &applied(&state, &effect),
                &after,
                "effect of {:?} in order {:?}",
                operation,
                order
            );
        }
        state = after;
    }
    Ok(state)
}

/// If all steps commute pairwise: every order gives the results and the state of the first. True if they do.
fn check_orders(
    rule: Rule,
    cell: &Cell,
    known: bool,
    steps: &[Step],
    orders: &[&[usize]],
) -> Result<bool, TestCaseError> {
    let invocations: Vec<_> = steps.iter().map(|step| step.invocation(cell)).collect();
    let known = known.then_some(cell);
    for (place, a) in invocations.iter().enumerate() {
        for b in &invocations[place + 1..] {
            prop_assert_eq!(rule(a, b, known), rule(b, a, known), "the rule is symmetric");
            if !rule(a, b, known) {
                return Ok(false);
            }
        }
    }
    let first = execute(cell, steps, orders[0])?;
    for order in &orders[1..] {
        prop_assert_eq!(&execute(cell, steps, order)?, &first, "state after order {:?}", order);
    }
    Ok(true)
}

const PAIR: [&[usize]; 2] = [&[0, 1], &[1, 0]];
const TRIPLE: [&[usize]; 6] = [&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]];

/// Checks the rule on many scenes and returns how many of them commuted.
fn count_commuting(cases: u32, count: usize, orders: &[&[usize]]) -> u32 {
    let commuting = Counter::new(0);
    for_all(cases, (scenes(count), any::<bool>()), |((cell, steps), known)| {
        commuting.set(commuting.get() + u32::from(check_orders(commutes, &cell, known, &steps, orders)?));
        Ok(())
    });
    commuting.get()
}

#[test]
fn commuting_pairs_give_equal_results_and_states_in_both_orders() {
    assert!(count_commuting(3000, 2, &PAIR) > 500, "the test must meet commuting pairs");
}

#[test]
fn commuting_triples_give_equal_results_and_states_in_all_orders() {
    assert!(count_commuting(3000, 3, &TRIPLE) > 150, "the test must meet commuting triples");
}

/// A read of the order down to a member need not have seen that it is there.
#[test]
fn an_addition_is_seen_by_whoever_saw_the_order_down_to_it() {
    let add = |member| {
        let items = scored_set::ScoredItems::one(1.0, member);
        Invocation::blind(Effect::Top(top::Effect::Add { items }))
    };
    let down_to = Operation::Top(top::Operation::DownTo { score: 1.0, member: b"m" });
    let down_to = Invocation::observed(&down_to, None);
    let commute = |member| commutes(&add(member), &down_to, None);
    assert_eq!([b"l", b"m", b"n"].map(|member| commute(member)), [true, false, false]);
}

#[test]
fn commuting_effects_do_so_in_states_where_they_were_not_chosen() {
    for kind in kinds() {
        let commuting = Counter::new(0);
        for_all(1000, (cell_of(kind), vec(effect_of(kind), 3)), |(cell, effects)| {
            let steps: Vec<_> = effects.into_iter().map(Step::Blind).collect();
            let pair = check_orders(commutes, &cell, false, &steps[..2], &PAIR)?;
            commuting.set(commuting.get() + u32::from(pair));
            check_orders(commutes, &cell, false, &steps, &TRIPLE)?;
            Ok(())
        });
        assert!(commuting.get() > 20, "the test must meet commuting pairs of {kind:?}");
    }
}

/// True when the checker finds a counterexample to a rule among scenes of one type: the first one ends the search, which is long
/// enough for those that one scene in hundreds is.
fn is_refuted(rule: Rule, kind: Kind) -> bool {
    let config = Config { max_shrink_iters: 0, ..config(30_000) };
    let check = |(cell, steps): (Cell, Vec<Step>)| check_orders(rule, &cell, false, &steps, &PAIR).map(drop);
    TestRunner::new(config).run(&(cell_of(kind), vec(step_of(kind), 2)), check).is_err()
}

fn any_two_puts(a: &Invocation<'_>, b: &Invocation<'_>, state: Option<&Cell>) -> bool {
    let is_put =
        |x: &Invocation<'_>| matches!(x.effect, Some(Effect::ScoredSet(scored_set::Effect::Put { .. })));
    let blind = a.observation.is_nothing() && b.observation.is_nothing();
    commutes(a, b, state) || (blind && is_put(a) && is_put(b))
}

fn nobody_observes(a: &Invocation<'_>, b: &Invocation<'_>, _state: Option<&Cell>) -> bool {
    match (&a.effect, &b.effect) {
        (Some(x), Some(y)) => x.commutes_with(y),
        _ => true,
    }
}

fn additions_and_removals(a: &Invocation<'_>, b: &Invocation<'_>, state: Option<&Cell>) -> bool {
    // As if no key had a deadline.
    commutes(a, b, Some(state.unwrap_or(&Cell::ABSENT)))
}

#[test]
fn a_wrong_rule_is_refuted() {
    assert!(
        is_refuted(any_two_puts, Kind::ScoredSet),
        "the same member with different scores (Corrections 60)"
    );
    assert!(is_refuted(additions_and_removals, Kind::Set), "a removal that drops the deadline first");
    for kind in [
        Kind::Dict,
        Kind::Set,
        Kind::ScoredSet,
        Kind::List,
        Kind::Counter,
        Kind::SummaryBag,
        Kind::Top,
        Kind::Stream,
        Kind::User(auction()),
    ] {
        assert!(
            is_refuted(nobody_observes, kind),
            "an effect that changes what the other observed: {kind:?}"
        );
    }
}

/// Holders of abstract locks judge by their modes alone.
fn compatible_modes(a: &Invocation<'_>, b: &Invocation<'_>, _state: Option<&Cell>) -> bool {
    match (a.mode(), b.mode()) {
        (Some(a), Some(b)) => a.compatible(b),
        _ => true,
    }
}

#[test]
fn invocations_in_compatible_modes_commute_jointly() {
    for kind in kinds() {
        let compatible = Counter::new([0; 2]);
        for_all(1500, (cell_of(kind), vec(step_of(kind), 3)), |(cell, steps)| {
            let pair = check_orders(compatible_modes, &cell, false, &steps[..2], &PAIR)?;
            let triple = check_orders(compatible_modes, &cell, false, &steps, &TRIPLE)?;
            let [pairs, triples] = compatible.get();
            compatible.set([pairs + u32::from(pair), triples + u32::from(triple)]);
            Ok(())
        });
        let [pairs, triples] = compatible.get();
        assert!(pairs > 60 && triples > 10, "the test must meet compatible {kind:?}: {pairs}, {triples}");
    }
}

#[test]
fn the_mode_before_an_evaluation_admits_no_more_than_what_it_comes_to() {
    for_all(2000, scene(operation_of, || operation().boxed(), 1), |(cell, operations)| {
        let (_, effect) = evaluate(&cell, &operations[0]);
        let came_to = Invocation::observed(&operations[0], effect).mode();
        let locked = operations[0].mode();
        let covered =
            |mode: Mode| modes().into_iter().all(|it| mode.compatible(it) || !locked.compatible(it));
        prop_assert!(came_to.is_none_or(covered) || locked == Mode::Write || came_to == Some(Mode::Observe));
        // One that reveals nothing is evaluated only for a deadline, and may come to anything.
        let hidden = !operations[0].is_read() && operations[0].observation().is_nothing();
        prop_assert!(!hidden || locked == Mode::Write);
        Ok(())
    });
}

/// Holders of a key's lock and of its elements' judge by these alone.
fn compatible_claims(a: &Invocation<'_>, b: &Invocation<'_>, _state: Option<&Cell>) -> bool {
    match (a.claim(), b.claim()) {
        (Some(a), Some(b)) => a.is_compatible(&b),
        _ => true,
    }
}

/// As if the key's lock were enough.
fn claims_without_elements(a: &Invocation<'_>, b: &Invocation<'_>, _state: Option<&Cell>) -> bool {
    match (a.claim(), b.claim()) {
        (Some(a), Some(b)) => a.mode.compatible(b.mode),
        _ => true,
    }
}

/// Checks steps that are three at a time: how many first pairs were compatible, and how many of those not by their modes.
fn check_claims(kind: Kind, steps: impl Strategy<Value = Step>) -> [u32; 2] {
    let met = Counter::new([0; 2]);
    for_all(1500, (cell_of(kind), vec(steps, 3)), |(cell, steps)| {
        let [a, b] = [0, 1].map(|place: usize| steps[place].invocation(&cell));
        let compatible = compatible_claims(&a, &b, None);
        prop_assert!(!compatible || commutes(&a, &b, None), "{:?} beside {:?}", a, b);
        check_orders(compatible_claims, &cell, false, &steps[..2], &PAIR)?;
        check_orders(compatible_claims, &cell, false, &steps, &TRIPLE)?;
        let placed = compatible && !compatible_modes(&a, &b, None);
        met.set([met.get()[0] + u32::from(compatible), met.get()[1] + u32::from(placed)]);
        Ok(())
    });
    met.get()
}

#[test]
fn invocations_with_compatible_locks_commute_jointly() {
    for kind in kinds() {
        let [pairs, _] = check_claims(kind, step_of(kind));
        assert!(pairs > 60, "the test must meet compatible {kind:?}: {pairs}");
    }
    for kind in [Kind::Dict, Kind::ScoredSet] {
        let [_, placed] = check_claims(kind, effect_of(kind).prop_map(Step::Blind));
        assert!(placed > 30, "the test must meet writes of different elements of a {kind:?}: {placed}");
        assert!(is_refuted(claims_without_elements, kind), "the same element of a {kind:?}");
    }
}

#[test]
fn blind_effects_of_any_types_with_compatible_locks_commute() {
    for_all(5000, (effect(), effect()), |(a, b)| {
        prop_assert!(!a.claim().is_compatible(&b.claim()) || a.commutes_with(&b), "{:?} beside {:?}", a, b);
        Ok(())
    });
}

#[test]
fn the_locks_before_an_evaluation_are_enough_for_what_it_comes_to() {
    for_all(2000, scene(operation_of, || operation().boxed(), 1), |(cell, operations)| {
        let (_, effect) = evaluate(&cell, &operations[0]);
        let locked = operations[0].claim();
        let came_to = Invocation::observed(&operations[0], effect).claim();
        // What it saw but did not change is the type, which no holder of the lock changes beside it.
        let enough = |came_to: &datatypes::Claim<'_>| locked.covers(came_to) || came_to.mode == Mode::Observe;
        prop_assert!(came_to.is_none_or(|came_to| enough(&came_to)), "{:?}", operations[0]);
        Ok(())
    });
}

/// Each pair of invocations of a type, as Claret's table 2 has them for sets: what it says when they were evaluated.
#[test]
fn a_narrowed_reply_is_unchanged_by_what_commutes_with_it() {
    let narrowed = Counter::new(0);
    for kind in [Kind::Counter, Kind::Top, Kind::User(auction())] {
        for_all(
            3000,
            (cell_of(kind), operation_of(kind), vec(effect_of(kind), 3)),
            |(cell, operation, effects)| {
                let (reply, _) = evaluate(&cell, &operation);
                let Some(observation) = operation.narrowed(&reply) else { return Ok(()) };
                let mut after = cell;
                for effect in effects.iter().filter(|effect| observation.observation().unchanged_by(effect)) {
                    apply::<false>(&mut after, effect);
                    narrowed.set(narrowed.get() + 1);
                    prop_assert_eq!(
                        &evaluate(&after, &operation).0,
                        &reply,
                        "{:?} after {:?}",
                        operation,
                        effect
                    );
                }
                Ok(())
            },
        );
    }
    assert!(narrowed.get() > 500, "the test must meet narrowed replies: {}", narrowed.get());
}

#[test]
fn effects_in_compatible_modes_commute() {
    for_all(3000, (effect(), effect()), |(a, b)| {
        prop_assert!(!a.mode().compatible(b.mode()) || a.commutes_with(&b));
        Ok(())
    });
    for a in modes() {
        for b in modes() {
            assert_eq!(a.compatible(b), b.compatible(a));
        }
    }
}

/// Every mode: those of the auction too.
fn modes() -> Vec<Mode> {
    let own = ["bid", "closed"].map(|name| {
        let arguments: &[&[u8]] = if name == "bid" { &[b"ann", b"1"] } else { &[] };
        let operation = user::Operation::new(auction(), name.as_bytes(), arguments);
        Mode::User(operation.expect("it has such an operation").mode().expect("it has a mode"))
    });
    assert_eq!(own.map(Mode::name), ["auction:bid", "auction:ask"]);
    Mode::BUILT_IN.into_iter().chain(own).collect()
}

#[test]
fn a_mode_that_covers_another_admits_no_more_and_a_set_admits_what_all_of_it_do() {
    let all = modes();
    for a in &all {
        for b in &all {
            let is_less = all.iter().all(|other| b.compatible(*other) || !a.compatible(*other));
            assert!(!a.covers(*b) || is_less, "{a:?} covers {b:?}");
            assert!(a.and(*b).covers(*a) && a.and(*b).covers(*b), "{a:?} and {b:?}");
            let both = Modes::default().with(*a).with(*b);
            for other in &all {
                assert_eq!(both.conflict(*other), !(a.compatible(*other) && b.compatible(*other)));
                assert_eq!(both.cover(*other), a.covers(*other) || b.covers(*other), "{both:?} {other:?}");
            }
        }
    }
}

#[test]
fn the_binary_forms_of_modes_give_them_back() {
    for mode in modes() {
        let mut bytes = Vec::new();
        mode.encode(&mut bytes);
        let mut input = Reader::new(&bytes);
        assert_eq!((Mode::decode(&mut input), input.is_empty()), (Ok(mode), true));
        bytes.pop();
        assert!(Mode::decode(&mut Reader::new(&bytes)).is_err(), "{mode:?} cut short");
    }
}

#[test]
fn a_blind_effect_does_what_the_operation_does_unless_it_is_refused() {
    let blind = Counter::new(0);
    for_all(2000, scene(operation_of, || operation().boxed(), 1), |(cell, operations)| {
        let Some(effect) = operations[0].blind_effect() else { return Ok(()) };
        blind.set(blind.get() + 1);
        let (reply, chosen) = evaluate(&cell, &operations[0]);
        if reply.as_error().is_none() {
            prop_assert_eq!(applied(&cell, &Some(effect)), applied(&cell, &chosen));
        }
        Ok(())
    });
    assert!(blind.get() > 250, "the test must meet blind effects");
}

#[test]
fn reads_have_no_effect() {
    for_all(2000, scene(operation_of, || operation().boxed(), 1), |(cell, operations)| {
        prop_assert!(!operations[0].is_read() || evaluate(&cell, &operations[0]).1.is_none());
        Ok(())
    });
}

#[test]
fn effects_create_and_remove_keys_only_where_they_say_so() {
    for_all(20_000, scene(effect_of, || effect().boxed(), 1), |(cell, effects)| {
        let (before, after) =
            (cell.value.is_some(), applied(&cell, &Some(effects[0].clone())).value.is_some());
        prop_assert!(before || !after || effects[0].may_create(), "{:?} created", effects[0]);
        prop_assert!(!before || after || effects[0].may_remove(), "{:?} removed", effects[0]);
        Ok(())
    });
}
