//! The command line. Its shapes are relied on by scripts: add to them, do not change them.

mod measures;

use crate::commands::cluster::{Delay, Skew};
use crate::config::{Durability, HostPort, LogLevel};
use checker::Level;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use measures::*;
use simulator::Feature;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes: 0 all is well; 1 a violation was found, or a measurement failed; 2 the command could not be carried out.";

/// Anabranch: a transactional data-structure store that speaks the Redis protocol.
///
/// Without a command it serves.
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, after_help = EXIT_CODES)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one process of the store.
    Serve(ServeArguments),
    /// Run a cluster.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Simulate a protocol with faults, from seeds, and check what clients saw.
    Sim(SimArguments),
    /// Check a recorded history.
    Check(CheckArguments),
    /// Handle recorded histories.
    #[command(subcommand)]
    History(HistoryCommand),
    /// Measure servers.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run a paper's experiments in virtual time.
    #[command(subcommand)]
    Figures(FiguresCommand),
}

impl Default for Command {
    fn default() -> Self {
        Command::Serve(ServeArguments::default())
    }
}

#[derive(Debug, Default, Args)]
#[command(after_help = "\
Prints `ready` with its addresses when it serves. SIGINT and SIGTERM end it in order; a second one ends it at once.
The environment variable ANABRANCH_LOG sets the log level as well, with precedence over the file.

Examples:
  anabranch serve --listen 127.0.0.1:6379 --data /var/lib/anabranch
  anabranch serve --memory --listen 127.0.0.1:0 --json
  anabranch serve --print-config > anabranch.toml")]
pub struct ServeArguments {
    /// Where clients connect; may be given several times [default: 127.0.0.1:6379]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<HostPort>,
    /// The directory of the log and its checkpoints [default: ./anabranch-data]
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    pub data: Option<PathBuf>,
    /// Keep everything in memory only
    #[arg(long)]
    pub memory: bool,
    /// A TOML file with options; the command line has precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve /metrics and /healthz over HTTP here [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub admin: Option<HostPort>,
    /// What a reply promises, unless a keyspace chooses for itself [default: everysec]
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Worker threads [default: 1]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,
    /// The least severe events to log: error, warn, info, debug, trace, or filters by module [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    #[command(flatten)]
    pub member: MemberArguments,
    /// Print the configuration in effect as a commented file, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Print `ready` as a JSON object
    #[arg(long)]
    pub json: bool,
}

