//! What servers of ours tell of themselves before and after a run: reads that waited, bytes for other regions; and what the
//! kernel tells of their processor time, where they run on this machine.

use super::connection::Connection;
use crate::redis::Target;
use crate::redis::processor_seconds;
use std::collections::BTreeMap;
use std::time::Duration;

/// Servers tell what was the case up to so long ago.
const BEHIND: Duration = Duration::from_millis(150);

/// Counts of all servers together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerCounters {
    /// Reads of partitions that waited for their snapshot.
    pub waited: u64,
    /// For how many microseconds these did, all together.
    pub wait_us: u64,
    /// Bytes for processes of other regions.
    pub far_bytes: u64,
    /// Bytes for other processes of the same region.
    pub near_bytes: u64,
    /// Processor time in seconds, where the servers run on this machine.
    pub processor_seconds: Option<f64>,
}

impl ServerCounters {
    /// What has been added since `before`.
    pub(crate) fn since(self, before: ServerCounters) -> ServerCounters {
        let processors = self.processor_seconds.zip(before.processor_seconds);
        ServerCounters {
            waited: self.waited.saturating_sub(before.waited),
            wait_us: self.wait_us.saturating_sub(before.wait_us),
            far_bytes: self.far_bytes.saturating_sub(before.far_bytes),
            near_bytes: self.near_bytes.saturating_sub(before.near_bytes),
            processor_seconds: processors.map(|(now, before)| now - before),
        }
    }

    fn and(self, other: ServerCounters) -> ServerCounters {
        let processors = self.processor_seconds.zip(other.processor_seconds);
        ServerCounters {
            waited: self.waited + other.waited,
            wait_us: self.wait_us + other.wait_us,
            far_bytes: self.far_bytes + other.far_bytes,
            near_bytes: self.near_bytes + other.near_bytes,
            processor_seconds: processors.map(|(a, b)| a + b),
        }
    }
}

/// Asks all servers; counts that a server does not tell are zero.
pub(crate) fn ask(urls: &[Target], keyspace: Option<&str>) -> ServerCounters {
    std::thread::sleep(BEHIND);
    let keyspace = keyspace.unwrap_or("default");
    let counters = urls.iter().map(|url| ask_one(url, keyspace).unwrap_or_default());
    counters.reduce(ServerCounters::and).unwrap_or_default()
}

fn ask_one(url: &Target, keyspace: &str) -> Option<ServerCounters> {
    let info = info(&mut Connection::open(url).ok()?)?;
    let is_here = url.is_this_machine();
    let process = info.get("process_id").filter(|_| is_here).and_then(|id| id.parse().ok());
    let region = info.get("cluster_region").cloned().unwrap_or_default();
    let counts = info.get(&format!("causal_{keyspace}")).cloned().unwrap_or_default();
    let mut counters = ServerCounters {
        processor_seconds: process.and_then(|id| processor_seconds(id).ok()),
        ..ServerCounters::default()
    };
    for (name, value) in counts.split(',').filter_map(|pair| pair.split_once('=')) {
        let value = value.parse().unwrap_or(0);
        let to = name.strip_prefix("sent_").and_then(|rest| rest.strip_suffix("_bytes"));
        match (name, to) {
            ("reads_waited", _) => counters.waited = value,
            ("read_wait_us", _) => counters.wait_us = value,
            (_, Some(to)) if to == region => counters.near_bytes += value,
            (_, Some(_)) => counters.far_bytes += value,
            _ => {}
        }
    }
    Some(counters)
}

/// What `INFO` tells, by name.
pub(crate) fn info(connection: &mut Connection) -> Option<BTreeMap<String, String>> {
    let replies = connection.call(&[vec![b"INFO".to_vec()]]).ok()?;
    let text = String::from_utf8_lossy(replies.first()?.as_bytes()?).into_owned();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_does_not_count() {
        let counters = |waited, processor_seconds| ServerCounters {
            waited,
            wait_us: 10 * waited,
            far_bytes: 5 * waited,
            near_bytes: waited,
            processor_seconds,
        };
        let both = counters(4, Some(1.5)).and(counters(2, Some(0.5)));
        assert_eq!(both, counters(6, Some(2.0)));
        assert_eq!(both.since(counters(1, Some(1.0))), counters(5, Some(1.0)));
        assert_eq!(both.and(counters(0, None)).processor_seconds, None);
    }
}
