//! Rounds: ours, theirs, ours again, with the same contents before each.

use super::catalogue::{Fill, Test};
use super::load::{self, LoadError, Measurement, Plan};
use super::target::{Target, processor_seconds};
use super::template::{Numbers, Template};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Requests under way on one connection while contents are loaded.
const FILL_PIPELINE: usize = 64;
/// Connections that load contents.
const FILL_CLIENTS: usize = 4;

/// What to measure.
#[derive(Debug)]
pub struct Settings {
    /// The server that the result is about.
    pub ours: Server,
    /// The one it is compared with.
    pub theirs: Option<Server>,
    /// The tests, in order.
    pub tests: Vec<&'static Test>,
    /// Requests that one connection has under way; every test runs with each.
    pub pipelines: Vec<usize>,
    /// Connections.
    pub clients: usize,
    /// Requests of one measurement; none for 100 000 times the pipeline, at most two million.
    pub requests: Option<u64>,
    /// Rounds, of which the medians are reported.
    pub rounds: usize,
    /// Numbers in keys and elements are below this.
    pub keys: u32,
    /// The payload's length.
    pub value_bytes: usize,
}

impl Settings {
    fn plan(&self, pipeline: usize) -> Plan {
        let requests = self.requests.unwrap_or((pipeline as u64 * 100_000).min(2_000_000));
        Plan { clients: self.clients, pipeline, requests }
    }
}

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub target: Target,
    /// Its process on this machine, if its processor time is to be measured.
    pub pid: Option<u32>,
}

/// The result of one test with one pipeline.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The test.
    pub test: &'static Test,
    /// Requests that one connection has under way.
    pub pipeline: usize,
    /// Our requests per second, the median of all measurements.
    pub ours: f64,
    /// Their requests per second, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<f64>,
    /// Ours through theirs, round by round: ours is the mean of a round's two measurements.
    #[serde(flatten)]
    pub ratio: Option<Ratio>,
    /// Our second measurement through our first, round by round: how much two equal things differ here.
    pub same: Spread,
    /// What our clients waited.
    pub ours_latency_us: Latency,
    /// What theirs waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs_latency_us: Option<Latency>,
    /// Our processor time per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_cpu_us: Option<f64>,
    /// Their processor time per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs_cpu_us: Option<f64>,
    /// Connections.
    pub clients: usize,
    /// Requests of one measurement.
    pub requests: u64,
    /// Rounds.
    pub rounds: usize,
}

/// The comparison's own result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The median over the rounds.
    pub ratio: f64,
    /// The lowest round.
    pub ratio_low: f64,
    /// The highest round.
    pub ratio_high: f64,
}

/// A median with its extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        match (values.first(), values.last()) {
            (Some(low), Some(high)) => {
                Spread { median: rounded(median(&values)), low: rounded(*low), high: rounded(*high) }
            }
            _ => Spread { median: 0.0, low: 0.0, high: 0.0 },
        }
    }
}

/// Percentiles of latency, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the requests were faster.
    pub p50: f64,
    /// 99 of 100 were faster.
    pub p99: f64,
    /// 999 of 1000 were faster.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let microseconds = |nanoseconds: u64| (nanoseconds as f64 / 100.0).round() / 10.0;
        let at = |quantile| microseconds(histogram.value_at_quantile(quantile));
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: microseconds(histogram.max()) }
    }
}

/// Runs one test with one pipeline against the servers in turn.
pub fn compare(settings: &Settings, test: &'static Test, pipeline: usize) -> Result<Comparison, LoadError> {
    let plan = settings.plan(pipeline);
    let warm_up = Plan { requests: (plan.requests / 10).max(1), ..plan };
    let mut ours = Side::new(&settings.ours);
    let mut theirs = settings.theirs.as_ref().map(Side::new);
    for side in [Some(&mut ours), theirs.as_mut()].into_iter().flatten() {
        side.measure(settings, test, warm_up, 0)?;
        side.forget();
    }
    let (mut ratios, mut same) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds as u64 {
        let first = ours.measure(settings, test, plan, 3 * round + 1)?;
        let other = match &mut theirs {
            Some(side) => Some(side.measure(settings, test, plan, 3 * round + 2)?),
            None => None,
        };
        let second = ours.measure(settings, test, plan, 3 * round + 3)?;
        ratios.extend(other.map(|other| (first + second) / 2.0 / other));
        same.push(second / first);
    }
    let ratio = theirs.as_ref().map(|_| {
        let spread = Spread::of(ratios);
        Ratio { ratio: spread.median, ratio_low: spread.low, ratio_high: spread.high }
    });
    Ok(Comparison {
        test,
        pipeline,
        ours: ours.rate(),
        theirs: theirs.as_ref().map(Side::rate),
        ratio,
        same: Spread::of(same),
        ours_latency_us: ours.latency(),
        theirs_latency_us: theirs.as_ref().map(Side::latency),
        ours_cpu_us: ours.processor_us(),
        theirs_cpu_us: theirs.as_ref().and_then(Side::processor_us),
        clients: plan.clients,
        requests: plan.requests,
        rounds: settings.rounds,
    })
}

