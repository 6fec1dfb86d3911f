//! Types whose lock modes or whose combining are wrong: all of them are mistakes on purpose in one that is right.

use usertypes::check::{Unfit, check};
use usertypes::{Answer, Argument, Call, Kind, LockMode, Module, Operation, Reply, UserType};

/// A tally with votes that commute, a reset that does not, and a question whether there was a reset.
struct Tally<const MISTAKE: u8>;

const NONE: u8 = 0;
/// Votes may be held beside resets.
const RESETS_WITH_VOTES: u8 = 1;
/// Who asks for the number of votes may be held beside votes.
const READS_WITH_VOTES: u8 = 2;
/// The second vote of two gets the first one's number.
const REPLIES_TOO_LITTLE: u8 = 3;
/// The second vote of two gets the right number, and has no effect.
const REPLIES_WITHOUT_EFFECT: u8 = 4;
/// Nothing ever combines.
const NEVER_COMBINES: u8 = 5;
/// An operation is in a mode that is not there.
const NO_SUCH_MODE: u8 = 6;

const fn mode_of(mistake: u8, operation: &'static str) -> &'static str {
    match (mistake, operation.as_bytes()) {
        (RESETS_WITH_VOTES, b"reset") | (READS_WITH_VOTES, b"votes") => "vote",
        (_, b"reset" | b"votes") => "alone",
        (NO_SUCH_MODE, b"vote") => "poll",
        _ => "vote",
    }
}

impl<const MISTAKE: u8> UserType for Tally<MISTAKE> {
    type State = (i64, bool);
    /// So many more votes; none for a reset.
    type Effect = i64;
    const OPERATIONS: &'static [Operation] = &[
        Operation::writes("vote", &[("times", Kind::Integer, &["1", "2"])]).in_mode(mode_of(MISTAKE, "vote")),
        Operation::writes("count", &[]),
        Operation::writes("reset", &[]).in_mode(mode_of(MISTAKE, "reset")),
        Operation::reads("votes", &[]).in_mode(mode_of(MISTAKE, "votes")),
        Operation::reads("fresh", &[]).in_mode("vote"),
    ];
    const MODES: &'static [LockMode] = &[LockMode::new("vote", &["vote"]), LockMode::new("alone", &[])];
    const COMBINES: bool = true;

    fn execute(state: &Self::State, call: &Call<'_>) -> Answer<i64> {
        match (call.operation, call.arguments) {
            ("vote", [Argument::Integer(times @ 1..=9)]) => Answer::with(Reply::Ok, *times),
            ("vote", _) => Answer::refused("1 to 9 votes"),
            ("count", _) => Answer::with(Reply::Integer(state.0 + 1), 1),
            ("reset", _) => Answer::with(Reply::Ok, 0),
            ("votes", _) => Answer::only(Reply::Integer(state.0)),
            _ => Answer::only(Reply::Integer(i64::from(!state.1))),
        }
    }

    fn apply(state: &mut Self::State, effect: &i64) {
        *state = if *effect == 0 { (0, true) } else { (state.0 + effect, state.1) };
    }

    fn commute(a: &i64, b: &i64) -> bool {
        (*a == 0) == (*b == 0)
    }

    fn unchanged(call: &Call<'_>, _: Option<&Reply>, effect: &i64) -> bool {
        matches!((call.operation, effect), ("vote" | "reset", _) | ("fresh", 1..))
    }

    fn combine(held: &Call<'_>, reply: &Reply, second: &Call<'_>) -> Option<Answer<i64>> {
        match (held.operation, reply, second.operation) {
            ("count", Reply::Integer(count), "count") => match MISTAKE {
                REPLIES_TOO_LITTLE => Some(Answer::with(Reply::Integer(*count), 1)),
                REPLIES_WITHOUT_EFFECT => Some(Answer::only(Reply::Integer(count + 1))),
                NEVER_COMBINES => None,
                _ => Some(Answer::with(Reply::Integer(count + 1), 1)),
            },
            _ => None,
        }
    }
}

fn found<const MISTAKE: u8>() -> String {
    match check(&Module::native::<Tally<MISTAKE>>()) {
        Ok(report) => panic!("mistake {MISTAKE} is not found: {report:?}"),
        Err(unfit) => unfit.to_string(),
    }
}

#[test]
fn without_a_mistake_it_is_accepted() {
    let report = check(&Module::native::<Tally<NONE>>()).expect("nothing is wrong with it");
    assert!(report.commuting > 150, "{report:?}");
}

#[test]
fn modes_that_let_conflicts_run_side_by_side_are_refused_with_an_example() {
    let text = found::<RESETS_WITH_VOTES>();
    let claim = "its lock modes may be held together, and it does not say that these commute: A = ";
    assert!(text.starts_with(claim) && text.contains("reset()"), "{text}");
    assert!(!text.contains('\n') && text.contains("on the state after nothing: "), "the smallest: {text}");
    assert!(text.ends_with("is false"), "{text}");
    let text = found::<READS_WITH_VOTES>();
    assert!(text.starts_with(claim) && text.contains("votes()"), "{text}");
    assert!(text.contains("unchanged of ") && text.ends_with("is false"), "{text}");
}

#[test]
fn combining_to_what_evaluation_does_not_come_to_is_refused_with_an_example() {
    let claim = "it says what one comes to right after another one, and it comes to something else: A = count(); B = count(); on \
                 the state after nothing: ";
    assert_eq!(found::<REPLIES_TOO_LITTLE>(), format!("{claim}B is told 1, but replies 2"));
    assert_eq!(
        found::<REPLIES_WITHOUT_EFFECT>(),
        format!("{claim}the effect that B is told does something else")
    );
    let never = check(&Module::native::<Tally<NEVER_COMBINES>>()).expect_err("nothing is known of it");
    assert_eq!(never, Unfit::NeverCombined);
}

#[test]
#[should_panic(expected = "operation 'vote' is in a lock mode that the type does not have")]
fn a_mode_that_is_not_there_is_refused() {
    Module::native::<Tally<NO_SUCH_MODE>>();
}
