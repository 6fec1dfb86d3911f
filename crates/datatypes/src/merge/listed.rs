//! Places of effects, by group: which of them somebody saw last, without a look at all.

use super::Origin;

/// Places, and by group. A reader that saw an effect of a group saw the earlier ones of that group.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) all: Vec<usize>,
    groups: Vec<InGroup>,
}

#[derive(Debug, Default)]
struct InGroup {
    places: Vec<usize>,
    /// By another group, then by place: how many effects of that group the effects up to this one saw at most.
    most: Vec<Vec<usize>>,
}

impl Listed {
    /// Adds a place of a group, behind all others.
    pub fn push(&mut self, group: usize, place: usize) {
        if self.all.last() == Some(&place) {
            return;
        }
        self.all.push(place);
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, InGroup::default);
        }
        self.groups[group].places.push(place);
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Finds out what each saw of the groups, at these places.
    pub fn relate<O: Origin>(&mut self, origins: &[O], groups: &[&[usize]]) {
        for list in &mut self.groups {
            for places in groups {
                let mut most = 0;
                let saw = |place: &usize| {
                    let seen = places
                        .partition_point(|other| other < place && origins[*place].observed(&origins[*other]));
                    most = seen.max(most);
                    most
                };
                list.most.push(list.places.iter().map(saw).collect());
            }
        }
    }

    /// How many of a group stand before a place and were seen; `seen` holds for a first part of them.
    pub fn seen_before(&self, group: usize, before: usize, seen: impl Fn(usize) -> bool) -> usize {
        let places = self.groups.get(group).map_or(&[][..], |list| &list.places);
        places.partition_point(|place| *place < before && seen(*place))
    }

    /// The last of so many of a group.
    pub fn last(&self, group: usize, count: usize) -> Option<usize> {
        self.groups.get(group)?.places.get(count.checked_sub(1)?).copied()
    }

    /// How many effects of another group the first few of a group saw at most.
    pub fn most_seen(&self, group: usize, count: usize, of: usize) -> usize {
        let most = || self.groups.get(group)?.most.get(of)?.get(count.checked_sub(1)?).copied();
        most().unwrap_or(0)
    }
}
