//! What a user-defined type's lock modes are to stamps (Corrections 71).

use anabranch_strict::validation::{Access, ModeStamps, Observed, Stamp, Undecided, Verdict, validate};
use datatypes::{Invocation, Mode, Operation, user};
use types::{Timestamp, TransactionId};

fn stamp(at: u64) -> Stamp {
    Stamp { at: Timestamp(at), transaction: TransactionId::default() }
}

fn call(name: &str, arguments: &[&[u8]]) -> Operation<'static> {
    let auction = user::register("auction", 1, usertypes::Module::native::<auction::Auction>());
    let operation = user::Operation::new(auction.expect("there is room"), name.as_bytes(), arguments);
    Operation::User(operation.expect("it has such an operation"))
}

fn invocation(operation: &Operation<'static>) -> Invocation<'static> {
    Invocation::observed(operation, operation.blind_effect())
}

#[test]
fn bids_commit_in_any_order_of_their_stamps_and_a_close_does_not() {
    let (bid, close, leader) = (call("bid", &[b"ann", b"3"]), call("close", &[]), call("leader", &[]));
    let mut modes = ModeStamps::default();
    let note = |modes: &mut ModeStamps, operation: &Operation<'static>, at: u64| {
        let invocation = invocation(operation);
        invocation.observed_mode().into_iter().for_each(|mode| modes.raise(mode, stamp(at)));
        invocation.effect.iter().for_each(|effect| modes.raise(effect.mode(), stamp(at)));
    };
    note(&mut modes, &bid, 9);
    let observed = Observed::new(Stamp::ZERO, []);
    let judge = |modes: &ModeStamps, operation: &Operation<'static>, at: u64| {
        let access = Access { invocation: invocation(operation), observed: Some(&observed) };
        validate(stamp(at), &access, std::iter::empty(), std::iter::empty::<Undecided<'_>>(), modes)
    };
    assert_eq!(judge(&modes, &bid, 7), Verdict::Ok, "bids commute, and so does what they saw");
    assert_eq!(judge(&modes, &close, 7), Verdict::Retry { above: Timestamp(9) });
    note(&mut modes, &leader, 11);
    assert_eq!(
        judge(&modes, &bid, 10),
        Verdict::Retry { above: Timestamp(11) },
        "somebody has seen the leader"
    );
    assert_eq!(modes.against(Mode::Write), stamp(11));
}
