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

/// Asks for the first two cache lines of `value`, or the one or two it has.
#[inline(always)]
pub(super) fn prefetch_value<T>(value: &T) {
    let start: *const u8 = std::ptr::from_ref(value).cast();
    prefetch(start);
    let last = size_of::<T>().min(2 * CACHE_LINE_BYTES).saturating_sub(1);
    prefetch(start.wrapping_add(last));
}
