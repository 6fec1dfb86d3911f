//! Records what clients saw, one line a try, while they run.

use checker::{Outcome, Step, Transaction};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The file of a history, which all clients share.
pub(super) struct Recorder {
    output: Mutex<BufWriter<File>>,
    next: AtomicU64,
    /// The one clock.
    epoch: Instant,
}

/// One try of a transaction, from a client's view.
pub(super) struct Try {
    pub session: u64,
    pub invoked: Instant,
    pub outcome: Outcome,
    pub steps: Vec<Step>,
    pub at_rest: bool,
}

impl Recorder {
    pub fn create(path: &Path) -> io::Result<Self> {
        let output = Mutex::new(BufWriter::new(File::create(path)?));
        Ok(Recorder { output, next: AtomicU64::new(1), epoch: Instant::now() })
    }

    /// Writes a try that just ended.
    pub fn note(&self, tried: Try) -> io::Result<()> {
        let microseconds = |instant: Instant| instant.duration_since(self.epoch).as_micros() as u64;
        let responded = (tried.outcome != Outcome::Unknown).then(|| microseconds(Instant::now()));
        let transaction = Transaction {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            session: tried.session,
            invoked: microseconds(tried.invoked),
            responded,
            outcome: tried.outcome,
            steps: tried.steps,
            claim: None,
            follows: None,
            thread: None,
            given_up: false,
            loss_reported: false,
            constraints: None,
            at_rest: tried.at_rest,
        };
        let mut line = serde_json::to_vec(&transaction)?;
        line.push(b'\n');
        let mut output = self.output.lock().map_err(|_| io::Error::other("another client panicked"))?;
        output.write_all(&line)
    }

    /// Everything is in the file.
    pub fn finish(&self) -> io::Result<()> {
        self.output.lock().map_err(|_| io::Error::other("another client panicked"))?.flush()
    }
}
