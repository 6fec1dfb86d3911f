//! What the world reads of messages: nothing of these is needed here.

use super::under_test::Message;
use protocol::Claim;

pub fn is_stabilization(_: &Message) -> bool {
    false
}

pub fn replicated(_: &Message) -> Option<Claim> {
    None
}
