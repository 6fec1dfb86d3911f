//! What one process is told: a TOML file, the environment, the command line; the later has precedence.

pub(crate) mod file;
mod password;
mod template;
mod values;

pub use values::{Bytes, DebugCommand, Durability, HostPort, LogFormat, LogLevel, MemoryPolicy};

use crate::cli::{ServeArguments, Switch};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;
use values::{at_least, positive};

/// The environment variable that sets the log level.
const LOG_VARIABLE: &str = "ANABRANCH_LOG";
/// Beyond it a process gains little.
const MOST_THREADS: usize = 8;

/// Everything that can be set. `docs/reference/configuration.md` describes each key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: ServerSection,
    pub storage: StorageSection,
    pub admin: AdminSection,
    pub log: LogSection,
    /// The file that it was read from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSection {
    pub listen: Vec<HostPort>,
    pub announce: Option<HostPort>,
    #[serde(deserialize_with = "positive")]
    pub threads: NonZeroU16,
    #[serde(deserialize_with = "at_least::<0, _, _>")]
    pub partitions: u16,
    #[serde(deserialize_with = "positive")]
    pub max_clients: NonZeroUsize,
    #[serde(deserialize_with = "at_least::<1024, _, _>")]
    pub client_output_limit_bytes: u64,
    #[serde(deserialize_with = "at_least::<1024, _, _>")]
    pub client_query_limit_bytes: u64,
    #[serde(deserialize_with = "at_least::<0, _, _>")]
    pub max_memory_bytes: u64,
    pub max_memory_policy: MemoryPolicy,
    #[serde(deserialize_with = "positive")]
    pub max_memory_samples: NonZeroUsize,
    #[serde(deserialize_with = "positive")]
    pub databases: NonZeroU16,
    pub protected_mode: bool,
    pub enable_debug_command: DebugCommand,
    #[serde(skip_serializing, deserialize_with = "values::password")]
    pub password: Option<String>,
    pub password_file: Option<PathBuf>,
    pub acl_file: Option<PathBuf>,
    /// Where the password was found.
    #[serde(skip)]
    pub password_origin: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSection {
    pub directory: PathBuf,
    pub memory: bool,
    pub durability: Durability,
    #[serde(deserialize_with = "at_least::<65_536, _, _>")]
    pub checkpoint_after_bytes: u64,
    #[serde(deserialize_with = "at_least::<65_536, _, _>")]
    pub segment_bytes: u64,
    #[serde(deserialize_with = "at_least::<0, _, _>")]
    pub region_queue_bytes: usize,
    #[serde(deserialize_with = "at_least::<0, _, _>")]
    pub region_spill_bytes: u64,
    #[serde(deserialize_with = "positive")]
    pub sync_every_ms: NonZeroU64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminSection {
    pub listen: Option<HostPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    pub level: LogLevel,
    pub format: LogFormat,
}

impl Default for ServerSection {
    fn default() -> Self {
        let options = runtime::Options::default();
        ServerSection {
            listen: options.listen.iter().map(|address| HostPort::from(*address)).collect(),
            announce: None,
            threads: threads_for(1),
            partitions: options.partitions,
            max_clients: NonZeroUsize::new(options.max_clients).unwrap_or(NonZeroUsize::MIN),
            client_output_limit_bytes: options.client_output_limit_bytes as u64,
            client_query_limit_bytes: options.client_query_limit_bytes as u64,
            max_memory_bytes: options.max_memory_bytes,
            max_memory_policy: MemoryPolicy::default(),
            max_memory_samples: NonZeroUsize::new(options.max_memory_samples).unwrap_or(NonZeroUsize::MIN),
            databases: NonZeroU16::new(options.databases).unwrap_or(NonZeroU16::MIN),
            protected_mode: options.protected_mode,
            enable_debug_command: DebugCommand::No,
            password: None,
            password_file: None,
            acl_file: None,
            password_origin: None,
        }
    }
}

/// How many worker threads a process has unless that is said: as many as there are cores for each of so many processes, at
/// most 8.
pub fn threads_for(processes: usize) -> NonZeroU16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores / processes.max(1)).clamp(1, MOST_THREADS);
    NonZeroU16::try_from(threads as u16).unwrap_or(NonZeroU16::MIN)
}

impl Default for StorageSection {
    fn default() -> Self {
        let options = runtime::Options::default();
        let sync_every_ms = options.sync_every.as_millis() as u64;
        StorageSection {
            directory: PathBuf::from("./anabranch-data"),
            memory: false,
            durability: Durability::Everysec,
            checkpoint_after_bytes: options.checkpoint_after_bytes,
            segment_bytes: options.segment_bytes,
            region_queue_bytes: options.region_queue_bytes,
            region_spill_bytes: options.region_spill_bytes,
            sync_every_ms: NonZeroU64::new(sync_every_ms).unwrap_or(NonZeroU64::MIN),
        }
    }
}

impl Config {
    /// What is in effect for a `serve` command: the defaults, then the file, the environment, the command line.
    pub fn of(arguments: &ServeArguments) -> Result<Self> {
        let mut config = match &arguments.config {
            Some(path) => file::read(path)?,
            None => Config::default(),
        };
        if let Ok(level) = std::env::var(LOG_VARIABLE) {
            config.log.level = level.parse().with_context(|| format!("{LOG_VARIABLE} is wrong"))?;
        }
        config.apply(arguments);
        config.server.find_password(arguments)?;
        config.file.clone_from(&arguments.config);
        Ok(config)
    }

