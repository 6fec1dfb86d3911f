//! Temporary.
extern crate anabranch_checker as checker;
#[path = "../../simulator/tests/cops.rs"]
mod cops;
#[path = "../../simulator/tests/mistakes/mod.rs"]
mod mistakes;
#[path = "../../simulator/tests/support/mod.rs"]
mod support;

#[test]
fn cops_cd_many() {
    support::assert_keeps_its_promise("cops-cd", &support::many());
}

#[test]
fn cops_many() {
    support::assert_keeps_its_promise("cops", &support::many());
    support::assert_keeps_its_promise("cops-gt", &support::many());
}
