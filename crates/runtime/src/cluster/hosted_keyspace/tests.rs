use super::*;
use crate::cluster::{Models, recover};
use crate::options::Options;
use protocol::hosted::{Environment, HostedNodes, Hosting, Life, Locked, Nodes, Place};
use protocol::model::{ClusterShape, PartitionMove};
use protocol::{Durability, Input, Outputs, Protocol, Sketch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use types::{Address, Error, HashSeed, Incarnation, Malformed, ProcessId, RegionId};

/// Counts packets, once they were received and then pumped.
#[derive(Default)]
struct Counter {
    received: AtomicU64,
    pumped: Arc<AtomicU64>,
    /// The first pump waits here, twice.
    stop: Mutex<Option<Arc<Barrier>>>,
}

impl Hosted for Counter {
    fn snapshot(&self, _: PartitionId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn recover(&self, _: PartitionId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn recovered(&self, _: bool, _: &mut Turn<'_>) {}

    fn submit(
        &self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        _: &mut dyn Environment,
        _: &mut Turn<'_>,
    ) -> Gate {
        requests.clear();
        Gate::OPEN
    }

    fn receive(&self, _: NodeId, _: Slot, _: &[u8]) -> Result<(), Malformed> {
        self.received.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn pump(&self, _: bool, _: &mut dyn Environment, _: &mut Turn<'_>) -> Gate {
        let received = self.received.swap(0, Ordering::SeqCst);
        if let Some(stop) = self.stop.lock().take() {
            stop.wait();
            stop.wait();
        }
        self.pumped.fetch_add(received, Ordering::SeqCst);
        Gate::OPEN
    }

    fn pending(&self) -> Pending {
        Pending::default()
    }

    fn partitions(&self) -> Vec<u16> {
        vec![0]
    }

    fn checkpoint(
        &self,
        _: (PartitionId, u64),
        _: &mut Vec<u8>,
        _: &mut dyn Environment,
        seal: &mut dyn FnMut(),
    ) -> Option<u64> {
        seal();
        None
    }

    fn figures(&self, _: WallTime) -> Option<Figures> {
        Some(Figures { is_complete: true, ..Figures::default() })
    }

    fn holdings(&self) -> Holdings {
        Holdings::default()
    }

    fn state(&self) -> Vec<String> {
        Vec::new()
    }

    fn configure(&mut self, _: &StoredOptions, _: &mut Turn<'_>) -> Result<bool, String> {
        Ok(false)
    }

    fn counts_meetings(&self) -> bool {
        false
    }

    fn sketches(&self, _: bool) -> Vec<Sketch> {
        Vec::new()
    }

    fn present(&self, _: u16) -> Option<PartitionMove> {
        None
    }

    fn leader(&self, _: u16) -> Option<u16> {
        None
    }

    fn place(&mut self, _: u16, _: &[u16], _: &mut Turn<'_>) {}

    fn accept_loss(&mut self, _: u16, _: &[u16], _: &mut Turn<'_>) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}

fn process() -> Process {
    let models = Models::new(&[&strict::model::Strict]);
    recover(Options { data: None, models, ..Options::default() }, None)
        .expect("it keeps everything in memory")
}

fn keyspace(stop: Option<Arc<Barrier>>) -> (HostedKeyspace, Arc<AtomicU64>) {
    let counter = Counter { stop: Mutex::new(stop), ..Counter::default() };
    let pumped = Arc::clone(&counter.pumped);
    (HostedKeyspace::new(KeyspaceId(77), Box::new(counter), None), pumped)
}

fn leave(keyspace: &HostedKeyspace) {
    let slot = Slot::replica(keyspace.id, PartitionId(0));
    keyspace.leave(NodeId { process: ProcessId(2), incarnation: Incarnation(1), slot }, slot, b"packet");
}

fn pump(keyspace: &HostedKeyspace, process: &Process, visit: Visit) -> Option<Pumped> {
    let at = (visit, process.now().instant);
    keyspace.pump(process, at, &mut Rng::new(), &mut NoReplies::default())
}

#[test]
fn those_that_attend_do_what_others_leave() {
    let (process, stop) = (process(), Arc::new(Barrier::new(2)));
    let (keyspace, pumped) = keyspace(Some(Arc::clone(&stop)));
    leave(&keyspace);
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| {
            keyspace.attend();
            assert!(pump(&keyspace, &process, Visit::Attending).is_some());
            assert!(keyspace.leave_off(), "something was left meanwhile");
        });
        stop.wait();
        leave(&keyspace);
        assert!(pump(&keyspace, &process, Visit::Anything).is_none(), "it does not wait");
        assert_eq!(keyspace.deadline(), None, "the timekeeper need not look");
        stop.wait();
        attending.join().unwrap();
    });
    assert_eq!(pumped.load(Ordering::SeqCst), 1);
    assert!(pump(&keyspace, &process, Visit::Time).is_none(), "no time has come");
    assert!(pump(&keyspace, &process, Visit::Anything).is_some_and(|pumped| !pumped.is_left));
    assert_eq!(pumped.load(Ordering::SeqCst), 2);
    assert!(pump(&keyspace, &process, Visit::Anything).is_none(), "nothing is left");
}

#[test]
fn no_packet_is_forgotten_among_threads_that_do_not_wait() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3000;
    let process = process();
    let (keyspace, pumped) = keyspace(None);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keyspace, process) = (&keyspace, &process);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    leave(keyspace);
                    let attends = (round + thread) % 3 == 0;
                    let visit = if attends { Visit::Attending } else { Visit::Anything };
                    if attends {
                        keyspace.attend();
                    }
                    if (round + thread) % 16 == 0 {
                        keyspace.note_figures(WallTime(0));
                        keyspace.change(&process.view, |_, _| ());
                    }
                    pump(keyspace, process, visit);
                    let mut is_left = attends && keyspace.leave_off();
                    while is_left {
                        is_left = pump(keyspace, process, Visit::Anything).is_some_and(|it| it.is_left);
                    }
                }
            });
        }
    });
    pump(&keyspace, &process, Visit::Anything);
    assert_eq!(pumped.load(Ordering::SeqCst), THREADS * ROUNDS);
    assert!(keyspace.figures().is_complete);
}

