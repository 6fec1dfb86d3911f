//! The stack that a script runs on.
//!
//! A script waits in the middle of a function call: for the reply to `redis.call`, or for others to have their turn. Lua 5.1
//! suspends a coroutine only where no function of C stands between: not inside `pcall`, a metamethod, or a function that
//! `table.sort` calls. So each script has a stack of its own, which is left as it is, functions of C and all.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use gateway::Event;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use types::ReplyBuf;

/// How large a stack is, in bytes; what is never used takes no memory. Lua nests at most 200 calls of C, and the recursion of
/// the libraries is bounded.
pub(super) const STACK: usize = 8 << 20;

/// A script on its stack.
pub(super) type Fiber = Coroutine<Order, Event, Event>;

/// What a script gets when it goes on.
#[derive(Debug)]
pub(super) enum Order {
    /// The reply to the command that it called; `None` at first, and after a pause.
    GoOn(Option<ReplyBuf>),
    /// To end: nobody needs it any more.
    Stop,
}

/// A stack.
pub(super) fn stack() -> std::io::Result<DefaultStack> {
    DefaultStack::new(STACK)
}

/// The way back from a script's stack to whoever lets the script go on.
#[derive(Default)]
pub(super) struct Switch(Cell<Option<NonNull<Yielder<Order, Event>>>>);

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Switch").field(&self.0.get().is_some()).finish()
    }
}

impl Switch {
    /// Does what may suspend itself.
    pub fn within<R>(&self, yielder: &Yielder<Order, Event>, work: impl FnOnce() -> R) -> R {
        struct Closes<'s>(&'s Switch);
        impl Drop for Closes<'_> {
            fn drop(&mut self) {
                self.0.0.set(None);
            }
        }
        self.0.set(Some(NonNull::from(yielder)));
        let _closes = Closes(self);
        work()
    }

    /// Suspends the script that runs; `None` if none does.
    pub fn suspend(&self, event: Event) -> Option<Order> {
        let yielder = self.0.take()?;
        // SAFETY: `within` keeps the pointer only while the reference that it was made of is borrowed; and it is taken here
        // while the script is suspended, so only the script itself reaches it, on its own stack.
        let order = unsafe { yielder.as_ref() }.suspend(event);
        self.0.set(Some(yielder));
        Some(order)
    }
}
