//! What a partition writes to its log and to checkpoints.

use super::Times;
use super::intent::WriteIntent;
use super::message::{EvaluationResults, KeyEffects};
use super::stamp::Stamp;
use datatypes::Cell;
use datatypes::merge::Trace;
use mvcc::LostWrite;
use std::borrow::Cow;
use types::{Address, Malformed, Reader, RegionId, Timestamp, TransactionId, Wire, put_bytes, put_varint};

/// One record. Borrowed where it is written, owned where it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a, D: Copy = Timestamp> {
    /// A commit timestamp was proposed and the participant is bound by it.
    Prepared {
        /// The transaction.
        id: TransactionId,
        /// The proposal.
        at: Timestamp,
        /// The remote dependency time of its effects.
        depends_on: D,
        /// The participant that records the decision.
        decider: Address,
        /// What it holds on the keys.
        intents: Cow<'a, [WriteIntent]>,
        /// What a repeated `Prepare` is answered.
        results: Cow<'a, EvaluationResults>,
    },
    /// A prepared transaction committed. At the decider this is the decision (Corrections 73).
    Committed {
        /// The transaction.
        id: TransactionId,
        /// Its place.
        at: Timestamp,
    },
    /// A transaction has no effect, whatever anybody says later.
    Aborted {
        /// The transaction.
        id: TransactionId,
    },
    /// A transaction committed whose only participant this is.
    Alone {
        /// Its effects.
        effects: Effects<'a, D>,
        /// What a repeated `Prepare` is answered.
        results: Cow<'a, EvaluationResults>,
    },
    /// A transaction of another region arrived.
    Replicated(Effects<'a, D>),
    /// Nothing at or below has been or will be stamped after a restart: what is published stays below (Corrections
    /// 21 and 22).
    Promise {
        /// Up to where.
        until: Timestamp,
        /// Everything that is prepared from now on has observed the other regions up to here (Corrections 75).
        observed: Timestamp,
    },
    /// Of a checkpoint: effects at or below are in the cells.
    Horizon {
        /// The remote snapshot time.
        at: Timestamp,
    },
    /// Of a checkpoint: what was received of a region.
    Received {
        /// The region.
        origin: RegionId,
        /// Everything up to here.
        up_to: Timestamp,
        /// And these.
        above: Cow<'a, [(Timestamp, TransactionId)]>,
    },
    /// Of a checkpoint: what became of a transaction.
    Decided {
        /// The transaction.
        id: TransactionId,
        /// Its place if it committed.
        at: Option<Timestamp>,
        /// True if a participant may still ask.
        outlives: bool,
        /// What a repeated `Prepare` is answered.
        results: Cow<'a, EvaluationResults>,
    },
    /// Of a checkpoint: a transaction of this region that another one may lack; its effects are in the cells.
    Outgoing(Effects<'a, D>),
    /// Of a checkpoint: a key as the horizon shows it.
    State {
        /// The key.
        key: Cow<'a, [u8]>,
        /// The binary form of its cell.
        cell: Cow<'a, [u8]>,
    },
    /// Of a checkpoint: an effect above the horizon.
    RetainedEffect {
        /// The key.
        key: Cow<'a, [u8]>,
        /// Its place.
        stamp: Stamp<D>,
        /// The binary form of the effect.
        effect: Cow<'a, [u8]>,
    },
    /// Of a checkpoint: an effect at or below the horizon, which is in the cell, that one above may not have observed.
    Context {
        /// The key.
        key: Cow<'a, [u8]>,
        /// Its place.
        stamp: Stamp<D>,
        /// The binary form of the effect.
        effect: Cow<'a, [u8]>,
        /// What it did to a list.
        trace: Option<Trace>,
    },
    /// This life, or one before it, began with gaps in its memory (Corrections 67).
    Gaps {
        /// False if what it took from its peers since is in no checkpoint: it must be taken again.
        filled: bool,
    },
    /// Of a checkpoint: a write that is lost to a concurrent one, and nothing that comes can change that.
    Lost(Cow<'a, LostWrite<Stamp<D>>>),
    /// Of a checkpoint: so many of these were dropped from the list.
    LossesDropped {
        /// How many.
        count: u64,
    },
    /// Of a checkpoint: the partition no longer retains what was placed up to here and some region may lack.
    Dropped {
        /// Up to where.
        until: Timestamp,
    },
    /// Of a checkpoint: below which number all transactions of each coordinator have ended, as the ids of those. Repetitions of what
    /// they asked for are still refused after a restart.
    Settled(Cow<'a, [TransactionId]>),
    /// With every promise: everything of each other region up to here stands before it in the log. Times are not logged as they
    /// arrive; without this a region that restarts while it is cut off would not show what it wrote after the others' last effects.
    Heard {
        /// By region.
        received: Vec<(RegionId, Timestamp)>,
    },
    /// Of a partition that has copies: how far its leader is with what no other record says, so that who follows keeps no
    /// more than the leader does.
    Progress(Cow<'a, Progress>),
    /// A region is gone for good (Corrections 36).
    Evicted {
        /// The region.
        region: RegionId,
        /// Everything of it up to here is held, and no more is accepted.
        held: Timestamp,
        /// What is above is given up, once that is agreed.
        cut: Option<Timestamp>,
    },
}

/// How far the leader of a partition's copies is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Everything of this region up to here is applied.
    pub installed: Timestamp,
    /// Effects at or below are in the cells.
    pub horizon: Timestamp,
    /// Every effect to come has observed what is at or below.
    pub stability_frontier: Timestamp,
    /// By region: everything of it up to here has been received.
    pub received: Vec<(RegionId, Timestamp)>,
    /// By region: up to here it holds what is of this one.
    pub held: Vec<(RegionId, Timestamp)>,
    /// By life of a coordinator: its transactions below have ended everywhere.
    pub settled: Vec<TransactionId>,
}
types::wire_struct!(Progress { installed, horizon, stability_frontier, received, held, settled });

/// A transaction's effects on this partition, with their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects<'a, D: Copy = Timestamp> {
    /// Their place.
    pub stamp: Stamp<D>,
    /// Keys and effects.
    pub effects: Cow<'a, [KeyEffects]>,
}

impl<D: Wire + Copy> Effects<'_, D> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        put_all(out, &self.effects);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Effects<'static, D>, Malformed> {
        Ok(Effects { stamp: Stamp::decode(input)?, effects: Cow::Owned(Wire::decode(input)?) })
    }
}

fn wire(out: &mut Vec<u8>, value: &impl Wire) {
    value.encode(out);
}

fn put_all<T: Wire>(out: &mut Vec<u8>, items: &[T]) {
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| item.encode(out));
}

