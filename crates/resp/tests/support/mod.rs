//! A connection without a socket: what the gateway does around the parser.

use anabranch_resp::{Limits, Parser, Pipeline, ProtocolError};

/// The arguments of one command, owned.
pub type Command = Vec<Vec<u8>>;

/// The server's end of a connection that records what it is told.
pub struct Connection {
    pub parser: Parser,
    pub pipeline: Pipeline,
    pub unread: Vec<u8>,
    pub commands: Vec<Command>,
    pub error: Option<ProtocolError>,
    /// `AUTH` makes the client authenticated.
    pub obeys_auth: bool,
}

impl Connection {
    pub fn new(limits: Limits, authenticated: bool) -> Self {
        Connection {
            parser: Parser::new(limits, authenticated),
            pipeline: Pipeline::default(),
            unread: Vec::new(),
            commands: Vec::new(),
            error: None,
            obeys_auth: true,
        }
    }

    /// Receives `bytes` and executes what is complete, until the protocol is broken.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        self.unread.extend_from_slice(bytes);
        loop {
            let outcome = self.parser.parse(&self.unread, &mut self.pipeline);
            let mut end = 0;
            for (index, arguments) in self.pipeline.commands(&self.unread).enumerate() {
                assert!(!arguments.is_empty());
                let command_end = self.pipeline.end_of(index).expect("it is a command");
                assert!(command_end > end && command_end <= self.unread.len());
                end = command_end;
                if self.obeys_auth && arguments.name() == b"AUTH" {
                    self.parser.set_authenticated(true);
                }
                self.commands.push(arguments.iter().map(<[u8]>::to_vec).collect());
            }
            match outcome {
                Ok(0) => {
                    assert!(self.pipeline.is_empty());
                    assert!(self.parser.needed().is_none_or(|needed| needed > self.unread.len()));
                    return;
                }
                Ok(consumed) => {
                    assert!(consumed >= end && consumed <= self.unread.len());
                    self.unread.drain(..consumed);
                }
                Err(error) => {
                    self.error = Some(error);
                    return;
                }
            }
        }
    }

    /// The reply to a broken protocol, without its line end; empty when all is well.
    pub fn complaint(&self) -> Vec<u8> {
        let mut reply = Vec::new();
        if let Some(error) = self.error {
            error.write_reply(&mut reply);
            assert_eq!(reply.split_off(reply.len() - 2), b"\r\n");
        }
        reply
    }
}
