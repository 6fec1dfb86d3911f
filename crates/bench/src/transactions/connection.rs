//! A connection that sends some commands at once and waits for all their replies.

use crate::redis::Target;
use resp::{ReplyParser, Value};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A server that answers nothing for so long is given up. Longer than a strict transaction waits for a dead process.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) struct Connection {
    stream: TcpStream,
    parser: ReplyParser,
    received: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    pub fn open(target: &Target) -> io::Result<Self> {
        let stream = target.connect()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Connection { stream, parser: ReplyParser::default(), received: Vec::new(), output: Vec::new() })
    }

    /// Sends commands in one write and returns a reply for each.
    pub fn call<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> io::Result<Vec<Value>> {
        self.output.clear();
        commands.iter().for_each(|command| resp::encode_command(&mut self.output, command));
        self.stream.write_all(&self.output)?;
        let mut replies = Vec::with_capacity(commands.len());
        while replies.len() < commands.len() {
            let parsed = self.parser.parse(&self.received);
            let (consumed, reply) = parsed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.received.drain(..consumed);
            match reply {
                Some(reply) => replies.push(reply),
                None => self.receive()?,
            }
        }
        Ok(replies)
    }

    fn receive(&mut self) -> io::Result<()> {
        let held = self.received.len();
        self.received.resize(held + (16 << 10), 0);
        let got = self.stream.read(&mut self.received[held..]);
        self.received.truncate(held + got.as_ref().copied().unwrap_or(0));
        match got {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}
