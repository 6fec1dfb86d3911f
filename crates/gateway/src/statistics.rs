//! What the commands of a gateway came to: how many, how long, which errors. `INFO commandstats` and its like read it.
//!
//! A command has a number ([`crate::table::locate`]), and a gateway one entry for each number: to count a command is to add
//! to a place of an array. The time of commands that were handed over together is shared out evenly.

use crate::table::{self, NUMBERS};
use std::collections::BTreeMap;
use std::fmt::Write;
use types::{ErrorCode, ReplySink};

/// So many buckets each power of two has.
const PER_OCTAVE: u32 = 4;
/// Buckets of a histogram: up to 2^48 nanoseconds, three days.
const BUCKETS: usize = 48 * PER_OCTAVE as usize;
/// So many different words of errors are counted, as in Redis.
const MOST_ERRORS: usize = 128;
/// The word that stands for all errors when there are too many different ones.
const OVERFLOW: &str = "ERRORSTATS_OVERFLOW_ERR";
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// See the module.
#[derive(Clone, Debug)]
pub struct Statistics {
    commands: Box<[CommandStatistics]>,
    errors: BTreeMap<Box<str>, u64>,
    answered: Answered,
}

/// What became of commands on data, to tell whether clients are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// How many replies there were.
    pub replies: u64,
    /// How many errors were `UNAVAILABLE`.
    pub unavailable: u64,
}

/// Of one command.
#[derive(Clone, Debug, Default)]
struct CommandStatistics {
    calls: u64,
    nanos: u64,
    failed: u64,
    rejected: u64,
    latency: Option<Box<[u32; BUCKETS]>>,
}

impl Default for Statistics {
    fn default() -> Self {
        Statistics {
            commands: vec![CommandStatistics::default(); NUMBERS].into(),
            errors: BTreeMap::new(),
            answered: Answered::default(),
        }
    }
}

/// The bucket of a duration: four of them for each power of two.
fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(PER_OCTAVE.into());
    let octave = nanos.ilog2();
    let place = nanos >> (octave - PER_OCTAVE.trailing_zeros()) & u64::from(PER_OCTAVE - 1);
    ((octave * PER_OCTAVE) as usize + place as usize).min(BUCKETS - 1)
}

/// The first duration beyond a bucket.
fn end_of(bucket: usize) -> u64 {
    let (octave, place) = (bucket as u32 / PER_OCTAVE, bucket as u64 % u64::from(PER_OCTAVE));
    (u64::from(PER_OCTAVE) + place + 1) << octave >> PER_OCTAVE.trailing_zeros()
}

impl Statistics {
    /// A command was carried out and took so long.
    #[inline]
    pub(crate) fn called(&mut self, number: u16, nanos: u64) {
        let Some(entry) = self.commands.get_mut(usize::from(number)) else { return };
        entry.calls += 1;
        entry.nanos += nanos;
        let latency = entry.latency.get_or_insert_with(|| Box::new([0; BUCKETS]));
        let count = &mut latency[bucket_of(nanos)];
        *count = count.saturating_add(1);
    }

    /// A command was carried out as a part of a larger one, whose time is known.
    pub(crate) fn counted(&mut self, number: u16) {
        if let Some(entry) = self.commands.get_mut(usize::from(number)) {
            entry.calls += 1;
        }
    }

    /// A command's reply, or a part of it, was this error.
    pub(crate) fn failed(&mut self, error: &Failure) {
        if let Some(entry) = error.number.and_then(|number| self.commands.get_mut(usize::from(number))) {
            match error.rejected {
                true => entry.rejected += 1,
                false => entry.failed += 1,
            }
        }
        self.answered.unavailable += u64::from(&*error.word == ErrorCode::Unavailable.as_str());
        if let Some(count) = self.errors.get_mut(&error.word) {
            *count += 1;
        } else if self.errors.len() < MOST_ERRORS {
            self.errors.insert(error.word.clone(), 1);
        } else {
            self.errors = BTreeMap::from([(OVERFLOW.into(), 1)]);
        }
    }

    /// Clients got so many replies from keyspaces.
    pub(crate) fn replied(&mut self, replies: u64) {
        self.answered.replies += replies;
    }

    /// What became of all commands.
    pub fn answered(&self) -> Answered {
        self.answered
    }

