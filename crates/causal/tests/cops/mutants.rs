//! The scripts notice the known bugs.

use super::conflicts::resolved;
use super::contexts::token_elsewhere;
use super::corrections::{clock_that_steps_back, concurrent_version, lost_answer, unknown_outcome};
use super::evict::{album_without_photo, commented_photo};
use super::replication::{comment_on_a_photo, photo_and_album};
use super::transactions::{acl_and_album, collected_meanwhile, far_dependency};
use super::values::list_in_order;
use anabranch_causal::cops::Mutant;

#[test]
fn writes_that_are_not_checked_are_shown_too_soon() {
    assert_eq!(photo_and_album(Some(Mutant::ChecksSkipped)), ("with-photo".into(), "(nil)".into()));
    assert_eq!(comment_on_a_photo(Some(Mutant::FlaggedTooSoon)), ("nice".into(), "(nil)".into()));
    assert_eq!(comment_on_a_photo(Some(Mutant::ReadsNotTracked)), ("nice".into(), "(nil)".into()));
}

#[test]
fn corrections_45_a_check_by_version_is_noticed() {
    assert_eq!(concurrent_version(Some(Mutant::CheckByVersion)), ("y1".into(), "(nil)".into()));
}

#[test]
fn corrections_46_a_transaction_that_reads_what_is_left_is_noticed() {
    assert_ne!(collected_meanwhile(Some(Mutant::ReadCollected), 150), ["x3", "y3"]);
    assert_eq!(acl_and_album(Some(Mutant::LeaseIgnored)), ["public", "personal"]);
    assert_eq!(far_dependency(Some(Mutant::NearestOnly)), ["x1", "z2"]);
    assert_eq!(acl_and_album(Some(Mutant::OneRound)), ["public", "personal"]);
}

#[test]
fn corrections_49_a_context_that_is_cleared_too_soon_is_noticed() {
    assert_eq!(unknown_outcome(Some(Mutant::ContextCleared)), "w");
    assert_ne!(lost_answer(Some(Mutant::WrittenTwice)), "1");
}

#[test]
fn a_context_that_is_not_waited_for_is_noticed() {
    assert_eq!(token_elsewhere(Some(Mutant::ContextIgnored), 300), ("OK".into(), "(nil)".into()));
}

#[test]
fn corrections_21_a_bound_that_is_forgotten_is_noticed() {
    assert_eq!(clock_that_steps_back(Some(Mutant::BoundNotRemembered)), "before");
}

#[test]
fn a_merge_without_what_it_merges_with_is_noticed() {
    assert_eq!(list_in_order(Some(Mutant::KeyNotObserved)), "\"second\"");
}

#[test]
fn corrections_50_a_write_that_replaces_one_version_only_is_noticed() {
    let (reply, values) = resolved(Some(Mutant::OnePrevious));
    assert!(reply.starts_with("-SIBLINGS") && values == 3, "{reply}");
}

#[test]
fn survivors_that_do_not_forward_or_keep_what_lacks_its_dependencies_are_noticed() {
    assert_eq!(commented_photo(Some(Mutant::NobodyForwards)), ("nice".into(), "(nil)".into()));
    assert_eq!(album_without_photo(Some(Mutant::OrphansKept)), ["with-photo-too", "(nil)"]);
}
