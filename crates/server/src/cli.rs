//! The command line. Its shapes are relied on by scripts: add to them, do not change them.

use crate::commands::cluster::Delay;
use crate::config::{Bytes, Durability, HostPort, LogLevel, MemoryPolicy};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::NonZeroU16;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes: 0 all is well; 1 a process of a cluster did not end in order; 2 the command could not be carried out.";

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
}

impl Default for Command {
    fn default() -> Self {
        Command::Serve(ServeArguments::default())
    }
}

/// The options of `serve` that every binary has.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Prints `ready` with its addresses when it serves. SIGINT and SIGTERM end it in order; a second one ends it at once.
The environment variable ANABRANCH_LOG sets the log level as well, and ANABRANCH_PASSWORD the password, with precedence
over the file.

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
    /// Worker threads [default: one for each core, at most 8]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,
    /// How much memory the data may occupy, such as 100mb [default: any amount]
    #[arg(long, value_name = "BYTES")]
    pub max_memory: Option<Bytes>,
    /// What becomes of keys when it is more: noeviction refuses commands, allkeys-lru and others let keys go [default:
    /// noeviction]
    #[arg(long, value_name = "POLICY")]
    pub max_memory_policy: Option<MemoryPolicy>,
    /// Serve only loopback clients on wildcard addresses while there is no password [default: yes]
    #[arg(long, value_enum, value_name = "yes|no")]
    pub protected_mode: Option<Switch>,
    /// A file whose first line is what clients must say to AUTH
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The least severe events to log: error, warn, info, debug, trace, or filters by module [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    #[command(flatten)]
    pub(crate) member: MemberArguments,
    /// Print the configuration in effect as a commented file, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Print `ready` as a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is
    Yes,
    /// It is not
    No,
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
    /// First start of a new cluster only, at all its processes: treat an empty data directory as new, not as a lost disk
    #[arg(long, requires = "cluster")]
    pub bootstrap: bool,
    /// Go on without what is lost: a damaged log is cut where the damage begins and what goes is printed; causal keyspaces
    /// of a cluster go on with what is left where no process has the rest
    #[arg(long)]
    pub accept_loss: bool,
    /// End in order when standard input ends, as it does when the process that started this one dies
    #[arg(long, requires = "cluster")]
    pub until_input_ends: bool,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Run a cluster of processes on this machine, with faults on demand.
    Local(ProductClusterArguments),
}

/// What `cluster local` obeys, for its help.
pub const INSTRUCTIONS: &str = "\
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

A strict cluster has an odd number of processes and serves while most of them do. A causal region serves by itself.";

#[derive(Debug, Args)]
#[command(after_help = format!("\
{INSTRUCTIONS}

Examples:
  anabranch cluster local --regions 3 --processes 1
  anabranch cluster local --regions 3 --processes 1 --concurrency locking
  anabranch cluster local --regions 2 --processes 2 --model causal --delay a-b=80ms --json"))]
pub struct ProductClusterArguments {
    #[command(flatten)]
    pub common: ClusterLocalArguments,
    /// How a strict keyspace keeps conflicting transactions apart [default: optimistic]
    #[arg(long, value_enum)]
    pub concurrency: Option<ClusterConcurrency>,
}

/// The options of `cluster local` that every binary has.
#[derive(Debug, Args)]
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
    /// Worker threads of every process [default: as the configuration says; without one the cores are shared]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,
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
}

impl ClusterConcurrency {
    /// Its name in KEYSPACE CREATE.
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterConcurrency::Optimistic => "optimistic",
            ClusterConcurrency::Locking => "locking",
            ClusterConcurrency::Occ => "occ",
        }
    }
}

impl ClusterModel {
    /// Its name in KEYSPACE CREATE.
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterModel::Strict => "strict",
            ClusterModel::Causal => "causal",
            ClusterModel::Branch => "branch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

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
    fn the_product_has_nothing_of_the_laboratory() {
        let command = CommandLine::command();
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, ["serve", "cluster"]);
        let cluster = "anabranch cluster local --regions 1 --processes 1";
        for option in ["--skew a/1=1ms", "--direct", "--protocol cure"] {
            let refused = parse(&format!("{cluster} {option}")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::UnknownArgument, "{option}");
        }
        let refused = parse("anabranch serve --cluster c.json --process 1 --clock-skew-ms 5").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::UnknownArgument);
        let refused = parse(&format!("{cluster} --concurrency qwstore")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
        assert_eq!(parse("anabranch sim tapir --seed 1").unwrap_err().kind(), ErrorKind::InvalidSubcommand);
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