    fn apply(&mut self, arguments: &ServeArguments) {
        if !arguments.listen.is_empty() {
            self.server.listen.clone_from(&arguments.listen);
        }
        if let Some(directory) = &arguments.data {
            self.storage.directory.clone_from(directory);
            self.storage.memory = false;
        }
        self.storage.memory |= arguments.memory;
        self.storage.durability = arguments.durability.unwrap_or(self.storage.durability);
        self.server.threads = arguments.threads.unwrap_or(self.server.threads);
        self.server.max_memory_bytes = arguments.max_memory.map_or(self.server.max_memory_bytes, |it| it.0);
        self.server.max_memory_policy = arguments.max_memory_policy.unwrap_or(self.server.max_memory_policy);
        if let Some(mode) = arguments.protected_mode {
            self.server.protected_mode = mode == Switch::Yes;
        }
        if arguments.admin.is_some() {
            self.admin.listen.clone_from(&arguments.admin);
        }
        if let Some(level) = &arguments.log_level {
            self.log.level.clone_from(level);
        }
    }

    /// The configuration as a commented file. A password is left out.
    pub fn to_toml(&self) -> Result<String> {
        template::fill(self)
    }

    /// What the runtime is told. Names of hosts are looked up here.
    pub fn options(&self) -> Result<runtime::Options> {
        let listen = self.server.listen.iter().map(HostPort::resolve).collect::<Result<Vec<_>>>()?;
        let announce = self.server.announce.as_ref().map(HostPort::resolve).transpose()?;
        let ServerSection { max_clients, client_output_limit_bytes, client_query_limit_bytes, .. } =
            self.server;
        Ok(runtime::Options {
            listen,
            announce,
            data: (!self.storage.memory).then(|| self.storage.directory.clone()),
            threads: usize::from(self.server.threads.get()),
            partitions: self.server.partitions,
            durability: self.storage.durability.into(),
            password: self.server.password.clone(),
            acl_file: self.server.acl_file.clone(),
            protected_mode: self.server.protected_mode,
            debug_command: self.server.enable_debug_command.into(),
            config_file: self.file.clone(),
            max_clients: max_clients.get(),
            client_output_limit_bytes: usize::try_from(client_output_limit_bytes)?,
            client_query_limit_bytes: usize::try_from(client_query_limit_bytes)?,
            max_memory_bytes: self.server.max_memory_bytes,
            max_memory_policy: self.server.max_memory_policy.0,
            max_memory_samples: self.server.max_memory_samples.get(),
            databases: self.server.databases.get(),
            checkpoint_after_bytes: self.storage.checkpoint_after_bytes,
            segment_bytes: self.storage.segment_bytes,
            region_queue_bytes: self.storage.region_queue_bytes,
            region_spill_bytes: self.storage.region_spill_bytes,
            accept_loss: false,
            sync_every: Duration::from_millis(self.storage.sync_every_ms.get()),
            models: runtime::Models::new(&[]),
            cluster: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, CommandLine};
    use clap::Parser;
    use protocol::eviction::Eviction;

    fn serve(line: &str) -> ServeArguments {
        match CommandLine::parse_from(line.split_whitespace()).command {
            Some(Command::Serve(arguments)) => arguments,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_has_precedence_over_the_file() {
        let text =
            "[server]\nlisten = ['h:1']\nthreads = 2\n[storage]\nmemory = true\ndurability = 'always'\n";
        let mut config = file::parse(text, "a.toml").unwrap();
        config.apply(&serve("anabranch serve --threads 3 --data /d --admin h:2"));
        assert_eq!(config.server.listen, ["h:1".parse().unwrap()]);
        assert_eq!(config.server.threads.get(), 3);
        assert_eq!(config.storage.durability, Durability::Always);
        // Who names a directory wants it used.
        assert_eq!((config.storage.directory.to_str(), config.storage.memory), (Some("/d"), false));
        assert_eq!(config.admin.listen, Some("h:2".parse().unwrap()));
        let mut bounded = file::parse("[storage]\nmemory = true\n", "a.toml").unwrap();
        bounded.apply(&serve("anabranch serve --max-memory 2mb --max-memory-policy ALLKEYS-LFU"));
        let options = bounded.options().unwrap();
        assert_eq!(
            (options.max_memory_bytes, options.max_memory_policy),
            (2 << 20, Some(Eviction::AllkeysLfu))
        );
        config.apply(&serve("anabranch serve --listen h:3 --memory --durability none"));
        assert_eq!(config.server.listen, ["h:3".parse().unwrap()]);
        assert!(config.storage.memory && config.storage.durability == Durability::None);
    }

    #[test]
    fn the_defaults_are_the_embedded_server_of_the_runtime() {
        let ours = Config::default().options().unwrap();
        let theirs = runtime::Options::default();
        let same = runtime::Options { data: theirs.data.clone(), threads: theirs.threads, ..ours.clone() };
        assert_eq!(format!("{same:?}"), format!("{theirs:?}"));
        assert_eq!(ours.data, Some(PathBuf::from("./anabranch-data")));
    }

    #[test]
    fn processes_share_the_cores_and_have_a_thread_each_at_least() {
        let alone = Config::default().options().unwrap().threads;
        assert!((1..=MOST_THREADS).contains(&alone), "{alone}");
        assert_eq!(usize::from(threads_for(1).get()), alone);
        assert_eq!(threads_for(usize::MAX).get(), 1);
    }

    #[test]
    fn memory_leaves_the_directory_alone() {
        let mut config = Config::default();
        config.storage.memory = true;
        assert_eq!(config.options().unwrap().data, None);
    }
}
