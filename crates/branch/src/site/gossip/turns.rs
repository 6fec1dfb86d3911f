//! Which heads a site merges, and when (decision 0018): sites take turns, and wait for transactions in flight.
//!
//! Sites that were partitioned from each other have much to send. A site that merges the part that has arrived repeats
//! growing merges; and if all sites do, their merges cross. So a site does not merge another's heads while more than
//! can be in flight is queued between them. Then the first site merges, and the others leave it a turn as long as the
//! transfer took.
//!
//! ```text
//! a   heard b and c   ........|merges|              |
//! b   heard a   .........|  a's turn   |sees it| merges what it did meanwhile
//! ```
//!
//! A site that writes faster than it can send never drains its queue: the others wait for it for a while, then not for
//! three times as long.

use super::{Gossip, Peer, SILENT_AFTER};
use crate::StateId;
use crate::keyspace::Keyspace;
use crate::site::Site;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Address, Instant};

/// After how long without a head that sees what was merged last another site's heads are merged all the same.
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// How long what a site still has to tell is waited for, and the turn that is left to the first one then, at most.
const LONGEST_BACKLOG: Duration = Duration::from_secs(30);

/// What another site's heads are to see before they are merged, and how long that is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    state: StateId,
    since: Instant,
    longest: Duration,
}

/// Two sites have more to tell each other than can be on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// Since when, while they do.
    since: Option<Instant>,
    /// When it began that they did, and that was waited for.
    waited: Option<Instant>,
}

impl Backlog {
    fn is_waited_for(&self, now: Instant) -> bool {
        self.since.is_some() && self.waited.is_some_and(|waited| now < waited + LONGEST_BACKLOG)
    }

    fn goes_on(&mut self, now: Instant) {
        if self.since.is_none() && self.waited.is_none_or(|waited| waited + LONGEST_BACKLOG * 4 <= now) {
            self.waited = Some(now);
        }
        self.since = self.since.or(Some(now));
    }

    /// Returns how long it took, if it was waited for to the end and for longer than a turn.
    fn ends(&mut self, now: Instant) -> Option<Duration> {
        let was_waited_for = self.is_waited_for(now);
        let took = now - self.since.take()?;
        (was_waited_for && took >= LONGEST_TURN).then_some(took)
    }
}

impl Peer {
    fn is_near(&self, now: Instant) -> bool {
        self.heard.is_some_and(|heard| heard + SILENT_AFTER > now)
    }
}

