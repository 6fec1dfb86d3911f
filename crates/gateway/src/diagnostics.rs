//! What a process remembers of slow commands: the log of `SLOWLOG`, the events of `LATENCY`.

use std::collections::{BTreeMap, VecDeque};

/// The monitor holds so many of the newest samples of an event, as in Redis.
const MOST_SAMPLES: usize = 160;

/// A command that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCommand {
    /// Its number, set when it is logged.
    pub number: u64,
    /// When it ended, in seconds since 1970.
    pub at_seconds: u64,
    /// How long it was worked on.
    pub micros: u64,
    /// Its words, shortened.
    pub words: Vec<Vec<u8>>,
    /// The client's address.
    pub address: String,
    /// The client's name; empty if it has none.
    pub name: Vec<u8>,
    /// Its cost does not grow with the data.
    pub is_fast: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Diagnostics {
    slow: VecDeque<SlowCommand>,
    next_number: u64,
    latencies: BTreeMap<&'static str, Latency>,
}

/// What is remembered of an event.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// The newest samples, oldest first: seconds since 1970, and the worst milliseconds in that second.
    pub(crate) samples: VecDeque<(u64, u64)>,
    /// The worst ever, in milliseconds.
    pub(crate) worst: u64,
}

impl Latency {
    /// The newest sample.
    pub(crate) fn newest(&self) -> (u64, u64) {
        self.samples.back().copied().unwrap_or_default()
    }
}

impl Diagnostics {
    /// Logs a slow command; the log keeps at most so many.
    pub fn log(&mut self, command: SlowCommand, most: usize) {
        self.slow.push_front(SlowCommand { number: self.next_number, ..command });
        self.next_number += 1;
        self.slow.truncate(most);
    }

    /// Notes that an event took so many milliseconds.
    pub fn note(&mut self, event: &'static str, at_seconds: u64, millis: u64) {
        let latency = self.latencies.entry(event).or_default();
        latency.worst = latency.worst.max(millis);
        match latency.samples.back_mut() {
            Some((at, worst)) if *at == at_seconds => *worst = millis.max(*worst),
            _ => latency.samples.push_back((at_seconds, millis)),
        }
        if latency.samples.len() > MOST_SAMPLES {
            latency.samples.pop_front();
        }
    }

    /// The slow commands, newest first.
    pub(crate) fn slow(&self) -> &VecDeque<SlowCommand> {
        &self.slow
    }

    /// Forgets the slow commands.
    pub(crate) fn forget_slow(&mut self) {
        self.slow.clear();
    }

    /// The events, by name.
    pub(crate) fn latencies(&self) -> &BTreeMap<&'static str, Latency> {
        &self.latencies
    }

    /// An event, in any case.
    pub(crate) fn latency(&self, event: &[u8]) -> Option<&Latency> {
        let is_it = |name: &&&str| name.as_bytes().eq_ignore_ascii_case(event);
        self.latencies.iter().find(|(name, _)| is_it(name)).map(|(_, latency)| latency)
    }

    /// Forgets the events that are wanted; how many that were.
    pub(crate) fn forget_latencies(&mut self, wanted: impl Fn(&str) -> bool) -> usize {
        let before = self.latencies.len();
        self.latencies.retain(|event, _| !wanted(event));
        before - self.latencies.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_slow_commands_stay() {
        let mut diagnostics = Diagnostics::default();
        let command = SlowCommand {
            number: 0,
            at_seconds: 1,
            micros: 2,
            words: vec![b"GET".to_vec()],
            address: "a:1".to_owned(),
            name: Vec::new(),
            is_fast: true,
        };
        (0..5).for_each(|_| diagnostics.log(command.clone(), 3));
        let numbers: Vec<u64> = diagnostics.slow().iter().map(|slow| slow.number).collect();
        assert_eq!(numbers, [4, 3, 2]);
    }

    #[test]
    fn a_second_has_one_sample_of_an_event() {
        let mut diagnostics = Diagnostics::default();
        for (at, millis) in [(1, 5), (1, 7), (1, 6), (2, 3)] {
            diagnostics.note("command", at, millis);
        }
        let latency = &diagnostics.latencies()["command"];
        assert_eq!(
            (latency.samples.iter().copied().collect::<Vec<_>>(), latency.worst),
            (vec![(1, 7), (2, 3)], 7)
        );
        assert_eq!(diagnostics.forget_latencies(|event| event == "other"), 0);
        assert_eq!(diagnostics.forget_latencies(|_| true), 1);
    }
}
