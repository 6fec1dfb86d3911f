//! What must hold in every state: of replication alone, of transactions, and of our own additions to TAPIR.

use crate::model::explore::State;
use crate::model::serial::{Fate, History};
use crate::model::setup::MEMBERS;
use crate::model::space::{Sent, Space, fingerprint};
use anabranch_strict::ir::{CoordinatorView, Ending, Message as Ir, fast_quorum, quorum};
use anabranch_strict::tapir::{Decision, Message, Transactions, Vote};
use anabranch_strict::validation::{Stamp, overwrites};
use datatypes::Aspect;
use std::collections::{BTreeMap, BTreeSet};
use types::{Timestamp, TransactionId};

type IrMessage = Ir<Transactions>;

/// A state with what is known of its parts.
pub struct Known<'k> {
    pub space: &'k Space,
    pub state: &'k State,
}

impl Known<'_> {
    /// Every message of IR that anybody has sent: its number, the sender's instance, the message.
    fn said(&self) -> impl Iterator<Item = (u32, usize, &IrMessage)> {
        self.state.tuple().iter().flat_map(|local| {
            let local = &self.space.locals[*local as usize];
            local.sent.iter().filter_map(|id| match &self.space.messages[*id as usize].message {
                Message::Ir { message } => Some((*id, local.instance, message)),
                _ => None,
            })
        })
    }

    fn replies(&self) -> impl Iterator<Item = &(u8, String)> {
        self.state.tuple().iter().flat_map(|local| &self.space.locals[*local as usize].replies)
    }
}

/// Results that count together: shard, group, attempt, view, coordinator view (none for replies), result.
type Ballot = (usize, TransactionId, u32, u64, Option<CoordinatorView>, Vote);

/// Checks states; remembers what it has checked.
#[derive(Default)]
pub struct Properties {
    checked: BTreeSet<u128>,
    succeeded: BTreeSet<u8>,
    refused: BTreeSet<u8>,
}

impl Properties {
    /// How many requests succeeded and how many were refused, in some state.
    pub fn answered(&self) -> (usize, usize) {
        (self.succeeded.len(), self.refused.len())
    }

    /// Checks a state that an instance has come to by going from `old` to `new`.
    pub fn check(&mut self, known: &Known<'_>, old: u32, new: u32) -> Result<(), String> {
        rising(known.space, old, new)?;
        let (before, after) = (&known.space.locals[old as usize], &known.space.locals[new as usize]);
        let fresh = |counts: fn(&IrMessage) -> bool| {
            let fresh = after.sent.iter().filter(|id| before.sent.binary_search(id).is_err());
            let mut messages = fresh.map(|id| &known.space.messages[*id as usize].message);
            messages.any(|message| matches!(message, Message::Ir { message } if counts(message)))
        };
        // What says nothing new was checked in the state before.
        if fresh(votes) {
            self.once(known, 0, votes, replication)?;
        }
        if fresh(ends) || before.replies != after.replies {
            let replies: Vec<_> = known.replies().collect();
            self.once(known, fingerprint(&(replies, known.state.before())), ends, transactions)?;
        }
        for (index, reply) in known.replies() {
            match Fate::of(reply) {
                Fate::Committed => self.succeeded.insert(*index),
                Fate::Aborted => self.refused.insert(*index),
                Fate::Unknown => false,
            };
        }
        Ok(())
    }

