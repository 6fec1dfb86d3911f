//! Somebody has observed what others hold undecided.

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Options};
use std::time::Duration;

/// A transaction is answered on the fast path, and only the replica beside its coordinator hears of its end. Another one observes
/// it there, is accepted by those that hold it undecided, since what was observed is decided, and executed by them. Then
/// that process dies, and the others begin a view.
fn observed_and_undecided(seed: u64) -> (String, String, String) {
    let mut network = Network::new(seed, 1, 3, 3, &Options::default());
    let first = std::cell::Cell::new(None);
    network.filter = Some(Box::new(move |_, to, message| match ir_of(message) {
        Some(Ir::Execute { group, .. }) => {
            let of = first.get().unwrap_or(*group);
            first.set(Some(of));
            of == *group && to.process.0 != 1
        }
        _ => false,
    }));
    let one = text(&network.one(1, &network.increment("a", false)));
    network.run_for(Duration::from_millis(5));
    let two = text(&network.one(1, &network.increment("a", false)));
    network.run_for(Duration::from_millis(5));
    network.down.extend([address(1, None), address(1, Some(0))]);
    network.filter = None;
    let call = Message::Ir { message: Ir::StartViewChange { view: 1 } };
    network.hand(address(3, Some(0)), address(2, Some(0)), call);
    network.run_for(Duration::from_secs(8));
    (one, two, text(&network.one(2, &network.get("a"))))
}

#[test]
fn what_somebody_observed_is_not_refused_by_the_next_view() {
    for seed in 1..20 {
        let expected = ("1".to_owned(), "2".to_owned(), "2".to_owned());
        assert_eq!(observed_and_undecided(seed), expected, "seed {seed}");
    }
}
