//! Who is let in, what is said of those who are not, and for how long commands wait.

use gateway::{Incident, Pause};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use types::Instant as ProcessTime;

/// How long a client may take to authenticate.
pub(crate) const AUTHENTICATION_TIME: Duration = Duration::from_secs(10);
/// How many clients that have not authenticated there are at most, beside those that are served: those that have had a moment.
/// Of others twice as many, so that many may come at once.
pub(crate) const MOST_UNAUTHENTICATED: usize = 128;
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// How often the same thing is logged at most.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The error to a client that may not connect; Redis's text, but for `CONFIG REWRITE`, which there is not.
pub(crate) const DENIED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface. If you want \
to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode \
sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host \
the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. 2) Alternatively you \
can just disable the protected mode by editing the Redis configuration file, and setting the protected mode option to \
'no', and then restarting the server. 3) If you started the server manually just for testing, restart it with the \
'--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You only need to do one of \
the above things in order for the server to start accepting connections from the outside.\r\n";

/// See the module.
#[derive(Default)]
pub(crate) struct Guard {
    cross_protocol: RateLimit,
    wrong_password: RateLimit,
    slow_subscriber: RateLimit,
    denied: RateLimit,
    late: RateLimit,
    pause_until: AtomicU64,
    pauses_writes_only: AtomicBool,
}

/// When something was logged last.
#[derive(Default)]
struct RateLimit(Mutex<Option<Instant>>);

impl RateLimit {
    /// True if it is time to log it again.
    fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= LOG_EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

impl Guard {
    /// Logs what a client did, if nobody did the same just now.
    pub(crate) fn report(&self, incident: Incident<'_>) {
        match incident {
            Incident::CrossProtocol(address) if self.cross_protocol.is_due() => tracing::warn!(
                address,
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands. This is \
                 likely due to an attacker attempting to use Cross Protocol Scripting to compromise this process. \
                 Connection aborted."
            ),
            Incident::WrongPassword(address) if self.wrong_password.is_due() => {
                tracing::warn!(address, "a client gave a wrong password");
            }
            Incident::SlowSubscriber(address) if self.slow_subscriber.is_due() => tracing::warn!(
                address,
                "a subscriber was disconnected: it did not read its messages; see client-output-buffer-limit"
            ),
            Incident::CrossProtocol(_) | Incident::WrongPassword(_) | Incident::SlowSubscriber(_) => {}
        }
    }

    /// Logs that a client was refused by the protected mode.
    pub(crate) fn report_denied(&self, address: IpAddr) {
        if self.denied.is_due() {
            tracing::warn!(%address, "protected mode has refused a client of another machine; see server.protected_mode");
        }
    }

    /// Logs that a client did not authenticate in time, or had to make room for another one.
    pub(crate) fn report_late(&self, address: &str) {
        if self.late.is_due() {
            tracing::warn!(address, "a client that had not authenticated was disconnected");
        }
    }

    /// Until when commands wait.
    pub(crate) fn pause(&self) -> Pause {
        let until = ProcessTime(self.pause_until.load(Relaxed));
        Pause { until, writes_only: until > ProcessTime(0) && self.pauses_writes_only.load(Relaxed) }
    }

    /// Commands wait, or go on.
    pub(crate) fn set_pause(&self, pause: Pause) {
        self.pauses_writes_only.store(pause.writes_only, Relaxed);
        self.pause_until.store(pause.until.0, Relaxed);
    }
}

/// True if the address is one of this machine.
pub(crate) fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_logged_once_a_minute() {
        let seldom = RateLimit::default();
        assert!(seldom.is_due() && !seldom.is_due());
        *seldom.0.lock() = Instant::now().checked_sub(LOG_EVERY);
        assert!(seldom.is_due() && !seldom.is_due());
    }

    #[test]
    fn loopback_is_local_in_either_family() {
        for (address, local) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.2", true),
            ("10.0.0.1", false),
            ("::2", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), local, "{address}");
        }
    }
}
