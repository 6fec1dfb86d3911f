//! `figures` on the command line.

use clap::{Args, Subcommand};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum FiguresCommand {
    /// TAPIR beside two-phase commit over replicated logs and a weakly consistent store.
    #[command(after_help = "\
Latency and throughput of tapir, locking, occ and qwstore in one rack, one data center and over the wide area, beside the
paper's claims. Equal seeds give equal output. What is run and assumed: docs/evidence/figures.md. A run measures --seconds; four
times as long over the wide area.

Examples:
  anabranch-lab figures tapir --quick
  anabranch-lab figures tapir --seconds 2 --out figures
  anabranch-lab figures tapir --only rmw-latency --only touched")]
    Tapir(FiguresArguments),
    /// Claret's locks, phases and combining, each with and without, beside no transactions and optimistic ones.
    #[command(after_help = "\
Throughput, latency and conflicts of readwrite, typed, their phases, claret (typed locks, phases and combining), none, optimistic
and occ: raw mix, RUBiS and Retwis, beside the paper's claims and the project's aims. Equal seeds give equal output. What is
run and assumed: docs/evidence/figures.md. A run measures --seconds; with --quick a quarter.

Examples:
  anabranch-lab figures claret --quick
  anabranch-lab figures claret --quick --only fig5 --only fig9 --out figures")]
    Claret(FiguresArguments),
    /// Wren beside Cure, Cure with hybrid clocks, and no causal consistency.
    #[command(after_help = "\
Latency, throughput, how long reads wait, bytes and visibility of wren, cure, h-cure and nocc, beside the thesis's claims.
Equal seeds give equal output. What is run and assumed: docs/evidence/figures.md. A run measures a fifth of --seconds.

Examples:
  anabranch-lab figures wren --quick
  anabranch-lab figures wren --only small --only mix-95-5 --out figures")]
    Wren(FiguresArguments),
    /// PaRiS beside blocking partial replication, and no causal consistency.
    #[command(after_help = "\
Latency, throughput, how long reads wait, bytes and visibility of paris, bpr and nocc, beside the thesis's claims. Equal
seeds give equal output. What is run and assumed: docs/evidence/figures.md. A run measures --seconds.

Examples:
  anabranch-lab figures paris --quick
  anabranch-lab figures paris --only locality")]
    Paris(FiguresArguments),
    /// POCC beside Cure with hybrid clocks.
    #[command(after_help = "\
Throughput, response times, stale items, how long reads wait, and bytes of pocc and h-cure: GETs and a SET, and read-only
transactions and a SET, beside the thesis's claims and the project's own. Exit code 1 if one of these does not hold. Equal
seeds give equal output. What is run and assumed: docs/evidence/figures.md. A run measures a fifth of --seconds; with --quick a
tenth.

Examples:
  anabranch-lab figures pocc --quick
  anabranch-lab figures pocc --only get-put --out figures")]
    Pocc(FiguresArguments),
    /// COPS and COPS-GT beside log exchange.
    #[command(after_help = "\
Throughput, latency, dependencies and dep_check messages of cops, cops-gt and log: single puts and gets on groups of keys (COPS,
section 6), beside the paper's claims and the project's own. Exit code 1 if one of these does not hold. Equal seeds give equal
output. What is run and assumed: docs/evidence/figures.md. A run measures a fifth of --seconds; with --quick a tenth.

Examples:
  anabranch-lab figures cops --quick
  anabranch-lab figures cops --only scale --out figures")]
    Cops(FiguresArguments),
    /// TARDiS beside the same store with locks and with optimistic concurrency control.
    #[command(after_help = "\
Throughput, latency, useful work, states and bytes of branch keyspaces and of strict ones of one replica, beside the paper's
claims and the project's goals. Equal seeds give equal output. What is run and assumed: docs/evidence/figures.md. A run measures
--seconds.

Examples:
  anabranch-lab figures tardis --quick
  anabranch-lab figures tardis --only branching --out figures")]
    Tardis(FiguresArguments),
}

#[derive(Debug, Args)]
pub struct FiguresArguments {
    /// Virtual seconds: see below
    #[arg(long, value_name = "N", default_value = "1")]
    pub seconds: NonZeroU64,
    /// Fewer points
    #[arg(long)]
    pub quick: bool,
    /// Only the experiments whose names begin like this, and no claims; may be given several times
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Draw the curves into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Decides everything that is drawn
    #[arg(long, value_name = "X", default_value_t = 1)]
    pub seed: u64,
    /// Runs at the same time [default: one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Print a JSON object for every point and claim
    #[arg(long)]
    pub json: bool,
}
