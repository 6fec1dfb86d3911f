//! Labels: where a state stands among the branches (Corrections 51).
//!
//! A branch is a chain of states, each the first child of the one before. Its base says how far up every branch below
//! it the branch sees; all its states share the base. So state x is an ancestor of state y exactly if both are on one
//! branch and x is not later, or the base of y's branch reaches x. Labels and bases never change while anything refers
//! to them; only their entries for collected branches are dropped.

use crate::effort::Meter;
use crate::{Mutant, Mutants};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use types::{Incarnation, Malformed, Reader, Wire, put_varint, wire_struct};

/// More branches than a log loses.
const LOST: u64 = 1 << 20;

/// How many steps along a list take as long as a search in one.
pub(crate) const STEPS: usize = 8;

/// A state's place: on which branch, and the how-manieth there. A site's own; never leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Branches are numbered in the order in which they begin.
    pub(crate) branch: u64,
    /// Rises along the branch.
    pub(crate) sequence: u64,
}
wire_struct!(Label { branch, sequence });

impl Label {
    /// True if its branch began before this one.
    pub(crate) fn is_before(self, branch: u64) -> bool {
        self.branch < branch
    }
}

/// How far up branches that began earlier are seen. Branches that began below the same state have it together.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Ascending: branches, each with the greatest sequence number that is seen of it.
    bounds: Vec<(u64, u64)>,
    /// What of that an ancestor sees, if it is all but a little.
    by_ancestor: Option<(Label, ExtraBounds)>,
}

/// What is seen besides.
type ExtraBounds = SmallVec<[(u64, u64); 2]>;

/// More than this is not a little.
const MAX_EXTRA_BOUNDS: usize = 8;

type Base = Arc<Seen>;

impl Deref for Seen {
    type Target = [(u64, u64)];

    fn deref(&self) -> &[(u64, u64)] {
        &self.bounds
    }
}

#[derive(Debug, Default)]
struct Branch {
    base: Base,
    /// What branches that began below one of its states have, by the sequence number of the last such state.
    below: Option<(u64, Base)>,
    /// The greatest sequence number given on this branch.
    tip: u64,
    /// It goes on no more: an earlier life may have given labels above the tip that the log has lost.
    is_closed: bool,
    /// How many labels of states and of versions are on it.
    labels: usize,
}

/// The branches on which something is retained.
#[derive(Debug)]
pub(crate) struct Branches {
    branches: BTreeMap<u64, Branch>,
    next: u64,
    /// Where the sweep for base entries of branches that are gone goes on; `None` when no branch has gone since.
    sweep: Option<u64>,
    pub meter: Meter,
}

impl Branch {
    /// What a branch has that begins below one of its states, if the last one that did began there.
    fn below(&self, state: Label) -> Option<Base> {
        self.below.as_ref().filter(|(sequence, _)| *sequence == state.sequence).map(|(_, base)| base.clone())
    }
}

impl Branches {
    /// Without any.
    pub fn new() -> Self {
        Branches { branches: BTreeMap::new(), next: 0, sweep: None, meter: Meter::default() }
    }

    /// The label of a new state below these.
    pub fn label(&mut self, parents: &[Label], mutants: Mutants) -> Label {
        if let [parent] = parents
            && let Some(branch) = self.branches.get_mut(&parent.branch)
            && branch.tip == parent.sequence
            && !branch.is_closed
        {
            branch.tip += 1;
            return Label { branch: parent.branch, sequence: branch.tip };
        }
        self.label_on_new_branch(parents, mutants)
    }

    /// The same on a branch of its own.
    pub fn label_on_new_branch(&mut self, parents: &[Label], mutants: Mutants) -> Label {
        let known = match parents {
            [parent] if !mutants.has(Mutant::ForkSeesSibling) => {
                self.branches.get(&parent.branch).and_then(|branch| branch.below(*parent))
            }
            _ => None,
        };
        let base = known.unwrap_or_else(|| self.base_below(parents, mutants));
        if let [parent] = parents
            && let Some(branch) = self.branches.get_mut(&parent.branch)
        {
            branch.below = Some((parent.sequence, base.clone()));
        }
        let branch = self.next;
        self.next += 1;
        self.branches.insert(branch, Branch { base, ..Branch::default() });
        Label { branch, sequence: 0 }
    }

