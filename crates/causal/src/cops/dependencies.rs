//! What a write depends on, and the context of a client, which collects that (COPS, sections 4.2 and 4.3).

use super::Entries;
use std::collections::{BTreeMap, VecDeque};
use types::{RegionId, Timestamp, Wire, wire_struct};

/// Versions that something depends on. The paper lists a key and its version for each. Here a partition's versions of one region
/// are written in order everywhere, so that the latest one of each partition and region stands for all before it: a set has at
/// most as many entries as there are partitions, times regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies(BTreeMap<(u16, RegionId), Timestamp>);
wire_struct!(Dependencies(0));

impl Dependencies {
    /// One version.
    pub fn on(partition: u16, region: RegionId, at: Timestamp) -> Self {
        Dependencies(BTreeMap::from([((partition, region), at)]))
    }

    /// Adds a version.
    pub fn add(&mut self, partition: u16, region: RegionId, at: Timestamp) {
        let known = self.0.entry((partition, region)).or_default();
        *known = at.max(*known);
    }

    /// Adds all of another set.
    pub fn join(&mut self, other: &Dependencies) {
        other.iter().for_each(|(partition, region, at)| self.add(partition, region, at));
    }

    /// Every region has written the versions of a partition up to here: nobody need depend on them (section 5.1, never-depend).
    pub fn forget(&mut self, partition: u16, up_to: Timestamp) {
        self.0.retain(|(of, _), at| *of != partition || *at > up_to);
    }

    /// What of this set the other one lacks.
    pub fn beyond(&self, other: &Dependencies) -> Dependencies {
        let known = |place: &(u16, RegionId)| other.0.get(place).copied().unwrap_or_default();
        let lacks = self.0.iter().filter(|(place, at)| **at > known(place));
        Dependencies(lacks.map(|(place, at)| (*place, *at)).collect())
    }

    /// Each partition, region and version.
    pub fn iter(&self) -> impl Iterator<Item = (u16, RegionId, Timestamp)> + '_ {
        self.0.iter().map(|((partition, region), at)| (*partition, *region, *at))
    }

    /// The versions of a partition, region by region.
    pub fn of(&self, partition: u16) -> impl Iterator<Item = (RegionId, Timestamp)> + '_ {
        let all = (partition, RegionId(0))..=(partition, RegionId(u16::MAX));
        self.0.range(all).map(|((_, region), at)| (*region, *at))
    }

    /// The greatest Lamport time among them.
    pub fn latest(&self) -> Timestamp {
        self.0.values().copied().max().unwrap_or_default()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A causal thread of execution (section 4.3): what a session has read and written, and what that depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    nearest: Dependencies,
    /// In COPS-GT: the nearest ones, and everything that these depend on.
    all: Dependencies,
    /// The greatest Lamport time that it has met.
    latest: Timestamp,
}
wire_struct!(Context { nearest, all, latest });

impl Context {
    /// What the next write must be checked for.
    pub fn nearest(&self) -> &Dependencies {
        &self.nearest
    }

    /// In COPS-GT everything that the next write depends on.
    pub fn all(&self) -> &Dependencies {
        &self.all
    }

    /// Something was read; in COPS-GT with `dependencies`, everything that it depends on. It is nearer than these.
    pub fn got(&mut self, seen: &Dependencies, dependencies: &Dependencies, transactions: bool) {
        self.nearest.join(seen);
        self.latest = self.latest.max(seen.latest());
        if transactions {
            self.all.join(seen);
            self.all.join(dependencies);
        }
    }

    /// Something was written, which depends on everything before it and so is nearer.
    pub fn put(&mut self, written: &Dependencies, dependencies: &Dependencies, transactions: bool) {
        self.nearest = Dependencies::default();
        self.got(written, dependencies, transactions);
    }

    /// Another thread's context, which this one goes on from as well.
    pub fn join(&mut self, other: &Context) {
        self.nearest.join(&other.nearest);
        self.all.join(&other.all);
        self.latest = self.latest.max(other.latest);
    }

