//! `bench` on the command line.

use bench::claret::Setting;
use bench::cops::Protocol as CopsProtocol;
use bench::redis::{Target, Test};
use bench::tcc::Protocol;
use clap::{Args, Subcommand, ValueEnum};
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure one server that speaks the Redis protocol, or two in turn.
    Redis(BenchRedisArguments),
    /// Transactions of a small social network: the Retwis mix of the TAPIR paper.
    Retwis(BenchRetwisArguments),
    /// Transactions that read and write 1 to n keys.
    Rmw(BenchRmwArguments),
    /// Transactions of 20 operations on a causal keyspace: the workload of Wren and PaRiS.
    Tcc(BenchTccArguments),
    /// Single puts and gets on groups of keys of a causal keyspace: the workload of COPS.
    Cops(BenchCopsArguments),
    /// Transactions of six operations, each a round trip: the workload of TARDiS.
    Tardis(BenchTardisArguments),
    /// Sizes of and additions to sets: the raw operation mix of Claret.
    Rawmix(BenchRawmixArguments),
    /// An auction site with a rush before each auction closes: RUBiS as in Claret.
    Rubis(BenchRubisArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
5 percent add a user, 15 follow, 30 post, 50 read a timeline. With --history every try is recorded, on keys that are new,
for `anabranch-lab check`; without, all keys are loaded first, and retwis:* is overwritten.

With --graph it is Claret's Retwis (section 6.3) instead: users of a Kronecker graph, posts that go to the timelines of all
followers, and reposts of what is popular; see `bench rawmix` for --setting. --keys, --zipf, --size, --against and --history are
not for it.

Examples:
  anabranch-lab bench retwis --url 127.0.0.1:6379 --against 127.0.0.1:6380 --zipf 0.75
  anabranch-lab bench retwis --url 127.0.0.1:7001 --url 127.0.0.1:7002 --url 127.0.0.1:7003 --txn --history retwis.jsonl
  anabranch-lab bench retwis --graph kronecker --mix post --setting readwrite-phased --setting typed-phased --rounds 3")]
pub struct BenchRetwisArguments {
    /// Claret's Retwis, on such a graph
    #[arg(long, value_enum, conflicts_with_all = ["against", "history"])]
    pub graph: Option<Graph>,
    /// With --graph: two to the power of it users
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=22), requires = "graph")]
    pub scale: u32,
    /// With --graph: followers of a user, on average
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=64), requires = "graph")]
    pub edge_factor: u32,
    /// With --graph: mostly timelines are read, or much is posted
    #[arg(long, value_enum, default_value_t = RetwisMix::Read, requires = "graph")]
    pub mix: RetwisMix,
    #[command(flatten)]
    pub compared: ComparedSettings,
    #[command(flatten)]
    pub load: TransactionLoad,
}

/// Who follows whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Graph {
    /// The generator of Graph500
    Kronecker,
}

/// Shares of Retwis on a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RetwisMix {
    /// 90 percent timelines, 4 posts, 5 follow, 1 new users
    Read,
    /// 50 percent timelines, 40 posts, 8 follow, 2 new users
    Post,
}

/// Shares of RUBiS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RubisMix {
    /// 10 percent bids
    Read,
    /// 50 percent bids
    Bid,
}

