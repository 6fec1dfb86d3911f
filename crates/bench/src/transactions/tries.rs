//! Tries of transactions: how they end, and when the next one comes.

use resp::Value;
use std::io;
use std::time::Duration;

/// The longest wait after a first conflict; it doubles with every further one.
const FIRST_WAIT: Duration = Duration::from_micros(200);
/// So often does it double.
const MOST_DOUBLINGS: u32 = 7;
/// How long a client waits before it turns to the next server.
pub(crate) const RECONNECT_WAIT: Duration = Duration::from_millis(20);
/// A server that answers nothing for so long is given up. Longer than a strict transaction waits for a dead process.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// How a try ended.
#[derive(Debug)]
pub enum End {
    /// It committed.
    Committed,
    /// Nothing happened, and another try may do better.
    Failed,
    /// The client got no reply.
    Unknown,
}

/// Why a try ended without a commit.
#[derive(Debug)]
pub enum Trouble {
    /// The connection is gone.
    Lost,
    /// The server said so, with a code that asks for another try.
    Said(End),
    /// Another try will do no better.
    Refused(String),
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Trouble::Lost
    }
}

/// What an error reply means for the try.
pub(crate) fn refusal(reply: &Value) -> Result<(), Trouble> {
    let Some(error) = reply.as_error() else { return Ok(()) };
    match error.split_whitespace().next().unwrap_or_default() {
        "UNKNOWNOUTCOME" => Err(Trouble::Said(End::Unknown)),
        "CONFLICT" | "UNAVAILABLE" | "EXECABORT" | "LOADING" | "SNAPSHOTTOOOLD" | "DEGRADED" => {
            Err(Trouble::Said(End::Failed))
        }
        _ => Err(Trouble::Refused(error.into_owned())),
    }
}

/// How long a client rests that has failed so often before.
pub fn rest(failures: u32, random: &mut fastrand::Rng) -> Duration {
    let longest = FIRST_WAIT * 2u32.pow(MOST_DOUBLINGS.min(failures));
    longest.mul_f64(random.f64())
}