    /// How many commands were carried out.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|entry| entry.calls).sum()
    }

    /// How many errors were replied.
    pub fn error_replies(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Adds what another gateway counted.
    pub fn add(&mut self, other: &Statistics) {
        for (entry, theirs) in self.commands.iter_mut().zip(&other.commands) {
            entry.calls += theirs.calls;
            entry.nanos += theirs.nanos;
            entry.failed += theirs.failed;
            entry.rejected += theirs.rejected;
            if let Some(theirs) = &theirs.latency {
                let latency = entry.latency.get_or_insert_with(|| Box::new([0; BUCKETS]));
                latency
                    .iter_mut()
                    .zip(theirs.iter())
                    .for_each(|(sum, more)| *sum = sum.saturating_add(*more));
            }
        }
        for (word, count) in &other.errors {
            *self.errors.entry(word.clone()).or_default() += count;
        }
    }

    /// The entries of commands that were called or refused, with their names.
    fn known(&self) -> impl Iterator<Item = (&'static str, &CommandStatistics)> {
        let known = self.commands.iter().enumerate().filter(|(_, entry)| entry.calls + entry.rejected > 0);
        known.filter_map(|(number, entry)| Some((table::numbered(number)?.name, entry)))
    }

    /// The lines of the section `commandstats`.
    pub fn write_commands(&self, out: &mut String) {
        for (name, entry) in self.known() {
            let micros = entry.nanos / 1000;
            let per_call = entry.nanos as f64 / 1000.0 / entry.calls.max(1) as f64;
            let written = write!(
                out,
                "cmdstat_{name}:calls={},usec={micros},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}\r\n",
                entry.calls, entry.rejected, entry.failed
            );
            debug_assert!(written.is_ok(), "a string takes any text");
        }
    }

    /// The lines of the section `errorstats`.
    pub fn write_errors(&self, out: &mut String) {
        for (word, count) in &self.errors {
            let written = write!(out, "errorstat_{word}:count={count}\r\n");
            debug_assert!(written.is_ok(), "a string takes any text");
        }
    }

    /// The lines of the section `latencystats`.
    pub fn write_latencies(&self, out: &mut String) {
        for (name, entry) in self.known().filter(|(_, entry)| entry.latency.is_some()) {
            let percentiles =
                PERCENTILES.map(|(label, part)| format!("{label}={:.3}", entry.percentile(part)));
            let written = write!(out, "latency_percentiles_usec_{name}:{}\r\n", percentiles.join(","));
            debug_assert!(written.is_ok(), "a string takes any text");
        }
    }

    /// `LATENCY HISTOGRAM`: of each wanted command how many calls took at most so many microseconds, by powers of two.
    pub(crate) fn write_histograms(&self, wanted: impl Fn(&str) -> bool, sink: &mut dyn ReplySink) {
        let shown: Vec<_> =
            self.known().filter(|(name, entry)| entry.latency.is_some() && wanted(name)).collect();
        sink.map(shown.len());
        for (name, entry) in shown {
            sink.bulk(name.as_bytes());
            sink.map(2);
            sink.bulk(b"calls");
            sink.integer(entry.calls as i64);
            sink.bulk(b"histogram_usec");
            let steps = entry.cumulated();
            sink.map(steps.len());
            for (micros, calls) in steps {
                sink.integer(micros as i64);
                sink.integer(calls as i64);
            }
        }
    }
}

impl CommandStatistics {
    /// So many microseconds this part of the calls took at most.
    fn percentile(&self, part: f64) -> f64 {
        let counts = || self.latency.iter().flat_map(|latency| latency.iter()).map(|count| u64::from(*count));
        let wanted = (counts().sum::<u64>() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bucket = counts().position(|count| {
            seen += count;
            seen >= wanted
        });
        end_of(bucket.unwrap_or(0)) as f64 / 1000.0
    }

    /// How many calls took at most 1, 2, 4 ... microseconds: from the first power of two that has any to the last.
    fn cumulated(&self) -> Vec<(u64, u64)> {
        let (mut steps, mut sum): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        for (bucket, count) in self.latency.iter().flat_map(|latency| latency.iter()).enumerate() {
            if *count == 0 {
                continue;
            }
            sum += u64::from(*count);
            let micros = end_of(bucket).div_ceil(1000).next_power_of_two();
            match steps.last_mut() {
                Some(last) if last.0 == micros => last.1 = sum,
                _ => steps.push((micros, sum)),
            }
        }
        steps
    }
}

/// An error that a client was sent, and of what.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The command; none if there is no such command.
    pub(crate) number: Option<u16>,
    /// It was refused before it was carried out.
    pub(crate) rejected: bool,
    /// Its first word.
    pub(crate) word: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_in_its_bucket() {
        for nanos in (0..200).chain([999, 1000, 1024, 1_000_000, 123_456_789, u64::MAX / 3]) {
            let bucket = bucket_of(nanos);
            let is_last = bucket == BUCKETS - 1;
            assert!(nanos < end_of(bucket) || is_last, "{nanos} in {bucket}");
            assert!(
                bucket == 0 || nanos < 4 || end_of(bucket - 1) <= nanos || is_last,
                "{nanos} in {bucket}"
            );
        }
    }

    #[test]
    fn lines_are_those_of_redis() {
        let mut statistics = Statistics::default();
        let get =
            (0..NUMBERS).find(|number| table::numbered(*number).is_some_and(|found| found.name == "get"));
        let get = get.expect("there is one") as u16;
        (0..99).for_each(|_| statistics.called(get, 1000));
        statistics.called(get, 3_000_000);
        let failure = |rejected| Failure { number: Some(get), rejected, word: "ERR".into() };
        statistics.failed(&failure(true));
        statistics.failed(&failure(false));
        let mut sum = Statistics::default();
        sum.add(&statistics);
        let mut text = String::new();
        sum.write_commands(&mut text);
        assert_eq!(
            text,
            "cmdstat_get:calls=100,usec=3099,usec_per_call=30.99,rejected_calls=1,failed_calls=1\r\n"
        );
        text.clear();
        sum.write_errors(&mut text);
        assert_eq!(text, "errorstat_ERR:count=2\r\n");
        text.clear();
        sum.write_latencies(&mut text);
        assert_eq!(text, "latency_percentiles_usec_get:p50=1.024,p99=1.024,p99.9=3145.728\r\n");
    }

    #[test]
    fn errors_of_too_many_kinds_are_counted_as_one() {
        let mut statistics = Statistics::default();
        for number in 0..1000 {
            statistics.failed(&Failure { number: None, rejected: false, word: format!("E{number}").into() });
        }
        assert!(statistics.errors.len() <= MOST_ERRORS && statistics.errors.contains_key(OVERFLOW));
    }
}
