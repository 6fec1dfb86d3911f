//! Lists: differences to a common base, and the merge of two of them.
//!
//! What one side removed goes, what one side inserted stays; of two insertions at one place the older side's comes
//! first. An element that both sides replaced by the same one is replaced once. No insertion is lost.

use datatypes::collections::ChunkedList;
use std::collections::VecDeque;

/// More edits than these between base and side are not looked for.
const MOST_EDITS: usize = 1000;
/// To insert an element within a list takes as long as to push so many at its end.
const INSERTED: usize = 64;

/// The elements of a list but for some at both ends.
pub(super) fn middle(list: &ChunkedList, (front, back): (usize, usize)) -> Vec<&[u8]> {
    list.range(front, list.len() - front - back).collect()
}

/// How a list came from another one.
#[derive(Debug, PartialEq)]
pub(super) struct Edits<'l> {
    /// For every element of the base whether it is still there.
    pub unchanged: Vec<bool>,
    /// Before every element of the base, and at the end, what was inserted.
    pub inserted: Vec<Vec<&'l [u8]>>,
}

/// The fewest edits that make `side` of `base` (Myers, *An O(ND) Difference Algorithm*, section 4); `None` when they are
/// too many.
pub(super) fn edits<'l>(base: &[&[u8]], side: &[&'l [u8]]) -> Option<Edits<'l>> {
    let same = |a: &&[u8], b: &&[u8]| a == b;
    let prefix = base.iter().zip(side).take_while(|(a, b)| same(a, b)).count();
    let (rest, other) = (&base[prefix..], &side[prefix..]);
    let suffix = rest.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| same(a, b)).count();
    let (middle, changed) = (&rest[..rest.len() - suffix], &other[..other.len() - suffix]);
    let mut edits = Edits { unchanged: vec![true; base.len()], inserted: vec![Vec::new(); base.len() + 1] };
    let trace = forward(middle, changed)?;
    // Back along the path: from the ends to the beginnings.
    let (mut x, mut y) = (middle.len(), changed.len());
    for (depth, furthest) in trace.iter().enumerate().rev() {
        let k = x as isize - y as isize;
        let at = |k: isize| furthest.get((k + depth as isize) as usize).copied().unwrap_or(0);
        if depth == 0 {
            break;
        }
        let depth = depth as isize;
        let is_insertion = k == -depth || (k != depth && at(k - 1) < at(k + 1));
        if is_insertion {
            let before = at(k + 1);
            y = (before as isize - (k + 1)) as usize;
            x = before;
            edits.inserted[prefix + x].push(changed[y]);
        } else {
            x = at(k - 1);
            y = (x as isize - (k - 1)) as usize;
            edits.unchanged[prefix + x] = false;
        }
    }
    edits.inserted.iter_mut().for_each(|inserted| inserted.reverse());
    Some(edits)
}

/// For every number of edits, before it was made, how far each diagonal had come; the last one reaches the ends.
fn forward(base: &[&[u8]], side: &[&[u8]]) -> Option<Vec<Vec<usize>>> {
    let (n, m) = (base.len() as isize, side.len() as isize);
    let mut furthest: VecDeque<usize> = VecDeque::from([0, 0, 0]);
    let mut trace = Vec::new();
    for depth in 0..=(n + m).min(MOST_EDITS as isize) {
        // Diagonals -depth-1 ..= depth+1 of the step before.
        trace.push(furthest.iter().copied().skip(1).take(2 * depth as usize + 1).collect());
        let mut next: VecDeque<usize> = furthest.clone();
        for k in (-depth..=depth).step_by(2) {
            let at = |k: isize| furthest[(k + depth + 1) as usize];
            let mut x =
                if k == -depth || (k != depth && at(k - 1) < at(k + 1)) { at(k + 1) } else { at(k - 1) + 1 };
            if depth == 0 {
                x = 0;
            }
            while (x as isize) < n && (x as isize - k) < m && base[x] == side[(x as isize - k) as usize] {
                x += 1;
            }
            next[(k + depth + 1) as usize] = x;
            if x as isize >= n && x as isize - k >= m {
                return Some(trace);
            }
        }
        next.push_front(0);
        next.push_back(0);
        furthest = next;
    }
    None
}

/// What both sides make of `base` together; `None` when one of them differs too much. An absent list is an empty one.
pub(super) fn merge(
    base: Option<&ChunkedList>,
    left: Option<&ChunkedList>,
    right: Option<&ChunkedList>,
    left_is_newer: bool,
) -> Option<ChunkedList> {
    let none = ChunkedList::new();
    let [base, left, right] = [base, left, right].map(|list| list.unwrap_or(&none));
    // What all have in common at both ends stays; the sides share most of it with the base.
    let (ends, others) = (base.same_ends(left), base.same_ends(right));
    let (front, back) = (ends.0.min(others.0), ends.1.min(others.1));
    let [before, of_left, of_right] = [base, left, right].map(|list| middle(list, (front, back)));
    let merged = merge_slices(&before, &of_left, &of_right, left_is_newer)?;
    let (mut list, behind) = (base.clone(), base.len() - back);
    if merged.len() * INSERTED < back {
        list.remove_range(front, before.len());
        for element in merged.iter().rev() {
            list.insert(front, element);
        }
    } else {
        list.trim(0, front);
        merged.into_iter().chain(base.range(behind, back)).for_each(|element| list.push_back(element));
    }
    Some(list)
}

