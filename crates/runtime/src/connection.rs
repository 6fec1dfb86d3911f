//! A client's socket with what has been read and not executed, and what has been replied and may not leave yet.

use gateway::ConnectionId;
use mio::net::TcpStream;
use protocol::{Durable, Gate};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};

/// What reading or writing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// The socket has no more now, or takes no more.
    Blocked,
    /// There is, or may be, more.
    More,
    /// The other side is gone.
    Closed,
}

/// See the module.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) id: ConnectionId,
    /// Read and not executed.
    pub(crate) input: Vec<u8>,
    /// Replies up to an absolute offset wait for a gate.
    held: VecDeque<(u64, Gate)>,
    /// How many bytes of replies were sent since the connection opened.
    sent: u64,
    /// The gateway has said that it is over: close when everything is sent.
    pub(crate) closing: bool,
    /// The end of the input has been announced, perhaps together with its last bytes: no event will tell again.
    pub(crate) ending: bool,
    /// The client has closed its half: nothing more will be read.
    pub(crate) half_closed: bool,
    /// In the worker's list for this turn.
    pub(crate) touched: bool,
    /// Its input could not be executed yet.
    pub(crate) stalled: bool,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, id: ConnectionId) -> Self {
        Connection {
            socket,
            id,
            input: Vec::new(),
            held: VecDeque::new(),
            sent: 0,
            closing: false,
            ending: false,
            half_closed: false,
            touched: false,
            stalled: false,
        }
    }

    /// Reads once into `buffer`; says how much and whether there may be more.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> (usize, Io) {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return (0, Io::Closed),
                Ok(count) => {
                    let more = count == buffer.len() || self.ending;
                    return (count, if more { Io::More } else { Io::Blocked });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (0, Io::Blocked),
                Err(_) => return (0, Io::Closed),
            }
        }
    }

    /// Replies up to the present end of `output` wait for `gate`, which is not open.
    pub(crate) fn hold(&mut self, output: &[u8], gate: Gate) {
        let end = self.sent + output.len() as u64;
        match self.held.back_mut() {
            Some((last, last_gate)) if *last_gate == gate => *last = end,
            _ => self.held.push_back((end, gate)),
        }
    }

    /// What was held is void; the connection ends once its output is sent.
    pub(crate) fn abandon(&mut self) {
        self.held.clear();
        self.closing = true;
    }

    /// True if replies wait for the log.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The gates that are not open yet.
    pub(crate) fn gates(&self) -> impl Iterator<Item = Gate> + '_ {
        self.held.iter().map(|(_, gate)| *gate)
    }

    /// Sends the replies whose gate is open.
    pub(crate) fn send(&mut self, output: &mut Vec<u8>, durable: Durable) -> Io {
        let mut open = None;
        while self.held.front().is_some_and(|(_, gate)| gate.is_open(durable)) {
            open = self.held.pop_front().map(|(end, _)| end);
        }
        let may = match (self.held.is_empty(), open) {
            (true, _) => output.len(),
            (false, Some(end)) => (end - self.sent) as usize,
            (false, None) => return Io::Blocked,
        };
        let mut done = 0;
        let outcome = loop {
            if done == may {
                break Io::More;
            }
            match self.socket.write(&output[done..may]) {
                Ok(0) => break Io::Closed,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Io::Blocked,
                Err(_) => break Io::Closed,
            }
        };
        if done < may {
            // What was released and not sent is released for good.
            self.held.push_front((self.sent + may as u64, Gate::OPEN));
        }
        self.sent += done as u64;
        if done == output.len() {
            output.clear();
            if output.capacity() > 256 * 1024 {
                output.shrink_to(16 * 1024);
            }
        } else {
            output.drain(..done);
        }
        outcome
    }
}
