//! `check`: a recorded history against a consistency level.

use crate::cli::CheckArguments;
use anyhow::{Context, Result};
use server::Outcome;

/// Checks the file and prints the report.
pub fn run(arguments: &CheckArguments) -> Result<Outcome> {
    simulator::register_types();
    let report = checker::check_file(&arguments.file, arguments.model)
        .with_context(|| format!("cannot check {}", arguments.file.display()))?;
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else if report.undecided {
        println!(
            "{}: undecided, {} transactions: no violation found, and none excluded",
            report.model, report.transactions
        );
    } else if report.ok {
        println!("{}: ok, {} transactions", report.model, report.transactions);
    } else {
        println!("{}: VIOLATED, {} transactions", report.model, report.transactions);
        for violation in &report.violations {
            println!("\n{violation}\ntransactions: {:?}", violation.transactions);
        }
    }
    Ok(Outcome::of(report.ok))
}
