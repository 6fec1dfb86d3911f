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

    /// For Graphviz: a box a state, an arrow from every parent.
    ///
    /// # Errors
    /// Only those of `out`.
    pub fn draw_dot(&self, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "digraph states {{\n  rankdir=TB; node [shape=box];")?;
        for node in self.states() {
            let shape = if self.children(node).is_empty() { ", style=bold" } else { "" };
            let (id, keys) = (self.id(node), self.writes(node).len());
            writeln!(out, "  \"{id}\" [label=\"{id}\\n{keys} keys\"{shape}];")?;
            for parent in self.parents(node) {
                writeln!(out, "  \"{}\" -> \"{id}\";", self.id(*parent))?;
            }
        }
        writeln!(out, "}}")
    }

    /// An array of objects with `id`, `parents` and `keys`, parents first.
    ///
    /// # Errors
    /// Only those of `out`.
    pub fn draw_json(&self, out: &mut impl Write) -> fmt::Result {
        write!(out, "[")?;
        for (place, node) in self.states().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{{\"id\":\"{}\",\"parents\":[", self.id(node))?;
            for (place, parent) in self.parents(node).iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                write!(out, "{comma}\"{}\"", self.id(*parent))?;
            }
            write!(out, "],\"keys\":{}}}", self.writes(node).len())?;
        }
        write!(out, "]")
    }
}
