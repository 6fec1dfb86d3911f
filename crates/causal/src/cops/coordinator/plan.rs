//! Which requests the protocol serves, and how. What it does not have is refused, with the name of a protocol that has it.

use super::{Ask, Coordinator};
use crate::cops::{Cut, Node};
use crate::stable::{PlannedStep, work_of};
use protocol::{Losses, Now, Outputs};
use std::collections::BTreeSet;
use types::{Error, RequestId, SessionId};

/// How a request is served.
enum Plan {
    /// By reads: of several partitions by a get transaction.
    Get,
    /// By a put at one partition.
    Put(u16),
}

impl Coordinator {
    pub(super) fn start(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        ask: Ask,
        out: &mut Outputs<'_, Node>,
    ) {
        match ask {
            Ask::Steps { watched: true, .. } | Ask::Watch { .. } => out.reply(id).error(&no_watches()),
            Ask::Steps { steps, watched: false } => match self.plan(&steps) {
                Ok(Plan::Get) => self.start_get(now, session, id, steps, out),
                Ok(Plan::Put(partition)) => self.start_put(now, session, id, steps, partition, out),
                Err(error) => out.reply(id).error(&error),
            },
            Ask::Unwatch | Ask::Abort | Ask::Scope { .. } => out.reply(id).simple("OK"),
            Ask::Begin { .. } => out.reply(id).error(&no_interactive()),
            Ask::Operate { .. } | Ask::Commit => {
                out.reply(id).error(&Error::refused("no transaction is open in this session"));
            }
            Ask::Refused(error) => out.reply(id).error(&error),
            Ask::Token => self.tell_context(session, id, out),
            Ask::NewContext => self.new_context(session, id, out),
            Ask::UseContext(number) => self.use_context(session, id, number, out),
            Ask::DropContext(number) => self.drop_context(session, id, number, out),
            Ask::Restore { token, timeout } => self.restore(now, session, id, token, timeout, out),
            Ask::Close => {
                self.sessions.remove(&session);
            }
        }
    }

    fn plan(&self, steps: &[PlannedStep]) -> Result<Plan, Error> {
        if self.options.conflict_bytes == 0 && steps.iter().any(|step| matches!(step, PlannedStep::Losses(_)))
        {
            return Err(Losses::none());
        }
        let writes = steps.iter().any(PlannedStep::is_write);
        let on_all = |step: &&PlannedStep| !matches!(step, PlannedStep::Key { .. });
        let whole = steps.iter().filter(on_all).count();
        let partitions: BTreeSet<u16> = work_of::<Cut>(steps).into_keys().collect();
        match (writes, partitions.len()) {
            (true, _) if steps.iter().any(|step| matches!(step, PlannedStep::Flush)) => Err(no_flush()),
            (_, _) if whole > 0 && steps.len() > 1 => Err(alone_only()),
            (true, 1) => Ok(Plan::Put(partitions.first().copied().unwrap_or_default())),
            (true, _) => Err(several_written()),
            (false, 0 | 1) => Ok(Plan::Get),
            (false, _) if self.options.transactions => Ok(Plan::Get),
            (false, _) => Err(several_read()),
        }
    }
}

fn several_written() -> Error {
    Error::refused(
        "PROTOCOL cops writes the keys of one partition at a time, and these are of several; nothing was done; write them one by \
         one, name them with a common {tag}, or take a keyspace with PROTOCOL wren or paris",
    )
}

fn several_read() -> Error {
    Error::refused(
        "these keys are of several partitions: PROTOCOL cops reads them together in keyspaces created with TRANSACTIONS on only; \
         read them one by one, name them with a common {tag}, or take a keyspace with PROTOCOL wren",
    )
}

fn alone_only() -> Error {
    Error::refused(
        "commands on the whole keyspace cannot be part of a transaction of PROTOCOL cops; run them outside of it",
    )
}

fn no_flush() -> Error {
    Error::refused(
        "PROTOCOL cops writes the keys of one partition at a time, so it cannot empty the keyspace; nothing was done; drop the \
         keyspace and create it again",
    )
}

fn no_watches() -> Error {
    Error::refused("PROTOCOL cops has no WATCH; take a keyspace with PROTOCOL wren, paris or pocc")
}

fn no_interactive() -> Error {
    Error::refused(
        "PROTOCOL cops has no interactive transactions: what they read is known too late for its two rounds; nothing was done; \
         take a keyspace with PROTOCOL wren, paris or pocc",
    )
}
