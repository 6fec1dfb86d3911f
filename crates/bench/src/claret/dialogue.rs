//! A transaction as a client's requests and their replies, however these travel.

use super::plan::{Batch, Command, Event, OneStep, Plan};
use crate::transactions::{End, Trouble, refusal};
use resp::Value;

/// How operations become transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `MULTI` where nothing depends on a reply, else `TXN` with a round trip for each step.
    AtOnce,
    /// `TXN`, a round trip for each operation.
    Interactive,
    /// No transactions.
    Single {
        /// A round trip for each operation.
        interactive: bool,
    },
}

impl Form {
    pub(super) fn name(self) -> &'static str {
        match self {
            Form::AtOnce => "multi",
            Form::Interactive => "txn",
            Form::Single { .. } => "single",
        }
    }

    fn is_one_by_one(self) -> bool {
        matches!(self, Form::Interactive | Form::Single { interactive: true })
    }

    fn has_transactions(self) -> bool {
        !matches!(self, Form::Single { .. })
    }
}

/// How replies are wrapped that are under way.
#[derive(Clone, Copy, Default)]
struct Wrapped {
    /// In `MULTI` and `EXEC`.
    multi: bool,
    /// So many replies come before those to operations.
    before: usize,
    /// The last reply is that to `TXN COMMIT`.
    commits: bool,
}

/// What a client does when everything that it sent is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It asks for more: [`Dialogue::ask`].
    Ask,
    /// The transaction has committed; this is what the workload learns of it.
    Done(Option<Event>),
}

/// A client's transaction, try by try: [`Dialogue::begin`], then [`Dialogue::ask`] and, once all that was sent is
/// answered, [`Dialogue::take`] and [`Dialogue::go_on`], in turn.
pub struct Dialogue {
    form: Form,
    plan: Box<dyn Plan>,
    /// The replies of the steps that are over.
    replies: Vec<Vec<Value>>,
    /// What is left of the present step.
    rest: std::vec::IntoIter<Command>,
    last: bool,
    /// The replies to those that were answered.
    answered: Vec<Value>,
    wrapped: Wrapped,
    /// `TXN BEGIN` was sent.
    opened: bool,
    /// From here on it may take effect.
    may_have_happened: bool,
}

impl Dialogue {
    /// A client that sends transactions in this form.
    pub fn new(form: Form) -> Self {
        Dialogue {
            form,
            plan: Box::new(OneStep { kind: "", commands: Vec::new() }),
            replies: Vec::new(),
            rest: Vec::new().into_iter(),
            last: true,
            answered: Vec::new(),
            wrapped: Wrapped::default(),
            opened: false,
            may_have_happened: false,
        }
    }

    /// The transaction that is tried from now on.
    pub fn plan(&mut self, plan: Box<dyn Plan>) {
        self.plan = plan;
    }

