//! Configuration parameters as `CONFIG GET` and `CONFIG SET` know them, under Redis's names where there is one of that
//! meaning.
//!
//! A few can be changed while the process runs. Some have no meaning here, and may be set because that does no harm: how
//! Redis packs small values, how it frees memory, and what its replicas refuse. All others are what the process was started with; setting one to the
//! value that it has is no change.

use crate::options::Options;
use crate::output_limits::{self, Limit, OutputLimits};
use crate::process::Process;
use gateway::Notifications;
use parking_lot::Mutex;
use protocol::eviction::{Eviction, parse_bytes};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, AtomicUsize};
use std::time::Duration;
use types::Error;

/// Parameters without a meaning here, with the values that Redis has for them. They say how memory is laid out or freed, how
/// often Redis looks after itself, or what its replicas refuse: no reply depends on them.
const MEANINGLESS: [(&str, &str); 24] = [
    ("activedefrag", "no"),
    ("activerehashing", "yes"),
    ("dynamic-hz", "yes"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("hll-sparse-max-bytes", "3000"),
    ("hz", "10"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-server-del", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("list-compress-depth", "0"),
    ("list-max-listpack-size", "-2"),
    ("list-max-ziplist-size", "-2"),
    ("replica-read-only", "yes"),
    ("set-max-intset-entries", "512"),
    ("set-max-listpack-entries", "128"),
    ("set-max-listpack-value", "64"),
    ("slave-read-only", "yes"),
    ("stream-node-max-entries", "100"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
];

/// What `CONFIG SET` says to a policy that is none, in Redis's order.
const POLICIES: &str = "argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, \
                        allkeys-lru, allkeys-lfu, allkeys-random, noeviction";

/// What can be changed.
pub(crate) struct Parameters {
    /// Commands that take so many microseconds are logged; all of them with 0, none with -1.
    slowlog_micros: AtomicI64,
    slowlog_length: AtomicUsize,
    /// Commands that take so many milliseconds are events; none with 0.
    latency_millis: AtomicU64,
    max_clients: AtomicUsize,
    protected_mode: AtomicBool,
    pub(crate) output_limits: OutputLimits,
    /// Clients that send nothing for so many seconds are closed; none with 0.
    timeout_seconds: AtomicU64,
    notifications: AtomicU16,
    /// Scripts that have run for so many milliseconds are those that `SCRIPT KILL` ends.
    busy_millis: AtomicU64,
    /// How many keys that tracked clients have read are remembered; any number with 0.
    tracked_keys: AtomicUsize,
    meaningless: Mutex<BTreeMap<&'static str, String>>,
}

impl Parameters {
    pub(crate) fn new(options: &Options) -> Self {
        Parameters {
            slowlog_micros: AtomicI64::new(10_000),
            slowlog_length: AtomicUsize::new(128),
            latency_millis: AtomicU64::new(0),
            max_clients: AtomicUsize::new(options.max_clients),
            protected_mode: AtomicBool::new(options.protected_mode),
            output_limits: OutputLimits::default(),
            timeout_seconds: AtomicU64::new(0),
            notifications: AtomicU16::new(0),
            busy_millis: AtomicU64::new(5000),
            tracked_keys: AtomicUsize::new(1_000_000),
            meaningless: Mutex::default(),
        }
    }

    /// A command that takes so many microseconds is logged.
    fn logged_from(&self) -> u64 {
        u64::try_from(self.slowlog_micros.load(Relaxed)).unwrap_or(u64::MAX)
    }

    /// A command that takes so many milliseconds is an event.
    pub(crate) fn event_from(&self) -> u64 {
        match self.latency_millis.load(Relaxed) {
            0 => u64::MAX,
            millis => millis,
        }
    }

    /// True if a command that took so long is logged.
    pub(crate) fn is_logged(&self, micros: u64) -> bool {
        micros >= self.logged_from()
    }

    /// How many slow commands are remembered.
    pub(crate) fn slowlog_length(&self) -> usize {
        self.slowlog_length.load(Relaxed)
    }

    /// A command that takes so many nanoseconds is one thing or the other.
    pub(crate) fn slow_nanos(&self) -> u64 {
        self.logged_from().saturating_mul(1000).min(self.event_from().saturating_mul(1_000_000))
    }

    /// Which events of keys are published.
    pub(crate) fn notifications(&self) -> Notifications {
        Notifications::from_bits(self.notifications.load(Relaxed))
    }

    /// For how many milliseconds a script must have run that `SCRIPT KILL` ends.
    pub(crate) fn busy_millis(&self) -> u64 {
        self.busy_millis.load(Relaxed)
    }

    /// How many keys that tracked clients have read are remembered; any number with 0.
    pub(crate) fn most_tracked_keys(&self) -> usize {
        self.tracked_keys.load(Relaxed)
    }

    /// The most clients at a time.
    pub(crate) fn max_clients(&self) -> usize {
        self.max_clients.load(Relaxed)
    }

    /// True if clients of other machines need a password where they connect to any address.
    pub(crate) fn protected_mode(&self) -> bool {
        self.protected_mode.load(Relaxed)
    }

    /// For how long clients may send nothing, if that is limited.
    pub(crate) fn longest_silence(&self) -> Option<Duration> {
        match self.timeout_seconds.load(Relaxed) {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        }
    }

    fn meaningless(&self, name: &str) -> Option<(&'static str, String)> {
        let (name, usual) = MEANINGLESS.iter().find(|(known, _)| *known == name)?;
        Some((name, self.meaningless.lock().get(name).cloned().unwrap_or_else(|| (*usual).to_owned())))
    }
}

/// Visits all parameters. `databases` is how many keyspaces have a number.
pub(crate) fn visit(process: &Process, databases: usize, visit: &mut dyn FnMut(&str, &str)) {
    let (options, parameters) = (&process.options, &process.parameters);
    let switch = |is_on: bool| if is_on { "yes" } else { "no" };
    let acl_file = process.users.file().map_or(String::new(), |file| file.display().to_string());
    visit("aclfile", &acl_file);
    let append_fsync = match options.durability.as_str() {
        "none" => "no",
        class => class,
    };
    visit("appendfsync", append_fsync);
    visit("appendonly", switch(process.journal.is_some()));
    let addresses: Vec<String> = options.listen.iter().map(|address| address.ip().to_string()).collect();
    visit("bind", &addresses.join(" "));
    visit("busy-reply-threshold", &parameters.busy_millis().to_string());
    visit("client-output-buffer-limit", &parameters.output_limits.text());
    visit("client-query-buffer-limit", &options.client_query_limit_bytes.to_string());
    visit("databases", &databases.to_string());
    visit("dir", &options.data.as_deref().map_or(String::new(), |path| path.display().to_string()));
    visit("enable-debug-command", options.debug_command.as_str());
    visit("io-threads", &options.threads.to_string());
    visit("latency-monitor-threshold", &parameters.latency_millis.load(Relaxed).to_string());
    visit("lua-time-limit", &parameters.busy_millis().to_string());
    visit("maxclients", &parameters.max_clients().to_string());
    let memory = &process.locals.memory;
    visit("maxmemory", &memory.limit().to_string());
    visit("maxmemory-policy", memory.policy_name());
    visit("maxmemory-samples", &memory.samples().to_string());
    visit("notify-keyspace-events", &parameters.notifications().text());
    visit("port", &process.port.load(Relaxed).to_string());
    visit("protected-mode", switch(parameters.protected_mode()));
    visit("proto-max-bulk-len", &datatypes::register::MAX_BYTES.to_string());
    // Never the password itself: who may ask for the configuration need not know it.
    visit("requirepass", if process.asks_password() { "(set, and not shown)" } else { "" });
    visit("save", "");
    visit("slowlog-log-slower-than", &parameters.slowlog_micros.load(Relaxed).to_string());
    visit("slowlog-max-len", &parameters.slowlog_length().to_string());
    visit("timeout", &parameters.timeout_seconds.load(Relaxed).to_string());
    visit("tracking-table-max-keys", &parameters.most_tracked_keys().to_string());
    for (name, _) in MEANINGLESS {
        if let Some((name, value)) = parameters.meaningless(name) {
            visit(name, &value);
        }
    }
}

/// A change that was found possible.
enum Change {
    SlowlogMicros(i64),
    SlowlogLength(usize),
    LatencyMillis(u64),
    MaxClients(usize),
    ProtectedMode(bool),
    OutputLimits(Vec<Limit>),
    TimeoutSeconds(u64),
    Password(Option<String>),
    BusyMillis(u64),
    MaxMemory(u64),
    MaxMemoryPolicy(Option<Eviction>),
    MaxMemorySamples(usize),
    Notifications(Notifications),
    TrackedKeys(usize),
    Meaningless(&'static str, String),
    Nothing,
}

/// Changes parameters, all of them or none.
pub(crate) fn change(process: &Process, databases: usize, wanted: &[(&[u8], &[u8])]) -> Result<(), Error> {
    let mut changes = Vec::new();
    for (index, (name, value)) in wanted.iter().enumerate() {
        let shown = String::from_utf8_lossy(name);
        let refused = |reason: &str| {
            Error::err(format!("CONFIG SET failed (possibly related to argument '{shown}') - {reason}"))
        };
        if wanted[..index].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
            return Err(refused("duplicate parameter"));
        }
        let (name, value) = (shown.to_ascii_lowercase(), String::from_utf8_lossy(value));
        let present = present(process, databases, &name);
        let present = present.ok_or_else(|| {
            Error::err(format!("Unknown option or number of arguments for CONFIG SET - '{shown}'"))
        })?;
        changes.push(change_of(process, &name, &present, &value).map_err(|reason| refused(&reason))?);
    }
    let parameters = &process.parameters;
    for change in changes {
        match change {
            Change::SlowlogMicros(micros) => parameters.slowlog_micros.store(micros, Relaxed),
            Change::SlowlogLength(length) => parameters.slowlog_length.store(length, Relaxed),
            Change::LatencyMillis(millis) => parameters.latency_millis.store(millis, Relaxed),
            Change::MaxClients(most) => parameters.max_clients.store(most, Relaxed),
            Change::ProtectedMode(is_on) => parameters.protected_mode.store(is_on, Relaxed),
            Change::TrackedKeys(most) => parameters.tracked_keys.store(most, Relaxed),
            Change::Notifications(chosen) => parameters.notifications.store(chosen.bits(), Relaxed),
            Change::OutputLimits(limits) => parameters.output_limits.change(&limits),
            Change::TimeoutSeconds(seconds) => parameters.timeout_seconds.store(seconds, Relaxed),
            Change::BusyMillis(millis) => parameters.busy_millis.store(millis, Relaxed),
            Change::Password(password) => {
                process.users.change(|users| users.set_default_password(password.as_deref()));
                process.workers.read().iter().for_each(|worker| worker.wake());
            }
            Change::MaxMemory(bytes) => process.locals.memory.set_limit(bytes),
            Change::MaxMemoryPolicy(policy) => process.locals.set_policy(policy),
            Change::MaxMemorySamples(samples) => process.locals.memory.set_samples(samples),
            Change::Meaningless(name, value) => {
                parameters.meaningless.lock().insert(name, value);
            }
            Change::Nothing => {}
        }
    }
    Ok(())
}

/// The value that a parameter has.
fn present(process: &Process, databases: usize, wanted: &str) -> Option<String> {
    let mut found = None;
    visit(process, databases, &mut |name, value| {
        if name == wanted {
            found = Some(value.to_owned());
        }
    });
    found
}

/// What comes of the wish that a parameter had this value; or Redis's text that says why it cannot.
fn change_of(process: &Process, name: &str, present: &str, value: &str) -> Result<Change, String> {
    let integer = |least: i64, most: i64| match value.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(_) => Err(format!("argument must be between {least} and {most} inclusive")),
        Err(_) => Err("argument couldn't be parsed into an integer".to_owned()),
    };
    let switch = || match value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    };
    if let Some((name, _)) = process.parameters.meaningless(name) {
        let is_switch = matches!(present, "yes" | "no");
        return match is_switch {
            true => switch().map(|_| Change::Meaningless(name, value.to_ascii_lowercase())),
            false => integer(i64::MIN, i64::MAX).map(|number| Change::Meaningless(name, number.to_string())),
        };
    }
    match name {
        "slowlog-log-slower-than" => integer(-1, i64::MAX).map(Change::SlowlogMicros),
        "slowlog-max-len" => integer(0, i64::MAX).map(|length| Change::SlowlogLength(length as usize)),
        "latency-monitor-threshold" => integer(0, i64::MAX).map(|ms| Change::LatencyMillis(ms as u64)),
        "maxclients" => integer(1, u32::MAX.into()).map(|most| Change::MaxClients(most as usize)),
        "client-output-buffer-limit" => output_limits::parse(value).map(Change::OutputLimits),
        "notify-keyspace-events" => match Notifications::parse(value) {
            Some(chosen) => Ok(Change::Notifications(chosen)),
            None => Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        },
        "tracking-table-max-keys" => integer(0, i64::MAX).map(|most| Change::TrackedKeys(most as usize)),
        "protected-mode" => switch().map(Change::ProtectedMode),
        "timeout" => integer(0, i32::MAX.into()).map(|seconds| Change::TimeoutSeconds(seconds as u64)),
        "busy-reply-threshold" | "lua-time-limit" => {
            integer(0, i64::MAX).map(|millis| Change::BusyMillis(millis as u64))
        }
        // Who has authenticated goes on.
        "requirepass" => Ok(Change::Password((!value.is_empty()).then(|| value.to_owned()))),
        "maxmemory" => match parse_bytes(value) {
            Some(bytes) => Ok(Change::MaxMemory(bytes)),
            None => Err("argument must be a memory value".to_owned()),
        },
        "maxmemory-policy" => match Eviction::from_name(value.as_bytes()) {
            Some(policy) => Ok(Change::MaxMemoryPolicy(policy)),
            None => Err(POLICIES.to_owned()),
        },
        "maxmemory-samples" => {
            integer(1, i32::MAX.into()).map(|samples| Change::MaxMemorySamples(samples as usize))
        }
        _ if value.eq_ignore_ascii_case(present) => Ok(Change::Nothing),
        _ => Err("can't set immutable config".to_owned()),
    }
}