/// A record whose fields are one value.
fn tagged<T: Wire>(out: &mut Vec<u8>, tag: u8, fields: &T) {
    out.push(tag);
    wire(out, fields);
}

impl<D: Wire + Copy> protocol::Encode for Record<'_, D> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Prepared { id, at, depends_on, decider, intents, results } => {
                out.push(0);
                wire(out, &(*id, *at, *depends_on, *decider));
                put_all(out, intents);
                wire(out, &**results);
            }
            Record::Committed { id, at } => tagged(out, 1, &(*id, *at)),
            Record::Aborted { id } => tagged(out, 2, id),
            Record::Alone { effects, results } => {
                out.push(3);
                effects.encode(out);
                wire(out, &**results);
            }
            Record::Replicated(effects) => {
                out.push(4);
                effects.encode(out);
            }
            Record::Promise { until, observed } => tagged(out, 5, &(*until, *observed)),
            Record::Horizon { at } => tagged(out, 6, at),
            Record::Received { origin, up_to, above } => {
                out.push(7);
                wire(out, &(*origin, *up_to));
                put_all(out, above);
            }
            Record::Decided { id, at, outlives, results } => {
                out.push(8);
                wire(out, &(*id, *at, *outlives));
                wire(out, &**results);
            }
            Record::Outgoing(effects) => {
                out.push(9);
                effects.encode(out);
            }
            Record::State { key, cell } => {
                out.push(10);
                put_bytes(out, key);
                put_bytes(out, cell);
            }
            Record::RetainedEffect { key, stamp, effect } => {
                out.push(11);
                put_bytes(out, key);
                wire(out, stamp);
                put_bytes(out, effect);
            }
            Record::Gaps { filled } => tagged(out, 12, filled),
            Record::Dropped { until } => tagged(out, 13, until),
            Record::Context { key, stamp, effect, trace } => {
                out.push(14);
                put_bytes(out, key);
                wire(out, stamp);
                put_bytes(out, effect);
                wire(out, trace);
            }
            Record::Evicted { region, held, cut } => tagged(out, 15, &(*region, *held, *cut)),
            Record::Lost(loss) => {
                out.push(16);
                put_bytes(out, &loss.key);
                wire(out, &(loss.part.clone(), loss.stamp, loss.winner));
                put_bytes(out, &loss.value);
                put_bytes(out, &loss.instead);
            }
            Record::LossesDropped { count } => tagged(out, 17, count),
            Record::Heard { received } => tagged(out, 20, received),
            Record::Progress(progress) => tagged(out, 18, &**progress),
            Record::Settled(known) => {
                out.push(21);
                put_all(out, known);
            }
        }
    }
}