    /// Checks a property of the messages that count, unless it was checked for the same ones.
    fn once(
        &mut self,
        known: &Known<'_>,
        key: u128,
        counts: fn(&IrMessage) -> bool,
        property: impl Fn(&Known<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut ids: Vec<u32> = known.said().filter(|(.., m)| counts(m)).map(|(id, ..)| id).collect();
        ids.sort_unstable();
        if self.checked.insert(fingerprint(&(key, ids))) { property(known) } else { Ok(()) }
    }
}

fn votes(message: &IrMessage) -> bool {
    matches!(message, Ir::Reply { .. } | Ir::Confirm { .. } | Ir::Executed { .. } | Ir::StartView { .. })
}

fn ends(message: &IrMessage) -> bool {
    matches!(message, Ir::Execute { .. })
}

/// What a replica says never goes back to a lower view or a lower coordinator view, as long as it remembers.
fn rising(space: &Space, old: u32, new: u32) -> Result<(), String> {
    let (old, new) = (&space.locals[old as usize], &space.locals[new as usize]);
    if old.restarts.1 != new.restarts.1 {
        return Ok(());
    }
    let message = |id: &u32| match &space.messages[*id as usize] {
        // To a replica it is the answer to a backup coordinator's Finalize, and vouches for no vote.
        Sent { to, message: Message::Ir { message: Ir::Reply { .. } }, .. }
            if *to < space.setup.replicas() =>
        {
            None
        }
        Sent { message: Message::Ir { message }, .. } => Some(message),
        _ => None,
    };
    let view = |message: &IrMessage| match message {
        Ir::Reply { view, .. } | Ir::Confirm { view, .. } | Ir::CoordinatorPromise { view, .. } => {
            Some(*view)
        }
        Ir::DoViewChange { view, .. } | Ir::Executed { view, .. } => Some(*view),
        _ => None,
    };
    let ballot = |message: &IrMessage| match message {
        Ir::Reply { group, .. } => Some((*group, CoordinatorView::ORIGINAL)),
        Ir::Confirm { group, ballot, .. } | Ir::CoordinatorPromise { group, ballot, .. } => {
            Some((*group, *ballot))
        }
        _ => None,
    };
    let fresh = new.sent.iter().filter(|id| old.sent.binary_search(id).is_err());
    for later in fresh.filter_map(message) {
        for earlier in old.sent.iter().filter_map(message) {
            if view(later).zip(view(earlier)).is_some_and(|(later, earlier)| later < earlier) {
                return Err(format!("views fall: {later:?} after {earlier:?}"));
            }
            let ended = |message: &IrMessage| matches!(message, Ir::Executed { .. });
            if ended(earlier) && ballot(later).is_some_and(|(of, _)| Some(of) == group_of(earlier)) {
                return Err(format!("what has ended goes on: {later:?} after {earlier:?}"));
            }
            let fell = |((of, later), (group, earlier))| of == group && later < earlier;
            if ballot(later).zip(ballot(earlier)).is_some_and(fell) {
                return Err(format!("a promise is broken: {later:?} after {earlier:?}"));
            }
        }
    }
    Ok(())
}

fn group_of(message: &IrMessage) -> Option<TransactionId> {
    match message {
        Ir::Executed { group, .. } => Some(*group),
        _ => None,
    }
}

/// IR's own promises: a result that may have succeeded is the only one, and every later view has it; an outcome that
/// f+1 replicas have acknowledged is in every later view's record; a view has one record.
fn replication(known: &Known<'_>) -> Result<(), String> {
    let mut votes: Vec<(Ballot, BTreeSet<usize>)> = Vec::new();
    let mut acknowledged: BTreeMap<(usize, TransactionId, u64), BTreeSet<usize>> = BTreeMap::new();
    let mut records = BTreeMap::new();
    for (_, instance, message) in known.said() {
        let shard = instance / MEMBERS;
        let ballot = match message {
            Ir::Reply { group, attempt, view, result, .. } => (shard, *group, *attempt, *view, None, *result),
            Ir::Confirm { group, attempt, view, ballot, result } => {
                (shard, *group, *attempt, *view, Some(*ballot), *result)
            }
            Ir::Executed { group, view } => {
                acknowledged.entry((shard, *group, *view)).or_default().insert(instance);
                continue;
            }
            // Outcomes travel apart: of those the summary tells how many there are.
            Ir::StartView { view, summary, groups, .. } => {
                let ended: u32 = summary.digests.values().map(|digest| digest.count).sum();
                let other = records.insert((shard, *view), (groups, ended));
                if other.is_some_and(|(other, _)| other != groups) {
                    return Err(format!("view {view} of shard {shard} started with two records"));
                }
                continue;
            }
            _ => continue,
        };
        match votes.iter_mut().find(|(known, _)| *known == ballot) {
            Some((_, voters)) => drop(voters.insert(instance)),
            None => votes.push((ballot, BTreeSet::from([instance]))),
        }
    }
    let enough = |(ballot, voters): &&(Ballot, BTreeSet<usize>)| {
        voters.len() >= if ballot.4.is_some() { quorum(MEMBERS) } else { fast_quorum(MEMBERS) }
    };
    let successes: Vec<&Ballot> = votes.iter().filter(enough).map(|(ballot, _)| ballot).collect();
    let holds = |vote: Vote| vote == Vote::PrepareOk;
    for success in &successes {
        let (shard, group, attempt, view, ballot, result) = **success;
        let same = |other: &&&Ballot| (other.0, other.1, other.2) == (shard, group, attempt);
        if let Some(other) = successes.iter().filter(same).find(|other| holds(other.5) != holds(result)) {
            return Err(format!("{group} succeeded with two results: {success:?} and {other:?}"));
        }
        for ((_, later), (record, ended)) in records.range((shard, view + 1)..=(shard, u64::MAX)) {
            // A group that is not among the undecided ones has ended, and counts.
            let effective = record.get(&group).map_or(*ended > 0, |group| {
                let entry = |e: &anabranch_strict::ir::Entry<Transactions>| {
                    // Only the original coordinator makes attempts, and gives the earlier ones up.
                    let given_up = e.attempt > attempt && ballot.is_none_or(|ballot| ballot.round == 0);
                    given_up || holds(e.result) == holds(result)
                };
                group.outcome.is_some() || group.entry.as_ref().is_some_and(entry)
            });
            if !effective {
                return Err(format!(
                    "view {later} of shard {shard} lost {success:?}: {:?}",
                    record.get(&group)
                ));
            }
        }
    }
    let quorums = acknowledged.iter().filter(|(_, replicas)| replicas.len() >= quorum(MEMBERS));
    for ((shard, group, view), _) in quorums.clone() {
        for ((_, later), (record, ended)) in records.range((*shard, view + 1)..=(*shard, u64::MAX)) {
            let of_shard = quorums.clone().filter(|((of, _, before), _)| of == shard && before < later);
            let least: BTreeSet<TransactionId> = of_shard.map(|((_, group, _), _)| *group).collect();
            if record.contains_key(group) || (*ended as usize) < least.len() {
                return Err(format!("view {later} of shard {shard} lost the outcome of {group}"));
            }
        }
    }
    Ok(())
}

/// Transactions end in one way, strictly serializable, in the order of stamps, and observers saw all below them.
fn transactions(known: &Known<'_>) -> Result<(), String> {
    let setup = &known.space.setup;
    let mut history = History::new(setup, known.state.before());
    let requested = known
        .state
        .tuple()
        .iter()
        .fold(0, |requested, l| requested | known.space.locals[*l as usize].requested);
    history.requested = requested;
    for (index, reply) in known.replies() {
        history.tell(usize::from(*index), reply)?;
    }
    let mut parts: BTreeMap<(usize, TransactionId), (Timestamp, &anabranch_strict::tapir::Part)> =
        BTreeMap::new();
    let mut proposals: BTreeMap<(usize, TransactionId), &anabranch_strict::tapir::Part> = BTreeMap::new();
    for (id, _, message) in known.said() {
        if let Ir::Propose { group, operation, .. } = message {
            let to = known.space.messages[id as usize].to / MEMBERS;
            proposals.insert((to, *group), &operation.part);
        }
    }
    for (id, _, message) in known.said() {
        let Ir::Execute { group, operation, .. } = message else { continue };
        let Some(index) = setup.request_of(*group) else { continue };
        let to = known.space.messages[id as usize].to / MEMBERS;
        match operation {
            Ending::Whole(Decision::Commit { at, part }) => {
                history.end(index, Fate::Committed, Some(*at))?;
                parts.insert((to, *group), (*at, part));
            }
            Ending::Rest(at) => {
                history.end(index, Fate::Committed, Some(*at))?;
                let proposed = proposals.get(&(to, *group)).ok_or("it ended without a proposal")?;
                parts.insert((to, *group), (*at, proposed));
            }
            Ending::Whole(Decision::Abort) => history.end(index, Fate::Aborted, None)?,
        }
    }
    history.check()?;
    closed(&parts)
}

/// A committed observer of a whole key saw every committed effect below its stamp, or what overwrote it: the
/// argument behind the closed base.
fn closed(
    parts: &BTreeMap<(usize, TransactionId), (Timestamp, &anabranch_strict::tapir::Part)>,
) -> Result<(), String> {
    let mut effects: BTreeMap<&[u8], Vec<(Stamp, bool)>> = BTreeMap::new();
    for ((_, transaction), (at, part)) in parts {
        for invoked in &part.invocations {
            if let Ok(Some(effect)) = invoked.effect() {
                let stamp = Stamp { at: *at, transaction: *transaction };
                effects.entry(&invoked.key).or_default().push((stamp, overwrites(&effect)));
            }
        }
    }
    for ((_, transaction), (at, part)) in parts {
        let own = Stamp { at: *at, transaction: *transaction };
        for invoked in &part.invocations {
            let Some(observed) = &invoked.observed else { continue };
            let whole =
                invoked.access().is_ok_and(|a| a.invocation.observation.aspect == Some(Aspect::Whole));
            let on_key = effects.get(&*invoked.key).map(Vec::as_slice).unwrap_or_default();
            let below = on_key.iter().filter(|(stamp, _)| *stamp < own);
            for (stamp, _) in below.filter(|_| whole) {
                let overwritten =
                    on_key.iter().any(|(over, all)| *all && over > stamp && observed.contains(*over));
                if !observed.contains(*stamp) && !overwritten {
                    return Err(format!("{own} observed {observed:?}, not {stamp} below it"));
                }
            }
        }
    }
    Ok(())
}
