//! What stands between the processes of a local cluster: one relay per direction, which delays what passes and can
//! be cut. A process connects to the relay in place of its peer.
//!
//! ```text
//!  process 1 --> listener of 1->2 --> reader -- (chunk, due) --> writer --> process 2
//! ```
//!
//! A connection carries data one way only; when either end closes, the relay closes the other.

use super::place::Place;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 64 * 1024;
/// How many chunks wait for their time before the sender has to.
const CHUNKS_UNDER_WAY: usize = 1024;

/// All links of a cluster.
pub struct Relays {
    links: Vec<Link>,
}

struct Link {
    from: Place,
    to: Place,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cut: bool,
    delay: Duration,
    open: Vec<Weak<Pair>>,
}

/// The two sockets of a relayed connection.
struct Pair {
    from: TcpStream,
    to: TcpStream,
}

impl Relays {
    /// Without links.
    pub fn new() -> Self {
        Relays { links: Vec::new() }
    }

    /// Begins to relay from one process to the peer port of another; returns where the former has to connect.
    pub fn add(&mut self, from: Place, to: Place, peer: SocketAddr) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::Builder::new().name(format!("relay-{from}-{to}")).spawn(move || {
            for socket in listener.incoming().flatten() {
                // Without threads or with a dead peer the connection ends, and is tried again.
                let _ = begin(socket, peer, &shared);
            }
        })?;
        self.links.push(Link { from, to, state });
        Ok(address)
    }

    /// Lets nothing pass between the places, in either direction.
    pub fn cut(&self, a: Place, b: Place) -> Result<(), String> {
        self.each(a, b, |state| {
            state.cut = true;
            state.close_all();
        })
    }

    /// Lets everything pass.
    pub fn heal(&self) {
        self.links.iter().for_each(|link| lock(&link.state).cut = false);
    }

    /// What passes between the places from now on takes so long, each way.
    pub fn delay(&self, a: Place, b: Place, delay: Duration) -> Result<(), String> {
        self.each(a, b, |state| state.delay = delay)
    }

    fn each(&self, a: Place, b: Place, change: impl Fn(&mut State)) -> Result<(), String> {
        let between = |link: &&Link| {
            (a.contains(link.from) && b.contains(link.to)) || (b.contains(link.from) && a.contains(link.to))
        };
        let mut found = false;
        for link in self.links.iter().filter(between) {
            found = true;
            change(&mut lock(&link.state));
        }
        if found {
            return Ok(());
        }
        let why = if self.links.is_empty() { ": nothing is relayed here (--direct)" } else { "" };
        Err(format!("there is no link between {a} and {b}{why}"))
    }
}

impl State {
    fn close_all(&mut self) {
        self.open.drain(..).filter_map(|pair| pair.upgrade()).for_each(|pair| pair.close());
    }
}

impl Pair {
    fn close(&self) {
        // Either may be closed already.
        let _ = (self.from.shutdown(Shutdown::Both), self.to.shutdown(Shutdown::Both));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Relays one connection, unless the link is cut.
fn begin(from: TcpStream, peer: SocketAddr, state: &Arc<Mutex<State>>) -> std::io::Result<()> {
    if lock(state).cut {
        return Ok(());
    }
    let to = TcpStream::connect(peer)?;
    to.set_nodelay(true)?;
    let pair = Arc::new(Pair { from, to });
    {
        let mut state = lock(state);
        if state.cut {
            return Ok(());
        }
        state.open.retain(|pair| pair.strong_count() > 0);
        state.open.push(Arc::downgrade(&pair));
    }
    let (sender, receiver) = sync_channel(CHUNKS_UNDER_WAY);
    let (reading, writing, state) = (Arc::clone(&pair), Arc::clone(&pair), Arc::clone(state));
    thread::Builder::new().spawn(move || read_all(&reading, &sender, &state))?;
    thread::Builder::new().spawn(move || write_all(&writing, &receiver))?;
    thread::Builder::new().spawn(move || {
        // The receiver never writes: all that can be read from it is its end.
        while matches!((&pair.to).read(&mut [0; 64]), Ok(1..)) {}
        pair.close();
    })?;
    Ok(())
}

fn read_all(pair: &Pair, sender: &SyncSender<(Instant, Vec<u8>)>, state: &Mutex<State>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match (&pair.from).read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let due = Instant::now() + lock(state).delay;
                if sender.send((due, buffer[..count].to_vec())).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Writes what was read when its time has come, until the reader has ended.
fn write_all(pair: &Pair, receiver: &Receiver<(Instant, Vec<u8>)>) {
    for (due, chunk) in receiver {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if (&pair.to).write_all(&chunk).is_err() {
            break;
        }
    }
    pair.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ends {
        relays: Relays,
        address: SocketAddr,
        server: TcpListener,
    }

    fn ends() -> Ends {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut relays = Relays::new();
        let (a, b) = (Place::process(0, 0), Place::process(1, 0));
        let address = relays.add(a, b, server.local_addr().unwrap()).unwrap();
        Ends { relays, address, server }
    }

    impl Ends {
        fn connect(&self) -> (TcpStream, TcpStream) {
            let client = TcpStream::connect(self.address).unwrap();
            (client, self.server.accept().unwrap().0)
        }
    }

    #[test]
    fn what_passes_is_delayed_and_unchanged() {
        let ends = ends();
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        ends.relays.delay(b, a, Duration::from_millis(60)).unwrap();
        let (mut client, mut server) = ends.connect();
        let begin = Instant::now();
        client.write_all(b"hello").unwrap();
        let mut read = [0; 5];
        server.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
        assert!(begin.elapsed() >= Duration::from_millis(60));
        drop(client);
        assert_eq!(server.read(&mut read).unwrap(), 0);
    }

    #[test]
    fn a_cut_ends_connections_until_it_is_healed() {
        let ends = ends();
        let (a, b): (Place, Place) = ("a".parse().unwrap(), "b".parse().unwrap());
        let (mut client, mut server) = ends.connect();
        ends.relays.cut(a, b).unwrap();
        assert!(!matches!(client.read(&mut [0; 1]), Ok(1..)));
        assert!(!matches!(server.read(&mut [0; 1]), Ok(1..)));
        let mut refused = TcpStream::connect(ends.address).unwrap();
        assert!(!matches!(refused.read(&mut [0; 1]), Ok(1..)));
        ends.relays.heal();
        let (mut client, mut server) = ends.connect();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0; 1]).unwrap();
        assert!(ends.relays.cut(a, a).unwrap_err().contains("no link"));
    }

    #[test]
    fn a_receiver_that_ends_ends_the_sender() {
        let ends = ends();
        let (mut client, server) = ends.connect();
        drop(server);
        assert!(!matches!(client.read(&mut [0; 1]), Ok(1..)));
    }
}
