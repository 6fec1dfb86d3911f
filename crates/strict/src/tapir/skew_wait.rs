//! Proposals that wait for others with lower timestamps, where clocks differ much (the paper's 6.6).
//!
//! A replica that judges transactions in the order in which they arrive tells those with lower timestamps to come again
//! (RETRY). One that waits for a while first, and judges what has come meanwhile in the order of timestamps, tells fewer.
//! What waits is nowhere recorded: nothing was said of it, and its coordinator sends it again.

use super::node::IrMessage;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Instant, NodeId, Timestamp, TransactionId, WallTime};

/// Timestamp, transaction and attempt.
type Key = (Timestamp, TransactionId, u32);

#[derive(Debug)]
struct Held {
    until: Instant,
    from: NodeId,
    message: IrMessage,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SkewWait(BTreeMap<Key, Held>);

impl SkewWait {
    /// For how long a proposal waits that arrives now: until the clock has passed its timestamp by `wait`.
    pub fn time(at: Timestamp, wall: WallTime, wait: Duration) -> Duration {
        let due = at.wall().0.saturating_add(wait.as_micros() as u64);
        Duration::from_micros(due.saturating_sub(wall.0)).min(2 * wait)
    }

    /// Holds a proposal; the same one again is held once.
    pub fn hold(&mut self, key: Key, until: Instant, from: NodeId, message: IrMessage) {
        self.0.entry(key).or_insert(Held { until, from, message });
    }

    /// When the next one has waited for long enough.
    pub fn next(&self) -> Option<Instant> {
        self.0.values().map(|held| held.until).min()
    }

    /// What has waited for long enough, and everything with a lower timestamp, in the order of timestamps.
    pub fn take_due(&mut self, now: Instant) -> Vec<(NodeId, IrMessage)> {
        let last = self.0.iter().filter(|(_, held)| held.until <= now).map(|(key, _)| *key).next_back();
        let Some(last) = last else { return Vec::new() };
        let mut due = std::mem::take(&mut self.0);
        self.0 = due.split_off(&last);
        due.extend(self.0.remove_entry(&last));
        due.into_values().map(|held| (held.from, held.message)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir;
    use types::{Incarnation, KeyspaceId, ProcessId, Slot};

    fn hold(waits: &mut SkewWait, at: u64, until: u64) {
        let transaction = TransactionId { number: at, ..TransactionId::default() };
        let from = NodeId {
            process: ProcessId(1),
            incarnation: Incarnation(1),
            slot: Slot::coordinator(KeyspaceId(1)),
        };
        let message = ir::Message::Forgotten { group: transaction };
        waits.hold((Timestamp(at), transaction, 1), Instant(until), from, message);
    }

    fn taken(waits: &mut SkewWait, now: u64) -> Vec<u64> {
        let number = |(_, message)| match message {
            ir::Message::Forgotten { group } => group.number,
            _ => 0,
        };
        waits.take_due(Instant(now)).into_iter().map(number).collect()
    }

    #[test]
    fn what_is_due_takes_along_what_has_lower_timestamps() {
        let mut waits = SkewWait::default();
        [(5, 50), (3, 90), (9, 70), (7, 60)].into_iter().for_each(|(at, until)| hold(&mut waits, at, until));
        hold(&mut waits, 5, 99);
        assert_eq!(waits.next(), Some(Instant(50)));
        assert_eq!(taken(&mut waits, 49), []);
        assert_eq!(taken(&mut waits, 60), [3, 5, 7]);
        assert_eq!(waits.next(), Some(Instant(70)));
        assert_eq!(taken(&mut waits, 200), [9]);
        assert_eq!(waits.next(), None);
    }

    #[test]
    fn it_waits_until_the_clock_has_passed_the_timestamp_but_not_for_ever() {
        let wait = Duration::from_millis(10);
        let time =
            |at: u64, wall: u64| SkewWait::time(Timestamp::from_wall(WallTime(at)), WallTime(wall), wait);
        assert_eq!(time(1_000_000, 1_000_000), wait);
        assert_eq!(time(1_000_000, 1_004_000), Duration::from_millis(6));
        assert_eq!(time(1_000_000, 1_010_000), Duration::ZERO);
        assert_eq!(time(9_000_000, 1_000_000), 2 * wait);
    }
}
