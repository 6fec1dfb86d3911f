//! Byte buffers that grow by the allocator's size classes, and what an allocation really takes.

/// The bytes that the allocator sets aside for a request of `size` bytes: mimalloc's size classes, which are
/// multiples of 16 up to 64, then four to each doubling, then whole slices of 64 KiB.
#[inline]
pub(super) fn allocated(size: usize) -> usize {
    match size {
        0 => 0,
        1..=8 => 8,
        9..=64 => size.next_multiple_of(16),
        65..=0x4_0000 => size.next_multiple_of(1 << ((size - 1).ilog2() - 2)),
        _ => size.next_multiple_of(0x1_0000),
    }
}

/// Makes room for `additional` bytes. The capacity follows the size classes, so it wastes at most a fifth and
/// still grows geometrically.
#[inline]
pub(super) fn reserve(buffer: &mut Vec<u8>, additional: usize) {
    let needed = buffer.len() + additional;
    if needed > buffer.capacity() {
        buffer.reserve_exact(allocated(needed + needed / 8) - buffer.len());
    }
}

/// Makes the `old` bytes at `at` into `new` bytes whose content the caller writes next, moving what follows.
/// Gives memory back when less than half of it is used.
pub(super) fn resize_gap(buffer: &mut Vec<u8>, at: usize, old: usize, new: usize) {
    let end = buffer.len();
    if new > old {
        reserve(buffer, new - old);
        buffer.resize(end + new - old, 0);
        buffer.copy_within(at + old..end, at + new);
    } else if new < old {
        buffer.copy_within(at + old..end, at + new);
        buffer.truncate(end - (old - new));
        if buffer.len() < buffer.capacity() / 2 {
            buffer.shrink_to(allocated(buffer.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_those_of_the_allocator() {
        let classes =
            [(0, 0), (1, 8), (9, 16), (17, 32), (64, 64), (65, 80), (128, 128), (129, 160), (8192, 8192)];
        for (size, class) in classes {
            assert_eq!(allocated(size), class, "size {size}");
        }
    }

    #[test]
    fn a_gap_moves_what_follows() {
        let mut buffer = b"abcdef".to_vec();
        resize_gap(&mut buffer, 2, 1, 3);
        buffer[2..5].copy_from_slice(b"XYZ");
        assert_eq!(buffer, b"abXYZdef");
        resize_gap(&mut buffer, 0, 5, 0);
        assert_eq!(buffer, b"def");
    }
}
