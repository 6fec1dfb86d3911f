//! A script of a client at work: one command that asks for others, inside a transaction.

use crate::commands::streams;
use crate::commands::transactions::behind_prefix;
use crate::engine::Engine;
use crate::exec::Queued;
use crate::functions::ScriptFlags;
use crate::host::Host;
use crate::interpreter::{Event, Run, Script, ScriptCall, no_script};
use crate::loan::suits_loan;
use crate::plan::Call;
use crate::sequence::{Commands, Sequence, Wrapper, append_command};
use crate::session::Mode;
use crate::table::flag::{DENYOOM, MAY_REPLICATE, NO_MULTI, NOSCRIPT, WRITE};
use crate::table::{self, Command, Handler};
use resp::Arguments;
use types::{Error, ErrorCode, ReplyBuf, ReplySink};

/// How long the name of a script is: the SHA-1 of its text in hexadecimal digits.
const NAME_LENGTH: usize = 40;

/// Redis's text for a script that may write where memory is used up.
const NO_ROOM: &str =
    "allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";

/// A script, and the command that it has called.
#[derive(Debug)]
pub(crate) struct Running {
    run: Box<dyn Run>,
    called: Option<Commands>,
    /// It only asks whether the user may.
    only_checks: bool,
    answer: Option<ReplyBuf>,
    /// It may not write, whatever surrounds it.
    read_only: bool,
    /// Its commands may need more memory, whatever is left.
    allows_oom: bool,
}

impl Running {
    /// The reply to the command that the script has called.
    pub(crate) fn answer(&mut self, reply: ReplyBuf) {
        (self.called, self.answer) = (None, Some(reply));
    }

    /// It may call commands that need more memory, and is to be refused them where there is none.
    pub(crate) fn may_need_room(&self) -> bool {
        !self.read_only && !self.allows_oom
    }

    /// The command that the script has called.
    pub(crate) fn called(&self) -> Option<Arguments<'_>> {
        self.called.as_ref().and_then(|called| called.get(0))
    }

    /// It asks for this command, written as a client sends it.
    pub(crate) fn ask(&mut self, command: Vec<u8>) {
        (self.called, self.only_checks) = (Some(Commands::new(command)), false);
    }

    /// It asks whether the user may execute this command.
    pub(crate) fn ask_whether(&mut self, command: Vec<u8>) {
        (self.called, self.only_checks) = (Some(Commands::new(command)), true);
    }

    /// Lets it go on, unless it waits for the command that it has called.
    pub(crate) fn go_on(&mut self) -> Option<Event> {
        self.called.is_none().then(|| self.run.resume(self.answer.take()))
    }
}

impl<H: Host> Engine<'_, H> {
    /// EVAL, FCALL and their like, outside of MULTI: a transaction of its own, or part of the open one.
    pub(crate) fn eval(&mut self, call: Call<'_>) -> Result<(), Error> {
        let (wrapper, read_only) = match self.connection.session.mode {
            Mode::Interactive { read_only, .. } => (Wrapper::Interactive, read_only),
            Mode::Plain | Mode::Queueing(_) => (Wrapper::Transaction, false),
        };
        let seed = self.draw_seed();
        let running = self.begin_script(&call, read_only, seed)?;
        let mut source = Vec::new();
        append_command(call.arguments, &mut source);
        let mut sequence = Box::new(Sequence::new(Commands::new(source), wrapper, self.now, seed));
        sequence.read_only = running.read_only;
        sequence.running = Some(running);
        self.run_sequence(sequence);
        Ok(())
    }

    /// Where the random numbers of the next transaction's scripts begin: elsewhere than those of others.
    pub(crate) fn draw_seed(&self) -> u64 {
        let (gateway, wall) = (&self.gateway, self.now.wall.as_millis());
        let drawn = [wall, gateway.next_request, gateway.commands].map(u64::to_le_bytes);
        gateway.config.hash_seed.hash(drawn.as_flattened()).0
    }

    /// Begins the script of a command.
    pub(crate) fn begin_script(
        &mut self,
        call: &Call<'_>,
        read_only: bool,
        seed: u64,
    ) -> Result<Running, Error> {
        let is_reader = call.command.name.ends_with("_ro");
        let run = match call.command.name.starts_with("fcall") {
            true => self.begin_function(call, seed)?,
            false => {
                let script = ScriptCall { seed, ..parse(call)? };
                self.gateway.interpreter.as_mut().ok_or_else(no_interpreter)?.begin(&script)?
            }
        };
        // What says nothing of itself may do what it likes until it does.
        let flags = run.flags().unwrap_or_default();
        let (writes, allows_oom) = (!flags.has(ScriptFlags::NO_WRITES), flags.has(ScriptFlags::ALLOW_OOM));
        if run.flags().is_some() && writes {
            if is_reader {
                return Err(Error::err("Can not execute a script with write flag using *_ro command."));
            }
            if !allows_oom && self.host.may_grow(self.connection.session.keyspace).is_err() {
                return Err(Error::new(ErrorCode::Oom, NO_ROOM));
            }
        }
        Ok(Running {
            run,
            called: None,
            only_checks: false,
            answer: None,
            read_only: read_only || is_reader || !writes,
            allows_oom,
        })
    }

    fn begin_function(&mut self, call: &Call<'_>, seed: u64) -> Result<Box<dyn Run>, Error> {
        let mut libraries = self.host.functions(false);
        if libraries.function(call.bytes(1)).is_none() {
            libraries = self.host.functions(true);
        }
        let found = libraries.function(call.bytes(1));
        let (library, function) = found.ok_or_else(|| Error::err("Function not found"))?;
        let (keys, arguments) = keys_and_arguments(call, "Bad number of keys provided")?;
        let command: Vec<&[u8]> = call.arguments.iter().collect();
        let script = Script::Function { library, name: &function.name, command: &command };
        let interpreter = self.gateway.interpreter.as_mut().ok_or_else(no_interpreter)?;
        interpreter.begin(&ScriptCall { script, keys, arguments, seed })
    }

    /// Reads the command that a script has called, and returns whether it may write. One that may need more memory is
    /// refused while there is none, unless the script wrote before, as in Redis.
    pub(crate) fn read_called<'a>(
        &mut self,
        running: &'a Running,
        wrote: bool,
    ) -> (Result<Queued<'a>, Error>, bool) {
        let Some(arguments) = running.called() else {
            return (Err(Error::err("Please specify at least one argument for this redis lib call")), false);
        };
        if running.only_checks {
            let is_lent = self.borrowed.is_some();
            return (if is_lent { Ok(Queued::Leaves) } else { self.answer_whether(arguments) }, false);
        }
        let (command, number) = match admit(arguments, running.read_only) {
            Ok(found) => found,
            Err(error) => return (Err(error), false),
        };
        if self.borrowed.is_some() && !suits_loan(command, arguments) {
            return (Ok(Queued::Leaves), false);
        }
        self.gateway.statistics.counted(number);
        if self.host.is_monitored() {
            self.note_monitored(arguments, true);
        }
        let may = self.check_called(command, arguments, wrote || running.allows_oom);
        (may.and_then(|()| self.read_found(command, arguments)), command.is(WRITE))
    }

    /// Refuses what a script has called if its user may not do that, and what may need more memory unless it `takes_room`
    /// whatever is left.
    fn check_called(
        &mut self,
        command: &'static Command,
        arguments: Arguments<'_>,
        takes_room: bool,
    ) -> Result<(), Error> {
        let call = self.call(command, arguments);
        self.check_user_of_script(arguments)?;
        self.check_keyspace(&call)?;
        // There was room when keys were lent.
        if command.is(DENYOOM) && !takes_room && self.borrowed.is_none() {
            self.check_memory(command, arguments)?;
        }
        refuse_block(&call)
    }

    /// `redis.acl_check_cmd`: 1 if the user may execute this, else 0.
    fn answer_whether<'a>(&self, arguments: Arguments<'_>) -> Result<Queued<'a>, Error> {
        let unknown = || Error::err("Invalid command passed to redis.acl_check_cmd()");
        table::command(arguments.name()).ok_or_else(unknown)?;
        // As in Redis, the number of arguments does not matter.
        let may = table::named(arguments).is_ok_and(|found| self.user_may(found, arguments));
        let mut reply = ReplyBuf::new();
        reply.integer(may.into());
        Ok(Queued::Answer(reply))
    }
}

