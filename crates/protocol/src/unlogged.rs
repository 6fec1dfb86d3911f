//! What an instance did that the log has not taken yet, for instances that answer reads while it refuses records.

use std::collections::VecDeque;

/// By the record that tells of it, what an instance did; forgotten when the log has written the record.
#[derive(Debug)]
pub struct Unlogged<T> {
    noted: VecDeque<(u64, T)>,
    /// The log has taken so many records.
    logged: u64,
    is_refusing: bool,
}

impl<T> Default for Unlogged<T> {
    fn default() -> Self {
        Unlogged { noted: VecDeque::new(), logged: 0, is_refusing: false }
    }
}

impl<T> Unlogged<T> {
    /// The record with this number reveals `what` ([`crate::Outputs::persisted`]).
    pub fn note(&mut self, record: u64, what: T) {
        debug_assert!(self.noted.back().is_none_or(|(last, _)| *last <= record), "records have an order");
        if record > self.logged {
            self.noted.push_back((record, what));
        }
    }

    /// See [`crate::Protocol::logged`]; hands out what the log has from now on.
    pub fn logged(&mut self, records: u64, mut each: impl FnMut(T)) {
        self.logged = self.logged.max(records);
        while let Some((_, what)) = self.noted.pop_front_if(|(record, _)| *record <= records) {
            each(what);
        }
    }

    /// See [`crate::Protocol::log_refuses`]: from now on, or no longer.
    pub fn set_refusing(&mut self, is_refusing: bool) {
        self.is_refusing = is_refusing;
    }

    /// True while the log refuses records.
    pub fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// While the log refuses records: what it has not taken. Otherwise nothing, since replies wait for that.
    pub fn refused(&self) -> impl Iterator<Item = &T> {
        self.noted.iter().filter(|_| self.is_refusing).map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_log_has_taken_is_forgotten_and_the_rest_counts_while_it_refuses() {
        let mut unlogged = Unlogged::default();
        [(1, 'a'), (2, 'b'), (4, 'c')].into_iter().for_each(|(record, what)| unlogged.note(record, what));
        let mut taken = Vec::new();
        unlogged.logged(2, |what| taken.push(what));
        assert_eq!((taken.as_slice(), unlogged.refused().count()), (['a', 'b'].as_slice(), 0));
        unlogged.set_refusing(true);
        unlogged.note(5, 'd');
        assert_eq!(unlogged.refused().collect::<String>(), "cd");
        unlogged.logged(5, drop);
        unlogged.note(5, 'e');
        assert_eq!(unlogged.refused().count(), 0, "the log has it already");
    }
}