    fn base_below(&self, parents: &[Label], mutants: Mutants) -> Base {
        let Bounds(mut base) = self.together(parents);
        self.meter.lookups(base.len());
        if mutants.has(Mutant::ForkSeesSibling) {
            let tip = |branch: u64| self.branches.get(&branch).map_or(0, |branch| branch.tip);
            let is_parents = |branch: u64| parents.iter().any(|parent| parent.branch == branch);
            base.iter_mut()
                .filter(|(branch, _)| is_parents(*branch))
                .for_each(|bound| bound.1 = tip(bound.0));
        }
        base.shrink_to_fit();
        let by_ancestor = self.by_ancestor(parents, &base);
        Seen { bounds: base, by_ancestor }.into()
    }

    /// What an ancestor of a branch with these bounds sees, and what the branch sees besides, if that is little. Branches that began
    /// below the same state have the same one where they can: what it sees of a key is looked for once.
    fn by_ancestor(&self, parents: &[Label], bounds: &[(u64, u64)]) -> Option<(Label, ExtraBounds)> {
        let parent = *parents.iter().max_by_key(|parent| self.width(**parent))?;
        let above = self.ancestor_of(parent).map(|(ancestor, _)| *ancestor);
        above.into_iter().chain([parent]).find_map(|ancestor| {
            let extra_bounds = self.extra_bounds(ancestor, bounds)?;
            Some((ancestor, extra_bounds))
        })
    }

    /// See [`Branches::by_ancestor`].
    fn ancestor_of(&self, at: Label) -> Option<&(Label, ExtraBounds)> {
        let ancestor = self.branches.get(&at.branch)?.base.by_ancestor.as_ref();
        // What a branch that is gone saw of others is not known any more.
        ancestor.filter(|(ancestor, _)| self.branches.contains_key(&ancestor.branch))
    }

    /// Which of these bounds are not what a state sees, if they are few.
    fn extra_bounds(&self, at: Label, bounds: &[(u64, u64)]) -> Option<ExtraBounds> {
        if bounds.len() > self.width(at) + MAX_EXTRA_BOUNDS {
            return None;
        }
        let mut seen = self.base(at).iter().peekable();
        let mut is_seen = |(branch, bound): &&(u64, u64)| {
            while seen.next_if(|(earlier, _)| earlier < branch).is_some() {}
            let own = (*branch == at.branch).then_some(&at.sequence);
            let known = seen.peek().filter(|(other, _)| other == branch).map(|(_, known)| known);
            own.max(known).is_some_and(|known| bound <= known)
        };
        let extra_bounds: ExtraBounds =
            bounds.iter().filter(|bound| !is_seen(bound)).copied().take(MAX_EXTRA_BOUNDS + 1).collect();
        self.meter.lookups(bounds.len() / STEPS);
        (extra_bounds.len() <= MAX_EXTRA_BOUNDS).then_some(extra_bounds)
    }

    /// The states of a branch see what has this label, which was given after theirs: it stands for one of their ancestors.
    pub fn reveal(&mut self, label: Label, to: u64) {
        let Some(branch) = self.branches.get_mut(&to).filter(|_| to != label.branch) else { return };
        branch.below = None;
        let Seen { bounds, by_ancestor } = Arc::make_mut(&mut branch.base);
        *by_ancestor = None;
        match bounds.binary_search_by_key(&label.branch, |entry| entry.0) {
            Ok(place) => bounds[place].1 = bounds[place].1.max(label.sequence),
            Err(place) => bounds.insert(place, (label.branch, label.sequence)),
        }
    }

    /// From now on no label is given that an earlier life may have given, also where the log has lost that: branches
    /// end, and the numbers of new ones begin with the life's.
    pub fn begin_life(&mut self, incarnation: Incarnation) {
        self.branches.values_mut().for_each(|branch| branch.is_closed = true);
        self.next = (self.next + LOST).max(u64::from(incarnation.0) << 32);
    }

    /// The number of the next branch.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Something has this label from now on.
    pub fn retain(&mut self, label: Label) {
        if let Some(branch) = self.branches.get_mut(&label.branch) {
            branch.labels += 1;
        }
    }

    /// Something does not have it any more.
    pub fn release(&mut self, label: Label) {
        let Some(branch) = self.branches.get_mut(&label.branch) else { return };
        branch.labels -= 1;
        if branch.labels == 0 {
            self.branches.remove(&label.branch);
            self.sweep = Some(0);
        }
    }

