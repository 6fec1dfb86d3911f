//! What a module may not do, what is found wrong with one, and that the example is the same in both of its forms.

mod assemble;
mod modes;

use super::{MAX_MODULE_BYTES, load};
use assemble::{ENDLESS, GROWING, NESTING, hostile, plain};
use auction::Auction;
use usertypes::check::{Unfit, check, check_until};
use usertypes::{Answer, Argument, Call, Codec, Fault, Kind, Limits, Module, Operation, Reply, UserType};

const AUCTION: &[u8] = include_bytes!("../../../../../examples/auction/auction.wasm");
/// The same as it was when types had no lock modes.
const AUCTION_OF_VERSION_1: &[u8] = include_bytes!("auction-1.wasm");

fn refusal(bytes: &[u8]) -> String {
    load(bytes).expect_err("it is refused").to_string()
}

#[test]
fn the_auction_passes_the_check_in_both_forms_alike() {
    let module = load(AUCTION).expect("the example");
    let report = check(&module).expect("its specification is right");
    assert!(report.commuting > 100, "{report:?}");
    assert_eq!(report, check(&Module::native::<Auction>()).expect("its specification is right"));
}

#[test]
fn a_module_of_the_first_version_is_what_it_was() {
    let module = load(AUCTION_OF_VERSION_1).expect("its description is understood");
    assert!(module.spec().modes.is_empty() && !module.spec().combines);
    assert_eq!(module.mode(0), None);
    let mut arguments = Vec::new();
    vec![Argument::Bytes(b"ann".into()), Argument::Integer(3)].encode(&mut arguments);
    let mut reply = Vec::new();
    Reply::Ok.encode(&mut reply);
    assert_eq!(module.combine((0, &arguments), &reply, (0, &arguments)), Ok(None), "it is not even asked");
    let report = check(&module).expect("its specification is right");
    assert!((report.scenes, report.commuting > 100) == (600, true), "{report:?}");
}

#[test]
fn a_check_that_takes_too_long_is_given_up() {
    let left = std::cell::Cell::new(7);
    let give_up = || left.replace(left.get() - 1) == 0;
    let unfit = check_until(&Module::native::<Auction>(), &give_up).expect_err("nobody waits so long");
    assert_eq!(unfit, Unfit::TooSlow { scenes: 7 });
}

/// Numbers from a seed (Marsaglia: xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn call(&mut self) -> (u8, Vec<u8>) {
        let operation = self.below(5) as u8;
        let mut arguments = Vec::new();
        if operation == 0 {
            arguments.push(Argument::Bytes(vec![b'a' + self.below(3) as u8; self.below(4)]));
            arguments.push(Argument::Integer(self.below(9) as i64 - 1));
        }
        let mut bytes = Vec::new();
        arguments.encode(&mut bytes);
        (operation, bytes)
    }
}

#[test]
fn the_module_and_the_source_it_was_built_from_answer_alike() {
    let (module, native) = (load(AUCTION).expect("the example"), Module::native::<Auction>());
    assert_eq!(module.spec(), native.spec());
    let mut draw = Draw(7);
    for _ in 0..300 {
        let (mut state, mut effects) = (Vec::new(), Vec::<Vec<u8>>::new());
        for _ in 0..8 {
            let (operation, arguments) = draw.call();
            let executed = module.execute(&state, operation, &arguments).expect("it ends");
            assert_eq!(Ok(&executed), native.execute(&state, operation, &arguments).as_ref());
            assert_eq!(module.blind(operation, &arguments), native.blind(operation, &arguments));
            let mut reply = Vec::new();
            executed.reply.encode(&mut reply);
            let (of_second, second) = draw.call();
            let combine = |it: &Module| it.combine((operation, &arguments), &reply, (of_second, &second));
            assert_eq!(combine(&module), combine(&native));
            for effect in &effects {
                for reply in [None, Some(reply.as_slice())] {
                    let unchanged = |it: &Module| it.unchanged(operation, &arguments, reply, effect);
                    assert_eq!(unchanged(&module), unchanged(&native));
                }
            }
            let Some(effect) = executed.effect else { continue };
            for other in &effects {
                assert_eq!(module.commute(&effect, other), native.commute(&effect, other));
            }
            let after = module.apply(&state, &effect, Limits::CALL).expect("it ends");
            assert_eq!(Ok(&after), native.apply(&state, &effect, Limits::CALL).as_ref());
            state = after;
            effects.push(effect);
        }
    }
}

/// An auction that keeps who bid last among equal bids, so that they do not commute, whatever it says.
struct LastOfEquals;

impl UserType for LastOfEquals {
    type State = (i64, Vec<u8>);
    type Effect = (i64, Vec<u8>);
    const OPERATIONS: &'static [Operation] = &[
        Operation::writes("bid", &[("bidder", Kind::Bytes, &[]), ("amount", Kind::Integer, &[])]),
        Operation::reads("leader", &[]),
    ];

    fn execute(state: &Self::State, call: &Call<'_>) -> Answer<Self::Effect> {
        match call.arguments {
            [Argument::Bytes(bidder), Argument::Integer(amount)] => {
                Answer::with(Reply::Ok, (*amount, bidder.clone()))
            }
            _ => Answer::only(Reply::Bytes(state.1.clone())),
        }
    }

    fn apply(state: &mut Self::State, effect: &Self::Effect) {
        if effect.0 >= state.0 {
            state.clone_from(effect);
        }
    }

    fn commute(_: &Self::Effect, _: &Self::Effect) -> bool {
        true
    }

    fn unchanged(call: &Call<'_>, _: Option<&Reply>, _: &Self::Effect) -> bool {
        call.operation == "bid"
    }
}