impl<D: Wire + Copy> Record<'static, D> {
    /// Reads a record back.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
        Ok(match input.byte()? {
            0 => {
                let (id, at, depends_on, decider) = Wire::decode(input)?;
                let (intents, results) = (Cow::Owned(Wire::decode(input)?), Cow::Owned(Wire::decode(input)?));
                Record::Prepared { id, at, depends_on, decider, intents, results }
            }
            1 => {
                let (id, at) = Wire::decode(input)?;
                Record::Committed { id, at }
            }
            2 => Record::Aborted { id: Wire::decode(input)? },
            3 => {
                let effects = Effects::decode(input)?;
                Record::Alone { effects, results: Cow::Owned(Wire::decode(input)?) }
            }
            4 => Record::Replicated(Effects::decode(input)?),
            5 => {
                let (until, observed) = Wire::decode(input)?;
                Record::Promise { until, observed }
            }
            6 => Record::Horizon { at: Wire::decode(input)? },
            7 => {
                let (origin, up_to) = Wire::decode(input)?;
                Record::Received { origin, up_to, above: Cow::Owned(Wire::decode(input)?) }
            }
            8 => {
                let (id, at, outlives) = Wire::decode(input)?;
                Record::Decided { id, at, outlives, results: Cow::Owned(Wire::decode(input)?) }
            }
            9 => Record::Outgoing(Effects::decode(input)?),
            10 => Record::State { key: owned(input.bytes()?), cell: owned(input.bytes()?) },
            11 => Record::RetainedEffect {
                key: owned(input.bytes()?),
                stamp: Stamp::decode(input)?,
                effect: owned(input.bytes()?),
            },
            12 => Record::Gaps { filled: Wire::decode(input)? },
            13 => Record::Dropped { until: Wire::decode(input)? },
            14 => Record::Context {
                key: owned(input.bytes()?),
                stamp: Stamp::decode(input)?,
                effect: owned(input.bytes()?),
                trace: Wire::decode(input)?,
            },
            15 => {
                let (region, held, cut) = Wire::decode(input)?;
                Record::Evicted { region, held, cut }
            }
            16 => {
                let key = input.bytes()?.into();
                let (part, stamp, winner) = Wire::decode(input)?;
                let (value, instead) = (input.bytes()?.into(), input.bytes()?.into());
                Record::Lost(Cow::Owned(LostWrite { key, part, stamp, value, winner, instead }))
            }
            17 => Record::LossesDropped { count: Wire::decode(input)? },
            18 => Record::Progress(Cow::Owned(Wire::decode(input)?)),
            20 => Record::Heard { received: Wire::decode(input)? },
            21 => Record::Settled(Cow::Owned(Wire::decode(input)?)),
            _ => return Err(Malformed("record tag")),
        })
    }
}

