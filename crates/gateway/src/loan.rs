//! Transactions on keys that their keyspace lends: one step in which nobody else sees these keys, in place of a request for each
//! of their commands.
//!
//! ```text
//!   lend --> operation, operation ... --> all done: what it did stays, then the reply
//!                   |                 --> a script failed: taken back, then the error
//!                   +-- lasts too long, needs more than operations on keys, a key is not to be had
//!                       --> taken back, and the sequence begins anew with its requests
//! ```
//!
//! No conflict is possible, so a script that fails has read what is true. While keys are lent the engine asks the host for
//! nothing that another thread may hold while it waits for keys, and a second loan is such a thing.

use crate::engine::{Engine, FEW_WORDS};
use crate::exec::Next;
use crate::host::{Host, Loan};
use crate::sequence::{Phase, Sequence};
use crate::table::{Command, Handler, flag};
use protocol::{Request, Step};
use resp::Arguments;
use types::{Error, ReplyBuf};

/// A transaction that has kept keys for so long asks for no more of them (Corrections 87).
const LONGEST_NANOS: u64 = 1_000_000;
/// Commands that are no operations on keys, and ask the host for nothing that may wait.
const ANSWERED_HERE: [&str; 5] = ["echo", "ping", "publish", "spublish", "time"];

/// Keys that are lent.
pub(crate) struct Borrowed<'e> {
    loan: &'e mut dyn Loan,
    /// When the transaction first asked for some, by the host's clock.
    since_nanos: Option<u64>,
}

/// What came of a transaction on lent keys.
enum Outcome {
    Done,
    Failed(Error),
    /// It is to begin anew, unless it asked for no key.
    Left,
}

impl<H: Host> Engine<'_, H> {
    /// Carries the transaction out on lent keys, if that is possible. False if it is still to be carried out.
    pub(crate) fn borrow(&mut self, sequence: &mut Sequence) -> bool {
        if !self.may_borrow(sequence) {
            return false;
        }
        sequence.borrows = false;
        let (now, notifies, keyspace) = (self.now, self.notifies, self.connection.session.keyspace);
        let (gateway, connection) = (&mut *self.gateway, &mut *self.connection);
        let mut outcome = Outcome::Left;
        let is_lent = self.host.lend(keyspace, &mut |host, loan| {
            let borrowed = Some(Borrowed { loan, since_nanos: None });
            let (gateway, connection) = (&mut *gateway, &mut *connection);
            let mut engine = Engine { gateway, connection, host, now, notifies, borrowed };
            outcome = engine.carry_out(sequence);
            matches!(outcome, Outcome::Done)
        });
        match outcome {
            Outcome::Done if is_lent => self.conclude(sequence),
            Outcome::Failed(error) if is_lent => self.fail_sequence(sequence, error),
            _ => return false,
        }
        true
    }

    /// True if nothing keeps the transaction from working on lent keys. Who watches or tracks is told of commands as they are
    /// carried out, by asking the host.
    fn may_borrow(&mut self, sequence: &Sequence) -> bool {
        let session = &self.connection.session;
        let may = sequence.borrows
            && matches!(sequence.phase, Phase::Begin)
            && session.may_all
            && session.tracking.is_none()
            && !self.host.is_monitored();
        let may_need_room = sequence.running.as_ref().is_some_and(|running| running.may_need_room());
        may && (!may_need_room || self.host.may_grow(self.connection.session.keyspace).is_ok())
    }

    fn carry_out(&mut self, sequence: &mut Sequence) -> Outcome {
        sequence.phase = Phase::Operate;
        loop {
            match self.operate(sequence) {
                Next::Answered(reply) => self.take_answer(sequence, reply),
                Next::Pauses if self.held_nanos().is_some_and(|nanos| nanos < LONGEST_NANOS) => {}
                Next::Ends => break,
                Next::Pauses | Next::Leaves | Next::Waits(_) => {
                    match self.held_nanos() {
                        Some(_) => sequence.begin_anew(),
                        None => sequence.phase = Phase::Begin,
                    }
                    return Outcome::Left;
                }
            }
        }
        match (std::mem::replace(&mut sequence.phase, Phase::Operate), sequence.failure.take()) {
            (Phase::Abort(Some(error)), _) | (_, Some(error)) => Outcome::Failed(error),
            _ => Outcome::Done,
        }
    }

    /// Evaluates steps on lent keys.
    pub(crate) fn ask_borrowed(&mut self, steps: &[Step<'_>]) -> Next {
        if self.held_nanos().is_some_and(|nanos| nanos >= LONGEST_NANOS) {
            return Next::Leaves;
        }
        let (keyspace, session) = (self.connection.session.keyspace, self.connection.session.id());
        let request = Request::Operate { session, steps };
        self.touch(keyspace, self.gateway.next_request, &request);
        self.note_woken(keyspace, &request);
        let Some(borrowed) = &mut self.borrowed else { return Next::Leaves };
        borrowed.since_nanos.get_or_insert_with(|| self.host.clock());
        let mut reply = ReplyBuf::new();
        let is_done = steps.iter().all(|step| match step {
            Step::Key(keyed) => borrowed.loan.operate(keyed, &mut reply),
            _ => false,
        });
        if is_done { Next::Answered(reply) } else { Next::Leaves }
    }

    /// For how long the transaction has kept others from the keys; `None` if it has asked for none.
    fn held_nanos(&self) -> Option<u64> {
        let since = self.borrowed.as_ref()?.since_nanos?;
        Some(self.host.clock().saturating_sub(since))
    }
}

/// True if a command can be carried out while keys are lent.
pub(crate) fn suits_loan(command: &Command, arguments: Arguments<'_>) -> bool {
    match command.handler {
        Handler::Data(_) => {
            let names_keyspace = |word: &[u8]| word.eq_ignore_ascii_case(b"db");
            arguments.len() <= FEW_WORDS
                && !(command.is(flag::OTHER_KEYSPACE) && arguments.iter().skip(3).any(names_keyspace))
        }
        Handler::Local(_) => ANSWERED_HERE.contains(&command.name),
        Handler::Flow(_) | Handler::Container => false,
    }
}
