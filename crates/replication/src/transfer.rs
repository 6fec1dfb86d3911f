//! State transfer beside traffic: one replica takes another one's state, piece by piece.
//!
//! The taker pulls: it asks for the piece at a cursor, installs it, and asks for the one that follows. So one piece
//! is on its way at a time, whoever is slow sets the pace, and the giver keeps nothing but a lease. Cursors and
//! pieces are the protocol's own, as in `protocol::Protocol::checkpoint`: a piece is some tens of kilobytes, and
//! all pieces together hold at least what the giver held at the first question. Questions and pieces are datagrams:
//! the taker repeats a lost question, and takes a repeated piece once.
//!
//! ```text
//!   taker: Taker::ask ----- Ask { transfer, cursor } ------------> giver: Giver::on_request, then its state at the cursor
//!          Taker::take <--- Piece { transfer, cursor, next, .. } --
//! ```
//!
//! While [`Giver::is_giving`], the giver forgets nothing that pieces yet to be given must hold (a horizon stays where
//! it was). A taker that is silent for longer than the lease is given up; a transfer whose giver says that it has
//! forgotten something meanwhile begins again, as does one whose taker crashes: what it installed counts only when it
//! has the last piece.

use std::collections::BTreeMap;
use std::time::Duration;
use types::{Instant, wire_struct};

/// The taker's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Names the transfer; drawn anew for each.
    pub transfer: u64,
    /// Where to go on; 0 at the beginning.
    pub cursor: u64,
}
wire_struct!(Ask { transfer, cursor });

/// A piece of the giver's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The transfer.
    pub transfer: u64,
    /// The requested cursor.
    pub cursor: u64,
    /// Where to go on; `None` after the last piece.
    pub next: Option<u64>,
    /// The piece.
    pub content: Box<[u8]>,
}
wire_struct!(Piece { transfer, cursor, next, content });

/// What a piece means to the taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is not the requested piece: a repetition, or of another transfer.
    Stale,
    /// Install it; there is more.
    More,
    /// Install it; it was the last one.
    Last,
}

/// The taking end of one transfer.
#[derive(Clone, Debug)]
pub struct Taker<P> {
    giver: P,
    transfer: u64,
    cursor: u64,
    on_request: Option<Instant>,
    done: bool,
}

impl<P: Copy + PartialEq> Taker<P> {
    /// A transfer from `giver`; `transfer` is drawn by chance, so that no piece of an earlier one is taken for one of
    /// this.
    pub fn new(giver: P, transfer: u64) -> Self {
        Taker { giver, transfer, cursor: 0, on_request: None, done: false }
    }

    /// Who gives.
    pub fn giver(&self) -> P {
        self.giver
    }

    /// The question to send now, if there is one: nothing is on its way, or not for so long.
    pub fn ask(&mut self, now: Instant, repeat_after: Duration) -> Option<Ask> {
        if self.done || self.on_request.is_some_and(|on_request| now - on_request < repeat_after) {
            return None;
        }
        self.on_request = Some(now);
        Some(Ask { transfer: self.transfer, cursor: self.cursor })
    }

    /// Takes a piece. The caller installs its content unless it is stale.
    pub fn take(&mut self, from: P, piece: &Piece) -> Taken {
        let awaited = from == self.giver && piece.transfer == self.transfer && piece.cursor == self.cursor;
        if self.done || !awaited || self.on_request.is_none() {
            return Taken::Stale;
        }
        self.on_request = None;
        match piece.next {
            Some(next) => {
                self.cursor = next;
                Taken::More
            }
            None => {
                self.done = true;
                Taken::Last
            }
        }
    }
}

/// The giving end of all transfers.
#[derive(Clone, Debug)]
pub struct Giver<P> {
    /// When each taker's last request came.
    takers: BTreeMap<P, Instant>,
}

impl<P> Default for Giver<P> {
    fn default() -> Self {
        Giver { takers: BTreeMap::new() }
    }
}

impl<P: Copy + Ord> Giver<P> {
    /// A taker asks, or announces that it will: nothing that it may still ask for is forgotten.
    pub fn on_request(&mut self, taker: P, now: Instant) {
        self.takers.insert(taker, now);
    }

    /// The taker has been given its last piece.
    pub fn given(&mut self, taker: P) {
        self.takers.remove(&taker);
    }

    /// True while a taker may ask for more; one that has been silent for `lease` may not.
    pub fn is_giving(&mut self, now: Instant, lease: Duration) -> bool {
        self.takers.retain(|_, last| now - *last < lease);
        !self.takers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const REPEAT: Duration = Duration::from_micros(5);

    /// A giver's answer: the numbers of its state from the cursor on, a few a piece.
    fn give(state: &[u8], ask: Ask) -> Piece {
        let from = ask.cursor as usize;
        let to = state.len().min(from + 3);
        let next = (to < state.len()).then_some(to as u64);
        Piece { transfer: ask.transfer, cursor: ask.cursor, next, content: state[from..to].into() }
    }

    proptest! {
        /// Whatever the network loses, repeats and reorders, the taker installs the whole state, in order, once.
        #[test]
        fn a_transfer_gives_the_whole_state_once(
            state in proptest::collection::vec(any::<u8>(), 1..40),
            fates in proptest::collection::vec((0u8..4, 0usize..3), 0..120),
        ) {
            let mut taker = Taker::new('g', 7);
            let (mut flying, mut installed, mut now) = (VecDeque::new(), Vec::new(), Instant(0));
            let mut fates = fates.into_iter();
            let mut done = false;
            for _ in 0..2_000 {
                now = now + Duration::from_micros(1);
                if let Some(ask) = taker.ask(now, REPEAT) {
                    let (fate, _) = fates.next().unwrap_or((0, 0));
                    let copies = [1, 0, 2, 1][usize::from(fate)];
                    (0..copies).for_each(|_| flying.push_back(give(&state, ask)));
                }
                let (_, place) = fates.next().unwrap_or((0, 0));
                let Some(piece) = flying.remove(place.min(flying.len().saturating_sub(1))) else { continue };
                match taker.take('g', &piece) {
                    Taken::Stale => {}
                    taken => {
                        prop_assert!(!done, "nothing comes after the last piece");
                        installed.extend(piece.content);
                        done = taken == Taken::Last;
                    }
                }
            }
            prop_assert!(done);
            prop_assert_eq!(installed, state);
        }
    }

    #[test]
    fn pieces_of_others_are_stale() {
        let mut taker = Taker::new('g', 7);
        let piece = |transfer| Piece { transfer, cursor: 0, next: None, content: Box::default() };
        assert_eq!(taker.take('g', &piece(7)), Taken::Stale, "nothing was asked for");
        assert_eq!(taker.ask(Instant(1), REPEAT), Some(Ask { transfer: 7, cursor: 0 }));
        assert_eq!(taker.ask(Instant(2), REPEAT), None, "one piece at a time");
        assert_eq!(taker.take('x', &piece(7)), Taken::Stale);
        assert_eq!(taker.take('g', &piece(6)), Taken::Stale);
        assert_eq!(taker.take('g', &piece(7)), Taken::Last);
        assert_eq!(taker.take('g', &piece(7)), Taken::Stale);
        assert_eq!(taker.ask(Instant(90), REPEAT), None);
    }

    #[test]
    fn a_silent_taker_loses_its_lease() {
        let lease = Duration::from_micros(10);
        let mut giver = Giver::default();
        giver.on_request('a', Instant(0));
        giver.on_request('b', Instant(5));
        assert!(giver.is_giving(Instant(9), lease));
        giver.given('b');
        assert!(!giver.is_giving(Instant(10), lease));
    }
}
