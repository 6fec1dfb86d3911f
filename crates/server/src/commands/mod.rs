//! The commands, one module each.

pub mod bench;
pub mod check;
pub mod cluster;
pub mod figures;
pub mod history;
pub mod serve;
pub mod sim;

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Good,
    /// It found what it looks for: a violation, a test that fails.
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
