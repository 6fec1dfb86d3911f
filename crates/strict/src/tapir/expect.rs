//! Prefetch: brings what arrived messages will access into the cache while the replica serves others.

use super::message::Message;
use super::node::Node;
use super::operation::{Decision, Part};
use super::replica::Replica;
use super::shard::{KeyUse, KeyUses};
use crate::ir::{self, Ending, Group};
use protocol::Input;

impl Replica {
    /// Asks for what a few messages will look at.
    pub(super) fn expect(&self, inputs: &[Input<'_, Node>]) {
        let mut uses = KeyUses::new();
        for input in inputs {
            let Input::Message { message, .. } = input else { continue };
            match message {
                Message::Read { readings, .. } => {
                    uses.extend(readings.iter().map(|reading| (KeyUse::Read, &*reading.key)));
                }
                Message::Check { part, .. } => uses.extend(keys_of(KeyUse::Judge, part)),
                Message::Ir { message } => match message {
                    ir::Message::Propose { operation, .. } => {
                        uses.extend(keys_of(KeyUse::Judge, &operation.part))
                    }
                    ir::Message::Execute {
                        operation: Ending::Whole(Decision::Commit { part, .. }), ..
                    } => {
                        uses.extend(keys_of(KeyUse::Commit, part));
                    }
                    ir::Message::Execute { group, operation: Ending::Rest(_), .. } => {
                        let proposed = self.ir.get(*group).and_then(Group::operation);
                        uses.extend(
                            proposed.into_iter().flat_map(|known| keys_of(KeyUse::Commit, &known.part)),
                        );
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        self.state.prefetch(&uses);
    }
}

fn keys_of(of: KeyUse, part: &Part) -> impl Iterator<Item = (KeyUse, &[u8])> {
    part.invocations.iter().map(move |invoked| (of, &*invoked.key))
}
