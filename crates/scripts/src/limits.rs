//! What a merge may use, and what is left of it.

use mlua::Error;
use std::cell::Cell as Slot;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How much memory the interpreter of a merge may use, in bytes.
pub(crate) const MEMORY: usize = 32 << 20;
/// How many bytes a merge may write, in answers and in JSON.
const WRITTEN: usize = 32 << 20;
/// How many instructions a merge may execute, and how many more for every key that it resolves.
const INSTRUCTIONS: u64 = 5_000_000;
const INSTRUCTIONS_PER_KEY: u64 = 2_000;
/// How long a merge may take, and how much longer for every key: a machine that is this slow merges nothing.
const TIME: Duration = Duration::from_secs(1);
const TIME_PER_KEY: Duration = Duration::from_micros(200);
/// The same where a read waits for it.
const READ_INSTRUCTIONS: u64 = 200_000;
const READ_TIME: Duration = Duration::from_millis(50);
/// Instructions are counted so many at a time.
pub(crate) const STRIDE: u32 = 64;

/// What is left of a merge's limits.
pub(crate) struct Limits {
    instructions: Slot<u64>,
    allowed: u64,
    written: Slot<usize>,
    until: Instant,
    reached: Slot<Option<&'static str>>,
}

impl Limits {
    pub fn of(keys: usize) -> Rc<Self> {
        let allowed = INSTRUCTIONS + INSTRUCTIONS_PER_KEY * keys as u64;
        let until = Instant::now() + TIME + TIME_PER_KEY * u32::try_from(keys).unwrap_or(u32::MAX);
        Rc::new(Limits {
            instructions: Slot::new(0),
            allowed,
            written: Slot::new(0),
            until,
            reached: Slot::new(None),
        })
    }

    /// For two values that somebody waits to read, together with whoever else asks the partition.
    pub fn of_read() -> Rc<Self> {
        let until = Instant::now() + READ_TIME;
        let (instructions, written, reached) = (Slot::new(0), Slot::new(0), Slot::new(None));
        Rc::new(Limits { instructions, allowed: READ_INSTRUCTIONS, written, until, reached })
    }

    /// Counts the next instructions.
    pub fn count(&self) -> mlua::Result<()> {
        self.instructions.set(self.instructions.get() + u64::from(STRIDE));
        if self.instructions.get() > self.allowed {
            self.reached.set(Some("instructions"));
        } else if Instant::now() > self.until {
            self.reached.set(Some("time"));
        }
        match self.reached.get() {
            None => Ok(()),
            Some(limit) => Err(Error::runtime(limit)),
        }
    }

    /// Counts bytes that leave the interpreter.
    pub fn write(&self, bytes: usize) -> mlua::Result<()> {
        self.written.set(self.written.get().saturating_add(bytes));
        match self.written.get() > WRITTEN {
            true => Err(Error::runtime(format!("it wrote more than {} MiB", WRITTEN >> 20))),
            false => Ok(()),
        }
    }

    /// An error in one line, without the interpreter's own traces.
    pub fn reason(&self, error: &Error) -> String {
        match (self.reached.get(), error) {
            (Some("instructions"), _) => format!("it executed more than {} instructions", self.allowed),
            (Some(_), _) => "it took too long".to_owned(),
            (None, Error::MemoryError(_)) => format!("it used more than {} MiB of memory", MEMORY >> 20),
            (None, error) => {
                let text = match error {
                    Error::CallbackError { cause, .. } => cause.to_string(),
                    error => error.to_string(),
                };
                let line = text.lines().next().unwrap_or_default();
                line.trim_start_matches("runtime error: ").chars().take(300).collect()
            }
        }
    }
}
