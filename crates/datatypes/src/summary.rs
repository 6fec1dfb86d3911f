//! SummaryBag: numbers are added, and only what summarizes them can be read: count, sum, mean, least and greatest
//! (Claret, table 1). Additions never conflict.
//!
//! The sum is stored exactly and rounded when it is read, so that it does not depend on the order of the additions
//! (Corrections 76).

use crate::collections::ExactSum;
use crate::observation::Footprint;
use crate::{Aspect, Context, Kind, Observation};
use smallvec::SmallVec;
use types::{Malformed, Reader, ReplySink, Wire, put_varint, wire_enum};

/// Finite numbers, with one zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(SmallVec<[f64; 2]>);

impl Numbers {
    /// These numbers; `None` if one is not finite.
    pub fn new(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        // Adding zero makes zero of negative zero.
        let numbers: SmallVec<[f64; 2]> = numbers.map(|number| number + 0.0).collect();
        numbers.iter().all(|number| number.is_finite()).then_some(Numbers(numbers))
    }

    /// The numbers.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }
}

impl Wire for Numbers {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        self.0.iter().for_each(|number| number.encode(out));
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut numbers: SmallVec<[f64; 2]> = SmallVec::new();
        for _ in 0..input.count()? {
            numbers.push(f64::decode(input)?);
        }
        Numbers::new(numbers.into_iter()).ok_or(Malformed("number"))
    }
}

/// Which figure of a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// How many numbers were added.
    Count,
    /// Their sum.
    Sum,
    /// Their sum, rounded, by their count.
    Mean,
    /// The least.
    Min,
    /// The greatest.
    Max,
}
wire_enum!(Figure { 0 => Count, 1 => Sum, 2 => Mean, 3 => Min, 4 => Max });

impl Figure {
    /// Every figure.
    pub const ALL: [Figure; 5] = [Figure::Count, Figure::Sum, Figure::Mean, Figure::Min, Figure::Max];

    fn name(self) -> &'static str {
        match self {
            Figure::Count => "count",
            Figure::Sum => "sum",
            Figure::Mean => "mean",
            Figure::Min => "min",
            Figure::Max => "max",
        }
    }
}

/// An operation on a bag.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds numbers: OK.
    Add {
        /// The numbers.
        numbers: Numbers,
    },
    /// One figure; of an absent bag, 0 for count and sum, else null.
    Read {
        /// Which.
        figure: Figure,
    },
    /// All figures with their names.
    ReadAll,
}
wire_enum!(Operation { 0 => Add { numbers }, 1 => Read { figure }, 2 => ReadAll });

/// A mutation of a bag.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Adds numbers.
    Add {
        /// The numbers.
        numbers: Numbers,
    },
}
wire_enum!(Effect { 0 => Add { numbers } });

/// The state.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryBag {
    count: u64,
    sum: ExactSum,
    min: f64,
    max: f64,
}