/// What the workloads of Claret are compared by.
#[derive(Debug, Args)]
pub struct ComparedSettings {
    /// Measure this in turn with the others, each on a keyspace that is created for it: readwrite, readwrite-phased, typed,
    /// typed-phased, none, occ, optimistic, or NAME=OPTIONS of KEYSPACE CREATE; the others are compared with the first
    /// [default: the keyspace that is there, as it is]
    #[arg(long, value_name = "SETTING")]
    pub setting: Vec<Setting>,
    /// How many partitions these keyspaces have
    #[arg(long, value_name = "N", default_value = "4")]
    pub partitions: NonZeroU16,
    /// How many processes keep each partition [default: all]
    #[arg(long, value_name = "N")]
    pub replicas: Option<NonZeroU16>,
    /// Seconds of the same load before each measurement
    #[arg(long, value_name = "N", default_value = "1")]
    pub warm_up: u32,
    /// Decides the graph, and which auction ends when
    #[arg(long, value_name = "X", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Transactions of a few operations on sets, each SCARD or BLIND SADD of a new member (Claret, section 6.1). They are MULTI and
EXEC, with --txn TXN and a round trip for each operation, and single commands on a keyspace with LOCKS none.

A setting is measured on a keyspace bench-NAME that is created, filled and dropped. A round measures each once, in an order
that turns; ratios are of one round. readwrite and typed are locks without phases, the -phased ones with; none has no locks
and no transactions. uneven: deviation of the commits of each tenth of a second through their mean.

Examples:
  anabranch-lab bench rawmix --setting readwrite --setting typed --setting typed-phased --setting none --rounds 3
  anabranch-lab bench rawmix --url 127.0.0.1:7001 --url 127.0.0.1:7002 --adds 20 --zipf 1.2 --setting a='CONCURRENCY occ'")]
pub struct BenchRawmixArguments {
    /// How many of a hundred operations add
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub adds: u8,
    /// Operations of a transaction
    #[arg(long, value_name = "N", default_value = "4")]
    pub operations: NonZeroUsize,
    /// How many sets there are
    #[arg(long, value_name = "N", default_value = "10000")]
    pub keys: NonZeroU32,
    /// The exponent of Zipf's law by which they are drawn
    #[arg(long, value_name = "EXPONENT", default_value = "0.6", value_parser = parse_exponent)]
    pub zipf: f64,
    #[command(flatten)]
    pub load: ClaretLoad,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Auctions in 62 regions and 40 categories, ten bids each on average, by a power law and with an exponential rush before each
closes; a time that is counted in bids decides which is bid on, so every setting sees the same (Claret, section 6.2).
Transactions: bid, view_auction, browse, view_user, add_comment, add_user, close_auction, open_auction. See `bench rawmix` for
--setting and --txn.

Examples:
  anabranch-lab bench rubis --mix bid --setting readwrite --setting typed-phased --rounds 3
  anabranch-lab bench rubis --url 127.0.0.1:7001 --items 1000 --seconds 5 --json")]
pub struct BenchRubisArguments {
    /// How many auctions are open at a time
    #[arg(long, value_name = "N", default_value = "30000")]
    pub items: NonZeroU32,
    /// Mostly auctions are viewed, or bid on
    #[arg(long, value_enum, default_value_t = RubisMix::Read)]
    pub mix: RubisMix,
    #[command(flatten)]
    pub load: ClaretLoad,
}

/// What the raw mix and RUBiS share.
#[derive(Debug, Args)]
pub struct ClaretLoad {
    /// Our server: HOST:PORT or `redis://[:PASSWORD@]HOST:PORT[/KEYSPACE]`; several times for the processes of one cluster
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:6379")]
    pub url: Vec<Target>,
    #[command(flatten)]
    pub compared: ComparedSettings,
    /// Connections, each with a transaction under way
    #[arg(long, value_name = "N", default_value = "32")]
    pub clients: NonZeroUsize,
    /// How long a measurement takes
    #[arg(long, value_name = "N", default_value = "10")]
    pub seconds: NonZeroU32,
    /// Measurements of each setting
    #[arg(long, value_name = "N", default_value = "1")]
    pub rounds: NonZeroUsize,
    /// A round trip for each operation
    #[arg(long)]
    pub txn: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without --history all keys are loaded first, and rmw:* is overwritten.

Examples:
  anabranch-lab bench rmw --url 127.0.0.1:6379 --most-keys 4 --keys 1000 --zipf 0.9
  anabranch-lab bench rmw --url 127.0.0.1:6379 --txn --history rmw.jsonl --seconds 5 --json")]
pub struct BenchRmwArguments {
    /// The most keys of a transaction
    #[arg(long, value_name = "N", default_value = "1")]
    pub most_keys: NonZeroUsize,
    #[command(flatten)]
    pub load: TransactionLoad,
}

#[derive(Debug, Args)]
#[command(after_help = "\
20 reads and writes of different keys, all reads first, by TXN BEGIN and TXN COMMIT. The thesis's workloads have 1, 2 or 10
writes, 2, 4 or 8 partitions, keys of each by Zipf's law with 0.99, and values of 8 bytes. All keys are loaded first, and
tcc:* is overwritten. How many reads waited for their snapshot, for how long, and how many bytes went to other regions, is
asked of the servers; their processor time, of the kernel, if they run here.

With --protocols a keyspace tcc-NAME is created for every measurement and dropped after it, and protocols are measured in
turn; ratios are of one round. Give all processes of the cluster by --url. cpu us: processor time of all servers together for
a transaction; reads p50: until its reads were answered; far B/tx: bytes to other regions for it.

Examples:
  anabranch-lab cluster local --regions 3 --processes 2 --model causal --memory --delay a-b=43ms --skew a/1=1ms --skew a/2=-1ms
  anabranch-lab bench tcc --url 127.0.0.1:7001 --url 127.0.0.1:7002 --url 127.0.0.1:7003 --url 127.0.0.1:7004 \
    --url 127.0.0.1:7005 --url 127.0.0.1:7006 --protocols wren,cure,nocc --rounds 3 --zipf 0.99 --size 8 --keys 20000
  anabranch-lab bench tcc --url 127.0.0.1:7001 --writes 10")]
pub struct BenchTccArguments {
    /// How many of the 20 operations write
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=19))]
    pub writes: u8,
    /// How many partitions a transaction touches, if there are so many
    #[arg(long, value_name = "N", default_value = "4")]
    pub touched: NonZeroU16,
    /// Of a hundred transactions, how many touch only partitions that the client's region holds
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub local: u8,
    /// Of a hundred transactions, how many only read
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_only: u8,
    /// Measure these in turn, each on a keyspace of its own: wren, cure, h-cure, bpr, nocc, paris; the first is compared with
    /// the others
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["against", "history"])]
    pub protocols: Vec<Protocol>,
    /// How many partitions these keyspaces have
    #[arg(long, value_name = "N", default_value = "2")]
    pub partitions: NonZeroU16,
    /// How many regions hold each partition with bpr, nocc and paris [default: all]
    #[arg(long, value_name = "N", requires = "protocols")]
    pub replicas: Option<NonZeroU16>,
    /// Seconds of the same load before each measurement
    #[arg(long, value_name = "N", default_value = "2")]
    pub warm_up: u32,
    #[command(flatten)]
    pub load: TransactionLoad,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each client has a group of keys, and is a causal thread of its own. An operation is a SET or a GET, of any key of a group that is
