//! What the world reads of messages.

use super::under_test::{Message, observed};
use protocol::{Claim, CommitStamp};
use types::{RegionSet, SessionId};

pub fn is_stabilization(message: &Message) -> bool {
    matches!(
        message,
        Message::StableReport { .. }
            | Message::StableTime { .. }
            | Message::StartTx { .. }
            | Message::StartTxResp { .. }
    )
}

/// The transaction that a message replicates.
pub fn replicated(message: &Message) -> Option<Claim> {
    let Message::Replicate { origin, id, at, depends_on, effects } = message else { return None };
    let effects = effects.iter().flat_map(|of_key| {
        of_key.effects.iter().map(|effect| (of_key.key.clone(), effect.clone())).collect::<Vec<_>>()
    });
    Some(Claim {
        session: SessionId(0),
        transaction: *id,
        commit: Some(CommitStamp {
            at: *at,
            depends_on: observed(*depends_on),
            region: *origin,
            parts: RegionSet::default(),
        }),
        snapshot: None,
        effects: effects.collect(),
        vector: None,
        thread: None,
        requests: Vec::new(),
        branch: None,
    })
}
