use super::*;
use crate::cluster::{Models, recover};
use crate::options::Options;
use protocol::Sketch;
use protocol::hosted::Environment;
use protocol::model::PartitionMove;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use types::{Error, Incarnation, Malformed, ProcessId};

/// Counts packets, once they were received and then pumped.
#[derive(Default)]
struct Counter {
    received: u64,
    pumped: Arc<AtomicU64>,
    last: Instant,
    /// The first pump waits here, twice.
    stop: Option<Arc<Barrier>>,
}

impl Hosted for Counter {
    fn snapshot(&mut self, _: PartitionId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn recover(&mut self, _: PartitionId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn recovered(&mut self, _: bool, _: &mut Turn<'_>) {}

    fn submit(
        &mut self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        _: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) {
        requests.clear();
        assert!(std::mem::replace(&mut self.last, turn.now.instant) <= turn.now.instant);
    }

    fn receive(&mut self, _: NodeId, _: Slot, _: &[u8]) -> Result<(), Malformed> {
        self.received += 1;
        Ok(())
    }

    fn pump(&mut self, _: &mut dyn Environment, turn: &mut Turn<'_>) {
        assert!(std::mem::replace(&mut self.last, turn.now.instant) <= turn.now.instant);
        if let Some(stop) = self.stop.take() {
            stop.wait();
            stop.wait();
        }
        self.pumped.fetch_add(std::mem::take(&mut self.received), Ordering::Relaxed);
    }

    fn hosts(&self, _: Slot) -> bool {
        true
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn log_work(&self, _: Durable) -> LogWork {
        LogWork::default()
    }

    fn reply_gate(&self) -> Gate {
        Gate::OPEN
    }

    fn partitions(&self) -> Vec<u16> {
        vec![0]
    }

    fn checkpoint(&mut self, _: PartitionId, _: u64, _: &mut Vec<u8>) -> Option<u64> {
        assert_eq!(self.received, 0, "a checkpoint shows what was pumped");
        None
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn backlog(&self) -> Backlog {
        Backlog::default()
    }

    fn holdings(&self) -> Holdings {
        Holdings::default()
    }

    fn lag(&self, _: WallTime) -> Option<Lag> {
        None
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

    fn sketches(&mut self, _: bool) -> Vec<Sketch> {
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
    let counter = Counter { stop, ..Counter::default() };
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
fn whoever_has_the_lock_does_what_came_meanwhile() {
    let (process, stop) = (process(), Arc::new(Barrier::new(2)));
    let (keyspace, pumped) = keyspace(Some(Arc::clone(&stop)));
    leave(&keyspace);
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| pump(&keyspace, &process, Visit::Submitted));
        stop.wait();
        leave(&keyspace);
        assert!(pump(&keyspace, &process, Visit::Anything).is_none(), "it does not wait");
        assert_eq!(keyspace.deadline(), None, "the timekeeper need not look");
        keyspace.note_figures(WallTime(0));
        assert!(!keyspace.figures().is_complete, "figures are as they were");
        stop.wait();
        assert!(holder.join().unwrap().is_some_and(|pumped| pumped.is_missed));
    });
    assert_eq!(pumped.load(Ordering::Relaxed), 1);
    assert!(pump(&keyspace, &process, Visit::Time).is_none(), "no time has come");
    assert!(pump(&keyspace, &process, Visit::Anything).is_some_and(|pumped| !pumped.is_missed));
    assert_eq!(pumped.load(Ordering::Relaxed), 2);
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
                    if (round + thread) % 16 == 0 {
                        keyspace.checkpoint(
                            process,
                            (PartitionId(0), 0),
                            &mut Vec::new(),
                            &mut NoReplies::default(),
                            || (),
                        );
                    }
                    let visit = if thread == 0 { Visit::Submitted } else { Visit::Anything };
                    while pump(keyspace, process, visit).is_some_and(|pumped| pumped.is_missed) {}
                }
            });
        }
    });
    assert_eq!(pumped.load(Ordering::Relaxed), THREADS * ROUNDS);
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
    assert!(pump(&keyspace, &process, Visit::Anything).is_some());
    assert_eq!(pumped.load(Ordering::Relaxed), 0);
    assert!(keyspace.with(|_| ()).is_none());
}
