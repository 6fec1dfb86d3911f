//! The command line. Its shapes are relied on by scripts: add to them, do not change them.

mod bench;
mod figures;
#[cfg(test)]
mod reference;

pub use bench::*;
use checker::Level;
use clap::{Args, Parser, Subcommand};
pub use figures::*;
use server::{ClusterLocalArguments, INSTRUCTIONS, ServeArguments, Skew};
use simulator::Feature;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes: 0 all is well; 1 a violation was found, or a measurement failed; 2 the command could not be carried out.";

/// The laboratory of Anabranch: simulation with faults, checkers, workloads, and the papers' experiments and baselines.
///
/// It is the evidence for what the store promises; the product, `anabranch`, has nothing of it.
#[derive(Debug, Parser)]
#[command(name = "anabranch-lab", version, after_help = EXIT_CODES)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// Run one process of the store, with the baselines.
    Serve(LabServeArguments),
    /// Run a cluster, with the baselines.
    #[command(subcommand)]
    Cluster(ClusterCommand),
}

#[derive(Debug, Args)]
#[command(after_help = "\
It serves as `anabranch serve` does, and reads the same configuration.

Example:
  anabranch-lab serve --memory --listen 127.0.0.1:0 --json")]
pub struct LabServeArguments {
    #[command(flatten)]
    pub common: ServeArguments,
    /// Added to the wall clock, in milliseconds, to test skewed clocks
    #[arg(long, value_name = "MS", requires = "cluster", allow_negative_numbers = true, default_value_t = 0)]
    pub clock_skew_ms: i64,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Run a cluster of processes on this machine, with faults on demand.
    Local(LabClusterArguments),
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
{INSTRUCTIONS}

Examples:
  anabranch-lab cluster local --regions 3 --processes 1 --memory --direct
  anabranch-lab cluster local --regions 3 --processes 2 --model causal --protocol bpr --replicas 2
  anabranch-lab cluster local --regions 2 --processes 1 --skew a/1=-200ms --json"))]
pub struct LabClusterArguments {
    #[command(flatten)]
    pub common: ClusterLocalArguments,
    /// How a strict keyspace keeps conflicting transactions apart; qwstore is a baseline
    #[arg(long, value_name = "HOW", value_parser = ["optimistic", "locking", "occ", "qwstore"])]
    pub concurrency: Option<String>,
    /// Which protocol keeps a causal one; those after cops are baselines [default: wren, with --replicas paris]
    #[arg(long, value_name = "NAME", value_parser = PROTOCOLS)]
    pub protocol: Option<String>,
    /// Processes reach each other without the relays that delay and cut, but where there is a --delay: for measurements of
    /// speed
    #[arg(long)]
    pub direct: bool,
    /// How far a process's clock is off, such as a/1=-200ms; may be given several times
    #[arg(long, value_name = "A/1=200ms", allow_hyphen_values = true)]
    pub skew: Vec<Skew>,
}

/// The protocols of causal keyspaces.
const PROTOCOLS: [&str; 11] = [
    "wren",
    "paris",
    "pocc",
    "cops",
    "cure",
    "h-cure",
    "bpr",
    "cure-applied",
    "h-cure-applied",
    "nocc",
    "log",
];

#[derive(Debug, Args)]
#[command(after_help = "\
A failing seed prints the command that shows it again. Equal seeds give equal output. With --seed or --script what
happened is printed to standard error, event by event.

Examples:
  anabranch-lab sim wren --seeds 200
  anabranch-lab sim tapir --seed 17
  anabranch-lab sim tapir --seed 17 --quiet --history /tmp/h")]
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
    /// Let every seed bring this; may be given several times
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

What a history without claims leaves open is reported as undecided, with exit code 0. See docs/evidence/histories.md.

Example:
  anabranch-lab check history.jsonl --model strict-serializable")]
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

Keys and reads that a format cannot express are left out, and told on standard error. See docs/evidence/histories.md.

Example:
  anabranch-lab history export history.jsonl --format plume > history.txt")]
pub struct HistoryExportArguments {
    /// The history: one JSON object per transaction and line
    pub file: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT")]
    pub format: checker::Format,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::bench::tcc::Protocol;
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
    fn a_command_is_needed() {
        assert_eq!(parse("anabranch-lab").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn processes_have_what_only_tests_and_measurements_set() {
        let line = "anabranch-lab serve --memory --cluster c.json --process 2 --clock-skew-ms -200";
        let Command::Serve(serve) = parse(line).unwrap().command else { unreachable!("serve was asked") };
        assert_eq!((serve.common.memory, serve.clock_skew_ms), (true, -200));
        assert!(refusal("anabranch-lab serve --clock-skew-ms 5").contains("--cluster"));
    }

    #[test]
    fn clusters_have_what_only_tests_and_measurements_set() {
        let line =
            "anabranch-lab cluster local --regions 3 --processes 1 --direct --skew a/1=-1ms --skew b/1=1ms";
        let Command::Cluster(ClusterCommand::Local(local)) = parse(line).unwrap().command else {
            unreachable!("cluster local was asked")
        };
        assert_eq!((local.common.regions.get(), local.skew.len(), local.direct), (3, 2, true));
        let cluster = "anabranch-lab cluster local --regions 1 --processes 1";
        for more in ["--model causal --protocol cure-applied", "--concurrency qwstore", "--concurrency occ"] {
            assert!(parse(&format!("{cluster} {more}")).is_ok(), "{more}");
        }
        assert!(refusal(&format!("{cluster} --protocol usual")).contains("h-cure"));
    }

    #[test]
    fn sim_takes_seeds_or_one_seed() {
        assert!(parse("anabranch-lab sim wren --seeds 20 --json").is_ok());
        assert!(parse("anabranch-lab sim wren --seed 0 --quiet --history /tmp/h").is_ok());
        assert!(parse("anabranch-lab sim wren").is_err());
        assert!(parse("anabranch-lab sim wren --seeds 2 --seed 1").is_err());
        assert!(parse("anabranch-lab sim wren --seeds 2 --quiet").is_err());
    }

    #[test]
    fn check_names_the_levels_it_knows() {
        assert!(parse("anabranch-lab check h.jsonl --model convergence").is_ok());
        assert!(refusal("anabranch-lab check h.jsonl --model linear").contains("strict-serializable"));
    }

    #[test]
    fn transactional_workloads_take_several_servers() {
        let line = "anabranch-lab bench retwis --url 127.0.0.1:1 --url 127.0.0.1:2 --zipf 0.75 --txn --history /tmp/h";
        let Command::Bench(BenchCommand::Retwis(retwis)) = parse(line).unwrap().command else {
            unreachable!("retwis was asked")
        };
        assert_eq!((retwis.load.url.len(), retwis.load.zipf, retwis.load.txn), (2, Some(0.75), true));
        assert!(parse("anabranch-lab bench rmw --most-keys 4").is_ok());
        assert!(refusal("anabranch-lab bench rmw --zipf 11").contains("--zipf"));
        assert!(
            refusal("anabranch-lab bench rmw --history h --against 127.0.0.1:1")
                .contains("cannot be used with")
        );
        assert!(parse("anabranch-lab history export h --format dbcop").is_ok());
        assert!(refusal("anabranch-lab history export h --format elle").contains("porcupine"));
    }

    #[test]
    fn protocols_of_bench_tcc_are_a_list() {
        let line = "anabranch-lab bench tcc --protocols wren,h-cure --touched 2 --local 95 --read-only 50";
        let Command::Bench(BenchCommand::Tcc(tcc)) = parse(line).unwrap().command else {
            unreachable!("tcc was asked")
        };
        assert_eq!(tcc.protocols, [Protocol::Wren, Protocol::HybridCure]);
        assert!(
            refusal("anabranch-lab bench tcc --protocols wren --against 127.0.0.1:1").contains("cannot be")
        );
        assert!(refusal("anabranch-lab bench tcc --protocols occ").contains("h-cure"));
        assert!(refusal("anabranch-lab bench tcc --writes 20").contains("--writes"));
        assert!(refusal("anabranch-lab bench tcc --local 101").contains("--local"));
    }

    #[test]
    fn bench_cops_takes_a_ratio_and_a_variance() {
        let line = "anabranch-lab bench cops --protocols cops,log --ratio 1:16 --variance 0.5 --delay 3";
        let Command::Bench(BenchCommand::Cops(cops)) = parse(line).unwrap().command else {
            unreachable!("cops was asked")
        };
        let named: Vec<&str> = cops.protocols.iter().map(|protocol| protocol.name()).collect();
        assert_eq!((named, cops.ratio, cops.variance), (vec!["cops", "log"], (1, 16), 0.5));
        assert!(refusal("anabranch-lab bench cops --ratio 0:0").contains("PUTS:GETS"));
        assert!(refusal("anabranch-lab bench cops --ratio 4").contains("PUTS:GETS"));
        assert!(refusal("anabranch-lab bench cops --variance -1").contains("--variance"));
        assert!(refusal("anabranch-lab bench cops --protocols wren").contains("cops-gt"));
    }

    #[test]
    fn claret_s_workloads_compare_settings() {
        let line = "anabranch-lab bench rawmix --setting readwrite --setting typed-phased --adds 20 --zipf 1.2 --txn";
        let Command::Bench(BenchCommand::Rawmix(rawmix)) = parse(line).unwrap().command else {
            unreachable!("rawmix was asked")
        };
        assert_eq!((rawmix.adds, rawmix.load.compared.setting.len(), rawmix.load.txn), (20, 2, true));
        assert!(parse("anabranch-lab bench rubis --mix bid --items 100 --partitions 2").is_ok());
        assert!(parse("anabranch-lab bench retwis --graph kronecker --scale 8 --mix post").is_ok());
        assert!(refusal("anabranch-lab bench retwis --scale 8").contains("--graph"));
        assert!(refusal("anabranch-lab bench rawmix --setting fast").contains("typed-phased"));
    }

    #[test]
    fn bench_takes_lists() {
        let line = "anabranch-lab bench redis --against 127.0.0.1:7000 --against-pid 7 --tests set,TXN --pipeline 1,16";
        let Command::Bench(BenchCommand::Redis(redis)) = parse(line).unwrap().command else {
            unreachable!("bench was asked")
        };
        let names: Vec<&str> = redis.tests.iter().flat_map(|tests| tests.0).map(|test| test.name).collect();
        assert_eq!(names, ["set", "txn"]);
        assert_eq!(redis.pipeline.iter().map(|pipeline| pipeline.get()).collect::<Vec<_>>(), [1, 16]);
        assert!(refusal("anabranch-lab bench redis --tests sett").contains("lrange_100"));
        assert!(parse("anabranch-lab bench redis --against-pid 7").is_err());
        assert!(parse("anabranch-lab bench redis --pipeline 0").is_err());
    }

    #[test]
    fn every_command_shows_an_example() {
        fn visit(command: &clap::Command) {
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    help.contains("Example") && help.contains("anabranch-lab "),
                    "{}",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(visit);
        }
        visit(&CommandLine::command());
    }
}
