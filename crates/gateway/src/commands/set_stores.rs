//! Commands that move a member from one set to another, or keep what several sets come to.

use crate::combine::Combine;
use crate::commands::visits::counted_keys;
use crate::plan::{Call, Plan};
use crate::turns::{self, Compute, Computed, On, Turns, first_error};
use datatypes::Operation::{Key, Set};
use datatypes::collections::PackedSet;
use datatypes::set::Operation;
use datatypes::{Cell, Items, Value, key};
use protocol::Step;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// SMOVE: reads the member in both sets, then removes it from one and adds it to the other.
#[derive(Debug)]
struct Move {
    source: Box<[u8]>,
    destination: Box<[u8]>,
    member: Box<[u8]>,
    turn: Turn,
}

/// The step that comes next, or that waits for its reply.
#[derive(Debug)]
enum Turn {
    /// Whether the sets have the member.
    Look,
    /// Whether there is a source, without which a destination of another type is no error.
    Exists {
        /// The destination's error.
        error: Error,
    },
    /// The move.
    Move,
}

impl Turns for Move {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let member = &self.member;
        let (source, destination) = match self.turn {
            Turn::Exists { .. } => return vec![on.key(&self.source, Key(key::Operation::Exists))],
            Turn::Look => (Operation::Contains { member }, Operation::Contains { member }),
            Turn::Move => {
                let members = Items::one(member);
                (Operation::Remove { members: members.clone() }, Operation::Add { members })
            }
        };
        vec![on.key(&self.source, Set(source)), on.key(&self.destination, Set(destination))]
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        let is_member = reply.first() == Some(Reply::Integer(1));
        match (&self.turn, first_error(reply)) {
            (Turn::Look, Some(error))
                if error.code == ErrorCode::WrongType && reply.first() == Some(Reply::Integer(0)) =>
            {
                self.turn = Turn::Exists { error };
                return false;
            }
            (_, Some(error)) => sink.error(&error),
            (Turn::Look, None) if is_member && self.source != self.destination => {
                self.turn = Turn::Move;
                return false;
            }
            (Turn::Exists { error }, None) if is_member => sink.error(error),
            (Turn::Exists { .. }, None) => sink.integer(0),
            (Turn::Look, None) => sink.integer(i64::from(is_member)),
            (Turn::Move, None) => sink.integer(1),
        }
        true
    }
}

/// SMOVE
pub(super) fn between<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (source, destination) = (call.bytes(1).into(), call.bytes(2).into());
    Ok(turns::plan(Move { source, destination, member: call.bytes(3).into(), turn: Turn::Look }))
}

/// SINTERCARD
pub(super) fn intersection_size<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let too_many = || Error::err("Number of keys can't be greater than number of args");
    let (keys, next) = counted_keys(call, too_many)?;
    let mut limit = 0;
    for index in (next..call.len()).step_by(2) {
        if index + 1 == call.len() || !call.is(index, "LIMIT") {
            return Err(Error::syntax());
        }
        limit = call.count(index + 1).map_err(|_| Error::err("LIMIT can't be negative"))?;
    }
    let steps = keys.map(|key| Step::Key(call.on(key, Set(Operation::Members)))).collect();
    Ok(Plan::Many { steps, combine: Combine::IntersectionSize { limit } })
}

/// SINTERSTORE
pub(super) fn store_intersection<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    store(call, |sets| {
        let Some(smallest) = sets.iter().min_by_key(|set| set.len()) else { return PackedSet::default() };
        filtered(smallest, |member| sets.iter().all(|set| set.contains(member)))
    })
}

/// SUNIONSTORE
pub(super) fn store_union<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    store(call, |sets| {
        let mut union = PackedSet::default();
        for member in sets.iter().flat_map(|set| set.iter()) {
            union.insert(&member);
        }
        union
    })
}

/// SDIFFSTORE
pub(super) fn store_difference<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    store(call, |sets| {
        let Some((first, others)) = sets.split_first() else { return PackedSet::default() };
        filtered(first, |member| !others.iter().any(|set| set.contains(member)))
    })
}

fn filtered(set: &PackedSet, belongs: impl Fn(&[u8]) -> bool) -> PackedSet {
    let mut result = PackedSet::default();
    for member in set.iter().filter(|member| belongs(member)) {
        result.insert(&member);
    }
    result
}

/// A command that keeps under its first argument what `function` makes of the sets that the others name; nothing stays
/// there if that has no member.
fn store<'a>(call: &Call<'a>, function: fn(&[PackedSet]) -> PackedSet) -> Result<Plan<'a>, Error> {
    let destination: Box<[u8]> = call.bytes(1).into();
    Ok(Compute::writing(call.arguments.iter().skip(2), move |cells| {
        let sets = cells.into_iter().map(members).collect::<Result<Vec<_>, Error>>()?;
        let result = function(&sets);
        let mut computed = Computed::default();
        computed.reply.integer(result.len() as i64);
        let value = (!result.is_empty()).then(|| Value::Set(Box::new(result)));
        computed.writes.push((destination.clone(), Cell { value, ..Cell::ABSENT }));
        Ok(computed)
    }))
}

fn members(cell: Cell) -> Result<PackedSet, Error> {
    match cell.value {
        None => Ok(PackedSet::default()),
        Some(Value::Set(set)) => Ok(*set),
        Some(_) => Err(Error::wrong_type()),
    }
}
