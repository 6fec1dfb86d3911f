//! Named steps with their durations, run in order, and the summary at the end.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// One thing that must pass.
#[derive(Clone, Copy)]
pub struct Step {
    /// The word that names it on the command line and in the summary.
    pub name: &'static str,
    /// What it shows, for a person who reads the list.
    pub about: &'static str,
    /// Does it; an error says what was wrong.
    pub run: fn(&Workspace) -> Result<()>,
}

/// What the runner does after a step that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Leaves the later steps out.
    Stop,
    /// Runs the later steps all the same.
    Continue,
}

/// How a step ended.
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

/// The steps of `all` that `names` asks for, in the order of `all`; all of them when no name is given.
pub fn select(all: &[Step], names: &[String]) -> Result<Vec<Step>> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|step| step.name != name.as_str())) {
        let known: Vec<&str> = all.iter().map(|step| step.name).collect();
        bail!("no step `{unknown}`; the steps are: {}", known.join(" "));
    }
    Ok(all
        .iter()
        .filter(|step| names.is_empty() || names.iter().any(|name| name == step.name))
        .copied()
        .collect())
}

/// Runs `steps` and prints the summary, whose last line counts what passed and failed; true when nothing failed.
pub fn run_steps(
    workspace: &Workspace,
    command: &str,
    steps: &[Step],
    on_failure: OnFailure,
) -> Result<bool> {
    let mut outcomes: Vec<(Step, Outcome)> = Vec::with_capacity(steps.len());
    let mut stopped = false;
    for &step in steps {
        let outcome = if stopped { Outcome::NotRun } else { run_step(workspace, command, step) };
        stopped |= on_failure == OnFailure::Stop && matches!(outcome, Outcome::Failed(_));
        outcomes.push((step, outcome));
    }
    Ok(summarize(&outcomes))
}

fn run_step(workspace: &Workspace, command: &str, step: Step) -> Outcome {
    println!("\n== {}: {}", step.name, step.about);
    let start = Instant::now();
    let result = (step.run)(workspace);
    let duration = start.elapsed();
    match result {
        Ok(()) => {
            println!("== {}: passed in {}", step.name, seconds(duration));
            Outcome::Passed(duration)
        }
        Err(error) => {
            println!("== {}: FAILED after {}: {error:#}", step.name, seconds(duration));
            println!("== repeat it with: cargo xtask {command} {}", step.name);
            Outcome::Failed(duration)
        }
    }
}

/// Prints the table of steps with their times, and their sum.
fn summarize(outcomes: &[(Step, Outcome)]) -> bool {
    println!();
    let (mut passed, mut failed, mut total) = (0, 0, Duration::ZERO);
    for (step, outcome) in outcomes {
        match outcome {
            Outcome::Passed(duration) => {
                (passed, total) = (passed + 1, total + *duration);
                println!("passed   {:>9}  {}", seconds(*duration), step.name);
            }
            Outcome::Failed(duration) => {
                (failed, total) = (failed + 1, total + *duration);
                println!("FAILED   {:>9}  {}", seconds(*duration), step.name);
            }
            Outcome::NotRun => println!("not run             {}", step.name),
        }
    }
    println!("         {:>9}  in all", seconds(total));
    println!("{passed} passed, {failed} failed");
    failed == 0
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 2] = [
        Step { name: "first", about: "", run: |_| Ok(()) },
        Step { name: "second", about: "", run: |_| bail!("on purpose") },
    ];

    #[test]
    fn no_name_selects_every_step_and_an_unknown_name_is_refused() {
        assert_eq!(select(&STEPS, &[]).unwrap().len(), 2);
        let one = select(&STEPS, &["second".to_owned()]).unwrap();
        assert_eq!(one.iter().map(|step| step.name).collect::<Vec<_>>(), ["second"]);
        assert!(select(&STEPS, &["third".to_owned()]).is_err());
    }

    #[test]
    fn a_failed_step_fails_the_summary() {
        let passed = (STEPS[0], Outcome::Passed(Duration::ZERO));
        let failed = (STEPS[1], Outcome::Failed(Duration::ZERO));
        assert!(summarize(&[passed]));
        assert!(!summarize(&[failed, (STEPS[0], Outcome::NotRun)]));
    }
}
