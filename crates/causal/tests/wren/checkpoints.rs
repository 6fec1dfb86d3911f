//! Checkpoints of nodes.

use super::world::World;
use protocol::Protocol;
use types::Address;

impl World {
    /// A node takes a checkpoint, which replaces its log; requests are served between its pieces.
    pub fn checkpoint(&mut self, address: Address) {
        self.checkpoint_beside(address, |world| world.run_us(300));
    }

    /// The same, with something that happens between two pieces. Returns how many there were.
    pub fn checkpoint_beside(&mut self, address: Address, mut between: impl FnMut(&mut World)) -> usize {
        let (mut pieces, mut cursor, logged) = (Vec::new(), 0, self.host(address).log.len());
        loop {
            let mut chunk = Vec::new();
            let replica = self.host(address).replica.as_mut().expect("it is up");
            let next = replica.protocol_mut().checkpoint(cursor, &mut chunk);
            pieces.push(chunk);
            between(self);
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let host = self.host(address);
        host.snapshot = pieces;
        host.log.drain(..logged);
        host.snapshot.len()
    }
}
