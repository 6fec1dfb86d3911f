//! `history`: recorded histories for other checkers.

use crate::cli::HistoryExportArguments;
use anyhow::{Context, Result};
use server::Outcome;
use std::fs::File;
use std::io::{BufReader, BufWriter};

/// Writes the history to standard output in another format, and what that cannot express to standard error.
pub fn export(arguments: &HistoryExportArguments) -> Result<Outcome> {
    simulator::register_types();
    let name = || arguments.file.display().to_string();
    let file = File::open(&arguments.file).with_context(|| format!("cannot open {}", name()))?;
    let history =
        checker::read_history(BufReader::new(file)).with_context(|| format!("cannot read {}", name()))?;
    let output = BufWriter::new(std::io::stdout().lock());
    let left_out = checker::export(&history, arguments.format, output)
        .with_context(|| format!("cannot export {}", name()))?;
    if !left_out.is_nothing() {
        eprintln!("{left_out}");
    }
    Ok(Outcome::Good)
}
