//! The shape of a region's stabilization tree: the places 0, 1, 2 and so on of the partitions that the region holds, in
//! the order of a heap in which each has so many children. Everybody finds the same tree without a word.

use std::ops::Range;

/// The parent of a place in the tree; none for the root.
pub(super) fn parent(place: usize, fan_out: u16) -> Option<usize> {
    Some(place.checked_sub(1)? / width(fan_out))
}

/// Who reports to the one at this place, as far as there are so many.
pub(super) fn children(place: usize, fan_out: u16) -> Range<usize> {
    let first = place * width(fan_out) + 1;
    first..first + width(fan_out)
}

fn width(fan_out: u16) -> usize {
    usize::from(fan_out.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_but_the_root_is_below_exactly_one() {
        for fan_out in [1, 2, 3, 8] {
            for place in 1..100 {
                let parents: Vec<usize> =
                    (0..100).filter(|above| children(*above, fan_out).contains(&place)).collect();
                assert_eq!(parents, [parent(place, fan_out).unwrap()]);
            }
            assert_eq!(parent(0, fan_out), None);
        }
    }

    #[test]
    fn small_keyspaces_have_no_inner_place() {
        assert!((1..=8).all(|place| parent(place, 8) == Some(0)));
        assert_eq!(parent(9, 8), Some(1));
    }

    #[test]
    fn a_fan_out_of_nothing_is_a_chain() {
        assert_eq!((children(2, 0), parent(3, 0)), (3..4, Some(2)));
    }
}