    /// How far a state sees up each branch; its own comes first.
    pub fn bounds(&self, at: Label) -> impl Iterator<Item = (u64, u64)> {
        let base = self.base(at);
        std::iter::once((at.branch, at.sequence)).chain(base.iter().copied())
    }

    /// How far up states with these labels see together.
    pub fn together(&self, at: &[Label]) -> Bounds {
        let mut bases: Vec<&Base> =
            at.iter().filter_map(|at| Some(&self.branches.get(&at.branch)?.base)).collect();
        bases.sort_by_key(|base| Arc::as_ptr(base));
        bases.dedup_by(|base, other| Arc::ptr_eq(base, other));
        let mut own: Vec<(u64, u64)> = at.iter().map(|at| (at.branch, at.sequence)).collect();
        own.sort_unstable();
        let bounds = own.len() + bases.iter().map(|base| base.len()).sum::<usize>();
        self.meter.lookups(bounds);
        Bounds(gathered(own.into_iter().chain(bases.into_iter().flat_map(|base| base.iter().copied()))))
    }

    fn base(&self, at: Label) -> &[(u64, u64)] {
        self.branches.get(&at.branch).map_or(&[][..], |branch| &branch.base.bounds)
    }

    /// How many bounds there are.
    pub fn width(&self, at: Label) -> usize {
        1 + self.base(at).len()
    }

    /// How far a state sees up one branch.
    pub fn bound(&self, at: Label, branch: u64) -> Option<u64> {
        self.meter.lookups(1);
        // A branch's base does not name the branch itself.
        if at.branch == branch { Some(at.sequence) } else { bound_of(at, self.base(at), branch) }
    }

    /// True when what has label `x` is visible at `y`.
    pub fn sees(&self, x: Label, y: Label) -> bool {
        self.bound(y, x.branch).is_some_and(|bound| x.sequence <= bound)
    }

    /// Of each of these states whether it sees none of some others, except itself.
    pub fn see_none(&self, at: &[Label], others: &[Label]) -> Vec<bool> {
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        for Label { branch, sequence } in others {
            first.entry(*branch).and_modify(|least| *least = (*least).min(*sequence)).or_insert(*sequence);
        }
        let mut known: BTreeMap<*const Seen, bool> = BTreeMap::new();
        let mut sees_none = |base: &Base| {
            *known.entry(Arc::as_ptr(base)).or_insert_with(|| {
                self.meter.lookups(base.len().min(first.len()));
                let is_seen = |(branch, first): (&u64, &u64)| {
                    bound_in(base, *branch).is_some_and(|bound| *first <= bound)
                };
                match first.len() < base.len() / STEPS {
                    true => !first.iter().any(is_seen),
                    false => !base
                        .iter()
                        .any(|(branch, bound)| first.get(branch).is_some_and(|first| first <= bound)),
                }
            })
        };
        let mut is_unrelated = |at: &Label| {
            let base = self.branches.get(&at.branch).map(|branch| &branch.base);
            first.get(&at.branch).is_none_or(|first| *first >= at.sequence) && base.is_none_or(&mut sees_none)
        };
        at.iter().map(&mut is_unrelated).collect()
    }

    /// Forgets what the bases of up to `budget` branches say of branches that are gone; returns how many it looked at.
    pub fn sweep(&mut self, budget: usize) -> usize {
        let Some(from) = self.sweep else { return 0 };
        let some: Vec<u64> = self.branches.range(from..).take(budget).map(|(number, _)| *number).collect();
        // What several branches have stays one. Earlier bases stay allocated, so that none takes the place of another
        // one.
        let mut swept: BTreeMap<*const Seen, (Base, Base)> = BTreeMap::new();
        for number in &some {
            let Some(before) = self.branches.get(number).map(|branch| branch.base.clone()) else { continue };
            let known = swept.entry(Arc::as_ptr(&before));
            let (_, now) = known.or_insert_with(|| (before.clone(), self.without_collected(&before)));
            if let Some(branch) = self.branches.get_mut(number) {
                (branch.base, branch.below) = (now.clone(), None);
            }
        }
        self.sweep = match some.last() {
            Some(last) if some.len() == budget => Some(last + 1),
            _ => None,
        };
        some.len()
    }

