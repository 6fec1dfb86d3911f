//! What a replica writes to the journal: changes of its log.

use protocol::Encode;
use replication::log::Change;

/// One record; borrowed where the replica has it.
#[derive(Debug)]
pub struct Record<'a>(pub Change<'a>);

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
