//! One measurement: many connections on one thread, each with a pipeline of requests under way.
//!
//! A connection sends a batch of requests in one write, waits for all of its replies and sends the next batch, as
//! `redis-benchmark` does. A reply's latency runs from the write of its batch to the read that brought it.

use super::scanner::{Malformed, Scanner};
use super::target::Target;
use super::template::{Numbers, Template};
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// A server that answers nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(60);
/// The bytes read at once; a line of a reply must fit.
const INPUT_BYTES: usize = 16 << 10;
/// The longest latency with a bucket of its own.
const LONGEST_NANOSECONDS: u64 = 60_000_000_000;

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server cannot be reached.
    #[error("cannot connect to {target}: {error}")]
    Connect {
        /// The server.
        target: Target,
        /// What the system or the server said.
        error: io::Error,
    },
    /// A connection broke.
    #[error("lost a connection to {target}: {error}")]
    Lost {
        /// The server.
        target: Target,
        /// What the system said.
        error: io::Error,
    },
    /// The server does not speak the protocol.
    #[error("{target}: {error}")]
    Protocol {
        /// The server.
        target: Target,
        /// What it said instead.
        error: Malformed,
    },
    /// The server answered, with errors.
    #[error("{target} answered {count} requests with errors; the first was `{first}`")]
    Refused {
        /// The server.
        target: Target,
        /// How many errors there were.
        count: u64,
        /// The first of them.
        first: String,
    },
}

/// How much to send, and how.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Connections.
    pub clients: usize,
    /// Requests of one batch.
    pub pipeline: usize,
    /// Requests of all connections together.
    pub requests: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Measurement {
    /// Requests that were answered.
    pub requests: u64,
    /// From the first write to the last reply.
    pub elapsed: Duration,
    /// Nanoseconds from the write of a request to its last reply.
    pub latency: Histogram<u64>,
}

impl Measurement {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Sends the requests of a template until the plan is done. Every reply must be a good one.
pub fn run(
    target: &Target,
    plan: Plan,
    template: &mut Template,
    numbers: &mut Numbers,
) -> Result<Measurement, LoadError> {
    let lost = |error| LoadError::Lost { target: target.clone(), error };
    let mut poll = Poll::new().map_err(lost)?;
    let mut connections = Vec::with_capacity(plan.clients);
    for index in 0..plan.clients {
        let mut connection = Connection::open(target)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.stream, Token(index), interest).map_err(lost)?;
        connections.push(connection);
    }
    let mut feed = Feed::new(plan, template, numbers);
    let begun = Instant::now();
    for connection in &mut connections {
        connection.send_batch(&mut feed).map_err(|failure| failure.at(target))?;
    }
    let mut events = Events::with_capacity(1024);
    while feed.unanswered > 0 {
        match poll.poll(&mut events, Some(SILENCE)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.map_err(lost)?,
        }
        if events.is_empty() {
            return Err(lost(io::Error::new(ErrorKind::TimedOut, "it answered nothing for a minute")));
        }
        for event in &events {
            let connection = &mut connections[event.token().0];
            connection.advance(&mut feed).map_err(|failure| failure.at(target))?;
        }
    }
    let elapsed = begun.elapsed();
    refuse_errors(target, &connections)?;
    Ok(Measurement { requests: plan.requests, elapsed, latency: feed.latency })
}

fn refuse_errors(target: &Target, connections: &[Connection]) -> Result<(), LoadError> {
    let mut errors = connections.iter().filter_map(|connection| connection.scanner.errors()).peekable();
    let Some((_, first)) = errors.peek() else { return Ok(()) };
    let first = (*first).to_owned();
    Err(LoadError::Refused { target: target.clone(), count: errors.map(|(count, _)| count).sum(), first })
}

/// What all connections share: requests to send, and what is known of their replies.
struct Feed<'a> {
    template: &'a mut Template,
    numbers: &'a mut Numbers,
    pipeline: usize,
    unsent: u64,
    unanswered: u64,
    latency: Histogram<u64>,
}