    /// What of a base is about branches that are here.
    fn without_collected(&self, base: &Base) -> Base {
        let is_here = |(branch, _): &&(u64, u64)| self.branches.contains_key(branch);
        match base.iter().all(|bound| is_here(&bound)) {
            true => base.clone(),
            false => {
                let bounds = base.iter().filter(is_here).copied().collect();
                Arc::new(Seen { bounds, by_ancestor: base.by_ancestor.clone() })
            }
        }
    }

    /// How many branches something is retained on.
    pub fn len(&self) -> usize {
        self.branches.len()
    }

    /// The bytes that bases occupy.
    pub fn memory(&self) -> usize {
        // What several have is counted in parts.
        let bytes = |base: &Base| {
            (size_of::<Seen>() + base.bounds.capacity() * size_of::<(u64, u64)>()) / Arc::strong_count(base)
        };
        let bases = self.branches.values().map(|branch| bytes(&branch.base));
        self.branches.len() * (size_of::<Branch>() + 16) + bases.sum::<usize>()
    }
}

/// Labels stay what they are where others keep versions by them: the log's checkpoints have them as they are. How many
/// labels are on a branch is not said: whoever reads it retains them anew.
impl Wire for Branches {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.next);
        put_varint(out, self.branches.len() as u64);
        for (number, branch) in &self.branches {
            put_varint(out, *number);
            branch.base.bounds.encode(out);
            put_varint(out, branch.tip);
            branch.is_closed.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut branches = Branches { next: input.varint()?, sweep: Some(0), ..Branches::new() };
        for _ in 0..input.count()? {
            let number = input.varint()?;
            let base = Seen { bounds: Vec::decode(input)?, by_ancestor: None }.into();
            let (tip, is_closed) = (input.varint()?, bool::decode(input)?);
            branches.branches.insert(number, Branch { base, below: None, tip, is_closed, labels: 0 });
        }
        Ok(branches)
    }
}

/// How far up a branch is seen from a place whose branch has this base.
fn bound_of(at: Label, base: &[(u64, u64)], branch: u64) -> Option<u64> {
    if at.branch == branch {
        return Some(at.sequence);
    }
    bound_in(base, branch)
}

/// The bound of a branch, of some in their order.
fn bound_in(bounds: &[(u64, u64)], branch: u64) -> Option<u64> {
    let place = bounds.binary_search_by_key(&branch, |bound| bound.0).ok()?;
    Some(bounds[place].1)
}

/// Of some branches, in their order, how far up they are seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bounds(Vec<(u64, u64)>);

/// What one state sees, or several together, for a process without the State DAG: the complete predicate, in portable
/// form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortableView {
    /// Where it is from, if from one state alone.
    only: Option<Label>,
    bounds: Vec<(u64, u64)>,
}
wire_struct!(PortableView { only, bounds });

impl PortableView {
    /// Of these bounds, in the order of their branches.
    #[cfg(test)]
    pub(crate) fn of(bounds: Vec<(u64, u64)>) -> Self {
        PortableView { only: None, bounds }
    }

    /// To look with; what it takes is counted in `meter`.
    pub(crate) fn view<'d>(&self, meter: &'d Branches) -> View<'d> {
        let gathered = Some(Bounds(self.bounds.clone()));
        View { branches: meter, at: self.only.into_iter().collect(), base: &[], gathered }
    }
}

impl Bounds {
    fn bound(&self, branch: u64) -> Option<u64> {
        bound_in(&self.0, branch)
    }

    /// What both show.
    pub fn and(&self, other: &Bounds) -> Bounds {
        let both = |(branch, bound): &(u64, u64)| Some((*branch, other.bound(*branch)?.min(*bound)));
        Bounds(self.0.iter().filter_map(both).collect())
    }

    /// True when what has this label is seen.
    pub fn show(&self, label: Label) -> bool {
        self.bound(label.branch).is_some_and(|bound| label.sequence <= bound)
    }
}

/// Of every branch the greatest bound, in the order of branches.
fn gathered(bounds: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut bounds: Vec<(u64, u64)> = bounds.collect();
    // Of bases that are in order each: a stable sort merges them.
    bounds.sort();
    bounds.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            earlier.1 = later.1;
        }
        is_same
    });
    bounds.shrink_to_fit();
    bounds
}