    /// Every region has written the versions of a partition up to here: they are no dependencies, but what is written after they
    /// were read is later all the same.
    pub fn forget(&mut self, partition: u16, up_to: Timestamp) {
        self.nearest.forget(partition, up_to);
        self.all.forget(partition, up_to);
        self.latest = self.latest.max(up_to);
    }

    /// At least the Lamport time of everything that it has seen.
    pub fn latest(&self) -> Timestamp {
        self.latest
    }
}

/// True if a partition that has written so much has written these versions.
pub(super) fn covers(written: &Entries, mut versions: impl Iterator<Item = (RegionId, Timestamp)>) -> bool {
    versions.all(|(region, at)| written.of(region) >= at)
}

/// What the versions of one region's stream depend on, all before them included, as far as somebody may lack them: the
/// `deps` that COPS-GT keeps with versions (section 4.2). Each version stores only the dependencies that it adds.
#[derive(Clone, Debug, Default)]
pub(super) struct RetainedDependencies {
    /// By partition and region: from each place on, the latest version that is depended on. Both rise.
    from: BTreeMap<List, VecDeque<(Timestamp, Timestamp)>>,
}

/// The versions of a partition from a region.
pub(super) type List = (u16, RegionId);

impl RetainedDependencies {
    /// What the version here, and all before it, depend on.
    pub(super) fn of(&self, at: Timestamp) -> Dependencies {
        let of_list = |(list, from): (&List, &VecDeque<_>)| {
            let before = from.partition_point(|(place, _)| *place <= at).checked_sub(1)?;
            from.get(before).map(|(_, on): &(Timestamp, Timestamp)| (*list, *on))
        };
        Dependencies(self.from.iter().filter_map(of_list).collect())
    }

    /// Notes what the next version adds. Returns the dependencies that the ones before it do not have.
    pub(super) fn add(&mut self, at: Timestamp, dependencies: &Dependencies) -> Dependencies {
        let new = dependencies.beyond(&self.of(Timestamp::MAX));
        self.learn(at, &new);
        new
    }

    /// Notes what versions from here on depend on, perhaps not for the first time.
    pub(super) fn learn(&mut self, at: Timestamp, dependencies: &Dependencies) {
        for (partition, region, on) in dependencies.iter() {
            let from = self.from.entry((partition, region)).or_default();
            let next = from.partition_point(|(place, _)| *place < at);
            let is_known = |(place, known): &(Timestamp, Timestamp)| *place <= at && *known >= on;
            let before = next.checked_sub(1).and_then(|before| from.get(before));
            if before.is_some_and(is_known) || from.get(next).is_some_and(is_known) {
                continue;
            }
            while from.get(next).is_some_and(|(_, later)| *later <= on) {
                from.remove(next);
            }
            from.insert(next, (at, on));
        }
    }

    /// Every region has written the versions up to here, and so everything that these depend on.
    pub(super) fn forget(&mut self, up_to: Timestamp) {
        self.from.retain(|_, from| {
            from.drain(..from.partition_point(|(place, _)| *place <= up_to));
            !from.is_empty()
        });
    }

    /// Each place from which on a version is depended on, list by list: of the first one those after a place.
    pub(super) fn after(
        &self,
        (first, after): (List, Timestamp),
    ) -> impl Iterator<Item = (List, Timestamp, Timestamp)> + '_ {
        self.from.range(first..).flat_map(move |(list, from)| {
            let first_later =
                if *list == first { from.partition_point(|(place, _)| *place <= after) } else { 0 };
            from.range(first_later..).map(|(place, on)| (*list, *place, *on))
        })
    }
}

/// A context as a client gets it.
pub(super) fn tell(context: &Context) -> Vec<u8> {
    let mut encoded = vec![VERSION];
    context.encode(&mut encoded);
    encoded
}

/// The context that this tells.
pub(super) fn read(encoded: &[u8]) -> Option<Context> {
    let mut input = types::Reader::new(encoded.strip_prefix(&[VERSION])?);
    Context::decode(&mut input).ok().filter(|_| input.is_empty())
}