/// The cell of a `State`.
pub(crate) fn cell(bytes: &[u8]) -> Result<Cell, Malformed> {
    Cell::decode(&mut Reader::new(bytes))
}

/// Appends a record behind its length, as checkpoints hold them.
pub(crate) fn put<S: Times>(out: &mut Vec<u8>, record: &Record<'_, S::Depends>) {
    let mut bytes = Vec::new();
    protocol::Encode::encode(record, &mut bytes);
    put_bytes(out, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_their_binary_form() {
        let stamp = Stamp { at: Timestamp(7), depends_on: Timestamp(3), ..Stamp::default() };
        let effects = Effects {
            stamp,
            effects: Cow::Owned(vec![KeyEffects {
                key: b"k".to_vec().into(),
                effects: vec![b"e".to_vec().into()],
            }]),
        };
        let id = stamp.transaction;
        let intents = Cow::Owned(vec![WriteIntent::default()]);
        let results: Cow<'_, EvaluationResults> = Cow::Owned(EvaluationResults {
            observed: vec![(Timestamp(3), id)],
            ..EvaluationResults::default()
        });
        let records = [
            Record::Prepared {
                id,
                at: Timestamp(1),
                depends_on: Timestamp(0),
                decider: Address {
                    process: types::ProcessId(2),
                    slot: types::Slot::coordinator(types::KeyspaceId(1)),
                },
                intents,
                results: results.clone(),
            },
            Record::Committed { id, at: Timestamp(9) },
            Record::Aborted { id },
            Record::Alone { effects: effects.clone(), results },
            Record::Replicated(effects.clone()),
            Record::Promise { until: Timestamp(8), observed: Timestamp(3) },
            Record::Horizon { at: Timestamp(8) },
            Record::Received {
                origin: RegionId(1),
                up_to: Timestamp(4),
                above: Cow::Owned(vec![(Timestamp(5), id)]),
            },
            Record::Decided {
                id,
                at: Some(Timestamp(2)),
                outlives: true,
                results: Cow::Owned(EvaluationResults::default()),
            },
            Record::Outgoing(effects),
            Record::State { key: Cow::Borrowed(b"k"), cell: Cow::Borrowed(b"c") },
            Record::RetainedEffect { key: Cow::Borrowed(b"k"), stamp, effect: Cow::Borrowed(b"e") },
            Record::Gaps { filled: true },
            Record::Dropped { until: Timestamp(6) },
            Record::Lost(Cow::Owned(LostWrite {
                key: b"k".to_vec().into(),
                part: datatypes::merge::LostPart::Field { field: b"f".to_vec() },
                stamp,
                value: b"v".to_vec().into(),
                winner: stamp,
                instead: b"w".to_vec().into(),
            })),
            Record::LossesDropped { count: 3 },
            Record::Heard { received: vec![(RegionId(2), Timestamp(9))] },
            Record::Settled(Cow::Owned(vec![id])),
            Record::Progress(Cow::Owned(Progress {
                installed: Timestamp(9),
                horizon: Timestamp(3),
                stability_frontier: Timestamp(2),
                received: vec![(RegionId(1), Timestamp(8))],
                held: vec![(RegionId(1), Timestamp(7))],
                settled: vec![id],
            })),
            Record::Context {
                key: Cow::Borrowed(b"k"),
                stamp,
                effect: Cow::Borrowed(b"e"),
                trace: Some(Trace {
                    before: 3,
                    steps: Vec::new(),
                    also: vec![(1, 2, 3)],
                    anchors: vec![(1, 0)],
                }),
            },
            Record::Evicted { region: RegionId(2), held: Timestamp(5), cut: Some(Timestamp(4)) },
        ];
        for record in records {
            let mut bytes = Vec::new();
            protocol::Encode::encode(&record, &mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Record::decode(&mut reader), Ok(record));
            assert!(reader.is_empty());
        }
    }
}
