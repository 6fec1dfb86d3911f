//! Where replies go: straight into a connection's output when they come in order, else into a box until taken.

use crate::tally::Writer;
use protocol::Replies;
use std::collections::BTreeMap;
use types::{ReplyBuf, ReplySink, RequestId};

/// Replies that came while nobody could take them.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    arrived: BTreeMap<u64, ReplyBuf>,
    /// The request being submitted: its reply is likely to come at once.
    expected: Option<u64>,
    /// The reply to the last expected request, with its number.
    answer: Option<(u64, ReplyBuf)>,
    /// What arrived since the last [`Mailbox::take_fresh`], in order of arrival.
    fresh: Vec<u64>,
}

impl Mailbox {
    /// The reply with this number, if it has come.
    pub(crate) fn take(&mut self, number: u64) -> Option<ReplyBuf> {
        match &self.answer {
            Some((answered, _)) if *answered == number => self.answer.take().map(|(_, reply)| reply),
            _ if self.arrived.is_empty() => None,
            _ => self.arrived.remove(&number),
        }
    }

    /// True if the reply with this number has come and was not taken.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.arrived.contains_key(&number)
    }

    /// A request is submitted: `Some` before, `None` after. Whoever submitted it takes the reply, or waits for it.
    pub(crate) fn expect(&mut self, number: Option<u64>) {
        self.expected = number;
    }

    /// The numbers of replies that came since the last call; some may have been taken since.
    pub(crate) fn take_fresh(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.fresh)
    }
}

impl Replies for Mailbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        let fresh = &mut self.fresh;
        self.arrived.entry(id.0).or_insert_with(|| {
            fresh.push(id.0);
            ReplyBuf::new()
        })
    }
}

/// The replies of a batch: encoded at once while they come in order, stored otherwise.
pub(crate) struct InOrder<'b> {
    /// Writes into the connection's output.
    pub(crate) encoder: Writer<'b>,
    /// The number of the next reply of this connection.
    pub(crate) next: u64,
    /// The number after the batch's last.
    pub(crate) end: u64,
    /// Takes everything else, other connections' replies among it.
    pub(crate) mailbox: &'b mut Mailbox,
}

impl Replies for InOrder<'_> {
    #[inline]
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        if id.0 == self.next && id.0 < self.end {
            self.next += 1;
            self.encoder.begin_reply();
            self.encoder.tally.reply_to(id.0);
            return &mut self.encoder;
        }
        if id.0 + 1 == self.next {
            // More of the reply that was begun last.
            return &mut self.encoder;
        }
        self.mailbox.reply(id)
    }
}
