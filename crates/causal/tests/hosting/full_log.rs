//! Reads at a process whose log refuses records: what the log has is shown at once, what it lacks is not.

use crate::hosting::log_world::World;
use anabranch_causal::model::{Causal, Options, Protocol};
use protocol::Request;
use protocol::model::{Model, store};
use types::{Reply, SessionId};

fn world(protocol: Protocol) -> World {
    let options = Options {
        transactions: matches!(protocol, Protocol::Cops),
        partitions: 2,
        protocol,
        replicas: None,
        copies: 1,
        regions: Vec::new(),
        ignore_conflicts: false,
        keep_conflicts: false,
        handler: None,
        keeps_dependants: false,
        evicted: Vec::new(),
    };
    let mut world = World::new(|place| Causal::BARE.host(&store(&options), place).expect("it is hosted"));
    world.pass(500);
    let written = world.set(1, b"logged");
    world.pass(500);
    assert!(world.reply(written).is_some_and(|reply| reply.as_error().is_none()));
    world
}

#[test]
fn a_full_log_hides_what_it_lacks_and_nothing_else() {
    for protocol in [Protocol::Wren, Protocol::Pocc, Protocol::Cops] {
        let mut world = world(protocol);
        let lost = world.refuse_next(|world| world.set(1, b"unlogged"));
        for session in 2..5 {
            let (here, lacking) = (world.get(session, b"logged"), world.get(session, b"unlogged"));
            world.pass(300);
            let here = world.reply(here).unwrap_or_else(|| panic!("{protocol:?}: a read waits for the log"));
            assert_eq!(here.first(), Some(Reply::Bulk(b"v")), "{protocol:?}");
            let lacking =
                world.reply(lacking).unwrap_or_else(|| panic!("{protocol:?}: a read waits in silence"));
            let is_refused =
                lacking.as_error().is_some_and(|error| error.message.contains("the log of this process"));
            assert!(is_refused || lacking.first() == Some(Reply::Null), "{protocol:?}: {lacking:?}");
        }
        assert!(world.reply(lost).is_none(), "{protocol:?}: nobody knows whether it is lost");
        world.heal();
        world.pass(500);
        assert!(world.reply(lost).is_some_and(|reply| reply.as_error().is_none()), "{protocol:?}");
        let found = world.get(5, b"unlogged");
        world.pass(300);
        assert_eq!(world.reply(found).unwrap().first(), Some(Reply::Bulk(b"v")), "{protocol:?}");
    }
}

/// A partition promises times in its log; that is nothing that a reader is shown.
#[test]
fn reads_do_not_wait_for_promises() {
    for protocol in [Protocol::Wren, Protocol::Pocc, Protocol::Cops] {
        let mut world = world(protocol);
        world.refuse_next(|world| world.pass(600));
        let (one, both) = (world.get(2, b"logged"), world.get_all(3, &[b"logged", b"other", b"third"]));
        let size = world.ask(Request::Many {
            session: SessionId(4),
            steps: &[protocol::Step::Count],
            watched: false,
            multi: false,
        });
        world.pass(300);
        for id in [one, both, size] {
            let reply = world.reply(id).unwrap_or_else(|| panic!("{protocol:?}: a read waits for the log"));
            assert_eq!(reply.as_error(), None, "{protocol:?}");
        }
    }
}
