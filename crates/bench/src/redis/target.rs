//! A server under load: its address, its password, its process.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// How long a server may take to accept a connection or to answer AUTH.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Clock ticks per second in `/proc/PID/stat`: fixed for user space on the architectures that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Where a server is: `HOST:PORT` or `redis://[:PASSWORD@]HOST[:PORT][/KEYSPACE]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// Host and port.
    address: String,
    /// What AUTH is given.
    password: Option<String>,
    /// What KEYSPACE USE is given; of our servers only.
    keyspace: Option<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keyspace {
            None => f.write_str(&self.address),
            Some(keyspace) => write!(f, "{}/{keyspace}", self.address),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, is_url) = match text.strip_prefix("redis://") {
            Some(rest) => (rest.strip_suffix('/').unwrap_or(rest), true),
            None => (text, false),
        };
        let (rest, keyspace) = match rest.rsplit_once('/') {
            Some((rest, keyspace)) if is_url && !keyspace.is_empty() && !keyspace.contains('@') => {
                (rest, Some(keyspace.to_owned()))
            }
            _ => (rest, None),
        };
        let (password, address) = match rest.rsplit_once('@') {
            Some((user, address)) if is_url => {
                let password =
                    user.strip_prefix(':').ok_or("a user name is not supported, only :PASSWORD@")?;
                (Some(password.to_owned()), address)
            }
            _ => (None, rest),
        };
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match (has_port, is_url) {
            (true, _) => Ok(Target { address: address.to_owned(), password, keyspace }),
            (false, true) if !address.is_empty() && !address.contains(['/', ':']) => {
                Ok(Target { address: format!("{address}:6379"), password, keyspace })
            }
            _ => Err(format!("`{text}` is neither HOST:PORT nor redis://[:PASSWORD@]HOST[:PORT][/KEYSPACE]")),
        }
    }
}

impl Target {
    /// True if the server is on this machine.
    pub(crate) fn is_this_machine(&self) -> bool {
        let local = |address: SocketAddr| address.ip().is_loopback();
        self.address.to_socket_addrs().is_ok_and(|mut addresses| addresses.any(local))
    }

    /// A new connection that has said its password, has chosen its keyspace, and does not block.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            match self.connect_to(address) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&address, GREETING_TIMEOUT)?;
        stream.set_nodelay(true)?;
        if let Some(password) = &self.password {
            say(&mut stream, &["AUTH", password])?;
        }
        if let Some(keyspace) = &self.keyspace {
            say(&mut stream, &["KEYSPACE", "USE", keyspace])?;
        }
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// Gives a command that has to be answered with OK.
fn say(stream: &mut TcpStream, command: &[&str]) -> io::Result<()> {
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let mut request = Vec::new();
    resp::encode_command(&mut request, command);
    stream.write_all(&request)?;
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        reply.push(byte[0]);
    }
    match &reply[..] {
        b"+OK\r\n" => Ok(()),
        _ => Err(io::Error::other(String::from_utf8_lossy(&reply).trim_end().to_owned())),
    }
}

/// The processor time that a process has used since it began, user and system, in seconds. The kernel counts in
/// hundredths of a second.
pub(crate) fn processor_seconds(pid: u32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&stat)
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has another form than expected")))
}

/// Fields 14 and 15 of `/proc/PID/stat` (proc(5)), counted after the name, which may hold blanks and parentheses.
fn parse_stat(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_urls() {
        let target = |text: &str| text.parse::<Target>();
        assert_eq!(target("localhost:7000").unwrap().address, "localhost:7000");
        assert_eq!(target("[::1]:7000").unwrap().address, "[::1]:7000");
        assert_eq!(target("redis://localhost").unwrap().address, "localhost:6379");
        let secret = target("redis://:a@b@host:7/").unwrap();
        assert_eq!((secret.address.as_str(), secret.password.as_deref()), ("host:7", Some("a@b")));
        assert!(!format!("{secret:?} {secret}").contains("a@b"));
        let other = target("redis://localhost:7/other").unwrap();
        assert_eq!((other.address.as_str(), other.keyspace.as_deref()), ("localhost:7", Some("other")));
        assert_eq!(other.to_string(), "localhost:7/other");
        for bad in ["", "localhost", "localhost:x", "redis://", "redis://user:x@h:1", "a:99999"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processor_time_is_read_past_a_name_with_blanks() {
        let stat = "12 (a b) c) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 7 7 20 0 1 0 100 0 0";
        assert_eq!(parse_stat(stat), Some(3.0));
        assert_eq!(parse_stat("12 (a) S 1"), None);
        assert!(processor_seconds(std::process::id()).is_ok());
    }
}
