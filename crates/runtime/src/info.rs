//! What the process says about itself: INFO, MEMORY STATS.

use crate::cluster;
use crate::keyspace::Keyspace;
use crate::process::Process;
use gateway::{Figures, KeyspaceRules, Statistics};
use protocol::eviction::human_bytes;
use protocol::hosted::Holdings;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use types::KeyspaceId;

/// The sections in their order; INFO shows the last ones only on request.
const SECTIONS: [&str; 12] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "errorstats",
    "cluster",
    "keyspace",
    "commandstats",
    "latencystats",
];
/// So many of them are the default.
const DEFAULT: usize = 10;

/// The requested sections, each a heading and `name:value` lines.
pub(crate) fn write(
    process: &Process,
    (keyspaces, visible): (&[Arc<Keyspace>], &KeyspaceRules),
    sections: &[String],
    statistics: &Statistics,
    out: &mut String,
) {
    let wanted = |(index, section): &(usize, &str)| {
        let default = *index < DEFAULT;
        (sections.is_empty() && default)
            || sections.iter().any(|wanted_section| match wanted_section.as_str() {
                "default" => default,
                "all" | "everything" => true,
                wanted_section => wanted_section == *section,
            })
    };
    for (_, section) in SECTIONS.into_iter().enumerate().filter(wanted) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        let (first, rest) = section.split_at(1);
        line(out, format_args!("# {}{rest}", first.to_uppercase()));
        match section {
            "server" => server(process, out),
            "clients" => clients(process, out),
            "memory" => memory(process, out),
            "persistence" => persistence(process, out),
            "stats" => stats(process, statistics, out),
            "cpu" => cpu(out),
            "errorstats" => statistics.write_errors(out),
            "commandstats" => statistics.write_commands(out),
            "latencystats" => statistics.write_latencies(out),
            "cluster" => {
                line(out, format_args!("{}", cluster::section(process, visible)));
                lags(process, visible, out);
            }
            "keyspace" => keyspace(process, (keyspaces, visible), out),
            _ => replication(process, out),
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = write!(out, "{text}\r\n");
    debug_assert!(written.is_ok(), "a string takes any text");
}

fn server(process: &Process, out: &mut String) {
    let uptime = process.started.elapsed().as_secs();
    // Clients decide by the Redis version which commands they may use.
    line(out, format_args!("redis_version:7.0.15\r\nserver_name:anabranch"));
    line(out, format_args!("anabranch_version:{}\r\nredis_mode:standalone", env!("CARGO_PKG_VERSION")));
    line(out, format_args!("os:{} {}", std::env::consts::OS, std::env::consts::ARCH));
    let file =
        process.options.config_file.as_deref().map_or(String::new(), |file| file.display().to_string());
    line(out, format_args!("config_file:{file}"));
    let process_id = std::process::id();
    line(out, format_args!("arch_bits:{}\r\nprocess_id:{process_id}", usize::BITS));
    line(out, format_args!("run_id:{}", run_id(process)));
    line(out, format_args!("tcp_port:{}", process.port.load(Relaxed)));
    line(out, format_args!("uptime_in_seconds:{uptime}\r\nuptime_in_days:{}", uptime / 86_400));
    line(
        out,
        format_args!(
            "incarnation:{}\r\nworker_threads:{}",
            process.locals.incarnation, process.options.threads
        ),
    );
}

/// 40 hexadecimal digits, new with every start.
fn run_id(process: &Process) -> String {
    format!("{:020x}{:020x}", process.locals.incarnation.0, std::process::id())
}

/// What Redis says of a master without replicas.
fn replication(process: &Process, out: &mut String) {
    line(out, format_args!("role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover"));
    line(out, format_args!("master_replid:{}\r\nmaster_replid2:{:040}", run_id(process), 0));
    line(out, format_args!("master_repl_offset:0\r\nsecond_repl_offset:-1\r\nrepl_backlog_active:0"));
    line(out, format_args!("repl_backlog_size:1048576\r\nrepl_backlog_first_byte_offset:0"));
    line(out, format_args!("repl_backlog_histlen:0"));
}

fn clients(process: &Process, out: &mut String) {
    line(out, format_args!("connected_clients:{}", process.clients.load(Relaxed)));
    line(out, format_args!("unauthenticated_clients:{}", process.unauthenticated.load(Relaxed)));
    line(out, format_args!("maxclients:{}", process.parameters.max_clients()));
    line(out, format_args!("blocked_clients:{}", process.blocked.load(Relaxed)));
    line(out, format_args!("tracking_clients:{}", process.tracking[0].load(Relaxed)));
}

/// `used_memory` is what the limit is compared with: what the data occupies, as it is counted.
fn memory(process: &Process, out: &mut String) {
    let memory = &process.locals.memory;
    let (used, limit, resident) = (memory.used(), memory.limit(), resident_bytes());
    let data = used.bytes as u64;
    line(out, format_args!("used_memory:{data}\r\nused_memory_human:{}", human_bytes(data)));
    line(out, format_args!("used_memory_rss:{resident}\r\nused_memory_rss_human:{}", human_bytes(resident)));
    let peak = peak_bytes().max(resident);
    line(out, format_args!("used_memory_peak:{peak}\r\nused_memory_peak_human:{}", human_bytes(peak)));
    line(out, format_args!("used_memory_peak_perc:{:.2}%", resident as f64 * 100.0 / peak.max(1) as f64));
    line(out, format_args!("used_memory_dataset:{data}\r\nused_memory_histories:{}", used.retained));
    line(out, format_args!("maxmemory:{limit}\r\nmaxmemory_human:{}", human_bytes(limit)));
    line(out, format_args!("maxmemory_policy:{}", memory.policy_name()));
    let databases = process.options.databases.max(1) - 1;
    line(
        out,
        format_args!("maxmemory_policy_applies_to:keyspaces 0 to {databases} that this process keeps alone"),
    );
    line(out, format_args!("evicted_keys:{}\r\nrefused_for_memory:{}", memory.evicted(), memory.refused()));
    line(out, format_args!("mem_fragmentation_ratio:{:.2}", resident as f64 / data.max(1) as f64));
}

/// What the kernel says the process occupies, in bytes; 0 where it does not say.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
}

