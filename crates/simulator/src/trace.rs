//! What happened, as a hash, and for readers as lines.

use xxhash_rust::xxh3::Xxh3;

/// Collects every event of a run. Two runs of a seed must end with equal hashes.
pub(crate) struct Trace {
    hash: Xxh3,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// With `readable`, the trace holds the lines too.
    pub fn new(readable: bool) -> Self {
        Trace { hash: Xxh3::new(), lines: readable.then(Vec::new) }
    }

    /// Notes an event at a virtual time in microseconds. `kind` and `detail` go into the hash, `text` into the line.
    pub fn note(&mut self, now: u64, kind: u8, detail: &[u8], text: impl FnOnce() -> String) {
        self.hash(now, kind, detail);
        if self.lines.is_some() {
            self.line(now, text());
        }
    }

    fn hash(&mut self, now: u64, kind: u8, detail: &[u8]) {
        self.hash.update(&now.to_le_bytes());
        self.hash.update(&[kind]);
        self.hash.update(&(detail.len() as u64).to_le_bytes());
        self.hash.update(detail);
    }

    fn line(&mut self, now: u64, text: String) {
        let line = format!("{:>4}.{:06} {text}", now / 1_000_000, now % 1_000_000);
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// The hash of everything so far, and the lines.
    pub fn finish(self) -> (u64, Vec<String>) {
        (self.hash.digest(), self.lines.unwrap_or_default())
    }
}

/// The kinds of events in the hash.
pub(crate) mod kind {
    pub const DELIVER: u8 = 1;
    pub const TIMER: u8 = 2;
    pub const WRITE: u8 = 3;
    pub const SYNC: u8 = 4;
    pub const REQUEST: u8 = 5;
    pub const REPLY: u8 = 6;
    pub const FAULT: u8 = 7;
    pub const START: u8 = 8;
    pub const OUTCOME: u8 = 9;
    pub const CHECKPOINT: u8 = 10;
    pub const SPOOL: u8 = 11;
}
