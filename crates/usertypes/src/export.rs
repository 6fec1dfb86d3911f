//! What a module of its own exports: it runs in a server's sandbox, and never in the server.

/// Makes the crate a module for servers: `export!(Auction);` once, in a crate of the kind `cdylib` that is built for
/// `wasm32-unknown-unknown`. On other targets it is nothing.
#[macro_export]
macro_rules! export {
    ($type:ty) => {
        #[cfg(target_arch = "wasm32")]
        #[unsafe(no_mangle)]
        extern "C" fn anabranch_allocate(len: u32) -> *mut u8 {
            $crate::guest::allocate(len)
        }

        #[cfg(target_arch = "wasm32")]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn anabranch_call(entry: u32, place: *const u8, len: u32) -> u64 {
            // SAFETY: a server passes what `anabranch_allocate` gave it.
            unsafe { $crate::guest::call::<$type>(entry, place, len) }
        }
    };
}