/// One server and what was measured of it.
struct Side<'a> {
    server: &'a Server,
    measurements: Vec<Measurement>,
    processor_seconds: Option<f64>,
}

impl<'a> Side<'a> {
    fn new(server: &'a Server) -> Self {
        Side { server, measurements: Vec::new(), processor_seconds: Some(0.0) }
    }

    /// Loads the contents, measures once and answers the rate.
    fn measure(&mut self, settings: &Settings, test: &Test, plan: Plan, seed: u64) -> Result<f64, LoadError> {
        let value = vec![b'x'; settings.value_bytes];
        prepare(&self.server.target, settings, test, &value, plan.requests)?;
        let mut template = Template::of(test, &value, plan.pipeline);
        let mut numbers = Numbers::random(settings.keys, seed);
        let before = self.processor_now();
        let measurement = load::run(&self.server.target, plan, &mut template, &mut numbers)?;
        let used = self.processor_now().zip(before).map(|(after, before)| after - before);
        self.processor_seconds = self.processor_seconds.zip(used).map(|(sum, used)| sum + used);
        let rate = measurement.rate();
        self.measurements.push(measurement);
        Ok(rate)
    }

    /// Drops what the warm-up measured.
    fn forget(&mut self) {
        self.measurements.clear();
        self.processor_seconds = self.processor_seconds.map(|_| 0.0);
    }

    fn processor_now(&self) -> Option<f64> {
        self.server.pid.and_then(|pid| processor_seconds(pid).ok())
    }

    fn rate(&self) -> f64 {
        let mut rates: Vec<f64> = self.measurements.iter().map(Measurement::rate).collect();
        rates.sort_by(f64::total_cmp);
        median(&rates).round()
    }

    fn latency(&self) -> Latency {
        let mut all = self.measurements.iter().map(|measurement| &measurement.latency);
        let Some(first) = all.next() else { return Latency { p50: 0.0, p99: 0.0, p999: 0.0, max: 0.0 } };
        let mut sum = first.clone();
        for other in all {
            sum.add(other).expect("all histograms have the same bounds");
        }
        Latency::of(&sum)
    }

    fn processor_us(&self) -> Option<f64> {
        let requests: u64 = self.measurements.iter().map(|measurement| measurement.requests).sum();
        let us = self.processor_seconds? * 1e6 / requests.max(1) as f64;
        Some((us * 1000.0).round() / 1000.0)
    }
}

/// Gives a server the contents that the test expects.
fn prepare(
    target: &Target,
    settings: &Settings,
    test: &Test,
    value: &[u8],
    requests: u64,
) -> Result<(), LoadError> {
    if let Some(key) = test.deletes {
        let plan = Plan { clients: 1, pipeline: 1, requests: 1 };
        let command = format!("DEL {key}");
        load::run(target, plan, &mut Template::new(&[&command], value, 1), &mut Numbers::sequence(1))?;
    }
    let (command, requests) = match test.fill {
        Fill::Nothing => return Ok(()),
        Fill::EachKey(command) => (command, u64::from(settings.keys)),
        Fill::EachRequest(command) => (command, requests),
    };
    let plan = Plan { clients: FILL_CLIENTS, pipeline: FILL_PIPELINE, requests };
    let mut template = Template::new(&[command], value, FILL_PIPELINE);
    let below = u32::try_from(requests).unwrap_or(u32::MAX);
    load::run(target, plan, &mut template, &mut Numbers::sequence(below))?;
    Ok(())
}

/// The median of sorted values; the mean of the middle two where there is no middle one.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => (sorted[length / 2 - 1] + sorted[length / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(Spread::of(vec![3.0, 1.00049, 2.0]), Spread { median: 2.0, low: 1.0, high: 3.0 });
    }
}