impl Gossip {
    /// The first of these sites that is heard.
    fn first_near<'s>(&self, sites: &'s [Address], now: Instant) -> Option<&'s Address> {
        sites.iter().find(|site| self.peers.get(site).is_some_and(|peer| peer.is_near(now)))
    }

    /// Looks which sites have more to send or to receive. Of those before this one the first merges once that has
    /// come, what a client wrote here last included.
    pub fn look_for_backlogs(&mut self, before: &[Address], written: Option<StateId>, now: Instant) {
        let first = self.first_near(before, now);
        for (address, peer) in &mut self.peers {
            if !peer.is_near(now) {
                peer.backlog.since = None;
            } else if peer.tells_more || peer.lacks_more() {
                peer.backlog.goes_on(now);
            } else if let Some(took) = peer.backlog.ends(now)
                && first == Some(address)
                && let Some(state) = written
            {
                peer.turn = Some(Turn { state, since: now, longest: took });
            }
        }
    }

    /// True while heads are left alone because of what still comes, or has just come.
    pub fn waits_for_backlogs(&self, now: Instant) -> bool {
        self.peers.values().any(|peer| {
            let is_left = |turn: Turn| turn.longest > LONGEST_TURN && now < turn.since + turn.longest;
            peer.backlog.is_waited_for(now) || peer.turn.is_some_and(is_left)
        })
    }

    /// The heads that this site is to merge. The first site of those that hear one another merges what all of them sent;
    /// another one merges its own with what the first one sent, so that its clients see that, but only if they have
    /// written what the first one has not seen: two sites that merge without end what the other one has just made would
    /// never come to one head.
    ///
    /// Two sites take turns: see [`Gossip::has_turn`].
    pub fn to_merge(&self, site: &Site, heads: &[StateId], now: Instant) -> Vec<StateId> {
        let is_own = |head: &&StateId| !self.foreign.contains_key(head);
        let own = heads.iter().filter(is_own).copied();
        let sent = heads.iter().filter_map(|head| Some((*head, self.foreign.get(head)?)));
        let Some(first) = self.first_near(&site.topology.sites[..site.index], now) else {
            let sent = sent.filter(|(head, from)| self.has_turn(&site.keyspace, (*head, from), None, now));
            return own.chain(sent.map(|(head, _)| head)).collect();
        };
        let sent: Vec<StateId> = sent.filter(|(_, from)| *from == first).map(|(head, _)| head).collect();
        let awaited = site.first_written;
        let have_turn = |head: &&StateId| self.has_turn(&site.keyspace, (**head, first), awaited, now);
        let is_ahead = site
            .written
            .is_some_and(|own| site.keyspace.dag().node(own).is_some() && !site.keyspace.is_seen(own, &sent));
        own.chain(sent.iter().filter(have_turn).filter(|_| is_ahead).copied()).collect()
    }

    /// True if another site's head sees what was last merged here with heads of that site (or, if nothing was, a state that
    /// it is to have seen). Then that merge is all that both sites have in common, and they have parted from it alone.
    /// Merged sooner, merges would cross, and each would be merged over a base that has to be merged itself, the deeper
    /// the farther the sites are from each other.
    fn has_turn(
        &self,
        keyspace: &Keyspace,
        (head, from): (StateId, &Address),
        awaited: Option<(StateId, Instant)>,
        now: Instant,
    ) -> bool {
        let peer = self.peers.get(from);
        if peer.is_some_and(|peer| peer.backlog.is_waited_for(now)) {
            return false;
        }
        let awaited = awaited.map(|(state, since)| Turn { state, since, longest: LONGEST_TURN });
        let turn = peer.and_then(|peer| peer.turn).or(awaited);
        turn.is_none_or(|Turn { state, since, longest }| {
            let is_gone = keyspace.dag().node(state).is_none();
            since + longest <= now || is_gone || keyspace.is_seen(state, &[head])
        })
    }

    /// The sites that sent heads.
    pub fn senders_of(&self, heads: &[StateId]) -> BTreeSet<Address> {
        heads.iter().filter_map(|head| self.foreign.get(head).copied()).collect()
    }

    /// True if a head came from another site.
    pub fn is_foreign(&self, head: StateId) -> bool {
        self.foreign.contains_key(&head)
    }

    /// Heads of these sites were merged here.
    pub fn merged(&mut self, with: &BTreeSet<Address>, merge: StateId, now: Instant) {
        for site in with {
            if let Some(peer) = self.peers.get_mut(site) {
                peer.turn = Some(Turn { state: merge, since: now, longest: LONGEST_TURN });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_site_has_to_tell_is_not_waited_for_without_end() {
        let second = Duration::from_secs(1);
        let (mut backlog, mut now) = (Backlog::default(), Instant(1));
        let mut waited = 0;
        for _ in 0..LONGEST_BACKLOG.as_secs() * 8 {
            backlog.goes_on(now);
            waited += u64::from(backlog.is_waited_for(now));
            now = now + second;
        }
        assert_eq!(waited, LONGEST_BACKLOG.as_secs(), "it goes on and on");
        let (mut backlog, mut now) = (Backlog::default(), Instant(1));
        let mut waited = 0;
        for round in 0..LONGEST_BACKLOG.as_secs() * 8 {
            match round % 3 {
                0 | 1 => backlog.goes_on(now),
                _ => drop(backlog.ends(now)),
            }
            waited += u64::from(backlog.is_waited_for(now));
            now = now + second;
        }
        assert_eq!(waited, 2 * 20, "it begins again and again");
    }

    #[test]
    fn a_turn_takes_as_long_as_there_was_more_to_tell() {
        let (mut backlog, start) = (Backlog::default(), Instant(1));
        assert_eq!(backlog.ends(start), None);
        backlog.goes_on(start);
        assert_eq!(backlog.ends(start + LONGEST_TURN / 2), None, "that happens now and then under load");
        backlog.goes_on(start);
        backlog.goes_on(start + LONGEST_TURN);
        assert_eq!(backlog.ends(start + 3 * LONGEST_TURN), Some(3 * LONGEST_TURN));
        backlog.goes_on(start + 4 * LONGEST_TURN);
        assert_eq!(backlog.ends(start + LONGEST_BACKLOG), None, "it was not waited for to the end");
    }
}
