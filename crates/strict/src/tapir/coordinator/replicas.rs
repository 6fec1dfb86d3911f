//! What a coordinator has seen of the replicas: how long each takes to answer, and since when it is silent. It
//! decides how long an answer is worth waiting for, never what an answer means: evidence that is wrong costs time,
//! not safety.

use std::collections::BTreeMap;
use std::time::Duration;
use types::Instant;

/// No answer is given up sooner than this after its usual time: a shorter wait measures schedulers.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);

/// A transaction's decision reaches a replica that has voted for it within so many times what f+1 votes take, slow paths
/// included.
const DECIDED_WITHIN: u32 = 4;

/// A time that is measured again and again: its smoothed mean and mean deviation, weighted as in TCP's
/// retransmission timer (RFC 6298).
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    mean: Duration,
    deviation: Duration,
}

impl Estimate {
    fn new(first: Duration) -> Self {
        Estimate { mean: first, deviation: first / 2 }
    }

    fn add(&mut self, sample: Duration) {
        self.deviation = (self.deviation * 3 + self.mean.abs_diff(sample)) / 4;
        self.mean = (self.mean * 7 + sample) / 8;
    }

    fn put(known: &mut Option<Estimate>, sample: Duration) {
        match known {
            Some(estimate) => estimate.add(sample),
            None => *known = Some(Estimate::new(sample)),
        }
    }
}

/// What is known of one replica.
#[derive(Debug, Default)]
struct Replica {
    /// From Prepare to its vote.
    vote: Option<Estimate>,
    /// The earliest question since its latest answer.
    silent_since: Option<Instant>,
}

/// See the module. Replicas are named by shard and member.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    replicas: BTreeMap<(u16, usize), Replica>,
    /// By shard: from Prepare to the vote that makes f+1.
    quorums: BTreeMap<u16, Estimate>,
}

impl Replicas {
    /// The shard has other replicas from now on.
    pub(super) fn forget(&mut self, shard: u16) {
        self.replicas.retain(|(of, _), _| *of != shard);
        self.quorums.remove(&shard);
    }

    /// A question was sent that the replica answers at once.
    pub(super) fn queried(&mut self, shard: u16, member: usize, now: Instant) {
        self.replicas.entry((shard, member)).or_default().silent_since.get_or_insert(now);
    }

    /// It said something: from now on it counts again.
    pub(super) fn answered(&mut self, shard: u16, member: usize) {
        self.replicas.entry((shard, member)).or_default().silent_since = None;
    }

    /// A vote came this long after its Prepare was first sent.
    pub(super) fn voted(&mut self, shard: u16, member: usize, took: Duration) {
        Estimate::put(&mut self.replicas.entry((shard, member)).or_default().vote, took);
    }

    /// The f+1-th vote came this long after Prepare.
    pub(super) fn quorum_voted(&mut self, shard: u16, took: Duration) {
        self.quorums.entry(shard).and_modify(|known| known.add(took)).or_insert_with(|| Estimate::new(took));
    }

    /// For how long a read waits for what is prepared: some times what f+1 votes usually take, `longest` at most. Not at all
    /// where nothing has been measured, or that is hardly enough.
    pub(super) fn decided_within(&self, shard: u16, longest: Duration) -> Duration {
        let usual = self.quorums.get(&shard).map_or(Duration::ZERO, |quorum| quorum.mean);
        if usual > longest / 2 { Duration::ZERO } else { (usual * DECIDED_WITHIN).min(longest) }
    }

    /// How long an answer may take: the usual time and some deviations, but not more than `longest` above it. Answers that
    /// come together measure the same, so of a busy replica the deviation alone tells too little: twice the usual time at
    /// least.
    fn patience(&self, shard: u16, member: usize, longest: Duration) -> Duration {
        let vote = self.replicas.get(&(shard, member)).and_then(|replica| replica.vote);
        let usual =
            |vote: Estimate| vote.mean + (vote.deviation * 4).max(vote.mean).min(longest).max(LEAST_PATIENCE);
        vote.map_or(longest, usual)
    }

    /// Until when the coordinator expects an answer to a query sent at `queried_at`.
    pub(super) fn expected_until(
        &self,
        shard: u16,
        member: usize,
        queried_at: Instant,
        longest: Duration,
    ) -> Instant {
        let silent_since = self.replicas.get(&(shard, member)).and_then(|replica| replica.silent_since);
        silent_since.unwrap_or(queried_at).min(queried_at) + self.patience(shard, member, longest)
    }

    /// Until when a missing vote is worth waiting for, f+1 votes having come at `quorum_at`: as long as it is
    /// expected, and not at all if it usually comes later, even by its deviation sooner, than the slow path would take
    /// from there, which is about as long as f+1 votes take. With f = 1 a fast quorum is all replicas, so that a far or slow one would
    /// otherwise delay every transaction (Corrections 18).
    pub(super) fn vote_awaited_until(
        &self,
        (shard, member): (u16, usize),
        queried_at: Instant,
        quorum_at: Instant,
        longest: Duration,
    ) -> Instant {
        let slow_path = self.quorums.get(&shard).map_or(longest, |quorum| quorum.mean + LEAST_PATIENCE);
        let vote = self.replicas.get(&(shard, member)).and_then(|replica| replica.vote);
        match vote {
            Some(vote) if queried_at + vote.mean > quorum_at + slow_path + vote.deviation => quorum_at,
            _ => self.expected_until(shard, member, queried_at, longest),
        }
    }

    /// True if it has left a question unanswered for longer than it ever takes.
    pub(super) fn is_silent(&self, shard: u16, member: usize, now: Instant, longest: Duration) -> bool {
        let replica = self.replicas.get(&(shard, member));
        let since = replica.and_then(|replica| replica.silent_since);
        since.is_some_and(|since| since + self.patience(shard, member, longest) <= now)
    }

    /// How long its votes usually take.
    pub(super) fn usual(&self, shard: u16, member: usize) -> Option<Duration> {
        Some(self.replicas.get(&(shard, member))?.vote?.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Until when the vote of a replica is awaited whose votes took so long in turn, where f+1 votes take 2 ms and came
    /// after 1 ms.
    fn awaited(votes: [u64; 2]) -> Duration {
        let (mut replicas, start) = (Replicas::default(), Instant(0));
        for _ in 0..40 {
            votes.iter().for_each(|vote| replicas.voted(0, 2, MS(*vote)));
            replicas.quorum_voted(0, MS(2));
        }
        replicas.vote_awaited_until((0, 2), start, start + MS(1), MS(50)) - start
    }

    #[test]
    fn a_vote_is_given_up_at_once_only_where_it_is_late_by_more_than_votes_scatter() {
        assert_eq!(awaited([9, 9]), MS(1), "always later than the slow path");
        assert!(awaited([1, 9]) > MS(9), "as often sooner: its usual time and some deviations");
    }
}