/// What makes a process one of a cluster.
#[derive(Debug, Default, Args)]
pub struct MemberArguments {
    /// Serve as a process of the cluster that this JSON file describes
    #[arg(long, value_name = "FILE", requires = "process")]
    pub cluster: Option<PathBuf>,
    /// Which process of the cluster this is
    #[arg(long, value_name = "N", requires = "cluster")]
    pub process: Option<u16>,
    /// The cluster is new and all its processes start for the first time: an empty directory has forgotten nothing
    #[arg(long, requires = "cluster")]
    pub bootstrap: bool,
    /// After a loss of data that no peer can make good: causal keyspaces go on with what is left
    #[arg(long, requires = "cluster")]
    pub accept_loss: bool,
    /// End in order when standard input ends, as it does when the process that started this one dies
    #[arg(long, requires = "cluster")]
    pub until_input_ends: bool,
    /// Added to the wall clock, in milliseconds, to test skewed clocks
    #[arg(long, value_name = "MS", requires = "cluster", allow_negative_numbers = true, default_value_t = 0)]
    pub clock_skew_ms: i64,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Run a cluster of processes on this machine, with faults on demand.
    Local(ClusterLocalArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Regions are called a, b, c ...; processes a/1, a/2 ... Stays in the foreground until SIGINT or SIGTERM, and obeys lines
on standard input, each answered by `ok` or `error: ...`:

  cut a b           nothing passes between two regions or processes any more
  heal              everything passes again
  delay a b 80ms    what passes between them takes so long, each way
  kill a/1          SIGKILL
  pause a/1         SIGSTOP
  resume a/1        SIGCONT
  restart a/1       starts a dead process again, with its port and its data
  accept-loss a/1   the same, and what was lost for good is given up (serve --accept-loss)

A strict cluster has an odd number of processes and serves while most of them do. A causal region serves by itself.

Examples:
  anabranch cluster local --regions 3 --processes 1
  anabranch cluster local --regions 3 --processes 1 --concurrency locking
  anabranch cluster local --regions 2 --processes 2 --model causal --delay a-b=80ms --json")]
pub struct ClusterLocalArguments {
    /// How many regions
    #[arg(long, value_name = "R")]
    pub regions: NonZeroU16,
    /// How many processes each region has
    #[arg(long, value_name = "P")]
    pub processes: NonZeroU16,
    /// How the keyspace `default` is kept
    #[arg(long, value_enum, default_value_t = ClusterModel::Strict)]
    pub model: ClusterModel,
    /// How a strict one keeps conflicting transactions apart
    #[arg(long, value_enum, default_value_t = ClusterConcurrency::Optimistic)]
    pub concurrency: ClusterConcurrency,
    /// Which protocol keeps a causal one
    #[arg(long, value_enum, default_value_t = ClusterProtocol::Usual)]
    pub protocol: ClusterProtocol,
    /// How many partitions it has
    #[arg(long, value_name = "N", default_value = "2")]
    pub partitions: NonZeroU16,
    /// How many processes keep each partition of a strict one: 1, 3, 5 ...; how many regions each of a causal one [default:
    /// every process, every region]
    #[arg(long, value_name = "N")]
    pub replicas: Option<NonZeroU16>,
    /// How many processes of a region keep each partition of a causal one: 1 or 3 [default: 1]
    #[arg(long, value_name = "N")]
    pub copies: Option<NonZeroU16>,
    /// Clients connect at this port and the following ones; 0 takes any that are free
    #[arg(long, value_name = "N", default_value_t = 7001)]
    pub base_port: u16,
    /// Where data and logs are kept [default: a directory that is removed at the end]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Processes keep everything in memory only; one that restarts learns it from the others
    #[arg(long, conflicts_with_all = ["data", "durability"])]
    pub memory: bool,
    /// A TOML file with options for every process; see `serve --print-config`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What a reply promises: always or everysec
    #[arg(long, value_enum, default_value_t = Durability::Everysec)]
    pub durability: Durability,
    /// What passes between two places takes so long, each way; may be given several times
    #[arg(long, value_name = "A-B=80ms")]
    pub delay: Vec<Delay>,
    /// Processes reach each other without the relays that delay and cut, but where there is a --delay: for measurements of
    /// speed
    #[arg(long)]
    pub direct: bool,
    /// How far a process's clock is off, such as a/1=-200ms; may be given several times
    #[arg(long, value_name = "A/1=200ms", allow_hyphen_values = true)]
    pub skew: Vec<Skew>,
    /// Print `ready` as a JSON object
    #[arg(long)]
    pub json: bool,
}

/// How a replicated keyspace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterModel {
    /// Strictly serializable transactions, replicated by every process
    Strict,
    /// Causal snapshots, replicated by every region
    Causal,
    /// Branch on conflict, a site in every region
    Branch,
}

/// How a replicated strict keyspace keeps conflicting transactions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterConcurrency {
    /// No leader: every replica validates (TAPIR)
    Optimistic,
    /// Two-phase commit over replicated logs, locks at the shards' leaders
    Locking,
    /// Two-phase commit over replicated logs, validation at the shards' leaders
    Occ,
    /// Write all, read any, without transactions: a baseline for measurements
    Qwstore,
}

/// Which protocol keeps a causal keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterProtocol {
    /// Wren; with --replicas PaRiS
    Usual,
    /// Cure, a baseline for measurements as the following ones are
    Cure,
    /// Cure with hybrid clocks
    HCure,
    /// Blocking partial replication
    Bpr,
    /// Cure whose reads wait for the next application, as in the thesis's code
    CureApplied,
    /// Cure with hybrid clocks, likewise
    HCureApplied,
    /// Without causal consistency
    Nocc,
}

impl From<ClusterProtocol> for runtime::ClusterProtocol {
    fn from(protocol: ClusterProtocol) -> Self {
        match protocol {
            ClusterProtocol::Usual => runtime::ClusterProtocol::Usual,
            ClusterProtocol::Cure => runtime::ClusterProtocol::Cure,
            ClusterProtocol::HCure => runtime::ClusterProtocol::HCure,
            ClusterProtocol::Bpr => runtime::ClusterProtocol::Bpr,
            ClusterProtocol::CureApplied => runtime::ClusterProtocol::CureApplied,
            ClusterProtocol::HCureApplied => runtime::ClusterProtocol::HCureApplied,
            ClusterProtocol::Nocc => runtime::ClusterProtocol::Nocc,
        }
    }
}

