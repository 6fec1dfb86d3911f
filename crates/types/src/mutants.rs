//! Known bugs that tests build into a protocol, to see that its models, its scripts and the simulator catch them.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

/// The known bug of an instance, one of the enum `M`, or none. A crate documents each of its bugs as a variant, and asks
/// [`has`](Mutants::has) at the place where that rule would be left out or done wrong.
///
/// Bugs exist in builds with debug assertions only, which the profiles `dev` and `ci` have. In a release build a value of
/// this type has no size, `has` is false at compile time, and what hangs on it is compiled out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mutants<M> {
    #[cfg(debug_assertions)]
    bug: Option<M>,
    of: PhantomData<M>,
}

impl<M> Mutants<M> {
    /// No bug: the protocol as it is meant.
    pub const NONE: Self = Mutants {
        #[cfg(debug_assertions)]
        bug: None,
        of: PhantomData,
    };
}

impl<M: Copy + PartialEq> Mutants<M> {
    /// True if this bug is under test.
    #[cfg(debug_assertions)]
    #[inline]
    pub fn has(self, bug: M) -> bool {
        self.bug == Some(bug)
    }

    /// True if this bug is under test: never without debug assertions.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub fn has(self, _: M) -> bool {
        false
    }
}

impl<M> Default for Mutants<M> {
    fn default() -> Self {
        Mutants::NONE
    }
}

impl<M> From<M> for Mutants<M> {
    #[cfg(debug_assertions)]
    fn from(bug: M) -> Self {
        Mutants { bug: Some(bug), ..Mutants::NONE }
    }

    #[cfg(not(debug_assertions))]
    fn from(_: M) -> Self {
        Mutants::NONE
    }
}

/// The bug's name, which is what a test that did not catch it says.
impl<M: Debug> Debug for Mutants<M> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        #[cfg(debug_assertions)]
        if let Some(bug) = &self.bug {
            return bug.fmt(f);
        }
        f.write_str("no mutant")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Mutant {
        SkipValidation,
        ForgetRecovery,
    }

    #[cfg(debug_assertions)]
    #[test]
    fn one_bug_is_there_and_has_a_name() {
        let mutants = Mutants::from(Mutant::SkipValidation);
        assert!(mutants.has(Mutant::SkipValidation) && !mutants.has(Mutant::ForgetRecovery));
        assert_eq!(format!("{mutants:?}, {:?}", Mutants::<Mutant>::NONE), "SkipValidation, no mutant");
    }

    #[cfg(not(debug_assertions))]
    #[test]
    fn nothing_is_left_without_debug_assertions() {
        let mutants = Mutants::from(Mutant::SkipValidation);
        assert!(!mutants.has(Mutant::SkipValidation) && !mutants.has(Mutant::ForgetRecovery));
        assert_eq!(size_of_val(&mutants), 0);
    }
}
