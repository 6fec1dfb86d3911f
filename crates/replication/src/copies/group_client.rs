//! A client of groups: an instance outside any group, such as a coordinator.

use super::message::Message;
use super::routes::Routes;
use super::{Copied, Groups, Node, Timer};
use protocol::{Durable, Input, Now, Outputs, Replica, Replies};
use types::{NodeId, ReplySink, RequestId, Rng};

/// Its messages wait for no sync: it keeps nothing on disk.
const OPEN: Durable = Durable { written: u64::MAX, synced: u64::MAX };

/// See the module.
pub struct GroupClient<P: Copied> {
    inner: Replica<P>,
    routes: Routes,
}

/// The replies of the instance inside are those of the step.
struct ForwardedReplies<'t, 'o, P: Copied>(&'t mut Outputs<'o, Node<P>>);

impl<P: Copied> Replies for ForwardedReplies<'_, '_, P> {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.reply(id)
    }
}

impl<P: Copied> GroupClient<P> {
    pub(super) fn new(node: NodeId, protocol: P, groups: Groups) -> Self {
        GroupClient { inner: Replica::new(node, protocol), routes: Routes::new(groups) }
    }

    /// The instance.
    pub fn protocol(&self) -> &P {
        self.inner.protocol()
    }

    /// The instance.
    pub fn protocol_mut(&mut self) -> &mut P {
        self.inner.protocol_mut()
    }

    pub(super) fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Node<P>>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<P>>,
    ) {
        let mut requests: Vec<Input<'_, P>> = Vec::new();
        for input in batch.drain(..) {
            match input {
                Input::Request { id, request } => requests.push(Input::Request { id, request }),
                Input::Recovered { complete } => requests.push(Input::Recovered { complete }),
                Input::Message { from, message } => {
                    if !requests.is_empty() {
                        self.inner.step(now, &mut requests, random, &mut ForwardedReplies(out));
                    }
                    self.on_message(now, from, message, random, out);
                }
                Input::Timer(_) => self.inner.fire(now, random, &mut ForwardedReplies(out)),
                Input::Snapshot(_) | Input::Recover(_) | Input::PeerStarted { .. } => {}
            }
        }
        if !requests.is_empty() {
            self.inner.step(now, &mut requests, random, &mut ForwardedReplies(out));
        }
        self.release(now, out);
    }

    fn on_message(
        &mut self,
        now: Now,
        sender: NodeId,
        message: Message<P>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<P>>,
    ) {
        match message {
            Message::Packet { from, packet, .. } => {
                self.routes.heard(from.address(), from.incarnation, sender.address());
                // A malformed message of a stream is an error of the peer's software, and dropped.
                let _ = self.inner.receive(now, from, packet, random, &mut ForwardedReplies(out));
            }
            Message::Elsewhere { group, leader } => self.routes.refused(group, leader, sender.address()),
            Message::Log(_) | Message::Ask(_) | Message::Piece { .. } => {}
        }
    }

    fn release(&mut self, now: Now, out: &mut Outputs<'_, Node<P>>) {
        debug_assert!(self.inner.records().is_empty(), "a coordinator keeps nothing");
        self.inner.release(now.instant, OPEN);
        let from = self.inner.node();
        for (to, packet) in self.inner.packets() {
            let way = self.routes.way_to(to, now.instant);
            out.send(way, Message::Packet { from, to, passed_on: false, packet });
        }
        match self.inner.deadline() {
            Some(at) => out.arm(Timer::Inner, at),
            None => out.disarm(Timer::Inner),
        }
    }
}
