//! MONITOR: clients that are shown the commands of all others, a line each.
//!
//! ```text
//!   command --> line --> the gateway's lines of this turn --> its own watchers
//!                                                         --> host --> other gateways --> their watchers
//! ```
//!
//! Lines are written only while somebody watches. A watcher whose output is full is cut off: it holds up nobody.

use crate::engine::Engine;
use crate::gateway::{ConnectionId, Gateway};
use crate::host::Host;
use crate::table::{self, flag};
use crate::tally::is_secret;
use protocol::Now;
use resp::Arguments;
use std::fmt::Write;

/// So many times the limit of the output may wait for a client that watches: all clients of a turn make lines.
pub const MONITOR_OUTPUTS: usize = 16;

impl<H: Host> Engine<'_, H> {
    /// Notes a command for those who watch, unless it is for operators.
    #[cold]
    pub(crate) fn note_monitored(&mut self, arguments: Arguments<'_>, by_script: bool) {
        if table::find(arguments).is_ok_and(|command| command.is(flag::ADMIN)) {
            return;
        }
        let session = &self.connection.session;
        let by = if by_script { "lua" } else { &session.peer.address };
        let line = line(self.now, session.database, by, arguments);
        self.gateway.monitored.extend_from_slice(line.as_bytes());
    }
}

impl Gateway {
    /// The connection watches from now on, or no more.
    pub(crate) fn set_monitor(&mut self, id: ConnectionId, is_on: bool, host: &mut dyn Host) {
        let before = self.monitors.len();
        self.monitors.retain(|known| *known != id);
        if is_on {
            self.monitors.push(id);
        }
        if self.monitors.len() != before {
            host.set_monitors(self.monitors.len());
        }
    }

    /// Shows what was noted to those who watch, here and at other gateways.
    pub(crate) fn tell_monitors(&mut self, host: &mut dyn Host) {
        let lines = std::mem::take(&mut self.monitored);
        host.monitor(&lines);
        self.show_monitored(&lines);
    }

    /// Shows lines to the connections that watch here. [`Gateway::settle`] names them.
    pub fn show_monitored(&mut self, lines: &[u8]) {
        let most = self.config.max_output_bytes.saturating_mul(MONITOR_OUTPUTS);
        for id in self.monitors.clone() {
            let Some(connection) = self.connection_mut(id).filter(|connection| !connection.closing) else {
                continue;
            };
            let start = connection.output.len();
            if start + lines.len() > most {
                connection.cut = true;
            } else {
                connection.output.extend_from_slice(lines);
                connection.own_replies.push(start..start + lines.len());
            }
            self.tell_of(id);
        }
    }

    /// Cuts off all connections that watch here: they were not shown all that there was.
    pub fn cut_monitors(&mut self) {
        for id in self.monitors.clone() {
            if let Some(connection) = self.connection_mut(id) {
                connection.cut = true;
                self.tell_of(id);
            }
        }
    }

    /// True if the connection is to be closed at once, whatever it has not been sent: it read too slowly.
    pub fn is_cut(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| connection.cut)
    }
}

/// A command as Redis shows it: when, in which database, by whom, and its words.
fn line(now: Now, database: u64, by: &str, arguments: Arguments<'_>) -> String {
    let micros = now.wall.0;
    let mut line = format!("+{}.{:06} [{database} {by}]", micros / 1_000_000, micros % 1_000_000);
    for (index, argument) in arguments.iter().enumerate() {
        line.push_str(" \"");
        match is_secret(arguments, index) {
            true => line.push_str("(redacted)"),
            false => argument.iter().for_each(|byte| push_escaped(*byte, &mut line)),
        }
        line.push('"');
    }
    line.push_str("\r\n");
    line
}

fn push_escaped(byte: u8, line: &mut String) {
    match byte {
        b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        b' '..=b'~' => line.push(char::from(byte)),
        _ => {
            let written = write!(line, "\\x{byte:02x}");
            debug_assert!(written.is_ok(), "a string takes any text");
        }
    }
}
