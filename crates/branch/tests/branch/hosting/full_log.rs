//! Reads at a process whose log refuses records: what the log has is shown at once, what it lacks is not.

#[path = "../../../../causal/tests/hosting/log_world.rs"]
mod log_world;

use anabranch_branch::model::{Branch, Options};
use log_world::{World, set};
use protocol::model::{Model, store};
use protocol::{Request, Step};
use types::{Reply, SessionId};

const OWN: SessionId = SessionId(9);

fn world() -> World {
    let branch = Branch::new(|_| Err(String::new()));
    let mut world = World::new(|place| branch.host(&store(&Options::default()), place).unwrap());
    world.pass(500);
    let written = world.set(1, b"logged");
    world.pass(500);
    assert!(world.reply(written).is_some());
    world
}

/// A session on a branch of its own begins where that is.
fn own(world: &mut World, words: &[&[u8]]) -> u64 {
    world.ask(Request::Own { session: OWN, words, steps: &[] })
}

#[test]
fn a_full_log_hides_what_it_lacks_and_nothing_else() {
    let mut world = world();
    own(&mut world, &[b"BRANCH", b"DEFAULTS", b"BEGIN", b"ANCESTOR"]);
    let lost = world.refuse_next(|world| world.set(1, b"unlogged"));
    world.pass(20);
    for session in [2, OWN.0] {
        let (here, lacking) = (world.get(session, b"logged"), world.get(session, b"unlogged"));
        let here = world.reply(here).expect("a read waits for the log");
        assert_eq!(here.first(), Some(Reply::Bulk(b"v")));
        let lacking = world.reply(lacking).expect("a read waits in silence");
        let is_refused =
            lacking.as_error().is_some_and(|error| error.message.contains("the log of this process"));
        assert!(is_refused || lacking.first() == Some(Reply::Null), "{lacking:?}");
    }
    let both = world.get_all(2, &[b"logged", b"other"]);
    assert!(world.reply(both).expect("a read waits for the log").as_error().is_none());
    let heads = own(&mut world, &[b"BRANCH", b"HEADS"]);
    assert!(world.reply(heads).expect("it waits").as_error().is_some(), "one of them may be lost");
    world.pass(2_000);
    assert!(world.reply(lost).is_none(), "nobody knows whether it is lost");
    world.heal();
    world.pass(500);
    assert!(world.reply(lost).is_some_and(|reply| reply.as_error().is_none()));
    let found = world.get(2, b"unlogged");
    assert_eq!(world.reply(found).unwrap().first(), Some(Reply::Bulk(b"v")));
}

#[test]
fn what_an_open_transaction_wrote_is_refused_and_nothing_of_it_happens() {
    let mut world = world();
    let session = SessionId(3);
    world.ask(Request::Begin { session, read_only: false, watched: false });
    world.ask(Request::Operate { session, steps: &[Step::Key(set(b"refused"))] });
    world.refuse_next(|world| world.set(1, b"unlogged"));
    let committed = world.ask(Request::Commit { session });
    let error = world.reply(committed).expect("it is refused at once").as_error().expect("it is refused");
    assert_eq!(error.code, types::ErrorCode::Misconf);
    let begun = world.ask(Request::Begin { session, read_only: false, watched: false });
    assert!(world.reply(begun).expect("it is refused at once").as_error().is_some());
    world.heal();
    let found = world.get(2, b"refused");
    assert_eq!(world.reply(found).unwrap().first(), Some(Reply::Null));
}