impl<'a> Feed<'a> {
    fn new(plan: Plan, template: &'a mut Template, numbers: &'a mut Numbers) -> Self {
        let latency = Histogram::new_with_bounds(1_000, LONGEST_NANOSECONDS, 3)
            .expect("the bounds are constants that hdrhistogram accepts");
        let requests = plan.requests;
        Feed { template, numbers, pipeline: plan.pipeline, unsent: requests, unanswered: requests, latency }
    }

    /// Notes that requests which were sent at `sent` have been answered.
    fn answered(&mut self, requests: u64, sent: Instant) {
        self.unanswered -= requests;
        let nanoseconds = sent.elapsed().as_nanos().min(u128::from(LONGEST_NANOSECONDS)) as u64;
        self.latency.saturating_record_n(nanoseconds, requests);
    }
}

/// Why a connection is of no more use.
enum Failure {
    Io(io::Error),
    Protocol(Malformed),
}

impl Failure {
    fn at(self, target: &Target) -> LoadError {
        let target = target.clone();
        match self {
            Failure::Io(error) => LoadError::Lost { target, error },
            Failure::Protocol(error) => LoadError::Protocol { target, error },
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

struct Connection {
    stream: TcpStream,
    /// What the system has not taken yet.
    output: Vec<u8>,
    /// Bytes that begin a line, then room for more.
    input: Box<[u8]>,
    held: usize,
    scanner: Scanner,
    /// Replies of the batch that are still to come.
    replies_due: usize,
    sent: Instant,
}

impl Connection {
    fn open(target: &Target) -> Result<Self, LoadError> {
        let stream =
            target.connect().map_err(|error| LoadError::Connect { target: target.clone(), error })?;
        Ok(Connection {
            stream: TcpStream::from_std(stream),
            output: Vec::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            held: 0,
            scanner: Scanner::default(),
            replies_due: 0,
            sent: Instant::now(),
        })
    }

    /// Sends the next batch, if there is one.
    fn send_batch(&mut self, feed: &mut Feed<'_>) -> Result<(), Failure> {
        let requests = feed.unsent.min(feed.pipeline as u64) as usize;
        if requests == 0 {
            return Ok(());
        }
        feed.unsent -= requests as u64;
        self.replies_due = requests * feed.template.replies();
        self.sent = Instant::now();
        let bytes = feed.template.next(requests, feed.numbers);
        let taken = write_some(&mut self.stream, bytes)?;
        self.output.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Writes and reads what is possible without waiting.
    fn advance(&mut self, feed: &mut Feed<'_>) -> Result<(), Failure> {
        if !self.output.is_empty() {
            let taken = write_some(&mut self.stream, &self.output)?;
            self.output.drain(..taken);
        }
        while self.replies_due > 0 {
            let room = &mut self.input[self.held..];
            let capacity = room.len();
            let got = match self.stream.read(room) {
                Ok(0) => return Err(Failure::Io(ErrorKind::UnexpectedEof.into())),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Io(error)),
            };
            self.take(got, feed)?;
            if self.replies_due == 0 {
                return self.send_batch(feed);
            }
            // A short read has emptied the socket; the next bytes raise the next event.
            if got < capacity {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Scans what was read and keeps what begins a line.
    fn take(&mut self, got: usize, feed: &mut Feed<'_>) -> Result<(), Failure> {
        let end = self.held + got;
        let scanned = self.scanner.scan(&self.input[..end]).map_err(Failure::Protocol)?;
        self.input.copy_within(scanned.consumed..end, 0);
        self.held = end - scanned.consumed;
        if self.held == self.input.len() || scanned.replies > self.replies_due {
            let text = "a line of 16 KiB, or a reply that nobody asked for";
            return Err(Failure::Io(io::Error::new(ErrorKind::InvalidData, text)));
        }
        // The last request of a batch ends with the batch, so counting from the end is exact.
        let per_request = feed.template.replies();
        let requests_due = self.replies_due.div_ceil(per_request);
        self.replies_due -= scanned.replies;
        let ended = requests_due - self.replies_due.div_ceil(per_request);
        if ended > 0 {
            feed.answered(ended as u64, self.sent);
        }
        Ok(())
    }
}

/// Writes as much as the system takes.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match stream.write(&bytes[taken..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}
