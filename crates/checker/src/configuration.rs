//! A configuration of a search: which transactions have been taken, and what state they left.

use crate::history::Outcome;
use crate::invocations::Decoded;
use crate::replay::{Cells, execute_at};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A place in the claimed order.
type Place = (u64, [u64; 3]);

/// A transaction that a search puts in order.
pub(crate) struct Item<'h> {
    pub transaction: Decoded<'h>,
    /// Where it is to be tried first.
    pub place: Option<Place>,
    /// When it looked at deadlines, in milliseconds.
    pub now_millis: u64,
    /// True if it may stand only where it changes nothing.
    pub is_idle: bool,
}

impl Item<'_> {
    /// True for what has to stand somewhere.
    pub fn is_certain(&self) -> bool {
        self.transaction.transaction.outcome == Outcome::Committed
    }

    fn invoked(&self) -> u64 {
        self.transaction.transaction.invoked
    }

    /// Until when another one invoked later may stand before it.
    fn end(&self) -> u64 {
        self.transaction.transaction.responded.filter(|_| self.is_certain()).unwrap_or(u64::MAX)
    }

    /// In which order they are tried, where `last` is the highest place taken: those without a place, by their places, and
    /// last what need not stand anywhere, which includes what was passed over at its place because it changed nothing there.
    fn rank(&self, last: Option<Place>) -> (u8, Option<Place>, u64) {
        let class = match (self.is_certain(), self.place) {
            (true, None) => 0,
            (false, place) if place < last => 2,
            (_, Some(_)) => 1,
            (false, None) => 2,
        };
        (class, self.place, self.invoked())
    }
}

/// What is ordered by time: everything, or a session.
struct Line {
    /// In order of invocation, and in order of their ends.
    by_begin: Vec<usize>,
    by_end: Vec<usize>,
    /// All before these have been taken.
    first_begin: usize,
    first_end: usize,
}

/// See the module.
pub(crate) struct Configuration<'i, 'h> {
    items: &'i [Item<'h>],
    lines: Vec<Line>,
    taken: Vec<bool>,
    /// The highest place of the first one taken, of the first two, and so on.
    highest: Vec<Option<Place>>,
    /// How many that must stand somewhere have not been taken.
    certain_left: usize,
    state: Cells<'h>,
    fingerprint: (u64, u64),
}

impl<'i, 'h> Configuration<'i, 'h> {
    /// Nothing is taken. The order respects real time, or each session's own.
    pub fn new(items: &'i [Item<'h>], real_time: bool) -> Self {
        let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            let line = if real_time { 0 } else { item.transaction.transaction.session };
            members.entry(line).or_default().push(index);
        }
        let line = |mut by_begin: Vec<usize>| {
            let mut by_end = by_begin.clone();
            by_begin.sort_by_key(|index| items[*index].invoked());
            by_end.sort_by_key(|index| items[*index].end());
            Line { by_begin, by_end, first_begin: 0, first_end: 0 }
        };
        Configuration {
            items,
            lines: members.into_values().map(line).collect(),
            taken: vec![false; items.len()],
            highest: Vec::new(),
            certain_left: items.iter().filter(|item| item.is_certain()).count(),
            state: Cells::default(),
            fingerprint: (0, 0),
        }
    }

    /// True if all that must stand somewhere do.
    pub fn is_complete(&self) -> bool {
        self.certain_left == 0
    }

    /// Names what is taken and the state; two differ where these do, but for a chance of about one in 2^128.
    pub fn fingerprint(&self) -> (u64, u64) {
        self.fingerprint
    }

    /// Those that may come next: none that is certain and not taken ended before they began. The first to try is the last.
    pub fn candidates(&mut self) -> Vec<usize> {
        let mut next = Vec::new();
        for line in &mut self.lines {
            let is_taken =
                |place: usize, order: &[usize]| order.get(place).is_some_and(|index| self.taken[*index]);
            while is_taken(line.first_begin, &line.by_begin) {
                line.first_begin += 1;
            }
            while is_taken(line.first_end, &line.by_end) {
                line.first_end += 1;
            }
            let Some(first) = line.by_end.get(line.first_end) else { continue };
            let end = self.items[*first].end();
            let open = line.by_begin[line.first_begin..].iter().copied();
            let may_begin = open.take_while(|index| self.items[*index].invoked() <= end);
            next.extend(may_begin.filter(|index| !self.taken[*index]));
        }
        let last = self.highest.last().copied().flatten();
        next.sort_by_key(|index| std::cmp::Reverse((self.items[*index].rank(last), *index)));
        next
    }

    /// Takes one, if what its client saw comes out: what was there before at its keys, and whether that has changed.
    pub fn take(&mut self, index: usize) -> Option<(Cells<'h>, bool)> {
        let item = &self.items[index];
        let before = self.state.touched(&item.transaction);
        let mut after = before.clone();
        if item.transaction.steps.is_empty() {
            item.transaction.effects.iter().for_each(|(key, effect)| after.apply(key, effect));
        }
        execute_at(item.now_millis, &item.transaction, None, &mut after).ok()?;
        let changes = after != before;
        if changes && item.is_idle {
            return None;
        }
        if changes {
            self.exchange(&before, after);
        }
        self.highest.push(self.highest.last().copied().flatten().max(item.place));
        self.mark(index, true);
        Some((before, changes))
    }

    /// Takes back the one taken last.
    pub fn put_back(&mut self, index: usize, before: Cells<'h>) {
        let after = self.state.touched(&self.items[index].transaction);
        if after != before {
            self.exchange(&after, before);
        }
        self.highest.pop();
        self.mark(index, false);
        for line in &mut self.lines {
            (line.first_begin, line.first_end) = (0, 0);
        }
    }

    fn exchange(&mut self, from: &Cells<'h>, to: Cells<'h>) {
        for cells in [from, &to] {
            cells.each_encoded(|bytes| self.mix(bytes));
        }
        self.state.update(to);
    }

    fn mark(&mut self, index: usize, taken: bool) {
        self.taken[index] = taken;
        self.mix(&index.to_le_bytes());
        let certain = usize::from(self.items[index].is_certain());
        self.certain_left = if taken { self.certain_left - certain } else { self.certain_left + certain };
    }

    /// Adds something to the fingerprint, or takes it out.
    fn mix(&mut self, bytes: &[u8]) {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, bytes).hash(&mut hasher);
            hasher.finish()
        };
        self.fingerprint = (self.fingerprint.0 ^ hash(0), self.fingerprint.1 ^ hash(1));
    }
}
