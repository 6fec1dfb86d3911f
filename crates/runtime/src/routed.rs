//! Where the replies of a step over shared instances go: the clients may be any worker's.

use gateway::Config;
use protocol::{Gate, Replies};
use types::{ReplyBuf, ReplySink, RequestId};

use crate::process::Process;

/// Writes replies to the clients of one worker at once, and keeps the others to be handed out.
pub(crate) struct Routed<'r> {
    worker: u16,
    own: &'r mut dyn Replies,
    remote: Vec<(RequestId, ReplyBuf)>,
}

impl<'r> Routed<'r> {
    /// Of the worker with this number.
    pub(crate) fn new(worker: u16, own: &'r mut dyn Replies) -> Self {
        Routed { worker, own, remote: Vec::new() }
    }

    /// Hands the replies to other workers' clients to these workers; they wait there for `gate`.
    pub(crate) fn hand_out(self, process: &Process, gate: Gate) {
        if !self.remote.is_empty() {
            process.hand_out(self.remote, gate);
        }
    }
}

impl Replies for Routed<'_> {
    #[inline]
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        if Config::worker_of(id) == self.worker {
            return self.own.reply(id);
        }
        // A reply is written in one go, perhaps by several calls.
        if self.remote.last().is_none_or(|(last, _)| *last != id) {
            self.remote.push((id, ReplyBuf::new()));
        }
        let last = self.remote.len() - 1;
        &mut self.remote[last].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Own(Vec<(RequestId, ReplyBuf)>);

    impl Replies for Own {
        fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
            self.0.push((id, ReplyBuf::new()));
            &mut self.0.last_mut().expect("it was pushed").1
        }
    }

    #[test]
    fn replies_go_to_the_requesting_worker_and_stay_whole() {
        let of = |worker: u64, number: u64| RequestId(worker << 48 | number);
        let mut own = Own::default();
        let mut routed = Routed::new(1, &mut own);
        routed.reply(of(2, 7)).array(2);
        routed.reply(of(2, 7)).integer(1);
        routed.reply(of(2, 7)).integer(2);
        routed.reply(of(1, 7)).simple("OK");
        routed.reply(of(0, 7)).simple("PONG");
        let remote: Vec<_> =
            routed.remote.iter().map(|(id, reply)| (*id, reply.elements().count())).collect();
        assert_eq!(remote, [(of(2, 7), 3), (of(0, 7), 1)]);
        assert_eq!(own.0.len(), 1);
    }
}
