//! Reads while the log refuses records. A state that the log lacks may be lost with this life, so nobody is shown it: a read
//! of a key that was written there is refused, with an error that names the log. All other reads are answered, as what they
//! show is logged. Nothing is recorded meanwhile: transactions that wrote are refused, and the site neither merges nor promises.
//!
//! Of the shared thread the log says where it stands, so that it never goes to another branch, in the site's next life neither
//! (Corrections 56). While nothing new can be said of that, its sessions read there.

use super::{SHARED, Site};
use crate::instance::Instance;
use crate::{Begin, Refusal, StateId, Transaction};
use mvcc::CompactKey;
use protocol::{Outputs, Step, Unlogged};
use types::{Error, ReplySink, RequestId, SessionId};

/// What a record tells of that matters to readers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Recorded {
    /// A state was made here, or came from another site.
    State(StateId),
    /// A name was put at a state, or forgotten.
    Name,
    /// Much came from another site at once.
    All,
    /// The shared thread stands there.
    SessionPosition(StateId),
}

/// What the log has of what the site has recorded.
#[derive(Debug, Default)]
pub(super) struct Logged {
    unlogged: Unlogged<Recorded>,
    /// Where the shared thread stands, as the log has it.
    position: Option<StateId>,
}

impl Logged {
    /// The log that is being recovered says where the shared thread stood.
    pub(super) fn recover(&mut self, position: StateId) {
        self.position = Some(position);
    }
}

impl Site {
    /// The last record tells of this.
    pub(super) fn note_recorded(&mut self, recorded: Recorded, out: &Outputs<'_, Instance>) {
        self.logged.unlogged.note(out.persisted(), recorded);
    }

    pub(crate) fn on_logged(&mut self, records: u64) {
        let Logged { unlogged, position } = &mut self.logged;
        unlogged.logged(records, |recorded| match recorded {
            Recorded::SessionPosition(state) => *position = Some(state),
            Recorded::State(_) | Recorded::Name | Recorded::All => {}
        });
    }

    /// Where records lie in partitions, the site must ask them, so that reads wait like all else.
    pub(crate) fn set_refusing(&mut self, is_refusing: bool) {
        self.logged.unlogged.set_refusing(is_refusing && !self.keyspace.is_parted());
    }

    /// True while the log refuses records.
    pub(super) fn is_refusing(&self) -> bool {
        self.logged.unlogged.is_refusing()
    }

    /// The sink of a reply to a request that came when so many records were persisted.
    pub(super) fn sink_of<'o>(
        &self,
        id: RequestId,
        persisted: u64,
        out: &'o mut Outputs<'_, Instance>,
    ) -> &'o mut dyn ReplySink {
        match self.is_refusing() && out.persisted() == persisted {
            true => out.reply_logged(id),
            false => out.reply(id),
        }
    }

    /// Begins a transaction that ends with this request. While the log refuses records it only reads, so that what the site
    /// promised not to begin above does not matter.
    pub(super) fn start(&mut self, thread: SessionId, begin: &Begin) -> Result<Transaction, Refusal> {
        match self.is_refusing() {
            true => self.keyspace.begin_reading(thread, begin),
            false => self.keyspace.begin(thread, begin),
        }
    }

    /// While the log refuses records: where sessions of the shared thread read.
    pub(super) fn logged_standing(&self, thread: SessionId) -> Option<Begin> {
        let position = self.logged.position.filter(|_| self.is_refusing() && thread == SHARED)?;
        self.keyspace.heir_of(position).map(Begin::State)
    }

    /// While the log refuses records: why a step is refused that would show a state that the log lacks.
    pub(super) fn unlogged(&self, transaction: &Transaction, step: &Step<'_>) -> Option<Error> {
        if !self.is_refusing() {
            return None;
        }
        match step {
            Step::Key(keyed) => {
                let newest = self.keyspace.newest(transaction, &CompactKey::new(keyed.key))?;
                self.is_unlogged(newest).then(|| protocol::unlogged(Some(keyed.key)))
            }
            _ => self.why_not_all(),
        }
    }

    /// The same of what may show any state.
    pub(super) fn why_not_all(&self) -> Option<Error> {
        let shows = |recorded: &Recorded| !matches!(recorded, Recorded::SessionPosition(_));
        self.logged.unlogged.refused().any(shows).then(|| protocol::unlogged(None))
    }

    fn is_unlogged(&self, state: StateId) -> bool {
        self.logged.unlogged.refused().any(|recorded| match recorded {
            Recorded::State(unlogged) => *unlogged == state,
            Recorded::All => true,
            Recorded::Name | Recorded::SessionPosition(_) => false,
        })
    }
}