#[test]
fn a_dropped_keyspace_refuses_and_forgets() {
    let process = process();
    let (keyspace, pumped) = keyspace(None);
    leave(&keyspace);
    keyspace.end();
    let (mut requests, mut replies) =
        (vec![(RequestId(1), Request::Close { session: Default::default() })], NoReplies::default());
    keyspace.submit(&process, &mut requests, &mut Rng::new(), &mut replies);
    assert!(requests.is_empty());
    assert!(pump(&keyspace, &process, Visit::Anything).is_none());
    assert_eq!(pumped.load(Ordering::SeqCst), 0);
    assert!(keyspace.with(|_| ()).is_none());
}

/// A coordinator queries every partition for each request; a partition answers, and counts.
struct Querying {
    partitions: Vec<Address>,
    heard: u64,
}

impl Protocol for Querying {
    type Message = u64;
    type Timer = ();
    type Record<'a> = u64;

    fn step(&mut self, _: Now, batch: &mut Vec<Input<'_, Self>>, _: &mut Rng, out: &mut Outputs<'_, Self>) {
        for input in batch.drain(..) {
            match input {
                Input::Request { id, .. } => {
                    out.reply(id).simple("OK");
                    self.partitions.iter().for_each(|partition| out.send(*partition, 0));
                }
                Input::Message { from, .. } => {
                    self.heard += 1;
                    if self.partitions.is_empty() {
                        out.send(from.address(), 0);
                    }
                }
                _ => {}
            }
        }
    }

    fn checkpoint(&mut self, _: u64, _: &mut Vec<u8>) -> Option<u64> {
        None
    }
}

struct Counting;

impl Hosting for Counting {
    type Protocol = Querying;

    fn state(&self, nodes: &Locked<'_, Querying>) -> Vec<String> {
        nodes.protocols().map(|node| node.heard.to_string()).collect()
    }
}

#[test]
fn threads_share_the_instances_of_a_keyspace_and_every_answer_arrives() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2000;
    const PARTITIONS: u64 = 3;
    let process = process();
    let cluster = ClusterShape { seed: HashSeed(1), regions: Vec::new() };
    let life = Life {
        process: ProcessId(1),
        region: RegionId(0),
        incarnation: Incarnation(1),
        durability: Durability::Volatile,
        accept_loss: false,
        region_queue_bytes: 0,
        region_spill_bytes: 0,
    };
    let place = Place { cluster: &cluster, keyspace: KeyspaceId(77), life };
    let partitions: Vec<Address> =
        (0..PARTITIONS).map(|partition| place.address(1, partition as u16)).collect();
    let coordinator = Querying { partitions: partitions.clone(), heard: 0 };
    let mut nodes = Nodes::new(&place, place.coordinator(), coordinator);
    for partition in partitions {
        nodes.host(partition, Querying { partitions: Vec::new(), heard: 0 });
    }
    let keyspace = HostedKeyspace::new(place.keyspace, Box::new(HostedNodes::new(nodes, Counting)), None);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keyspace, process) = (&keyspace, &process);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut requests =
                        vec![(RequestId(round), Request::Unwatch { session: Default::default() })];
                    keyspace.submit(process, &mut requests, &mut Rng::new(), &mut NoReplies::default());
                    keyspace.attend();
                    pump(keyspace, process, Visit::Attending);
                    if (round + thread) % 16 == 0 {
                        let at = (PartitionId(thread as u16 % 3), 0);
                        keyspace.checkpoint(process, at, &mut Vec::new(), &mut || ());
                        keyspace.note_figures(WallTime(0));
                    }
                    let mut is_left = keyspace.leave_off();
                    while is_left {
                        is_left = pump(keyspace, process, Visit::Anything).is_some_and(|it| it.is_left);
                    }
                }
            });
        }
    });
    let heard = keyspace.with(|hosted| hosted.state()).unwrap();
    let (requests, each) = (THREADS * ROUNDS, (THREADS * ROUNDS).to_string());
    assert_eq!(heard[0], (PARTITIONS * requests).to_string(), "answers");
    assert!(heard[1..].iter().all(|questions| *questions == each), "{heard:?}");
}