/// What one state sees, or several together.
#[derive(Clone, Debug)]
pub struct View<'d> {
    branches: &'d Branches,
    at: SmallVec<[Label; 1]>,
    /// What the first of them sees of other branches.
    base: &'d [(u64, u64)],
    /// What all see together, where many keys are looked at.
    gathered: Option<Bounds>,
}

impl<'d> View<'d> {
    pub(crate) fn new(branches: &'d Branches, at: SmallVec<[Label; 1]>) -> Self {
        let base = at.first().map_or(&[][..], |at| branches.base(*at));
        View { branches, at, base, gathered: None }
    }

    /// What these bounds show.
    pub(crate) fn within(branches: &'d Branches, bounds: Bounds) -> Self {
        View { branches, at: SmallVec::new(), base: &[], gathered: Some(bounds) }
    }

    /// What it was gathered to.
    pub(crate) fn into_bounds(self) -> Bounds {
        self.gathered.unwrap_or_default()
    }

    /// The same, made to look at many keys: of several states what they see is put together once.
    pub(crate) fn gathered(mut self) -> Self {
        if self.at.len() > 1 {
            self.gathered = Some(self.branches.together(&self.at));
        }
        self
    }

    /// The same, to be taken elsewhere.
    pub(crate) fn portable(&self) -> PortableView {
        let bounds = match &self.gathered {
            Some(bounds) => bounds.0.clone(),
            None => self.branches.together(&self.at).0,
        };
        PortableView { only: self.only(), bounds }
    }

    /// Where it is from, if from one state alone.
    pub(crate) fn only(&self) -> Option<Label> {
        if let [at] = &self.at[..] { Some(*at) } else { None }
    }

    /// What an ancestor sees, and what this state sees besides, if that is little.
    pub(crate) fn by_ancestor(&self) -> Option<(View<'d>, &'d [(u64, u64)])> {
        let (None, [at]) = (&self.gathered, &self.at[..]) else { return None };
        let (ancestor, extra_bounds) = self.branches.ancestor_of(*at)?;
        Some((View::new(self.branches, smallvec![*ancestor]), extra_bounds))
    }

    /// How many bounds [`View::bounds`] gives.
    pub(crate) fn width(&self) -> usize {
        match &self.gathered {
            Some(bounds) => bounds.0.len(),
            None => self.at.iter().map(|at| self.branches.width(*at)).sum(),
        }
    }

    /// Branches with how far up they are seen; one may come several times, then the greatest counts.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = (u64, u64)> {
        let (gathered, labels) = match &self.gathered {
            Some(bounds) => (&bounds.0[..], &[][..]),
            None => (&[][..], &self.at[..]),
        };
        let labels = labels.iter().flat_map(|at| self.branches.bounds(*at));
        gathered.iter().copied().chain(labels)
    }

    /// The bounds in the order of branches, where they are one list: of one state those of other branches than its own.
    pub(crate) fn in_order(&self) -> Option<&[(u64, u64)]> {
        match (&self.gathered, &self.at[..]) {
            (Some(bounds), _) => Some(&bounds.0),
            (None, [_]) => Some(self.base),
            _ => None,
        }
    }

    /// No branch that began after this one is seen.
    pub(crate) fn last_branch(&self) -> u64 {
        let last = |bounds: &[(u64, u64)]| bounds.last().map_or(0, |(branch, _)| *branch);
        match (&self.gathered, &self.at[..]) {
            (Some(bounds), _) => last(&bounds.0),
            (None, [at]) => at.branch.max(last(self.base)),
            (None, at) => at.iter().map(|at| at.branch.max(last(self.branches.base(*at)))).max().unwrap_or(0),
        }
    }

    /// Counts work that this view was used for.
    pub(crate) fn meter(&self) -> &Meter {
        &self.branches.meter
    }

    /// How far up a branch is seen, if at all.
    pub(crate) fn bound(&self, branch: u64) -> Option<u64> {
        match &self.gathered {
            Some(bounds) => bounds.bound(branch),
            None => {
                let (first, others) = self.at.split_first()?;
                let first = bound_of(*first, self.base, branch);
                first.max(others.iter().filter_map(|at| self.branches.bound(*at, branch)).max())
            }
        }
    }

    /// True when what has this label is visible.
    pub fn shows(&self, label: Label) -> bool {
        self.bound(label.branch).is_some_and(|bound| label.sequence <= bound)
    }
}
