//! `figures`: the papers' experiments in virtual time, with tables, drawings and the papers' claims.
//!
//! Runs are independent: they are spread over threads, and the output does not depend on how many.

use super::Outcome;
use crate::cli::FiguresTapirArguments;
use anyhow::{Context, Result, anyhow};
use figures::tapir::{Experiment, Scale, claims, experiments};
use figures::{COST, Measured, Setup, System, claims_table, table};
use serde_json::json;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs TAPIR's evaluation.
pub fn tapir(arguments: &FiguresTapirArguments) -> Result<Outcome> {
    let scale = Scale { seconds: arguments.seconds.get(), quick: arguments.quick, seed: arguments.seed };
    let mut chosen = experiments(scale);
    if !arguments.only.is_empty() {
        chosen.retain(|experiment| arguments.only.iter().any(|id| experiment.id.starts_with(id.as_str())));
    }
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    if !arguments.json {
        println!(
            "Virtual time, seed {}. A process does one thing at a time: {} us for every message it receives or sends, \
             {} us for every record it writes (assumed; nothing waits for a disk). Every client is a machine of its \
             own. Messages, records and round trips (trips: wide-area ones where there are several regions) are those \
             of a committed transaction, failed tries included; busy is the busiest replica.\n",
            scale.seed, COST.message, COST.record
        );
    }
    let threads = match arguments.threads {
        Some(threads) => threads.get(),
        None => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
    };
    let mut results: Vec<(String, Vec<Measured>)> = Vec::new();
    for experiment in chosen {
        let points = run_all(&experiment.runs, threads)?;
        print(&experiment, &points, arguments)?;
        results.push((experiment.id, points));
    }
    if arguments.only.is_empty() {
        let points: Vec<(&str, &[Measured])> =
            results.iter().map(|(id, points)| (id.as_str(), points.as_slice())).collect();
        let claims = claims(&points);
        if arguments.json {
            for claim in &claims {
                println!("{}", serde_json::to_string(claim)?);
            }
        } else {
            print!("The paper's claims\n{}", claims_table(&claims));
        }
    }
    Ok(Outcome::Good)
}

fn print(experiment: &Experiment, points: &[Measured], arguments: &FiguresTapirArguments) -> Result<()> {
    if arguments.json {
        for point in points {
            println!("{}", json!({ "experiment": experiment.id, "point": point }));
        }
    } else {
        println!("{}: {}\n{}", experiment.id, experiment.title, table(points));
    }
    if let (Some(folder), Some(plot)) = (&arguments.out, experiment.plot(points)) {
        let file = Path::new(folder).join(format!("{}.svg", experiment.id));
        std::fs::write(&file, plot.svg()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The points of all runs, in their order.
fn run_all(runs: &[(System, Setup)], threads: usize) -> Result<Vec<Measured>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Measured>>> = Mutex::new(vec![None; runs.len()]);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((system, setup)) = runs.get(place) else { return };
            let point = figures::run(*system, setup);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[place] = Some(point);
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for handle in handles {
            handle.join().map_err(|_| anyhow!("a run panicked; its message is above"))?;
        }
        Ok(())
    })?;
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.into_iter().collect::<Option<_>>().context("a run is missing")
}