#[test]
fn a_specification_that_is_wrong_is_refuted_by_the_smallest_scene() {
    let wrong = check(&Module::native::<LastOfEquals>()).expect_err("equal bids do not commute");
    let text = wrong.to_string();
    assert!(text.starts_with("it says that these commute, and they do not: A = bid("), "{text}");
    assert!(
        text.contains("on the state after nothing: then leader() is"),
        "nothing before is needed: {text}"
    );
    assert!(!text.contains("C = ") && !text.contains('\n'), "two steps, one line: {text}");
}

/// A stock that lets three buyers each take a third more than there is: pairs fit, triples do not (Corrections 66).
struct PairsOnly;

impl UserType for PairsOnly {
    type State = i64;
    type Effect = i64;
    const OPERATIONS: &'static [Operation] = &[Operation::writes("join", &[]), Operation::reads("full", &[])];

    fn execute(state: &i64, call: &Call<'_>) -> Answer<i64> {
        match call.operation {
            "join" if *state == 0 => Answer::with(Reply::Ok, 1),
            "join" => Answer::refused("somebody is there"),
            _ => Answer::only(Reply::Integer(*state)),
        }
    }

    /// The third effect is lost, whichever it is; so are those who stand in line.
    fn apply(state: &mut i64, effect: &i64) {
        *state = (*state * 3 + effect).min(13) % 13;
    }

    fn commute(_: &i64, _: &i64) -> bool {
        true
    }

    fn unchanged(call: &Call<'_>, _: Option<&Reply>, _: &i64) -> bool {
        call.operation == "join"
    }
}

#[test]
fn what_was_seen_counts() {
    // Equal effects commute in every number; but the second to join is refused after the first.
    let text = check(&Module::native::<PairsOnly>()).expect_err("a reply changes").to_string();
    assert!(text.contains("replies OK, but the error \"somebody is there\" in the order"), "{text}");
}

/// Never accepts what the check tries.
struct Secret;

impl UserType for Secret {
    type State = i64;
    type Effect = i64;
    const OPERATIONS: &'static [Operation] = &[Operation::writes("open", &[("word", Kind::Bytes, &[])])];

    fn execute(_: &i64, call: &Call<'_>) -> Answer<i64> {
        match call.arguments {
            [Argument::Bytes(word)] if word == b"sesame" => Answer::with(Reply::Ok, 1),
            _ => Answer::refused("no"),
        }
    }

    fn apply(_: &mut i64, _: &i64) {}

    fn commute(_: &i64, _: &i64) -> bool {
        true
    }

    fn unchanged(_: &Call<'_>, _: Option<&Reply>, _: &i64) -> bool {
        true
    }
}

#[test]
fn an_operation_of_which_nothing_is_known_is_refused() {
    let unfit = check(&Module::native::<Secret>()).expect_err("nothing is known of it");
    assert_eq!(unfit, Unfit::Untried { operation: "open".to_owned(), without_effect: false });
}

#[test]
fn a_module_that_could_do_more_than_answer_is_refused() {
    assert!(refusal(b"no module").starts_with("this is no WebAssembly module that runs here"));
    assert!(refusal(&AUCTION[..AUCTION.len() / 2]).starts_with("this is no WebAssembly module"));
    let importing = plain().importing("env", "clock").bytes();
    assert_eq!(refusal(&importing), "the module imports env.clock; a type may import nothing");
    let floating = plain().calling(&[0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 0x42, 0]).bytes();
    assert!(refusal(&floating).contains("floating-point"), "{}", refusal(&floating));
    let starting = plain().starting().bytes();
    assert!(refusal(&starting).contains("disallows start functions"), "{}", refusal(&starting));
    assert!(refusal(&plain().without_exports().bytes()).contains("does not export what a type has"));
    assert!(refusal(&vec![0; MAX_MODULE_BYTES + 1]).contains("524288 is the most"));
    assert!(refusal(&plain().bytes()).contains("description makes no sense"));
}

fn fault_of(otherwise: &[u8]) -> Fault {
    let module = load(&hostile(otherwise)).expect("it describes itself");
    let fault = module.execute(&[], 0, &[0; 4]).expect_err("it does not end well");
    match check(&module).expect_err("it is found out") {
        Unfit::Fault { what, fault: found } => {
            assert_eq!((what.as_str(), &found), ("evaluating go()", &fault))
        }
        other => panic!("{other}"),
    }
    fault
}

#[test]
fn a_call_that_does_not_end_or_asks_for_too_much_comes_to_nothing() {
    assert_eq!(fault_of(ENDLESS), Fault::Fuel(Limits::CALL.fuel));
    assert_eq!(fault_of(GROWING), Fault::Memory(Limits::CALL.memory));
    assert!(matches!(fault_of(NESTING), Fault::Trap(_)), "{:?}", fault_of(NESTING));
    // An answer outside of its memory; one that is none.
    assert!(matches!(fault_of(&[0x42, 0x7f]), Fault::Trap(_)));
    assert_eq!(fault_of(&[0x42, 0]), Fault::Nonsense("a reply and perhaps an effect"));
}
