//! Where the leader of a group is, as far as anybody here knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{Address, Incarnation, Instant};

/// The route leaves a member that has not answered for so long.
const PATIENCE: Duration = Duration::from_millis(300);

/// The groups of a deployment: the address of each, which is that of its first member, with its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Arc<BTreeMap<Address, Vec<Address>>>);

impl Groups {
    /// These groups, each by its members. What has no group is spoken to directly.
    pub fn new(groups: impl IntoIterator<Item = Vec<Address>>) -> Self {
        let named = |members: Vec<Address>| Some((*members.first()?, members));
        Groups(Arc::new(groups.into_iter().filter_map(named).collect()))
    }

    /// The members of a group, by its address.
    pub fn members(&self, group: Address) -> &[Address] {
        self.0.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The group of a member, and its number in it.
    pub fn find(&self, member: Address) -> Option<(Address, usize)> {
        let mut groups = self.0.iter();
        groups.find_map(|(group, members)| Some((*group, members.iter().position(|m| *m == member)?)))
    }
}

/// What is believed about one group.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    member: usize,
    /// The life in which the group spoke last.
    life: Incarnation,
    /// Since when it has been spoken to in vain.
    unanswered_since: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Routes {
    groups: Groups,
    present: BTreeMap<Address, Route>,
}

impl Routes {
    pub(super) fn new(groups: Groups) -> Self {
        Routes { groups, present: BTreeMap::new() }
    }

    /// Where to send what is for this address.
    pub(super) fn way_to(&mut self, to: Address, now: Instant) -> Address {
        let members = self.groups.members(to);
        if members.is_empty() {
            return to;
        }
        let route = self.present.entry(to).or_default();
        match route.unanswered_since {
            Some(unanswered_since) if now - unanswered_since >= PATIENCE => {
                route.member = (route.member + 1) % members.len();
                route.unanswered_since = Some(now);
            }
            Some(_) => {}
            None => route.unanswered_since = Some(now),
        }
        members[route.member]
    }

    /// A group's leader spoke.
    pub(super) fn heard(&mut self, group: Address, life: Incarnation, by: Address) {
        let members = self.groups.members(group);
        let Some(member) = members.iter().position(|member| *member == by) else { return };
        let route = self.present.entry(group).or_default();
        if life >= route.life {
            *route = Route { member, life, unanswered_since: None };
        }
    }

    /// A member says that another one leads, or that it does not know who does.
    pub(super) fn refused(&mut self, group: Address, leader: Option<usize>, by: Address) {
        let members = self.groups.members(group);
        let route = self.present.entry(group).or_default();
        if members.get(route.member) == Some(&by) {
            let next = leader.filter(|leader| members.get(*leader).is_some_and(|member| *member != by));
            route.member = next.unwrap_or((route.member + 1) % members.len());
            route.unanswered_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{KeyspaceId, PartitionId, ProcessId, Slot};

    fn member(process: u16) -> Address {
        Address { process: ProcessId(process), slot: Slot::replica(KeyspaceId(1), PartitionId(0)) }
    }

    #[test]
    fn a_silent_member_is_left_for_the_next_and_an_earlier_leader_is_not_believed() {
        let mut routes = Routes::new(Groups::new([vec![member(1), member(2), member(3)]]));
        assert_eq!(routes.way_to(member(9), Instant(0)), member(9), "it is in no group");
        assert_eq!(routes.way_to(member(1), Instant(0)), member(1));
        assert_eq!(routes.way_to(member(1), Instant(299_000)), member(1));
        assert_eq!(routes.way_to(member(1), Instant(300_000)), member(2));
        routes.heard(member(1), Incarnation(4), member(3));
        routes.heard(member(1), Incarnation(3), member(2));
        assert_eq!(routes.way_to(member(1), Instant(900_000)), member(3));
        routes.refused(member(1), Some(1), member(1));
        assert_eq!(routes.way_to(member(1), Instant(900_000)), member(3), "another one was asked");
        routes.refused(member(1), Some(1), member(3));
        assert_eq!(routes.way_to(member(1), Instant(900_000)), member(2));
        routes.refused(member(1), None, member(2));
        assert_eq!(routes.way_to(member(1), Instant(900_000)), member(3));
    }
}
