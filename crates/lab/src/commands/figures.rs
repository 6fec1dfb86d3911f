//! `figures`: the papers' experiments in virtual time, with tables, drawings and the papers' claims.
//!
//! Runs are independent: they are spread over threads, and the output does not depend on how many.

use crate::cli::FiguresArguments;
use anyhow::{Context, Result, anyhow};
use figures::tapir::{Claim, Scale};
use figures::{COST, Plot, claims_table, claret, cops, tapir, tardis, tcc};
use serde::Serialize;
use serde_json::json;
use server::Outcome;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs TAPIR's evaluation.
pub fn tapir(arguments: &FiguresArguments) -> Result<Outcome> {
    let assumed = format!(
        "A process does one thing at a time: {} us for every message it receives or sends, {} us for every record it \
         writes (assumed; nothing waits for a disk). Every client is a machine of its own. Messages, records and round \
         trips (trips: wide-area ones where there are several regions) are those of a committed transaction, failed tries \
         included; busy is the busiest replica.",
        COST.message, COST.record
    );
    let evaluation =
        Evaluation { arguments, assumed, table: figures::table, claims: tapir::claims, promised: None };
    let experiments = tapir::experiments(scale(arguments)).into_iter();
    let all = experiments.map(|experiment| {
        let plot = experiment.clone();
        let named = (experiment.id, experiment.title);
        (named, experiment.runs, move |points: &[figures::Measured]| plot.plot(points))
    });
    evaluation.run(all, |(system, setup)| figures::run(*system, setup))
}

/// Runs Claret's evaluation.
pub fn claret(arguments: &FiguresArguments) -> Result<Outcome> {
    let costs = claret::COSTS;
    let assumed = format!(
        "{} shards of three replicas, {} gateways, round trips of 150 us. A process takes together what has come while it was \
         busy: {} us for all that comes from one machine or goes to one at once, {} us for each message in it, {} us for a record \
         that it writes (assumed; nothing waits for a disk). A gateway's {} cores share its work. waits, confl, wounds: how \
         often a transaction that committed had waited, was refused, lost a lock; failed: tries that clients had to repeat; \
         combin%: committed with another one; pkt/txn, msg/tx: for each transaction that committed; busy, gate: the busiest \
         replica and gateway; uneven: deviation of the throughput in pieces of {} ms.",
        claret::SHARDS,
        claret::GATEWAYS,
        costs.packet / 1000,
        costs.message / 1000,
        costs.record / 1000,
        claret::CORES,
        claret::PIECE / 1000
    );
    let evaluation =
        Evaluation { arguments, assumed, table: claret::table, claims: claret::claims, promised: None };
    let all = claret::experiments(scale(arguments)).into_iter().map(|experiment| {
        let plot = experiment.clone();
        let named = (experiment.id, experiment.title);
        (named, experiment.runs, move |points: &[claret::Measured]| plot.plot(points))
    });
    evaluation.run(all, claret::run)
}

/// Runs Wren's evaluation.
pub fn wren(arguments: &FiguresArguments) -> Result<Outcome> {
    let evaluation = causal(arguments, TRANSACTIONS, tcc::table, tcc::wren_claims);
    run_causal(&evaluation, tcc::wren_experiments(scale(arguments)))
}

/// Runs PaRiS's evaluation.
pub fn paris(arguments: &FiguresArguments) -> Result<Outcome> {
    let evaluation = causal(arguments, TRANSACTIONS, tcc::table, tcc::paris_claims);
    run_causal(&evaluation, tcc::paris_experiments(scale(arguments)))
}

/// Runs POCC's evaluation. Found if one of the project's own claims does not hold.
pub fn pocc(arguments: &FiguresArguments) -> Result<Outcome> {
    let mut evaluation = causal(arguments, COMMANDS, tcc::pocc_table, tcc::pocc_claims);
    evaluation.promised = Some(tcc::PROMISED);
    run_causal(&evaluation, tcc::pocc_experiments(scale(arguments)))
}