drawn by a normal distribution around the client's own, in which each group is of width 1 (COPS, section 6.3). The paper's
clients are all in one region: give its processes by --url.

A keyspace bench-NAME is created for every measurement, filled, and dropped after it; protocols are measured in turn, and the
others are compared with the first, in ratios of one round. `log` has one partition. cpu us: processor time of the servers that
are named for an operation; far B/tx: what they sent to other regions for it.

Examples:
  anabranch-lab cluster local --regions 2 --processes 4 --model causal --memory --delay a-b=40ms
  anabranch-lab bench cops --url 127.0.0.1:7001 --url 127.0.0.1:7002 --url 127.0.0.1:7003 --url 127.0.0.1:7004 --rounds 3
  anabranch-lab bench cops --protocols cops,cops-gt --ratio 1:16 --size 1000 --delay 10 --clients 256")]
pub struct BenchCopsArguments {
    /// Our servers: HOST:PORT or `redis://[:PASSWORD@]HOST:PORT`; several times for the processes of one region
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:6379")]
    pub url: Vec<Target>,
    /// Measure these in turn: log, cops, cops-gt
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "log,cops,cops-gt")]
    pub protocols: Vec<CopsProtocol>,
    /// How many partitions the keyspaces of cops and cops-gt have
    #[arg(long, value_name = "N", default_value = "4")]
    pub partitions: NonZeroU16,
    /// Puts to gets
    #[arg(long, value_name = "PUTS:GETS", default_value = "1:1", value_parser = parse_ratio)]
    pub ratio: (u32, u32),
    /// The variance of the distribution that groups are drawn by; 0: a client has its own one only
    #[arg(long, value_name = "X", default_value = "1", allow_negative_numbers = true, value_parser = parse_variance)]
    pub variance: f64,
    /// Keys of a group
    #[arg(long, value_name = "N", default_value = "512")]
    pub keys: NonZeroU32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "1")]
    pub size: NonZeroUsize,
    /// How long a client rests after each operation
    #[arg(long, value_name = "MS", default_value = "0")]
    pub delay: u32,
    /// Connections, each with an operation under way
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub clients: u32,
    /// Seconds of the same load before each measurement
    #[arg(long, value_name = "N", default_value = "2")]
    pub warm_up: u32,
    /// How long a measurement takes
    #[arg(long, value_name = "N", default_value = "10")]
    pub seconds: NonZeroU32,
    /// Measurements of each protocol
    #[arg(long, value_name = "N", default_value = "1")]
    pub rounds: NonZeroUsize,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn parse_ratio(text: &str) -> Result<(u32, u32), String> {
    let ratio = text.split_once(':').and_then(|(puts, gets)| Some((puts.parse().ok()?, gets.parse().ok()?)));
    ratio
        .filter(|(puts, gets): &(u32, u32)| (1..=1_000_000).contains(&puts.saturating_add(*gets)))
        .ok_or_else(|| format!("`{text}` is not PUTS:GETS, such as 1:4 or 1:0"))
}

