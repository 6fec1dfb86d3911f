//! How `KEYSPACE HOTKEYS` replies what replicas have counted of transactions that are in each other's way.

use protocol::{ContentionCounts, HotKey};
use types::{ProcessId, ReplySink};

/// The reply: the keys, and the processes that have not answered.
pub(super) fn write_hot_keys(keys: &[HotKey], unanswered: &[ProcessId], sink: &mut dyn ReplySink) {
    sink.map(2);
    sink.bulk(b"keys");
    write_keys(keys, sink);
    sink.bulk(b"unanswered");
    sink.array(unanswered.len());
    unanswered.iter().for_each(|process| sink.integer(i64::from(process.0)));
}

fn write_keys(keys: &[HotKey], sink: &mut dyn ReplySink) {
    sink.array(keys.len());
    for hot in keys {
        sink.map(7);
        sink.bulk(b"key");
        sink.bulk(&hot.key);
        for (name, count) in [("count", hot.count), ("excess", hot.excess)] {
            sink.bulk(name.as_bytes());
            sink.integer(i64::try_from(count).unwrap_or(i64::MAX));
        }
        write_contention(hot.contention(), sink);
        sink.bulk(b"pairs");
        sink.array(hot.pairs.len());
        for (pair, contention) in &hot.pairs {
            sink.map(5);
            sink.bulk(b"wanted");
            sink.bulk(pair.wanted.name().as_bytes());
            sink.bulk(b"met");
            sink.bulk(pair.met.map_or("newer", |mode| mode.name()).as_bytes());
            write_contention(*contention, sink);
        }
    }
}

fn write_contention(contention: ContentionCounts, sink: &mut dyn ReplySink) {
    let ContentionCounts { waits, conflicts, wounds } = contention;
    for (name, count) in [("waits", waits), ("conflicts", conflicts), ("wounds", wounds)] {
        sink.bulk(name.as_bytes());
        sink.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