/// Runs COPS's evaluation. Found if one of the project's own claims does not hold.
pub fn cops(arguments: &FiguresArguments) -> Result<Outcome> {
    let costs = tcc::COSTS;
    let assumed = format!(
        "Two regions; clients in one of them, whose machines take no time. A server does one thing at a time: {} us for every \
         message and {} us for each KB of it, {} us for a record that it writes (assumed). op/s: what both regions keep up with; \
         answered: what clients were answered; delay: between two operations of a client; nearest and all: versions that a put \
         names; checks: dep_check messages for each put; busy: the busiest server with the clients, and in the other region.",
        costs.message / 1000,
        costs.byte,
        costs.record / 1000
    );
    let (table, claims, promised) = (cops::table, cops::claims, Some(cops::PROMISED));
    let evaluation = Evaluation { arguments, assumed, table, claims, promised };
    let all = cops::experiments(scale(arguments)).into_iter().map(|experiment| {
        let plot = experiment.clone();
        let named = (experiment.id.to_owned(), experiment.title.to_owned());
        (named, experiment.runs, move |points: &[cops::Measured]| plot.plot(points))
    });
    evaluation.run(all, cops::run)
}

/// Runs TARDiS's evaluation.
pub fn tardis(arguments: &FiguresArguments) -> Result<Outcome> {
    let costs = tardis::COSTS;
    let assumed = format!(
        "A site has {} processors: any reads a client's request, {} us; one at a time works on the keyspace: {} ns for a begin, a \
         commit and every operation, {} for a message between sites, {} for one inside, {} for a record that is written; of a \
         branch keyspace's own work {} for a label looked up, {} for a state visited, {} for a key read, written, merged or \
         moved. Clients have machines of their own, 150 us away and back. busy: the keyspace; useful: the share of that which \
         went into transactions that committed; cpu: of it, for each of them; step: the longest that it did one thing; heads \
         and states: on average; ideal: states that must stay at the end.",
        tardis::PROCESSORS,
        costs.request / 1000,
        costs.operation,
        costs.message,
        costs.local_message,
        costs.record,
        costs.lookup,
        costs.state,
        costs.key
    );
    let evaluation =
        Evaluation { arguments, assumed, table: tardis::table, claims: tardis::claims, promised: None };
    let experiments = tardis::experiments(scale(arguments)).into_iter();
    let all = experiments.map(|experiment| {
        let plot = experiment.clone();
        let named = (experiment.id, experiment.title);
        (named, experiment.runs, move |points: &[tardis::Measured]| plot.plot(points))
    });
    evaluation.run(all, tardis::run)
}

/// The columns of transactions.
const TRANSACTIONS: &str = "waited%: reads of a partition that waited for their snapshot, and for how long on average; repl B: \
    bytes of effects between regions for a transaction; far and near KB/s: bytes that only tell of time, between regions and \
    inside; age: of the snapshot when a transaction begins; here and away: when a write is visible in its own and in another \
    region.";
/// The columns of single commands.
const COMMANDS: &str = "Clients think for 25 ms between commands unless it says otherwise. read ms: of GETs and of transactions that read; waited%: reads of \
    a partition that waited, and for how long on average; stale%: items of which the partition had a newer version when it \
    returned them; unstable%: of which the newest one was from another region; behind: newer versions of a stale one; repl B: bytes \
    of effects between regions for a command; far and near KB/s: bytes that only tell of time, between regions and inside.";

fn causal<'a>(
    arguments: &'a FiguresArguments,
    columns: &str,
    table: fn(&[tcc::Measured]) -> String,
    claims: ClaimsOf<tcc::Measured>,
) -> Evaluation<'a, tcc::Measured> {
    let costs = tcc::COSTS;
    let assumed = format!(
        "A machine (a replica of a partition, a coordinator, and clients beside it) does one thing at a time: {} us for every \
         message to or from another one and {} us for each KB of it, {} us for a message inside, {} us for a record that it \
         writes, {} us for a client's request. Clocks are off by up to {} ms. {columns}",
        costs.message / 1000,
        costs.byte,
        costs.local_message / 1000,
        costs.record / 1000,
        costs.request / 1000,
        tcc::SKEW / 1000
    );
    Evaluation { arguments, assumed, table, claims, promised: None }
}