fn persistence(process: &Process, out: &mut String) {
    let loading = 0;
    let (wanted, last) = (process.view.is_checkpoint_wanted(), process.last_checkpoint.load(Relaxed));
    line(out, format_args!("rdb_bgsave_in_progress:{}\r\nrdb_last_save_time:{last}", u8::from(wanted)));
    line(out, format_args!("rdb_last_bgsave_status:ok\r\naof_rewrite_in_progress:{}", u8::from(wanted)));
    line(out, format_args!("loading:{loading}\r\naof_enabled:{}", u8::from(process.journal.is_some())));
    let Some(journal) = &process.journal else { return };
    let durable = journal.durable();
    let status = if journal.is_suspended() { "err" } else { "ok" };
    line(out, format_args!("aof_last_write_status:{status}\r\nlog_written_group:{}", durable.written));
    line(
        out,
        format_args!("log_synced_group:{}\r\nlog_bytes_since_checkpoint:{}", durable.synced, journal.grown()),
    );
    line(
        out,
        format_args!(
            "log_groups:{}\r\nlog_syncs:{}",
            journal.groups.load(Relaxed),
            journal.syncs.load(Relaxed)
        ),
    );
    line(out, format_args!("checkpoints:{}", process.checkpoints.load(Relaxed)));
}

fn stats(process: &Process, statistics: &Statistics, out: &mut String) {
    let [accepted, refused] = process.connections_since_reset();
    line(out, format_args!("total_connections_received:{accepted}"));
    line(out, format_args!("total_commands_processed:{}", statistics.calls()));
    line(out, format_args!("rejected_connections:{refused}"));
    line(out, format_args!("evicted_keys:{}", process.locals.memory.evicted()));
    line(out, format_args!("total_error_replies:{}", statistics.error_replies()));
    let [channels, patterns, shards] = process.interest.read().counts();
    line(out, format_args!("pubsub_channels:{channels}\r\npubsub_patterns:{patterns}"));
    line(out, format_args!("pubsubshard_channels:{shards}"));
    let [_, keys, items, prefixes] = process.tracking.each_ref().map(|figure| figure.load(Relaxed));
    line(out, format_args!("tracking_total_keys:{keys}\r\ntracking_total_items:{items}"));
    line(out, format_args!("tracking_total_prefixes:{prefixes}"));
}

/// What the kernel says of the processor's time; nothing where it does not say.
fn cpu(out: &mut String) {
    /// Linux tells times in hundredths of a second, whatever its own clock is.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in parentheses, may have blanks.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_ascii_whitespace().collect());
    let seconds = |index: usize| {
        fields.get(index).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0) as f64 / TICKS
    };
    line(out, format_args!("used_cpu_sys:{:.6}\r\nused_cpu_user:{:.6}", seconds(12), seconds(11)));
    line(
        out,
        format_args!("used_cpu_sys_children:{:.6}\r\nused_cpu_user_children:{:.6}", seconds(14), seconds(13)),
    );
}