impl From<ClusterConcurrency> for runtime::ClusterConcurrency {
    fn from(concurrency: ClusterConcurrency) -> Self {
        match concurrency {
            ClusterConcurrency::Optimistic => runtime::ClusterConcurrency::Optimistic,
            ClusterConcurrency::Locking => runtime::ClusterConcurrency::Locking,
            ClusterConcurrency::Occ => runtime::ClusterConcurrency::Occ,
            ClusterConcurrency::Qwstore => runtime::ClusterConcurrency::QwStore,
        }
    }
}

impl From<ClusterModel> for runtime::ClusterModel {
    fn from(model: ClusterModel) -> Self {
        match model {
            ClusterModel::Strict => runtime::ClusterModel::Strict,
            ClusterModel::Causal => runtime::ClusterModel::Causal,
            ClusterModel::Branch => runtime::ClusterModel::Branch,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
A failing seed prints the command that shows it again. Equal seeds give equal output. With --seed or --script what
happened is printed to standard error, event by event.

Examples:
  anabranch sim wren --seeds 200
  anabranch sim tapir --seed 17
  anabranch sim tapir --seed 17 --quiet --history /tmp/h")]
pub struct SimArguments {
    /// The protocol to simulate
    pub protocol: String,
    /// Run this many seeds
    #[arg(long, value_name = "N", required_unless_present_any = ["seed", "script"], conflicts_with = "seed")]
    pub seeds: Option<NonZeroU64>,
    /// With --seeds: the first of them
    #[arg(long, value_name = "X", default_value_t = 0, conflicts_with_all = ["seed", "script"])]
    pub first_seed: u64,
    /// With --seeds: run each seed once, and do not compare with a second run
    #[arg(long, conflicts_with_all = ["seed", "script"])]
    pub once: bool,
    /// Run this seed only, print what happens and write its history
    #[arg(long, value_name = "X")]
    pub seed: Option<u64>,
    /// Run what this file says, as printed for a failing seed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "with"])]
    pub script: Option<PathBuf>,
    /// Shrink the first seed that fails to a short script with at most this many runs; 0 to leave it
    #[arg(long, value_name = "RUNS", default_value_t = 400, conflicts_with = "script")]
    pub shrink: usize,
    /// Let every seed bring this, also where it is off for its known bugs; may be given several times
    #[arg(long, value_name = "FEATURE")]
    pub with: Vec<Feature>,
    /// Write the history of the first failing seed, or else of the last seed, to this file [default with --seed:
    /// sim-PROTOCOL-SEED.jsonl in the present folder; else none]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// With --seed or --script: do not print what happened, and write no history but to --history
    #[arg(long, conflicts_with = "seeds")]
    pub quiet: bool,
    /// Seeds that run at the same time [default: one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Levels: strict-serializable, serializable, snapshot, transactional-causal, causal, read-atomic, branch, convergence;
read-your-writes, monotonic-reads, monotonic-writes, writes-follow-reads, exactly-once.

What a history without claims leaves open is reported as undecided, with exit code 0. See docs/histories.md.

Example:
  anabranch check history.jsonl --model strict-serializable")]
pub struct CheckArguments {
    /// The history: one JSON object per transaction and line
    pub file: PathBuf,
    /// What to check it for
    #[arg(long, value_name = "LEVEL")]
    pub model: Level,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Write a history in the format of another checker.
    Export(HistoryExportArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
plume      lines for Plume and AWDIT: r(key,value,session,transaction) and w(...)
dbcop      JSON for DBCop
porcupine  JSON lines for linearizability checkers: client, call, return, input, output

An operation that these formats cannot express is refused by name. See docs/histories.md.

Example:
  anabranch history export history.jsonl --format plume > history.txt")]
pub struct HistoryExportArguments {
    /// The history: one JSON object per transaction and line
    pub file: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT")]
    pub format: checker::Format,
}

#[derive(Debug, Subcommand)]
pub enum FiguresCommand {
    /// TAPIR beside two-phase commit over replicated logs and a weakly consistent store.
    #[command(after_help = "\
Latency and throughput of tapir, locking, occ and qwstore in one rack, one data center and over the wide area, beside the
paper's claims. Equal seeds give equal output. What is run and assumed: docs/figures.md. A run measures --seconds; four
times as long over the wide area.

Examples:
  anabranch figures tapir --quick
  anabranch figures tapir --seconds 2 --out figures
  anabranch figures tapir --only rmw-latency --only touched")]
    Tapir(FiguresArguments),
    /// Claret's locks, phases and combining, each with and without, beside no transactions and optimistic ones.
    #[command(after_help = "\
Throughput, latency and conflicts of readwrite, typed, their phases, claret (typed locks, phases and combining), none, optimistic
and occ: raw mix, RUBiS and Retwis, beside the paper's claims and the project's aims. Equal seeds give equal output. What is
run and assumed: docs/figures.md. A run measures --seconds; with --quick a quarter.

Examples:
  anabranch figures claret --quick
  anabranch figures claret --quick --only fig5 --only fig9 --out figures")]
    Claret(FiguresArguments),
    /// Wren beside Cure, Cure with hybrid clocks, and no causal consistency.
    #[command(after_help = "\
Latency, throughput, how long reads wait, bytes and visibility of wren, cure, h-cure and nocc, beside the thesis's claims.
Equal seeds give equal output. What is run and assumed: docs/figures.md. A run measures a fifth of --seconds.

Examples:
  anabranch figures wren --quick
  anabranch figures wren --only small --only mix-95-5 --out figures")]
    Wren(FiguresArguments),
    /// PaRiS beside blocking partial replication, and no causal consistency.
    #[command(after_help = "\
Latency, throughput, how long reads wait, bytes and visibility of paris, bpr and nocc, beside the thesis's claims. Equal
seeds give equal output. What is run and assumed: docs/figures.md. A run measures --seconds.

Examples:
  anabranch figures paris --quick
  anabranch figures paris --only locality")]
    Paris(FiguresArguments),
    /// TARDiS beside the same store with locks and with optimistic concurrency control.
    #[command(after_help = "\
Throughput, latency, useful work, states and bytes of branch keyspaces and of strict ones of one replica, beside the paper's
claims and the project's goals. Equal seeds give equal output. What is run and assumed: docs/figures.md. A run measures
--seconds.

Examples:
  anabranch figures tardis --quick
  anabranch figures tardis --only branching --out figures")]
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

#[cfg(test)]
mod tests {
    use super::*;
    use bench::tcc::Protocol;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<CommandLine, clap::Error> {
        CommandLine::try_parse_from(line.split_whitespace())
    }

    fn refusal(line: &str) -> String {
        parse(line).unwrap_err().to_string()
    }

    #[test]
    fn the_definition_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn no_command_means_serve() {
        assert!(matches!(parse("anabranch").unwrap().command.unwrap_or_default(), Command::Serve(_)));
    }

    #[test]
    fn serve_takes_its_options() {
        let line = "anabranch serve --listen 127.0.0.1:1 --listen [::1]:2 --memory --admin localhost:3 \
                    --durability always --threads 4 --log-level warn --json";
        let Some(Command::Serve(serve)) = parse(line).unwrap().command else {
            unreachable!("serve was asked")
        };
        assert_eq!(serve.listen.len(), 2);
        assert_eq!(serve.durability, Some(Durability::Always));
        assert_eq!(serve.threads, NonZeroU16::new(4));
        assert_eq!(serve.log_level.map(String::from).as_deref(), Some("warn"));
        assert!(serve.memory && serve.json && !serve.print_config);
        assert!(refusal("anabranch serve --memory --data /tmp/x").contains("cannot be used with"));
        assert!(refusal("anabranch serve --durability never").contains("everysec"));
        assert!(refusal("anabranch serve --listen 6379").contains("HOST:PORT"));
        assert!(refusal("anabranch serve --log-level loud").contains("debug"));
        assert!(refusal("anabranch serve --threads 0").contains("--threads"));
    }

    #[test]
    fn sim_takes_seeds_or_one_seed() {
        assert!(parse("anabranch sim wren --seeds 20 --json").is_ok());
        assert!(parse("anabranch sim wren --seed 0 --quiet --history /tmp/h").is_ok());
        assert!(parse("anabranch sim wren").is_err());
        assert!(parse("anabranch sim wren --seeds 2 --seed 1").is_err());
        assert!(parse("anabranch sim wren --seeds 2 --quiet").is_err());
    }

    #[test]
    fn check_names_the_levels_it_knows() {
        assert!(parse("anabranch check h.jsonl --model convergence").is_ok());
        assert!(refusal("anabranch check h.jsonl --model linear").contains("strict-serializable"));
    }

    #[test]
    fn transactional_workloads_take_several_servers() {
        let line =
            "anabranch bench retwis --url 127.0.0.1:1 --url 127.0.0.1:2 --zipf 0.75 --txn --history /tmp/h";
        let Some(Command::Bench(BenchCommand::Retwis(retwis))) = parse(line).unwrap().command else {
            unreachable!("retwis was asked")
        };
        assert_eq!((retwis.load.url.len(), retwis.load.zipf, retwis.load.txn), (2, Some(0.75), true));
        assert!(parse("anabranch bench rmw --most-keys 4").is_ok());
        assert!(refusal("anabranch bench rmw --zipf 11").contains("--zipf"));
        assert!(
            refusal("anabranch bench rmw --history h --against 127.0.0.1:1").contains("cannot be used with")
        );
        assert!(parse("anabranch history export h --format dbcop").is_ok());
        assert!(refusal("anabranch history export h --format elle").contains("porcupine"));
    }

    #[test]
    fn protocols_of_bench_tcc_are_a_list() {
        let line = "anabranch bench tcc --protocols wren,h-cure --touched 2 --local 95 --read-only 50";
        let Some(Command::Bench(BenchCommand::Tcc(tcc))) = parse(line).unwrap().command else {
            unreachable!("tcc was asked")
        };
        assert_eq!(tcc.protocols, [Protocol::Wren, Protocol::HybridCure]);
        assert!(refusal("anabranch bench tcc --protocols wren --against 127.0.0.1:1").contains("cannot be"));
        assert!(refusal("anabranch bench tcc --protocols occ").contains("h-cure"));
        assert!(refusal("anabranch bench tcc --writes 20").contains("--writes"));
        assert!(refusal("anabranch bench tcc --local 101").contains("--local"));
    }

    #[test]
    fn claret_s_workloads_compare_settings() {
        let line =
            "anabranch bench rawmix --setting readwrite --setting typed-phased --adds 20 --zipf 1.2 --txn";
        let Some(Command::Bench(BenchCommand::Rawmix(rawmix))) = parse(line).unwrap().command else {
            unreachable!("rawmix was asked")
        };
        assert_eq!((rawmix.adds, rawmix.load.compared.setting.len(), rawmix.load.txn), (20, 2, true));
        assert!(parse("anabranch bench rubis --mix bid --items 100 --partitions 2").is_ok());
        assert!(parse("anabranch bench retwis --graph kronecker --scale 8 --mix post").is_ok());
        assert!(refusal("anabranch bench retwis --scale 8").contains("--graph"));
        assert!(refusal("anabranch bench rawmix --setting fast").contains("typed-phased"));
    }

    #[test]
    fn bench_takes_lists() {
        let line =
            "anabranch bench redis --against 127.0.0.1:7000 --against-pid 7 --tests set,TXN --pipeline 1,16";
        let Some(Command::Bench(BenchCommand::Redis(redis))) = parse(line).unwrap().command else {
            unreachable!("bench was asked")
        };
        let names: Vec<&str> = redis.tests.iter().flat_map(|tests| tests.0).map(|test| test.name).collect();
        assert_eq!(names, ["set", "txn"]);
        assert_eq!(redis.pipeline.iter().map(|pipeline| pipeline.get()).collect::<Vec<_>>(), [1, 16]);
        assert!(refusal("anabranch bench redis --tests sett").contains("lrange_100"));
        assert!(parse("anabranch bench redis --against-pid 7").is_err());
        assert!(parse("anabranch bench redis --pipeline 0").is_err());
    }

    #[test]
    fn every_command_shows_an_example() {
        fn visit(command: &clap::Command) {
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example") && help.contains("anabranch "), "{}", command.get_name());
            }
            command.get_subcommands().for_each(visit);
        }
        visit(&CommandLine::command());
    }
}
