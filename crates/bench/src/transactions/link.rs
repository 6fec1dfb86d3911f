//! A connection of a client that never waits: it sends some commands at once and hands out their replies when all have
//! come.

use crate::redis::Target;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use resp::{ReplyParser, Value};
use std::io::{self, ErrorKind, Read, Write};

pub(crate) struct Link {
    stream: TcpStream,
    parser: ReplyParser,
    /// The beginning of a reply.
    received: Vec<u8>,
    /// What the system has not taken.
    output: Vec<u8>,
    /// So many commands have not been answered.
    due: usize,
    replies: Vec<Value>,
}

impl Link {
    /// A connection whose events have this token. Waits until it is made.
    pub fn open(target: &Target, registry: &Registry, token: Token) -> io::Result<Self> {
        let mut stream = TcpStream::from_std(target.connect()?);
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let (received, output, replies) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Link { stream, parser: ReplyParser::default(), received, output, due: 0, replies })
    }

    /// One more command; `send` sends it.
    pub fn put<A: AsRef<[u8]>>(&mut self, command: &[A]) {
        resp::encode_command(&mut self.output, command);
        self.due += 1;
    }

    /// Sends what the system takes.
    pub fn send(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while taken < self.output.len() {
            match self.stream.write(&self.output[taken..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.output.drain(..taken);
        Ok(())
    }

    /// Sends and reads what is possible at an event. Returns the replies to all that was put, once they are complete.
    pub fn advance(&mut self, buffer: &mut [u8]) -> io::Result<Option<Vec<Value>>> {
        if !self.output.is_empty() {
            self.send()?;
        }
        loop {
            let got = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            self.take(&buffer[..got])?;
            if self.due == 0 {
                return Ok(Some(std::mem::take(&mut self.replies)));
            }
            // A short read has emptied the socket; the next bytes raise the next event.
            if got < buffer.len() {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, fresh: &[u8]) -> io::Result<()> {
        let mut held = std::mem::take(&mut self.received);
        let bytes = match held.is_empty() {
            true => fresh,
            false => {
                held.extend_from_slice(fresh);
                &held[..]
            }
        };
        let invalid = |text: String| io::Error::new(ErrorKind::InvalidData, text);
        let mut consumed = 0;
        loop {
            let parsed = self.parser.parse(&bytes[consumed..]);
            let (more, reply) = parsed.map_err(|error| invalid(error.to_string()))?;
            consumed += more;
            let Some(reply) = reply else { break };
            self.due =
                self.due.checked_sub(1).ok_or_else(|| invalid("a reply that nobody asked for".into()))?;
            self.replies.push(reply);
        }
        if consumed < bytes.len() {
            self.received = bytes[consumed..].to_vec();
        }
        Ok(())
    }
}
