//! The lines that `cluster local` obeys.

use super::place::{Place, duration};
use std::time::Duration;

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Nothing passes between the two places any more.
    Cut(Place, Place),
    /// Everything passes again.
    Heal,
    /// What passes between the two places takes so long, each way.
    Delay(Place, Place, Duration),
    /// SIGKILL to a process.
    Kill(Place),
    /// SIGSTOP to a process.
    Pause(Place),
    /// SIGCONT to a process.
    Resume(Place),
    /// Starts a process that is dead, with its addresses and its data.
    Restart(Place),
    /// Start a dead process, which gives up what was lost for good.
    AcceptLoss(Place),
}

const WORDS: &str =
    "cut A B, heal, delay A B 80ms, kill A/1, pause A/1, resume A/1, restart A/1, accept-loss A/1";

impl Instruction {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["cut", from, to] => Ok(Instruction::Cut(from.parse()?, to.parse()?)),
            ["heal"] => Ok(Instruction::Heal),
            ["delay", from, to, delay] => {
                Ok(Instruction::Delay(from.parse()?, to.parse()?, duration(delay)?))
            }
            ["kill", process] => Ok(Instruction::Kill(one(process)?)),
            ["pause", process] => Ok(Instruction::Pause(one(process)?)),
            ["resume", process] => Ok(Instruction::Resume(one(process)?)),
            ["restart", process] => Ok(Instruction::Restart(one(process)?)),
            ["accept-loss", process] => Ok(Instruction::AcceptLoss(one(process)?)),
            _ => Err(format!("not understood; the instructions are: {WORDS}")),
        }
    }
}

fn one(text: &str) -> Result<Place, String> {
    let place: Place = text.parse()?;
    match place.process {
        Some(_) => Ok(place),
        None => Err(format!("`{text}` is a region; name a process, such as `{text}/1`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_or_answered_with_the_reason() {
        let place = |name: &str| name.parse::<Place>().unwrap();
        assert_eq!(Instruction::parse(" cut a  b/2 "), Ok(Instruction::Cut(place("a"), place("b/2"))));
        assert_eq!(Instruction::parse("heal"), Ok(Instruction::Heal));
        let delay = Instruction::Delay(place("a"), place("b"), Duration::from_millis(80));
        assert_eq!(Instruction::parse("delay a b 80ms"), Ok(delay));
        assert_eq!(Instruction::parse("restart c/3"), Ok(Instruction::Restart(place("c/3"))));
        assert_eq!(Instruction::parse("accept-loss c/3"), Ok(Instruction::AcceptLoss(place("c/3"))));
        assert!(Instruction::parse("kill a").unwrap_err().contains("a/1"));
        for wrong in ["", "cut a", "heal all", "delay a b", "stop a/1"] {
            assert!(Instruction::parse(wrong).unwrap_err().contains("restart"), "{wrong}");
        }
    }
}
