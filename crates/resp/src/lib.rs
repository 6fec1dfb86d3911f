//! The Redis serialization protocol, versions 2 and 3: bytes to commands, replies to bytes, and the client's
//! half of both.
//!
//! This crate never opens a socket, reads a clock or starts a thread: it sees a slice of bytes that somebody
//! else received, and appends to a vector that somebody else sends.
//!
//! **The server's half.** A connection owns a [`Parser`] (what it remembers of a half-received command), and may
//! share a [`Pipeline`] (scratch memory) and an [`Encoder`] with others. Per readable event:
//!
//! ```
//! # use anabranch_resp::{Encoder, Parser, Pipeline, ProtocolVersion};
//! # use types::ReplySink;
//! # let (mut parser, mut pipeline) = (Parser::default(), Pipeline::default());
//! # let mut encoder = Encoder::new(Vec::new(), ProtocolVersion::Resp2);
//! # let received = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n*1\r\n$4\r\nPI".to_vec();
//! let mut unread = &received[..];
//! loop {
//!     let outcome = parser.parse(unread, &mut pipeline);
//!     for arguments in pipeline.commands(unread) {
//!         // Look the command up by `arguments.name()` and execute it.
//!         encoder.bulk(arguments.name());
//!     }
//!     match outcome {
//!         Ok(0) => break, // Wait for more bytes, and keep `unread` until then.
//!         Ok(consumed) => unread = &unread[consumed..],
//!         Err(error) => {
//!             error.write_reply(encoder.output_mut()); // Send, then close the connection.
//!             break;
//!         }
//!     }
//! }
//! # assert_eq!(unread, b"*1\r\n$4\r\nPI");
//! # assert_eq!(encoder.output(), b"$4\r\nECHO\r\n$4\r\nPING\r\n");
//! ```
//!
//! **The client's half**, for tests, benchmarks and the cluster's tools: [`encode_command`] and [`ReplyParser`].
//!
//! What a server accepts, refuses and says follows Redis 7.0; the tests hold tables recorded from version 7.0.15.
//! Deliberate differences stand at [`ProtocolError`].

mod command;
mod double;
mod encoder;
mod error;
mod inline;
mod integer;
mod parser;
mod pipeline;
mod reply_parser;
mod value;

pub use command::encode_command;
pub use double::{DoubleText, format_double};
pub use encoder::{Encoder, ProtocolVersion};
pub use error::ProtocolError;
pub use inline::split_words;
pub use integer::{IntegerText, format_integer, parse_integer};
pub use parser::{Limits, Parser};
pub use pipeline::{Arguments, Pipeline};
pub use reply_parser::{ReplyError, ReplyLimits, ReplyParser};
pub use value::Value;