fn parse_variance(text: &str) -> Result<f64, String> {
    let variance: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    (0.0..=1e9).contains(&variance).then_some(variance).ok_or("a variance is between 0 and 1e9".into())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Six reads, or three reads and then three writes of other keys; begin, commit and every operation are a round trip. The paper's
mixes have 25 (read-heavy), 75 and 100 (write-heavy) writers in a hundred, keys all alike or by Zipf's law with 0.99. All keys
are loaded first, and tardis:* is overwritten. --against is another keyspace, always by TXN BEGIN and TXN COMMIT.

Examples:
  anabranch-lab bench tardis --url redis://127.0.0.1:7001/forks --branch --against redis://127.0.0.1:7001/locks --zipf 0.99
  anabranch-lab bench tardis --url redis://127.0.0.1:7001/plain --against redis://127.0.0.1:7001/occ --writers 25 --rounds 3")]
pub struct BenchTardisArguments {
    /// How many of a hundred transactions write
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub writers: u8,
    /// Use BRANCH BEGIN and BRANCH COMMIT: what conflicts forks
    #[arg(long)]
    pub branch: bool,
    /// Milliseconds that a client waits before every command, as if the server were so far away
    #[arg(long, value_name = "MS", default_value = "0")]
    pub round_trip: u32,
    #[command(flatten)]
    pub load: TransactionLoad,
}

/// What the transactional workloads share.
#[derive(Debug, Args)]
pub struct TransactionLoad {
    /// Our server: HOST:PORT or `redis://[:PASSWORD@]HOST:PORT[/KEYSPACE]`; several times for the processes of one cluster
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:6379")]
    pub url: Vec<Target>,
    /// A server to compare it with, by WATCH, MULTI and EXEC if nothing else is said below
    #[arg(long, value_name = "URL", conflicts_with = "history")]
    pub against: Option<Target>,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value = "100000")]
    pub keys: NonZeroU32,
    /// Draw keys by Zipf's law with this exponent [default: all alike]
    #[arg(long, value_name = "EXPONENT", value_parser = parse_exponent)]
    pub zipf: Option<f64>,
    /// Connections, each with a transaction under way
    #[arg(long, value_name = "N", default_value = "16")]
    pub clients: NonZeroUsize,
    /// How long a measurement takes
    #[arg(long, value_name = "N", default_value = "10")]
    pub seconds: NonZeroU32,
    /// Measurements of each server
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "history")]
    pub rounds: NonZeroUsize,
    /// How long a client rests after each transaction
    #[arg(long, value_name = "MS", default_value = "0")]
    pub pause: u32,
    /// Use TXN BEGIN and TXN COMMIT instead of WATCH, MULTI and EXEC
    #[arg(long)]
    pub txn: bool,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "64", conflicts_with = "history")]
    pub size: usize,
    /// Record what clients saw in this file, for `anabranch-lab check`
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    let exponent: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    (0.0..=10.0).contains(&exponent).then_some(exponent).ok_or("an exponent is between 0 and 10".into())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each round measures ours, theirs and ours again; medians of the rounds are printed. The column A/A is our second
measurement of a round through our first: what two equal things differ by on this machine. `txn` is MULTI, two GET,
two SET, EXEC, and counts as one request. The tests overwrite key:*, counter:*, mylist, myset, myhash and myzset.

Examples:
  anabranch-lab bench redis --url 127.0.0.1:6379 --against 127.0.0.1:6380 --tests set,get,txn --pipeline 1,16
  anabranch-lab bench redis --pid $(pidof anabranch) --tests all --json")]
pub struct BenchRedisArguments {
    /// Our server: HOST:PORT or `redis://[:PASSWORD@]HOST:PORT`
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:6379")]
    pub url: Target,
    /// The server to compare it with
    #[arg(long, value_name = "URL")]
    pub against: Option<Target>,
    /// Our server's process id, to measure its processor time per request
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Their server's process id
    #[arg(long, value_name = "PID", requires = "against")]
    pub against_pid: Option<u32>,
    /// Tests, separated by commas, or `all`
    #[arg(long, value_delimiter = ',', value_name = "TESTS", value_parser = parse_tests,
          default_value = "ping,set,get,incr,lpush,sadd,hset,zadd,mset,txn")]
    pub tests: Vec<Tests>,
    /// Requests that each connection has under way; several numbers, separated by commas, run one after the other
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "16")]
    pub pipeline: Vec<NonZeroUsize>,
    /// Connections
    #[arg(long, value_name = "N", default_value = "50")]
    pub clients: NonZeroUsize,
    /// Requests of one measurement [default: 100000 times the pipeline, at most 2000000]
    #[arg(long, value_name = "N")]
    pub requests: Option<NonZeroU64>,
    /// Rounds
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZeroUsize,
    /// How many different keys and elements there are
    #[arg(long, value_name = "N", default_value = "100000")]
    pub keys: NonZeroU32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "64")]
    pub size: usize,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// One word of `--tests`: a test, or all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tests(pub &'static [Test]);

fn parse_tests(word: &str) -> Result<Tests, String> {
    if word == "all" {
        return Ok(Tests(bench::redis::TESTS));
    }
    word.parse::<&'static Test>().map(|test| Tests(std::slice::from_ref(test)))
}
