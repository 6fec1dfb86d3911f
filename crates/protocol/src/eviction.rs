//! Caches: which keys go when memory is used up, under Redis's names, and how much memory that is.

use serde::{Deserialize, Serialize};

/// Which keys go. `noeviction`, by which none does, is the absence of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// Any, the least recently used first.
    AllkeysLru,
    /// Any, the least often used first.
    AllkeysLfu,
    /// Any, by chance.
    AllkeysRandom,
    /// Keys with a deadline, the least recently used first.
    VolatileLru,
    /// Keys with a deadline, the least often used first.
    VolatileLfu,
    /// Keys with a deadline, by chance.
    VolatileRandom,
    /// Keys with a deadline, the earliest one first.
    VolatileTtl,
}

/// The name of no policy.
pub const NO_EVICTION: &str = "noeviction";

impl Eviction {
    /// All of them.
    pub const ALL: [Eviction; 7] = [
        Eviction::AllkeysLru,
        Eviction::AllkeysLfu,
        Eviction::AllkeysRandom,
        Eviction::VolatileLru,
        Eviction::VolatileLfu,
        Eviction::VolatileRandom,
        Eviction::VolatileTtl,
    ];

    /// Its name in commands and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Eviction::AllkeysLru => "allkeys-lru",
            Eviction::AllkeysLfu => "allkeys-lfu",
            Eviction::AllkeysRandom => "allkeys-random",
            Eviction::VolatileLru => "volatile-lru",
            Eviction::VolatileLfu => "volatile-lfu",
            Eviction::VolatileRandom => "volatile-random",
            Eviction::VolatileTtl => "volatile-ttl",
        }
    }

    /// The names of all, that of none included.
    pub fn names() -> [&'static str; 8] {
        let mut names = [NO_EVICTION; 8];
        for (name, policy) in names[1..].iter_mut().zip(Eviction::ALL) {
            *name = policy.as_str();
        }
        names
    }

    /// What a name, in any case, means: a policy, or none. `None` if it means nothing.
    pub fn from_name(name: &[u8]) -> Option<Option<Self>> {
        if name.eq_ignore_ascii_case(NO_EVICTION.as_bytes()) {
            return Some(None);
        }
        Eviction::ALL
            .into_iter()
            .find(|policy| policy.as_str().as_bytes().eq_ignore_ascii_case(name))
            .map(Some)
    }

    /// True if keys without a deadline stay.
    pub fn is_volatile(self) -> bool {
        use Eviction::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }
}

/// A keyspace that is a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Which keys go.
    pub policy: Eviction,
    /// When the partition's memory is above so many bytes; `None`: when the process's is above its limit.
    pub share: Option<usize>,
}

/// An amount of memory as Redis's configuration writes it: `100`, `100b`, `1k`, `1kb`, `100mb`, `2g`, in any case; a `b` makes
/// the unit a power of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1000 * 1000,
        "mb" => 1 << 20,
        "g" => 1000 * 1000 * 1000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// An amount of memory for people, as Redis writes it: `1.50M`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_redis_names_in_any_case() {
        for name in Eviction::names() {
            let policy = Eviction::from_name(name.to_uppercase().as_bytes()).expect(name);
            assert_eq!(policy.map_or(NO_EVICTION, Eviction::as_str), name);
            let stored = policy.map(|policy| serde_json::to_value(policy).expect("plain data"));
            assert!(stored.is_none_or(|stored| stored == name));
            assert_eq!(policy.is_some_and(Eviction::is_volatile), name.starts_with("volatile"));
        }
        assert_eq!(Eviction::from_name(b"lru"), None);
    }

    #[test]
    fn amounts_of_memory_are_read_as_redis_reads_them() {
        let amounts = [
            ("0", 0),
            ("7", 7),
            ("7b", 7),
            ("1k", 1000),
            ("1KB", 1024),
            ("100mb", 100 << 20),
            ("2g", 2_000_000_000),
        ];
        for (text, bytes) in amounts {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "mb", "-1", "1.5mb", "1tb", "99999999999999999999", "18446744073709551615gb"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        assert_eq!(human_bytes(0), "0B");
        assert_eq!(human_bytes(1023), "1023B");
        assert_eq!(human_bytes(3 << 19), "1.50M");
    }
}
