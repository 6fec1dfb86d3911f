//! What scripts about lost regions do to the network and to nodes, beside what all scripts do.

use super::under_test::Message;
use super::world::World;
use protocol::Packet;
use types::{Address, RegionId};

impl World {
    /// Lets nothing pass from one region to another.
    pub fn cut_one_way(&mut self, from: u16, to: u16) {
        self.cut.insert((RegionId(from), RegionId(to)));
    }

    /// Somebody tells a node something.
    pub fn tell(&mut self, address: Address, message: Message) {
        self.tell_from(address, address, message);
    }

    /// A node that is up tells another one something.
    pub fn tell_from(&mut self, teller: Address, address: Address, message: Message) {
        let times = self.times(address);
        let from = self.host(teller).replica.as_ref().expect("it is up").node();
        let mut inbox = std::mem::take(&mut self.inbox);
        let packet = Packet::Datagram(message);
        let replica = self.hosts.get_mut(&address).and_then(|host| host.replica.as_mut()).expect("it is up");
        replica.receive(times, from, packet, &mut self.random, &mut inbox).expect("it is well formed");
        self.inbox = inbox;
        self.settle(address);
    }
}