    /// What the transaction is called in reports.
    pub fn kind(&self) -> &'static str {
        self.plan.kind()
    }

    /// Begins a try.
    pub fn begin(&mut self) {
        (self.opened, self.may_have_happened) = (false, false);
        self.wrapped = Wrapped::default();
        self.replies.clear();
        self.next_step();
    }

    /// So many replies come before those of the try: to what the client has sent by itself.
    pub(super) fn skip(&mut self, replies: usize) {
        self.wrapped.before += replies;
    }

    /// True if the connection is inside of a transaction that `TXN ABORT` ends.
    pub fn is_open(&self) -> bool {
        self.opened
    }

    /// True if the try may take effect even if nobody says so.
    pub(super) fn may_have_happened(&self) -> bool {
        self.may_have_happened
    }

    fn next_step(&mut self) {
        let Batch { commands, last } = self.plan.step(&self.replies);
        (self.rest, self.last) = (commands.into_iter(), last);
        self.answered.clear();
    }

    /// What is sent next; nothing, if the try is over without it.
    pub fn ask(&mut self) -> Vec<Command> {
        let form = self.form;
        let most = if form.is_one_by_one() { 1 } else { usize::MAX };
        let operations = self.rest.by_ref().take(most);
        let mut sent = Vec::with_capacity(operations.size_hint().0 + 2);
        let mut wrapped = Wrapped { before: self.wrapped.before, ..Wrapped::default() };
        let word = |text: &str| text.as_bytes().to_vec();
        if form.has_transactions() {
            wrapped.multi = form == Form::AtOnce && self.replies.is_empty() && self.last;
            if wrapped.multi {
                sent.push(vec![word("MULTI")]);
            } else if !self.opened {
                sent.push(vec![word("TXN"), word("BEGIN")]);
                wrapped.before += 1;
                self.opened = true;
            }
        }
        sent.extend(operations);
        let ends = self.last && self.rest.len() == 0;
        if wrapped.multi {
            // Each is answered by QUEUED.
            wrapped.before += sent.len();
            sent.push(vec![word("EXEC")]);
        } else if form.has_transactions() && ends {
            wrapped.commits = true;
            sent.push(vec![word("TXN"), word("COMMIT")]);
        }
        self.may_have_happened |= ends || !form.has_transactions();
        self.wrapped = wrapped;
        sent
    }

    /// Takes the replies to all that was sent.
    ///
    /// # Errors
    /// The try is over, and has not committed as far as was said.
    pub fn take(&mut self, mut replies: Vec<Value>) -> Result<(), Trouble> {
        let Wrapped { multi, before, commits } = std::mem::take(&mut self.wrapped);
        replies.iter().try_for_each(refusal)?;
        if multi {
            return match replies.pop() {
                Some(Value::Array(answers)) => {
                    answers.iter().try_for_each(refusal)?;
                    self.answered.extend(answers);
                    Ok(())
                }
                Some(Value::Null | Value::NullArray) => Err(Trouble::Said(End::Failed)),
                other => Err(Trouble::Refused(format!("EXEC was answered with {other:?}"))),
            };
        }
        if commits {
            replies.pop();
        }
        self.answered.extend(replies.into_iter().skip(before));
        Ok(())
    }

    /// All that was sent is answered.
    pub fn go_on(&mut self) -> Next {
        if self.rest.len() > 0 {
            return Next::Ask;
        }
        self.replies.push(std::mem::take(&mut self.answered));
        if !self.last {
            self.next_step();
            return Next::Ask;
        }
        Next::Done(self.plan.outcome(&self.replies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claret::plan::words;

    struct TwoSteps;

    impl Plan for TwoSteps {
        fn kind(&self) -> &'static str {
            "two"
        }

        fn step(&self, replies: &[Vec<Value>]) -> Batch {
            match replies {
                [] => Batch::first(vec![words("GET a"), words("GET b")]),
                _ => Batch::last(vec![words("SET c 1")]),
            }
        }
    }

    fn lines(sent: &[Command]) -> Vec<String> {
        sent.iter().map(|command| String::from_utf8(command.join(&b' ')).unwrap()).collect()
    }

    fn ok(count: usize) -> Vec<Value> {
        vec![Value::Simple("OK".into()); count]
    }

    fn dialogue(form: Form, plan: Box<dyn Plan>) -> Dialogue {
        let mut dialogue = Dialogue::new(form);
        dialogue.plan(plan);
        dialogue.begin();
        dialogue
    }

    /// Answers everything by OK; what was sent, until the transaction is over.
    fn all(form: Form, plan: Box<dyn Plan>) -> Vec<Vec<String>> {
        let (mut dialogue, mut sent) = (dialogue(form, plan), Vec::new());
        loop {
            let batch = dialogue.ask();
            let mut replies = ok(batch.len());
            if batch.last().is_some_and(|last| last[0] == b"EXEC") {
                *replies.last_mut().unwrap() = Value::Array(ok(batch.len() - 2));
            }
            sent.push(lines(&batch));
            dialogue.take(replies).unwrap();
            match dialogue.go_on() {
                Next::Ask => {}
                Next::Done(_) => return sent,
            }
        }
    }

    fn one() -> Box<dyn Plan> {
        Box::new(OneStep { kind: "one", commands: vec![words("GET a"), words("GET b")] })
    }

    #[test]
    fn what_depends_on_nothing_is_one_multi() {
        assert_eq!(all(Form::AtOnce, one()), [["MULTI", "GET a", "GET b", "EXEC"]]);
        let interactive = [&["TXN BEGIN", "GET a"][..], &["GET b", "TXN COMMIT"]];
        assert_eq!(all(Form::Interactive, one()), interactive);
        assert_eq!(all(Form::Single { interactive: false }, one()), [["GET a", "GET b"]]);
    }

    #[test]
    fn what_depends_on_replies_is_a_transaction_of_steps() {
        let steps = [&["TXN BEGIN", "GET a", "GET b"][..], &["SET c 1", "TXN COMMIT"]];
        assert_eq!(all(Form::AtOnce, Box::new(TwoSteps)), steps);
        let single = [&["GET a"][..], &["GET b"], &["SET c 1"]];
        assert_eq!(all(Form::Single { interactive: true }, Box::new(TwoSteps)), single);
    }

    #[test]
    fn a_refused_try_asks_the_same_again() {
        let mut dialogue = dialogue(Form::AtOnce, one());
        let first = lines(&dialogue.ask());
        let refused = vec![Value::Error("CONFLICT on a".into()); 4];
        assert!(matches!(dialogue.take(refused), Err(Trouble::Said(End::Failed))));
        dialogue.begin();
        assert_eq!(lines(&dialogue.ask()), first);
    }
}
