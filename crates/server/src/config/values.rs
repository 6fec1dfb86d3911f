//! The values of options that are more than a number, checked when they are read so that an error names its place.

use anyhow::{Context, Result};
use clap::ValueEnum;
use protocol::eviction::{Eviction, NO_EVICTION, parse_bytes};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::str::FromStr;
use tracing_subscriber::filter::Targets;

/// A place to listen: a host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort(String);

impl HostPort {
    /// The address; the first one where a name has several.
    pub fn resolve(&self) -> Result<SocketAddr> {
        let mut addresses =
            self.0.to_socket_addrs().with_context(|| format!("cannot find the host of `{}`", self.0))?;
        addresses.next().with_context(|| format!("the host of `{}` has no address", self.0))
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(HostPort(text.to_owned()))
            }
            _ => Err(format!("`{text}` is not HOST:PORT, such as `127.0.0.1:6379` or `[::1]:6379`")),
        }
    }
}

impl TryFrom<String> for HostPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(place: HostPort) -> String {
        place.0
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        HostPort(address.to_string())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a reply promises about a later crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Synced to the disk: nothing is lost
    Always,
    /// Handed to the kernel: a killed process loses nothing, a power cut at most a second
    Everysec,
    /// Everything since the last checkpoint may be lost
    None,
}

impl From<Durability> for protocol::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Always => protocol::Durability::Synced,
            Durability::Everysec => protocol::Durability::Written,
            Durability::None => protocol::Durability::Volatile,
        }
    }
}

/// What goes when memory is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemoryPolicy(pub Option<Eviction>);

impl FromStr for MemoryPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let policy = Eviction::from_name(text.as_bytes());
        let known = || format!("`{text}` is no policy; there are {}", Eviction::names().join(", "));
        policy.map(MemoryPolicy).ok_or_else(known)
    }
}

impl TryFrom<String> for MemoryPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<MemoryPolicy> for String {
    fn from(policy: MemoryPolicy) -> String {
        policy.0.map_or(NO_EVICTION, Eviction::as_str).to_owned()
    }
}

/// An amount of memory, such as `100mb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let none = || format!("`{text}` is no amount of memory, such as `1073741824`, `100mb` or `2gb`");
        parse_bytes(text).map(Bytes).ok_or_else(none)
    }
}

/// Which events are logged: a level, or filters by module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogLevel(String);

impl LogLevel {
    /// As the configuration has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for LogLevel {
    fn default() -> Self {
        LogLevel("info".to_owned())
    }
}

/// A log level that is none.
#[derive(Debug)]
pub struct NoLevel(String);

impl fmt::Display for NoLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no log level; there are error, warn, info, debug and trace, or filters by module such as \
             `info,anabranch_runtime=debug`",
            self.0
        )
    }
}

impl std::error::Error for NoLevel {}

impl FromStr for LogLevel {
    type Err = NoLevel;

    fn from_str(text: &str) -> Result<Self, NoLevel> {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        // A bare word that is no level would be taken for the name of a module, and silence everything.
        // Spans in brackets, which filters do not know, likewise.
        let is_module_filter = text.contains(['=', ',']) && !text.contains('[');
        if (is_module_filter || LEVELS.contains(&text)) && text.parse::<Targets>().is_ok() {
            Ok(LogLevel(text.to_owned()))
        } else {
            Err(NoLevel(text.to_owned()))
        }
    }
}

impl TryFrom<String> for LogLevel {
    type Error = NoLevel;

    fn try_from(text: String) -> Result<Self, NoLevel> {
        text.parse()
    }
}

impl From<LogLevel> for String {
    fn from(level: LogLevel) -> String {
        level.0
    }
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Reads a number that must not be smaller than `LEAST`, nor larger than its type allows.
pub fn at_least<'de, const LEAST: u64, N: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<N, D::Error> {
    let number = deserializer.deserialize_u64(WholeNumber { least: LEAST })?;
    N::try_from(number).map_err(|_| {
        let most = u64::MAX >> (64 - 8 * size_of::<N>());
        D::Error::custom(format!("{number} is too large; it must be at most {most}"))
    })
}

/// Reads a number that must not be 0, nor larger than its type allows.
pub fn positive<'de, N: TryFrom<NonZeroU64>, D: Deserializer<'de>>(deserializer: D) -> Result<N, D::Error> {
    let number = deserializer.deserialize_u64(WholeNumber { least: 1 })?;
    NonZeroU64::new(number).and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
        let most = u64::MAX >> (64 - 8 * size_of::<N>());
        D::Error::custom(format!("{number} is too large; it must be at most {most}"))
    })
}

/// Takes a number, and says in an error which ones there are.
struct WholeNumber {
    least: u64,
}

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number, at least {}", self.least)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!("{number} is too small; it must be at least {}", self.least))),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u64, E> {
        if number < self.least {
            return Err(E::custom(format!("{number} is too small; it must be at least {}", self.least)));
        }
        Ok(number)
    }
}

/// Reads a password, which has at least one character.
pub fn password<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let password = String::deserialize(deserializer)?;
    if password.is_empty() {
        return Err(D::Error::custom("a password is not empty; leave the key out to ask for none"));
    }
    Ok(Some(password))
}

/// Who may use the command `DEBUG`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebugCommand {
    /// Nobody.
    #[default]
    No,
    /// Clients on this machine.
    Local,
    /// Everybody.
    Yes,
}

impl From<DebugCommand> for runtime::DebugCommand {
    fn from(who: DebugCommand) -> Self {
        match who {
            DebugCommand::No => runtime::DebugCommand::No,
            DebugCommand::Local => runtime::DebugCommand::Local,
            DebugCommand::Yes => runtime::DebugCommand::Yes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_host_and_a_port() {
        for good in ["127.0.0.1:0", "[::1]:6379", "localhost:65535"] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        for bad in ["", "6379", ":6379", "host", "host:", "host:65536", "host:-1"] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
        assert_eq!("127.0.0.1:7".parse::<HostPort>().unwrap().resolve().unwrap().port(), 7);
    }

    #[test]
    fn memory_is_limited_in_redis_words() {
        assert_eq!("100mb".parse(), Ok(Bytes(100 << 20)));
        assert!("much".parse::<Bytes>().unwrap_err().contains("such as"));
        assert_eq!("noeviction".parse(), Ok(MemoryPolicy(None)));
        assert!("lru".parse::<MemoryPolicy>().unwrap_err().contains("allkeys-lru"));
        for policy in Eviction::ALL.map(Some).map(MemoryPolicy) {
            assert_eq!(String::from(policy).parse(), Ok(policy));
        }
    }

    #[test]
    fn a_level_is_a_level_or_a_filter() {
        for good in ["info", "off", "info,anabranch_runtime=debug"] {
            assert!(good.parse::<LogLevel>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "anabranch=loud", "info,[span]=debug", "info,anabranch[span]=debug"] {
            assert!(bad.parse::<LogLevel>().is_err(), "{bad}");
        }
    }
}
