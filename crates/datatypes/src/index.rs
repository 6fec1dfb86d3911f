//! Redis's indexes: negative ones count from the end, and ranges include their stop.

/// The position that `index` means among `len` elements, if there is one.
pub(crate) fn resolve_index(index: i64, len: usize) -> Option<usize> {
    let position = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
    usize::try_from(position).ok().filter(|position| *position < len)
}

/// The first position and the number of elements that `start` to `stop` mean among `len` elements.
pub(crate) fn resolve_range(start: i64, stop: i64, len: usize) -> (usize, usize) {
    let resolve = |index: i64| {
        let resolved = if index < 0 { index.saturating_add_unsigned(len as u64) } else { index };
        resolved.min(len as i64)
    };
    let start = resolve(start).max(0);
    let end = resolve(stop).saturating_add(1).min(len as i64);
    if start < end { (start as usize, (end - start) as usize) } else { (0, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_their_stop_and_are_clamped() {
        assert_eq!(resolve_range(0, -1, 5), (0, 5));
        assert_eq!(resolve_range(-100, 1, 5), (0, 2));
        assert_eq!(resolve_range(2, 100, 5), (2, 3));
        assert_eq!(resolve_range(3, 2, 5), (0, 0));
        assert_eq!(resolve_range(5, 9, 5), (0, 0));
        assert_eq!(resolve_range(i64::MIN, i64::MAX, 5), (0, 5));
        assert_eq!(resolve_range(0, i64::MIN, 5), (0, 0));
        assert_eq!(resolve_range(0, -1, 0), (0, 0));
    }

    #[test]
    fn indexes_outside_mean_nothing() {
        assert_eq!(resolve_index(-1, 3), Some(2));
        assert_eq!(resolve_index(-4, 3), None);
        assert_eq!(resolve_index(3, 3), None);
        assert_eq!(resolve_index(i64::MIN, 3), None);
    }
}
