//! The DAG as text, for a person (T15).

use super::Dag;
use crate::StateId;
use std::fmt::{self, Write};

impl Dag {
    /// One line a state, the most recent first: `*` a head, `Y` a fork point, `|` another; its id, its parents, and
    /// how many keys it and what joined it wrote.
    ///
    /// # Errors
    /// Only those of `out`.
    pub fn draw(&self, out: &mut impl Write) -> fmt::Result {
        for node in self.states().rev() {
            let sign = match self.children(node).len() {
                0 => '*',
                1 => '|',
                _ => 'Y',
            };
            let parents: Vec<StateId> = self.parents(node).iter().map(|parent| self.id(*parent)).collect();
            write!(out, "{sign} {}", self.id(node))?;
            for (place, parent) in parents.iter().enumerate() {
                write!(out, "{}{parent}", if place == 0 { " <- " } else { ", " })?;
            }
            match self.writes(node).len() {
                0 => writeln!(out)?,
                1 => writeln!(out, "  1 key")?,
                keys => writeln!(out, "  {keys} keys")?,
            }
        }
        Ok(())
    }
}