/// The command that a script has called, with its number, if scripts may call it.
fn admit(arguments: Arguments<'_>, read_only: bool) -> Result<(&'static Command, u16), Error> {
    let (command, number) =
        table::locate(arguments).map_err(|error| match table::command(arguments.name()) {
            Some(found) if found.subcommands.is_empty() => {
                Error::err("Wrong number of args calling Redis command from script")
            }
            Some(_) => error,
            None => Error::err("Unknown Redis command called from script"),
        })?;
    let (prefixed, _) = behind_prefix(command, arguments)?;
    let is_flow = matches!(command.handler, Handler::Flow(_)) && command.name != "flushall";
    if is_flow || [command, prefixed].iter().any(|command| command.is(NOSCRIPT | NO_MULTI)) {
        return Err(Error::err("This Redis command is not allowed from script"));
    }
    if read_only && command.is(WRITE | MAY_REPLICATE) {
        return Err(Error::err("Write commands are not allowed from read-only scripts."));
    }
    Ok((command, number))
}

/// Refuses what Redis refuses: a stream is read without `BLOCK` there. The others of the blocking commands only do not wait.
fn refuse_block(call: &Call<'_>) -> Result<(), Error> {
    match streams::has_block(call) {
        true => {
            let name = table::lossy(call.arguments.name());
            Err(Error::err(format!("{name} command is not allowed with BLOCK option from scripts")))
        }
        false => Ok(()),
    }
}

/// What a process says that runs no scripts.
pub(crate) fn no_interpreter() -> Error {
    Error::err("this process runs no scripts")
}

/// `EVAL script numkeys key ... argument ...`, and the like.
///
/// # Errors
/// The number of keys is none, or more than there are.
pub(crate) fn parse<'a>(call: &Call<'a>) -> Result<ScriptCall<'a>, Error> {
    let is_name = call.command.name.starts_with("evalsha");
    if is_name && call.bytes(1).len() != NAME_LENGTH {
        return Err(no_script());
    }
    let (keys, arguments) = keys_and_arguments(call, "value is not an integer or out of range")?;
    let script = match is_name {
        true => Script::Name(call.bytes(1)),
        false => Script::Source(call.bytes(1)),
    };
    Ok(ScriptCall { script, keys, arguments, seed: 0 })
}

/// What a script is given.
type Given<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>);

/// The keys and the arguments behind their number; `no_number` says that there is none.
fn keys_and_arguments<'a>(call: &Call<'a>, no_number: &'static str) -> Result<Given<'a>, Error> {
    let keys = call.integer(2).map_err(|_| Error::err(no_number))?;
    let given = call.len() - 3;
    let keys = usize::try_from(keys).map_err(|_| Error::err("Number of keys can't be negative"))?;
    if keys > given {
        return Err(Error::err("Number of keys can't be greater than number of args"));
    }
    let mut given = call.arguments.iter().skip(3);
    Ok((given.by_ref().take(keys).collect(), given.collect()))
}