/// The form of tokens.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: RegionId = RegionId(0);

    fn on(partition: u16, at: u64) -> Dependencies {
        Dependencies::on(partition, HERE, Timestamp(at))
    }

    fn none() -> Dependencies {
        Dependencies::default()
    }

    fn partitions(dependencies: &Dependencies) -> Vec<(u16, u64)> {
        dependencies.iter().map(|(partition, _, at)| (partition, at.0)).collect()
    }

    /// Figure 6, each key on a partition of its own: t2 and v6 were read, and v6 depends on t2 and u1; then z4 is written. Only
    /// v6 is checked; COPS-GT retains all of them.
    #[test]
    fn figure_6_what_is_written_is_nearer_than_all_before_it() {
        let (t, u, v, z) = (1, 2, 3, 4);
        let mut context = Context::default();
        context.got(&on(t, 2), &none(), true);
        context.got(&on(u, 1), &none(), true);
        assert_eq!(partitions(context.nearest()), [(t, 2), (u, 1)]);
        context.put(&on(v, 6), &none(), true);
        assert_eq!(partitions(context.nearest()), [(v, 6)], "v6 depends on t2 and u1");
        assert_eq!(partitions(context.all()), [(t, 2), (u, 1), (v, 6)]);
        context.put(&on(z, 4), &none(), true);
        assert_eq!(partitions(context.nearest()), [(z, 4)]);
        assert_eq!(partitions(context.all()), [(t, 2), (u, 1), (v, 6), (z, 4)]);
    }

    /// Section 4.3: COPS does not even retrieve what a value depends on.
    #[test]
    fn cops_keeps_nearest_dependencies_only() {
        let mut context = Context::default();
        context.got(&on(1, 2), &on(9, 1), false);
        assert!(context.all().is_empty());
        context.got(&on(1, 5), &none(), false);
        context.got(&on(2, 3), &none(), false);
        assert_eq!(partitions(context.nearest()), [(1, 5), (2, 3)]);
    }

    /// Section 5.1: what every region has written is no dependency any more.
    #[test]
    fn what_every_region_has_written_is_forgotten() {
        let mut context = Context::default();
        context.got(&on(1, 5), &on(2, 4), true);
        context.forget(1, Timestamp(4));
        assert_eq!(partitions(context.nearest()), [(1, 5)]);
        context.forget(1, Timestamp(5));
        assert!(context.nearest().is_empty());
        assert_eq!(partitions(context.all()), [(2, 4)]);
    }

    #[test]
    fn causes_add_up_along_a_stream() {
        let mut dependencies = RetainedDependencies::default();
        assert_eq!(dependencies.add(Timestamp(3), &on(1, 2)), on(1, 2));
        assert_eq!(dependencies.add(Timestamp(5), &on(1, 1)), none(), "the version before depends on more");
        assert_eq!(dependencies.add(Timestamp(7), &on(2, 6)), on(2, 6));
        assert_eq!(dependencies.of(Timestamp(2)), none());
        assert_eq!(dependencies.of(Timestamp(6)), on(1, 2));
        assert_eq!(partitions(&dependencies.of(Timestamp(7))), [(1, 2), (2, 6)]);
        dependencies.forget(Timestamp(7));
        assert_eq!(dependencies.of(Timestamp(9)), none());
    }

    /// What a checkpoint and givers tell comes in any order, and more than once.
    #[test]
    fn causes_are_learned_in_any_order() {
        let mut dependencies = RetainedDependencies::default();
        for (at, version) in [(9, 6), (3, 2), (5, 4), (3, 2), (7, 4), (4, 1), (8, 7)] {
            dependencies.learn(Timestamp(at), &on(1, version));
        }
        let all: Vec<_> =
            dependencies.after(((0, HERE), Timestamp(0))).map(|(_, at, on)| (at.0, on.0)).collect();
        assert_eq!(all, [(3, 2), (5, 4), (8, 7)]);
        assert_eq!(dependencies.of(Timestamp(9)), on(1, 7));
        let rest: Vec<_> = dependencies.after(((1, HERE), Timestamp(5))).map(|(_, at, _)| at.0).collect();
        assert_eq!(rest, [8]);
    }

    #[test]
    fn a_context_survives_its_token() {
        let mut context = Context::default();
        context.got(&on(1, 5), &on(2, 4), true);
        assert_eq!(read(&tell(&context)), Some(context));
        assert_eq!(read(b"\x02"), None);
    }
}
