//! One peer as a replica sees it: its life, whether the stream to it has been resumed, whether it answers.

use types::Incarnation;

/// How many messages that only tell a time may be on their way to a peer from which nothing is heard. Beyond, they
/// are left out: a later one says everything that they would have said.
const UNANSWERED: u32 = 64;

/// The state of the link to one peer. A stream starts anew with each life of the peer, and only the peer knows what
/// it holds: so both sides greet, saying what they have received, and each sends on from what the other said.
///
/// Greet at the start; call [`Link::started`] on a new life of the peer and greet again if it says so;
/// [`Link::resume`] on the peer's greeting; stream effects only while [`Link::is_resumed`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    life: Option<Incarnation>,
    resumed: bool,
    unanswered: u32,
}

impl Link {
    /// The peer began this life; true if a greeting must be sent, because one sent earlier went to another life.
    pub fn started(&mut self, life: Incarnation) -> bool {
        let earlier = self.life.replace(life);
        if earlier == Some(life) {
            return false;
        }
        self.resumed = false;
        self.unanswered = 0;
        earlier.is_some()
    }

    /// The peer's newest life that was heard: nothing more comes of an earlier one.
    pub fn life(&self) -> Option<Incarnation> {
        self.life
    }

    /// The peer has said what it holds: effects may follow.
    pub fn resume(&mut self) {
        self.resumed = true;
    }

    /// True once effects may be streamed.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Something was heard from the peer.
    pub fn heard(&mut self) {
        self.unanswered = 0;
    }

    /// True if one more message that only tells a time may be sent, which is then counted.
    pub fn may_tell(&mut self) -> bool {
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered <= UNANSWERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_life_must_be_greeted_again_and_resumed_again() {
        let mut link = Link::default();
        assert!(!link.started(Incarnation(1)), "the greeting queued at the start reaches the first life");
        link.resume();
        assert!(link.is_resumed() && link.life() == Some(Incarnation(1)));
        assert!(!link.started(Incarnation(1)) && link.is_resumed());
        assert!(link.started(Incarnation(2)));
        assert!(!link.is_resumed());
    }

    #[test]
    fn heartbeats_to_a_silent_peer_end() {
        let mut link = Link::default();
        let sent = (0..1000).filter(|_| link.may_tell()).count();
        assert_eq!(sent, UNANSWERED as usize);
        link.heard();
        assert!(link.may_tell());
    }
}
