//! The transfer of a state to a member that lags behind the oldest retained entry.

use super::message::{Message, Raft};
use super::record::Change;
use super::{Application, Log, Port, id};
use crate::transfer::{Ask, Giver, Piece, Taken, Taker};
use raft::SnapshotStatus;
use std::time::Duration;
use types::Instant;

/// The timeout after which an unanswered question is repeated.
const REPEAT: Duration = Duration::from_millis(250);
/// A transfer that does not come on for so long is given up, and its lease ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// A state on its way here.
#[derive(Debug)]
struct Incoming {
    taker: Taker<usize>,
    /// The library's announcement, handed to it when the state is here.
    announcement: Raft,
    base: (u64, u64),
    pieces: Vec<Vec<u8>>,
    /// When a piece came last.
    since: Instant,
}

/// Transfers to and from this member.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    incoming: Option<Incoming>,
    giver: Giver<usize>,
    /// Counts the transfers to this member in this life.
    count: u64,
    /// While recovering: the pieces found so far.
    found: Vec<Vec<u8>>,
}

impl Transfer {
    pub(super) fn recover_piece(&mut self, number: u64, bytes: Vec<u8>) {
        if number == 0 {
            self.found.clear();
        }
        if number == self.found.len() as u64 {
            self.found.push(bytes);
        }
    }

    /// The pieces, if all are there.
    pub(super) fn recover_all(&mut self, pieces: u64) -> Option<Vec<Vec<u8>>> {
        let found = std::mem::take(&mut self.found);
        (found.len() as u64 == pieces).then_some(found)
    }

    /// True while a member fetches this one's state: no entry after its index may be dropped.
    pub(super) fn is_giving(&mut self, now: Instant) -> bool {
        self.giver.is_giving(now, PATIENCE)
    }
}

impl Log {
    /// A checkpoint begins: pieces of a state that were written before it go with the records it replaces.
    pub fn begin_checkpoint(&mut self) {
        self.transfer.incoming = None;
    }

    /// The leader has no entries for this member: it fetches the state, and tells the library when it is here.
    pub(super) fn begin_transfer(
        &mut self,
        now: Instant,
        from: usize,
        announcement: Raft,
        port: &mut impl Port,
    ) {
        let at = announcement.0.get_snapshot().get_metadata().index;
        if at <= self.raw().map_or(0, |raw| raw.raft.raft_log.committed) {
            // The library answers with what it has.
            if let Some(raw) = self.raw_mut() {
                let _ = raw.step(announcement.0);
            }
            return;
        }
        if self.transfer.incoming.as_ref().is_some_and(|incoming| incoming.taker.giver() == from) {
            return;
        }
        self.transfer.count += 1;
        let transfer = u64::from(self.incarnation.0) << 32 | self.transfer.count;
        let taker = Taker::new(from, transfer);
        let incoming = Incoming { taker, announcement, base: (0, 0), pieces: Vec::new(), since: now };
        self.transfer.incoming = Some(incoming);
        self.ask_piece(now, port);
    }

    fn ask_piece(&mut self, now: Instant, port: &mut impl Port) {
        let Some(incoming) = &mut self.transfer.incoming else { return };
        if let Some(ask) = incoming.taker.ask(now, REPEAT) {
            port.send(incoming.taker.giver(), Message::Ask { ask });
        }
    }

    pub(super) fn on_ask<A: Application>(
        &mut self,
        now: Instant,
        from: usize,
        ask: Ask,
        app: &mut A,
        port: &mut impl Port,
    ) {
        self.transfer.giver.on_request(from, now);
        let Some(raw) = self.raw() else { return };
        let all = self.gives_all && self.is_leading();
        let index = if all { raw.raft.raft_log.last_index() } else { raw.raft.raft_log.applied };
        let Some(term) = raw.store().term_at(index) else { return };
        let mut content = Vec::new();
        let next = app.save(ask.cursor, &mut content);
        let piece = Piece { transfer: ask.transfer, cursor: ask.cursor, next, content: content.into() };
        port.send(from, Message::Piece { piece, base: (index, term) });
    }

    pub(super) fn on_piece<A: Application>(
        &mut self,
        now: Instant,
        from: usize,
        (piece, base): (Piece, (u64, u64)),
        app: &mut A,
        port: &mut impl Port,
    ) {
        let Some(incoming) = &mut self.transfer.incoming else { return };
        let taken = incoming.taker.take(from, &piece);
        if taken == Taken::Stale {
            return;
        }
        if piece.cursor == 0 {
            incoming.base = base;
        }
        incoming.since = now;
        let number = incoming.pieces.len() as u64;
        port.persist(&Change::Piece { number, bytes: &piece.content }, None);
        incoming.pieces.push(piece.content.into());
        match taken {
            Taken::Last => self.install(app, port),
            _ => self.ask_piece(now, port),
        }
    }

    /// Every piece is here: they become the state, and the library goes on from its index.
    fn install<A: Application>(&mut self, app: &mut A, port: &mut impl Port) {
        let Some(incoming) = self.transfer.incoming.take() else { return };
        let Incoming { mut announcement, base: (index, term), pieces, .. } = incoming;
        let Some(raw) = self.raw_mut() else { return };
        if index <= raw.raft.raft_log.applied || announcement.0.term < raw.raft.term {
            return;
        }
        let metadata = announcement.0.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        let _ = raw.step(announcement.0);
        if raw.snap().is_none_or(|taken| taken.get_metadata().index != index) {
            // It holds the entries after all: the state is not needed.
            return;
        }
        app.clear();
        for piece in &pieces {
            let outcome = app.restore(piece);
            debug_assert!(outcome.is_ok(), "pieces are made by the same software");
        }
        port.persist(&Change::Installed { index, term, pieces: pieces.len() as u64 }, None);
    }

    pub(super) fn tick_transfer(&mut self, now: Instant, port: &mut impl Port) {
        if self.transfer.incoming.as_ref().is_some_and(|incoming| now - incoming.since > PATIENCE) {
            self.transfer.incoming = None;
        }
        self.ask_piece(now, port);
        if self.transfer.is_giving(now) {
            return;
        }
        // The leader repeats the announcement of a state to a member that does not fetch it.
        let others: Vec<usize> = (0..self.members).filter(|other| *other != self.me).collect();
        let Some(raw) = self.raw_mut() else { return };
        for other in others {
            let progress = raw.raft.prs().get(id(other));
            if progress.is_some_and(|progress| progress.state == raft::ProgressState::Snapshot) {
                raw.report_snapshot(id(other), SnapshotStatus::Failure);
            }
        }
    }
}
