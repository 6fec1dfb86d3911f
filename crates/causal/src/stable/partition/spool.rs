//! What waits for regions that are silent, and does not fit into memory (decision 0016).
//!
//! The spool ends with the life and may lose anything: what it held counts as dropped then, and who lacks it takes the state. A
//! checkpoint tells what is in memory, and that everything before is gone. Copies do not spill: a leader that is
//! deposed and its followers would each need what the other has, and the followers' queues follow the leader's word.

use super::{Outgoing, Partition, borrowed};
use crate::stable::record::{self, Effects, Record};
use crate::stable::stamp::Stamp;
use crate::stable::{Node, Options, Times};
use protocol::Outputs;
use replication::{Fetched, Outbox};
use types::{Malformed, Reader, RegionId};

/// How many chunks a step spills at most: about a millisecond of writing into the page cache.
const SPILLED: usize = 16;

/// An empty one.
pub(super) fn outbox<T>(peers: Vec<RegionId>, options: &Options) -> Outbox<T> {
    let spill_bytes = if options.copied { 0 } else { options.spill_bytes };
    Outbox::new(peers, options.queue_bytes, spill_bytes)
}

impl<S: Times> Partition<S> {
    /// Spills what memory has no room for, and asks for what peers are to be sent next.
    pub(super) fn tend_spool(&mut self, out: &mut Outputs<'_, Node<S>>) {
        let region = self.region;
        for _ in 0..SPILLED {
            let chunk = self.outbox.spill(|at, transaction, outgoing: &Outgoing<S::Depends>, chunk| {
                let stamp = Stamp { at, transaction, region, depends_on: outgoing.depends_on };
                record::put::<S>(chunk, &Record::Outgoing(borrowed(stamp, &outgoing.effects)));
            });
            let Some((number, bytes)) = chunk else { break };
            out.spill(number, bytes);
        }
        if let Some(through) = self.outbox.take_forgotten() {
            out.forget_spilled(through);
        }
        let wanted = self.outbox.look_ahead(&self.resumed(), self.options.window);
        wanted.into_iter().for_each(|chunk| out.fetch(chunk));
    }

    /// A chunk is here, or gone for good.
    pub(in crate::stable) fn on_spooled(
        &mut self,
        chunk: u64,
        bytes: Option<&[u8]>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        match bytes.map(decode::<S>) {
            Some(Ok(items)) => self.outbox.put(chunk, items),
            Some(Err(_)) | None => self.outbox.lost(chunk),
        }
        if self.is_evicted() {
            return;
        }
        for peer in self.resumed() {
            if self.send_due(peer, out) {
                self.tell_time(peer, true, out);
            }
        }
        self.tend_spool(out);
    }
}

/// The transactions of a chunk, each with about how much memory it occupies.
fn decode<S: Times>(chunk: &[u8]) -> Result<Vec<Fetched<Outgoing<S::Depends>>>, Malformed> {
    let (mut reader, mut items) = (Reader::new(chunk), Vec::new());
    while !reader.is_empty() {
        let Record::Outgoing(Effects { stamp, effects }) =
            Record::<S::Depends>::decode(&mut Reader::new(reader.bytes()?))?
        else {
            return Err(Malformed("chunk of a queue"));
        };
        let outgoing = Outgoing { depends_on: stamp.depends_on, effects: effects.into_owned() };
        items.push((stamp.at, stamp.transaction, outgoing.bytes(), outgoing));
    }
    Ok(items)
}
