use crate::group::Group;
use anabranch_replication::{Mutant, Mutants};

fn text(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

#[test]
fn entries_are_applied_everywhere_and_survive_a_restart_of_all() {
    let mut group = Group::new(3, Mutants::NONE);
    let leader = group.elect();
    (0..20).for_each(|number| group.propose(leader, &text(number)));
    group.pass(4);
    let applied = group.members[leader].applied.clone();
    assert_eq!(applied.0.len(), 20);
    (0..3).for_each(|me| group.restart(me, true));
    group.elect();
    group.pass(4);
    assert!(group.members.iter().all(|member| member.applied == applied));
}

#[test]
fn entries_of_one_step_are_one_message_to_each_member() {
    let mut group = Group::new(3, Mutants::NONE);
    let leader = group.elect();
    group.pass(4);
    let small: Vec<Vec<u8>> = (0..50).map(text).collect();
    assert_eq!(group.propose_together(leader, &small), 2);
    let large = vec![vec![7; 100 << 10]; 5];
    assert_eq!(group.propose_together(leader, &large), 6, "of 256 KiB at most");
    group.pass(4);
    let all: Vec<Vec<u8>> = small.into_iter().chain(large).collect();
    for member in &group.members {
        assert!(member.applied.0.values().eq(&all), "in their order");
    }
}

#[test]
fn reads_of_one_step_are_one_question() {
    let mut group = Group::new(3, Mutants::NONE);
    let leader = group.elect();
    group.pass(4);
    assert_eq!(group.confirm_together(leader, &[3, 4, 5]), 2);
    assert_eq!(group.members[leader].confirmed, [3, 4, 5]);
    // One that is cut off does not know whether it leads.
    group.cut.insert(leader);
    group.confirm_together(leader, &[6, 7]);
    group.elect();
    group.cut.clear();
    group.pass(20);
    assert_eq!(group.members[leader].confirmed, [3, 4, 5]);
}

/// Each member's term says whether somebody else stood for election.
fn terms(group: &Group) -> Vec<u64> {
    group.members.iter().map(|member| member.log.term()).collect()
}

#[test]
fn leader_queries_are_answered_without_the_disk() {
    let mut group = Group::new(3, Mutants::NONE);
    let leader = group.elect();
    group.pass(4);
    let before = terms(&group);
    group.slow.extend([0, 1, 2]);
    group.propose(leader, b"entry");
    group.pass(200);
    assert_eq!(terms(&group), before, "a slow disk is no lost leader");
    group.confirm_together(leader, &[5]);
    assert_eq!(group.members[leader].confirmed, [5]);
    assert!(group.members.iter().all(|member| member.applied.0.is_empty()), "no entry left its disk");
    group.catch_up();
    group.pass(4);
    assert!(group.members.iter().all(|member| member.applied.0.len() == 1));
}

#[test]
fn committed_entries_are_announced_again() {
    let mut group = Group::new(3, Mutants::NONE);
    let leader = group.elect();
    group.pass(4);
    group.propose_silently(leader, b"entry");
    let applied = |group: &Group| group.members.iter().filter(|member| member.applied.0.len() == 1).count();
    assert_eq!(applied(&group), 1, "the leader");
    group.pass(4);
    assert_eq!(applied(&group), 3);
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_and_applies_nothing_more() {
    let mut group = Group::new(3, Mutants::NONE);
    let old = group.elect();
    group.propose(old, b"before");
    group.cut.insert(old);
    group.propose(old, b"lost");
    let new = group.elect();
    assert_ne!(new, old);
    group.propose(new, b"after");
    assert_eq!(group.members[old].applied.0.len(), 1);
    group.cut.clear();
    group.pass(10);
    assert_eq!(group.members[old].applied, group.members[new].applied);
    assert!(!group.members[new].applied.0.values().any(|entry| entry == b"lost"));
}

/// An entry is committed by the leader and one follower, which then loses it with the power. Leader cut off, the other
/// two may elect nobody: the one that lacks the entry always has, and the one that had it has forgotten.
fn lose_an_acknowledged_entry(mutants: Mutants) -> (Group, usize) {
    let mut group = Group::new(3, mutants);
    let leader = group.elect();
    group.pass(4);
    let (behind, forgetful) = ((leader + 1) % 3, (leader + 2) % 3);
    group.cut.insert(behind);
    group.propose(leader, b"acknowledged");
    assert!(!group.members[leader].applied.0.is_empty());
    group.cut = [leader].into();
    group.restart(forgetful, false);
    group.pass(100);
    (group, leader)
}

#[test]
fn a_member_that_forgot_an_acknowledged_entry_elects_nobody_without_it() {
    let (mut group, leader) = lose_an_acknowledged_entry(Mutants::NONE);
    assert_eq!(group.leader(), None);
    // The one that has the entry is back: all three get on with it.
    group.cut.clear();
    let now = group.elect();
    group.propose(now, b"after");
    group.pass(20);
    assert!(group.members.iter().all(|member| member.applied == group.members[leader].applied));
    assert!(group.members.iter().all(|member| member.applied.0.values().any(|e| e == b"acknowledged")));
    assert!(group.members.iter().all(|member| !member.log.is_forgetful()));
}

#[test]
fn a_vote_with_amnesia_loses_the_entry() {
    let (group, _) = lose_an_acknowledged_entry(Mutant::TrustMemory.into());
    let leader = group.leader().expect("the mutant votes");
    assert!(!group.members[leader].applied.0.values().any(|entry| entry == b"acknowledged"));
}

#[test]
fn a_member_that_lags_behind_the_oldest_entry_takes_the_state_over() {
    let mut group = Group::new(3, Mutants::NONE);
    let leader = group.elect();
    let behind = (leader + 1) % 3;
    group.cut.insert(behind);
    (0..6000).for_each(|number| group.propose(leader, &text(number)));
    group.cut.clear();
    let mut patience = 4000;
    while group.members[behind].applied != group.members[leader].applied && patience > 0 {
        group.pass(1);
        patience -= 1;
    }
    assert_eq!(group.members[behind].applied, group.members[leader].applied);
    group.restart(behind, true);
    group.pass(20);
    assert_eq!(group.members[behind].applied, group.members[leader].applied, "and keeps it");
}
