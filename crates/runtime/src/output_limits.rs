//! `client-output-buffer-limit`: how much may wait to be sent to clients of each kind.
//!
//! Only the limits of subscribers do anything. Other clients are not sent more replies than fit: their commands wait; and
//! replicas of Redis are not served. Their limits are stored as Redis shows them.

use gateway::OutputLimit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Redis's kinds of clients, with the names that `CONFIG` takes for them.
const KINDS: [&[&str]; 3] = [&["normal"], &["slave", "replica"], &["pubsub"]];
const SUBSCRIBERS: usize = 2;
/// Redis's limits: hard, soft, and for how many seconds.
const USUAL: [[u64; 3]; 3] = [[0, 0, 0], [256 << 20, 64 << 20, 60], [32 << 20, 8 << 20, 60]];

/// See the module.
pub(crate) struct OutputLimits([[AtomicU64; 3]; 3]);

/// The limits of a kind of clients: hard, soft, and for how many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    kind: usize,
    numbers: [u64; 3],
}

impl Default for OutputLimits {
    fn default() -> Self {
        OutputLimits(USUAL.map(|limits| limits.map(AtomicU64::new)))
    }
}

impl OutputLimits {
    /// The limits of subscribers.
    pub(crate) fn subscribers(&self) -> OutputLimit {
        let [hard, soft, seconds] = &self.0[SUBSCRIBERS];
        let soft_for = Duration::from_secs(seconds.load(Relaxed));
        OutputLimit { hard: hard.load(Relaxed), soft: soft.load(Relaxed), soft_for }
    }

    /// As `CONFIG GET` tells them.
    pub(crate) fn text(&self) -> String {
        let one = |(names, limits): (&&[&str], &[AtomicU64; 3])| {
            let [hard, soft, seconds] = limits.each_ref().map(|limit| limit.load(Relaxed));
            format!("{} {hard} {soft} {seconds}", names[0])
        };
        KINDS.iter().zip(&self.0).map(one).collect::<Vec<_>>().join(" ")
    }

    /// Changes some.
    pub(crate) fn change(&self, limits: &[Limit]) {
        for Limit { kind, numbers } in limits {
            self.0[*kind].iter().zip(numbers).for_each(|(limit, number)| limit.store(*number, Relaxed));
        }
    }
}

/// Limits as `CONFIG SET` takes them: a kind, hard, soft and seconds, perhaps several times. Redis's texts for errors.
pub(crate) fn parse(text: &str) -> Result<Vec<Limit>, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (groups, []) = words.as_chunks::<4>() else {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    };
    let limit = |[kind, hard, soft, seconds]: &[&str; 4]| {
        let is = |names: &&[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(kind));
        let kind = KINDS.iter().position(is);
        let kind = kind.ok_or("Invalid client class specified in buffer limit configuration.")?;
        match (bytes(hard), bytes(soft), seconds.parse::<i32>()) {
            (Some(hard), Some(soft), Ok(seconds @ 0..)) => {
                Ok(Limit { kind, numbers: [hard, soft, seconds as u64] })
            }
            _ => Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned()),
        }
    };
    groups.iter().map(limit).collect()
}

/// A number of bytes with Redis's units.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown_as_redis_does() {
        let limits = OutputLimits::default();
        let usual = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(limits.text(), usual);
        limits.change(&parse("PubSub 1mb 2k 3 replica 1g 5 0").expect("well formed"));
        assert_eq!(limits.text(), "normal 0 0 0 slave 1000000000 5 0 pubsub 1048576 2000 3");
        let subscribers = OutputLimit { hard: 1 << 20, soft: 2000, soft_for: Duration::from_secs(3) };
        assert_eq!(limits.subscribers(), subscribers);
        assert_eq!(parse(""), Ok(Vec::new()));
        for (text, reason) in [
            ("pubsub 1 2", "Wrong number"),
            ("pubsubs 1 2 3", "Invalid client class"),
            ("pubsub 1x 2 3", "Error in hard"),
            ("pubsub 1 -2 3", "Error in hard"),
            ("pubsub 1 2 -3", "Error in hard"),
            ("pubsub mb 2 3", "Error in hard"),
        ] {
            assert!(parse(text).is_err_and(|refusal| refusal.starts_with(reason)), "{text}");
        }
    }
}