fn merge_slices<'l>(
    base: &[&'l [u8]],
    left: &[&'l [u8]],
    right: &[&'l [u8]],
    left_is_newer: bool,
) -> Option<Vec<&'l [u8]>> {
    let (left, right) = (edits(base, left)?, edits(base, right)?);
    let (older, newer) = if left_is_newer { (&right, &left) } else { (&left, &right) };
    let gone = |place: usize| !older.unchanged[place] && !newer.unchanged[place];
    let mut merged = Vec::new();
    for gap in 0..=base.len() {
        let (first, second) = (&older.inserted[gap], &newer.inserted[gap]);
        merged.extend(first);
        let is_replacement = (gap > 0 && gone(gap - 1)) || (gap < base.len() && gone(gap));
        if !(is_replacement && first == second) {
            merged.extend(second);
        }
        if gap < base.len() && older.unchanged[gap] && newer.unchanged[gap] {
            merged.push(base[gap]);
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&[u8]> {
        text.as_bytes().chunks(1).collect()
    }

    fn merged(base: &str, older: &str, newer: &str) -> String {
        let list = merge_slices(&split(base), &split(older), &split(newer), false).unwrap();
        String::from_utf8(list.concat()).unwrap()
    }

    #[test]
    fn both_sides_edits_stay() {
        assert_eq!(merged("abcd", "abcdx", "abcdy"), "abcdxy", "pushed at one end");
        assert_eq!(merged("abcd", "xabcd", "bcd"), "xbcd", "pushed and popped at one end");
        assert_eq!(merged("abcd", "cdx", "bcdy"), "cdxy", "a queue with two consumers");
        assert_eq!(merged("abc", "axc", "axc"), "axc", "replaced by the same");
        assert_eq!(merged("abc", "axc", "ayc"), "axyc", "replaced by others");
        assert_eq!(merged("a", "", "ab"), "b", "deleted, and pushed");
        assert_eq!(merged("", "a", "a"), "aa", "each pushed");
    }

    proptest! {
        #[test]
        fn edits_lead_from_the_base_to_the_side(base in "[abc]{0,12}", side in "[abc]{0,12}") {
            let (base, side) = (split(&base), split(&side));
            let found = edits(&base, &side).unwrap();
            let mut made = Vec::new();
            for gap in 0..=base.len() {
                made.extend(&found.inserted[gap]);
                if gap < base.len() && found.unchanged[gap] {
                    made.push(base[gap]);
                }
            }
            prop_assert_eq!(made, side);
        }

        /// Lists of several chunks, which the sides share with the base; with many elements behind, what is merged is inserted.
        #[test]
        fn what_is_common_at_the_ends_changes_nothing(
            elements in "[abc]{0,12}",
            changes in proptest::collection::vec((0..2usize, 0..14usize, "[abc]{0,1}"), 0..8),
            behind in proptest::sample::select(vec![0usize, 400]),
        ) {
            let long = |element: &str| element.repeat(3000).into_bytes();
            let mut base = ChunkedList::new();
            elements.chars().for_each(|element| base.push_back(&long(&element.to_string())));
            (0..behind).for_each(|_| base.push_back(b"d"));
            let mut sides = [base.clone(), base.clone()];
            for (side, at, element) in changes {
                match element.as_str() {
                    "" => sides[side].remove(at),
                    element => sides[side].insert(at, &long(element)),
                };
            }
            let [left, right] = &sides;
            let all = [&base, left, right].map(|list| list.iter().collect::<Vec<_>>());
            let whole = merge_slices(&all[0], &all[1], &all[2], true).unwrap();
            let merged = merge(Some(&base), Some(left), Some(right), true).unwrap();
            prop_assert!(merged.iter().eq(whole));
            let (front, back) = left.same_ends(right);
            let same = |a: &[u8], b: &[u8]| a == b;
            let fronts = left.iter().zip(right.iter()).take_while(|(a, b)| same(a, b)).count();
            let backs = left.iter().rev().zip(right.iter().rev()).take_while(|(a, b)| same(a, b)).count();
            prop_assert_eq!((front, back), (fronts, backs.min(left.len().min(right.len()) - fronts)));
            prop_assert_eq!(left == right, left.iter().eq(right.iter()));
        }

        #[test]
        fn a_side_that_did_nothing_takes_the_others(base in "[abc]{0,12}", side in "[abc]{0,12}") {
            prop_assert_eq!(merged(&base, &side, &base), side.clone());
            prop_assert_eq!(merged(&base, &base, &side), side);
        }
    }
}