fn run_causal(
    evaluation: &Evaluation<'_, tcc::Measured>,
    experiments: Vec<tcc::Experiment>,
) -> Result<Outcome> {
    let all = experiments.into_iter().map(|experiment| {
        let plot = experiment.clone();
        let named = (experiment.id, experiment.title);
        (named, experiment.runs, move |points: &[tcc::Measured]| plot.plot(points))
    });
    evaluation.run(all, |(system, setup)| tcc::run(*system, setup))
}

fn scale(arguments: &FiguresArguments) -> Scale {
    Scale { seconds: arguments.seconds.get(), quick: arguments.quick, seed: arguments.seed }
}

/// Puts the points of all experiments, by name, beside what a paper says.
type ClaimsOf<P> = fn(&[(&str, &[P])]) -> Vec<Claim>;

/// The evaluation of a paper, whose points are of type `P`.
struct Evaluation<'a, P> {
    arguments: &'a FiguresArguments,
    /// What is assumed, in words.
    assumed: String,
    table: fn(&[P]) -> String,
    claims: ClaimsOf<P>,
    /// How the names begin of claims that must hold.
    promised: Option<&'static str>,
}

impl<P: Serialize + Clone + Send> Evaluation<'_, P> {
    /// Runs experiments: each has a name and a title, runs, and a way to draw their points.
    fn run<R: Sync, D: Fn(&[P]) -> Option<Plot>>(
        &self,
        experiments: impl Iterator<Item = ((String, String), Vec<R>, D)>,
        measure: impl Fn(&R) -> P + Sync,
    ) -> Result<Outcome> {
        let only = &self.arguments.only;
        if let Some(folder) = &self.arguments.out {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        if !self.arguments.json {
            println!("Virtual time, seed {}. {}\n", self.arguments.seed, self.assumed);
        }
        let threads = match self.arguments.threads {
            Some(threads) => threads.get(),
            None => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        let mut results: Vec<(String, Vec<P>)> = Vec::new();
        for ((id, title), runs, draw) in experiments {
            if only.is_empty() || only.iter().any(|name| id.starts_with(name.as_str())) {
                let points = run_all(&runs, threads, &measure)?;
                self.print(&id, &title, &points, draw(&points))?;
                results.push((id, points));
            }
        }
        if only.is_empty() {
            let points: Vec<(&str, &[P])> =
                results.iter().map(|(id, points)| (id.as_str(), points.as_slice())).collect();
            let claims = (self.claims)(&points);
            self.print_claims(&claims)?;
            let promised =
                |claim: &Claim| self.promised.is_some_and(|promised| claim.claim.starts_with(promised));
            return Ok(Outcome::of(claims.iter().all(|claim| claim.met || !promised(claim))));
        }
        Ok(Outcome::Good)
    }

    fn print(&self, id: &str, title: &str, points: &[P], plot: Option<Plot>) -> Result<()> {
        if self.arguments.json {
            for point in points {
                println!("{}", json!({ "experiment": id, "point": point }));
            }
        } else {
            println!("{id}: {title}\n{}", (self.table)(points));
        }
        if let (Some(folder), Some(plot)) = (&self.arguments.out, plot) {
            let file = Path::new(folder).join(format!("{id}.svg"));
            std::fs::write(&file, plot.svg()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn print_claims(&self, claims: &[Claim]) -> Result<()> {
        if self.arguments.json {
            for claim in claims {
                println!("{}", serde_json::to_string(claim)?);
            }
        } else {
            print!("The paper's claims\n{}", claims_table(claims));
        }
        Ok(())
    }
}

/// The points of all runs, in their order.
fn run_all<R: Sync, P: Clone + Send>(
    runs: &[R],
    threads: usize,
    measure: &(impl Fn(&R) -> P + Sync),
) -> Result<Vec<P>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<P>>> = Mutex::new(vec![None; runs.len()]);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(place) else { return };
            let point = measure(run);
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
