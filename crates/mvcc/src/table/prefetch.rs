//! Hints to the processor's cache. They change no result, only when memory arrives.

/// The bytes of a cache line on the machines this is tuned for.
pub(super) const CACHE_LINE_BYTES: usize = 64;

/// Asks for the cache line at `address`, which need not be valid. Does nothing where no hint is known.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction neither faults nor changes memory, whatever its address is.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction neither faults nor changes memory or flags, whatever its address is.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// The most cache lines of a value that are prefetched.
const MOST_LINES: usize = 4;

/// Asks for the first cache lines of `bytes`.
#[inline(always)]
pub(crate) fn prefetch_bytes(bytes: &[u8]) {
    let lines = (0..bytes.len().min(2 * CACHE_LINE_BYTES)).step_by(CACHE_LINE_BYTES);
    lines.for_each(|offset| prefetch(bytes.as_ptr().wrapping_add(offset)));
}

/// Asks for the cache lines of `value`, the first few if there are more.
#[inline(always)]
pub(crate) fn prefetch_value<T>(value: &T) {
    let start: *const u8 = std::ptr::from_ref(value).cast();
    let size = size_of::<T>().min(MOST_LINES * CACHE_LINE_BYTES);
    (0..size).step_by(CACHE_LINE_BYTES).for_each(|offset| prefetch(start.wrapping_add(offset)));
    // A value need not begin with a line.
    prefetch(start.wrapping_add(size.saturating_sub(1)));
}
