//! The commands, one module each.

pub mod cluster;
pub mod serve;

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Good,
    /// It found what it looks for: a violation, a measurement that fails, a process that did not end in order.
    Found,
}

impl Outcome {
    /// The exit code of a command that could not be carried out.
    pub const FAILED: u8 = 2;

    /// Good when nothing was found.
    pub fn of(good: bool) -> Self {
        if good { Outcome::Good } else { Outcome::Found }
    }

    /// What the process ends with.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Good => 0,
            Outcome::Found => 1,
        }
    }
}
