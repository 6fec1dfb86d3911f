//! The exports of a module. [`export`](crate::export) writes them.

use crate::{UserType, serve};
use alloc::vec::Vec;

/// Memory for a question of `len` bytes. A module serves one question and is thrown away, so nothing is freed.
pub fn allocate(len: u32) -> *mut u8 {
    Vec::<u8>::with_capacity(len as usize).leak().as_mut_ptr()
}

/// Answers the question in these `len` bytes: place and length of the answer, in the high and the low half.
///
/// # Safety
/// `place` came from [`allocate`] with this length, and was written to.
pub unsafe fn call<T: UserType>(entry: u32, place: *const u8, len: u32) -> u64 {
    // SAFETY: the caller vouches for the bytes; nobody else has them.
    let input = unsafe { core::slice::from_raw_parts(place, len as usize) };
    match serve::<T>(entry, input) {
        Some(answer) => {
            let answer = answer.leak();
            (answer.as_ptr() as u64) << 32 | answer.len() as u64
        }
        // Traps: the server tells its user.
        None => core::arch::wasm32::unreachable(),
    }
}