impl Default for SummaryBag {
    fn default() -> Self {
        SummaryBag { count: 0, sum: ExactSum::default(), min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl SummaryBag {
    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
    }

    /// What both sides added to `base` since, together. A side with fewer numbers than `base` was deleted and begun anew, so
    /// that nothing of `base` is in it; of others that is unknown.
    #[must_use]
    pub fn merged(base: &SummaryBag, left: &SummaryBag, right: &SummaryBag) -> SummaryBag {
        let mut sum = left.sum.clone();
        sum.add_sum(&right.sum);
        let mut count = left.count + right.count;
        if left.count >= base.count || right.count >= base.count {
            sum.subtract_sum(&base.sum);
            count -= base.count;
        }
        SummaryBag { count, sum, min: left.min.min(right.min), max: left.max.max(right.max) }
    }

    fn figure(&self, figure: Figure, sink: &mut dyn ReplySink) {
        match figure {
            Figure::Count => sink.integer(self.count as i64),
            Figure::Sum => sink.double(self.sum.rounded()),
            _ if self.is_empty() => sink.null(),
            Figure::Mean => sink.double(self.sum.rounded() / self.count as f64),
            Figure::Min => sink.double(self.min),
            Figure::Max => sink.double(self.max),
        }
    }
}

impl Operation {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        !matches!(self, Operation::Add { .. })
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'static> {
        match self {
            Operation::Add { .. } => Observation::only_kind(Kind::SummaryBag),
            Operation::Read { .. } | Operation::ReadAll => Observation::of(Kind::SummaryBag, Aspect::Whole),
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect> {
        match self {
            Operation::Add { numbers } => Some(Effect::Add { numbers: numbers.clone() }),
            Operation::Read { .. } | Operation::ReadAll => None,
        }
    }
}

impl Effect {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }
}

/// Exact sums, minima and maxima do not depend on the order.
pub fn effects_commute(_: &Effect, _: &Effect) -> bool {
    true
}

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare(
    state: Option<&SummaryBag>,
    operation: &Operation,
    _: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect> {
    let absent = SummaryBag::default();
    let bag = state.unwrap_or(&absent);
    match operation {
        Operation::Add { .. } => sink.simple("OK"),
        Operation::Read { figure } => bag.figure(*figure, sink),
        Operation::ReadAll => {
            sink.map(Figure::ALL.len());
            for figure in Figure::ALL {
                sink.bulk(figure.name().as_bytes());
                bag.figure(figure, sink);
            }
        }
    }
    operation.blind_effect()
}

/// The numbers to take out or to put in, and the least and the greatest on the other side.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    numbers: Numbers,
    undoes: bool,
    min: f64,
    max: f64,
}

impl Patch {
    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        if self.numbers.0.spilled() { self.numbers.0.capacity() * size_of::<f64>() } else { 0 }
    }
}

/// Performs an effect; see [`crate::apply`].
pub fn apply<const UNDO: bool>(state: &mut SummaryBag, effect: &Effect) -> Option<Patch> {
    let Effect::Add { numbers } = effect;
    let (min, max) = (state.min, state.max);
    for number in &numbers.0 {
        state.count += 1;
        state.sum.add(*number);
        state.min = state.min.min(*number);
        state.max = state.max.max(*number);
    }
    (UNDO && !numbers.0.is_empty()).then(|| Patch { numbers: numbers.clone(), undoes: true, min, max })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut SummaryBag, patch: &mut Patch) {
    for number in &patch.numbers.0 {
        if patch.undoes {
            state.count -= 1;
            state.sum.add(-number);
        } else {
            state.count += 1;
            state.sum.add(*number);
        }
    }
    patch.undoes = !patch.undoes;
    std::mem::swap(&mut state.min, &mut patch.min);
    std::mem::swap(&mut state.max, &mut patch.max);
}

/// Appends a state's binary form.
pub fn encode_state(state: &SummaryBag, out: &mut Vec<u8>) {
    put_varint(out, state.count);
    state.sum.encode(out);
    state.min.encode(out);
    state.max.encode(out);
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<SummaryBag, Malformed> {
    let count = u64::decode(input)?;
    let sum = ExactSum::decode(input)?;
    let (min, max) = (f64::decode(input)?, f64::decode(input)?);
    let possible = i64::try_from(count).is_ok() && (count == 0 || min.is_finite() && max.is_finite());
    if possible { Ok(SummaryBag { count, sum, min, max }) } else { Err(Malformed("summary")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bag(numbers: &[f64]) -> SummaryBag {
        let mut bag = SummaryBag::default();
        apply::<false>(&mut bag, &Effect::Add { numbers: Numbers::new(numbers.iter().copied()).unwrap() });
        bag
    }

    #[test]
    fn what_both_sides_deleted_is_not_taken_out_of_what_they_added_since() {
        let (base, one) = (bag(&[5.0, 6.0, 7.0]), bag(&[1.0]));
        let merged = SummaryBag::merged(&base, &one, &bag(&[2.0, 3.0]));
        assert_eq!((merged.count, merged.sum.rounded()), (3, 6.0));
        let merged = SummaryBag::merged(&base, &one, &bag(&[5.0, 6.0, 7.0, 2.0]));
        assert_eq!((merged.count, merged.sum.rounded()), (2, 3.0), "the other side's additions stay");
        let merged = SummaryBag::merged(&base, &bag(&[5.0, 6.0, 7.0, 1.0]), &bag(&[5.0, 6.0, 7.0, 2.0]));
        assert_eq!((merged.count, merged.sum.rounded()), (5, 21.0));
    }
}
