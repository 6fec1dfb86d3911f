//! A client's socket with what has been read and not executed, and what has been replied and may not leave yet.

use crate::refusal;
use gateway::ConnectionId;
use mio::net::TcpStream;
use protocol::{Durable, Gate};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;

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

/// Replies that wait for a gate.
struct Held {
    replies: Range<u64>,
    gate: Gate,
    /// The group up to which they tell of what is undone if the log refuses it; 0 for nothing.
    undoable: u64,
    /// Those among them that tell of the session only.
    own: Vec<Range<u64>>,
}

/// See the module.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) id: ConnectionId,
    /// Read and not executed.
    pub(crate) input: Vec<u8>,
    held: VecDeque<Held>,
    /// The replies up to here are known to wait, or not to. Like all offsets, since the connection opened.
    gated: u64,
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
    /// When its client last sent something, or connected.
    pub(crate) heard_at: types::Instant,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, id: ConnectionId, now: types::Instant) -> Self {
        Connection {
            socket,
            id,
            input: Vec::new(),
            held: VecDeque::new(),
            gated: 0,
            sent: 0,
            closing: false,
            ending: false,
            half_closed: false,
            touched: false,
            stalled: false,
            heard_at: now,
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

    /// The replies written since the last call wait for `gate`, unless it is open.
    #[inline]
    pub(crate) fn gate(&mut self, output: &[u8], own: Vec<Range<usize>>, gate: Option<Gate>, undoable: u64) {
        let start = std::mem::replace(&mut self.gated, self.sent + output.len() as u64);
        let Some(gate) = gate else { return };
        let own = own.into_iter().map(|range| self.sent + range.start as u64..self.sent + range.end as u64);
        match self.held.back_mut() {
            Some(last) if (last.gate, last.undoable) == (gate, undoable) && last.replies.end == start => {
                last.replies.end = self.gated;
                last.own.extend(own);
            }
            _ => {
                let (replies, own) = (start..self.gated, own.collect());
                self.held.push_back(Held { replies, gate, undoable, own });
            }
        }
    }

    /// The log refused the records that the replies written since the last `gate` rest on. False if they cannot be
    /// replaced.
    #[must_use]
    pub(crate) fn refuse(&mut self, output: &mut Vec<u8>, own: &[Range<usize>]) -> bool {
        let range = (self.gated - self.sent) as usize..output.len();
        let replaced = refusal::replace(output, range, own, refusal::UNDONE).is_some();
        self.gated = self.sent + output.len() as u64;
        replaced
    }

    /// Replaces the held replies for which there is an error, by their gates and the groups up to which they tell of what is
    /// undone. Others wait on. False if that cannot be done.
    #[must_use]
    pub(crate) fn refuse_held(
        &mut self,
        output: &mut Vec<u8>,
        error_for: impl Fn(Gate, u64) -> Option<&'static [u8]>,
    ) -> bool {
        let sent = self.sent;
        let relative = |range: &Range<u64>| (range.start - sent) as usize..(range.end - sent) as usize;
        for index in 0..self.held.len() {
            let held = &mut self.held[index];
            let Some(error) = error_for(held.gate, held.undoable) else { continue };
            let own: Vec<Range<usize>> = held.own.drain(..).map(|own| relative(&own)).collect();
            let Some(len) = refusal::replace(output, relative(&held.replies), &own, error) else {
                return false;
            };
            (held.gate, held.undoable) = (Gate::OPEN, 0);
            let (old_end, end) = (held.replies.end, held.replies.start + len as u64);
            held.replies.end = end;
            let moved = |offset: &mut u64| *offset = *offset - old_end + end;
            for later in self.held.iter_mut().skip(index + 1) {
                for range in std::iter::once(&mut later.replies).chain(&mut later.own) {
                    moved(&mut range.start);
                    moved(&mut range.end);
                }
            }
            moved(&mut self.gated);
        }
        true
    }

    /// True if replies wait for the log.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The gates that are not open yet.
    pub(crate) fn gates(&self) -> impl Iterator<Item = Gate> + '_ {
        self.held.iter().map(|held| held.gate)
    }

    /// What its replies wait for: gates, and the groups up to which they tell of what is undone if the log refuses it.
    pub(crate) fn held(&self) -> impl Iterator<Item = (Gate, u64)> + '_ {
        self.held.iter().map(|held| (held.gate, held.undoable))
    }

    /// Sends the replies whose gate is open. Where there is a log, messages that came since the last `gate` are not known
    /// to wait, or not to.
    pub(crate) fn send(&mut self, output: &mut Vec<u8>, durable: Durable, is_logged: bool) -> Io {
        let mut open = None;
        while self.held.front().is_some_and(|held| held.gate.is_open(durable)) {
            open = self.held.pop_front().map(|held| held.replies.end);
        }
        let may = match (self.held.is_empty(), open) {
            (true, _) if is_logged => (self.gated - self.sent) as usize,
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
            let replies = self.sent + done as u64..self.sent + may as u64;
            self.held.push_front(Held { replies, gate: Gate::OPEN, undoable: 0, own: Vec::new() });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What solo partitions did in a group that failed is undone; what replicas did waits until the log heals, but not for
    /// long.
    #[test]
    fn only_replies_of_what_was_undone_are_replaced() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let mut connection = Connection::new(socket, ConnectionId::default(), types::Instant(0));
        let gate = |group| Gate { written: group, synced: 0 };
        let mut output = b"+replicated\r\n".to_vec();
        connection.gate(&output, Vec::new(), Some(gate(5)), 0);
        output.extend_from_slice(b"+solo\r\n");
        connection.gate(&output, Vec::new(), Some(gate(5)), 5);
        output.extend_from_slice(b"+both\r\n");
        connection.gate(&output, Vec::new(), Some(gate(6)), 5);
        let undone = |_, group| (group == 5).then_some(refusal::UNDONE);
        assert!(connection.refuse_held(&mut output, undone));
        let text = String::from_utf8(output.clone()).expect("text");
        let replies: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(replies[0], "+replicated");
        assert!(replies.len() == 3 && replies[1..].iter().all(|reply| reply.starts_with("-UNKNOWNOUTCOME")));
        assert_eq!(connection.gates().collect::<Vec<_>>(), [gate(5), Gate::OPEN, Gate::OPEN]);
        let durable = Durable { written: 4, synced: 4 };
        let refused = |gate: Gate, _| (!gate.is_open(durable)).then_some(refusal::RETAINED);
        assert!(connection.refuse_held(&mut output, refused));
        assert!(output.starts_with(refusal::RETAINED) && connection.gates().all(|gate| gate == Gate::OPEN));
        assert_eq!(output.windows(15).filter(|text| text == b"-UNKNOWNOUTCOME").count(), 3);
    }
}