/// `MEMORY STATS`, in bytes and numbers.
pub(crate) fn memory_stats(process: &Process, keyspaces: &[Arc<Keyspace>], visit: &mut dyn FnMut(&str, u64)) {
    let data = process.locals.memory.used().bytes;
    let hosted: usize = process.view.holdings.lock().iter().map(|(_, held)| held.keys).sum();
    let keys = hosted + keyspaces.iter().map(|keyspace| keyspace.len()).sum::<usize>();
    let resident = resident_bytes();
    let total = resident.max(data as u64);
    visit("peak.allocated", peak_bytes().max(total));
    visit("total.allocated", total);
    visit("keys.count", keys as u64);
    visit("keys.bytes-per-key", data.checked_div(keys).unwrap_or(0) as u64);
    visit("dataset.bytes", data as u64);
    visit("overhead.total", total - data as u64);
    visit("allocator.resident", resident);
    visit("clients.count", process.clients.load(Relaxed) as u64);
}

/// The part of `MEMORY STATS` on each keyspace that has keys here.
pub(crate) fn memory_of_keyspaces(
    process: &Process,
    keyspaces: &[Arc<Keyspace>],
    visible: &KeyspaceRules,
    visit: &mut dyn FnMut(&str, Figures<'_>),
) {
    let solo = keyspaces.iter().map(|keyspace| {
        let occupied = keyspace.occupied();
        let (memory, retained, evicted) = (occupied.bytes, occupied.retained, keyspace.evicted());
        let (keys, deadlines) = (keyspace.len(), keyspace.deadlines());
        (keyspace.id, Holdings { keys, deadlines, memory, retained, evicted, is_full: false })
    });
    let mut all: Vec<(KeyspaceId, Holdings)> = solo.collect();
    all.extend(process.view.holdings.lock().iter().copied());
    all.retain(|(_, held)| held.keys > 0);
    all.sort_by_key(|(id, _)| *id);
    let name = |id: KeyspaceId| format!("db.{}", process.cluster.lock().short_name(id));
    all.retain(|(id, _)| {
        visible.is_all() || visible.allows(process.cluster.lock().entry(*id).name.as_bytes())
    });
    for (id, held) in all {
        let figures = [
            ("keys", held.keys as u64),
            ("expires", held.deadlines as u64),
            ("bytes", held.memory as u64),
            ("histories.bytes", held.retained as u64),
            ("evicted", held.evicted),
        ];
        visit(&name(id), &figures);
    }
}

/// The most that the process has occupied, as the kernel says; 0 where it does not say.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// How old is what this process knows of each causal keyspace; see `metrics`.
fn lags(process: &Process, visible: &KeyspaceRules, out: &mut String) {
    let lags = process.view.lags.lock().clone();
    for (name, lag) in lags.into_iter().filter(|(name, _)| visible.allows(name.as_bytes())) {
        let regions = lag.regions.iter().map(|(region, ms)| format!(",lag_{region}_ms={ms}"));
        let regions: String = regions.collect();
        let waits = match lag.waits.reads {
            0 => String::new(),
            reads => {
                format!(",reads={reads},reads_waited={},read_wait_us={}", lag.waits.waited, lag.waits.micros)
            }
        };
        let degraded = match lag.degraded {
            (_, 0) => String::new(),
            (now, ever) => format!(",sessions_pessimistic={now},sessions_degraded={ever}"),
        };
        let sent: String =
            lag.sent.iter().map(|(region, bytes)| format!(",sent_{region}_bytes={bytes}")).collect();
        line(
            out,
            format_args!("causal_{name}:snapshot_age_ms={}{regions}{sent}{waits}{degraded}", lag.snapshot_ms),
        );
    }
}

fn keyspace(process: &Process, (keyspaces, visible): (&[Arc<Keyspace>], &KeyspaceRules), out: &mut String) {
    let shown = |keyspace: &&Arc<Keyspace>| {
        keyspace.id.0 < process.options.databases.max(1) && visible.allows(keyspace.name.as_bytes())
    };
    for keyspace in keyspaces.iter().filter(shown) {
        let keys = keyspace.len();
        if keys > 0 {
            line(
                out,
                format_args!("db{}:keys={keys},expires={},avg_ttl=0", keyspace.id, keyspace.deadlines()),
            );
        }
    }
}
