//! The check that a type must pass: what its specification says commutes does, in scenes drawn from a fixed seed.
//!
//! A *scene* is a state that the type's own operations built, and two or three *steps*, each an operation that was
//! evaluated on this state, or an effect that was chosen elsewhere and comes blindly. If the specification says that the
//! steps commute pairwise, then in every order each operation gives the reply that it gave, chooses an effect that does
//! the same, and all orders leave equal states (Corrections 60, 66: pairs are not enough). A scene that refutes this
//! is made smaller before it is shown.

mod draw;
mod scene;
mod show;

use crate::{Fault, Module};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use draw::Draw;
use scene::{Scene, Verdict, judge};

/// How many scenes are played with so many steps.
const SCENES: [(usize, usize); 2] = [(2, 400), (3, 200)];
const SEED: u64 = 0x00c1_a2e7;

/// What a check has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Scenes that were played.
    pub scenes: usize,
    /// Those in which all steps commuted, so that every order was played.
    pub commuting: usize,
}

/// Why a type is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A call failed.
    Fault {
        /// What was asked.
        what: String,
        /// What came of it.
        fault: Fault,
    },
    /// Nobody wanted to wait any longer.
    TooSlow {
        /// How many scenes were played.
        scenes: usize,
    },
    /// The specification says something that is not so: a sentence with an example.
    Wrong(String),
    /// The operation was refused in all scenes, or never had an effect, so that nothing is known of it.
    Untried {
        /// Its name.
        operation: String,
        /// True if it had replies, but no effects.
        without_effect: bool,
    },
}

impl core::fmt::Display for Unfit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Unfit::Fault { what, fault } => write!(f, "{what}: {fault}"),
            Unfit::Wrong(example) => write!(f, "{example}"),
            Unfit::TooSlow { scenes } => {
                write!(f, "its calls take too long to be checked: only {scenes} scenes were played in time")
            }
            Unfit::Untried { operation, without_effect: false } => write!(
                f,
                "operation '{operation}' was refused with whatever was tried; give its arguments examples that it accepts"
            ),
            Unfit::Untried { operation, without_effect: true } => write!(
                f,
                "operation '{operation}' never had an effect with whatever was tried; say that it only reads, or give its \
                 arguments examples"
            ),
        }
    }
}

/// Plays the scenes. The same module gives the same answer, always.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(module: &Module) -> Result<Report, Unfit> {
    check_until(module, &|| false)
}

/// The same, but refuses once `give_up` says so.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check_until(module: &Module, give_up: &dyn Fn() -> bool) -> Result<Report, Unfit> {
    let mut draw = Draw::new(SEED, module.spec());
    let mut report = Report::default();
    let mut tried = Tried::new(module);
    for (steps, count) in SCENES {
        for _ in 0..count {
            if give_up() {
                return Err(Unfit::TooSlow { scenes: report.scenes });
            }
            let scene = Scene::draw(&mut draw, steps);
            report.scenes += 1;
            match judge(module, &scene, &mut tried)? {
                Verdict::Commuted => report.commuting += 1,
                Verdict::Conflicting => {}
                Verdict::Refuted(_) => return Err(Unfit::Wrong(refuted(module, scene))),
            }
        }
    }
    tried.finish(module)?;
    Ok(report)
}

/// The smallest scene that can be made of this one by leaving things out, in words.
fn refuted(module: &Module, mut scene: Scene) -> String {
    let mut tried = Tried::new(module);
    let mut reason = String::new();
    loop {
        if let Ok(Verdict::Refuted(why)) = judge(module, &scene, &mut tried) {
            reason = why;
        }
        let smaller = scene
            .smaller()
            .into_iter()
            .find(|smaller| matches!(judge(module, smaller, &mut tried), Ok(Verdict::Refuted(_))));
        match smaller {
            Some(smaller) => scene = smaller,
            None => return format!("{}{reason}", show::scene(module, &scene)),
        }
    }
}

/// What each operation came to so far.
pub(crate) struct Tried {
    accepted: Vec<bool>,
    effective: Vec<bool>,
}

impl Tried {
    fn new(module: &Module) -> Self {
        let none = alloc::vec![false; module.spec().operations.len()];
        Tried { accepted: none.clone(), effective: none }
    }

    pub(crate) fn note(&mut self, operation: u8, accepted: bool, effective: bool) {
        self.accepted[usize::from(operation)] |= accepted;
        self.effective[usize::from(operation)] |= effective;
    }

    fn finish(&self, module: &Module) -> Result<(), Unfit> {
        let operations = module.spec().operations.iter().zip(&self.accepted).zip(&self.effective);
        for ((operation, accepted), effective) in operations {
            if !accepted || !(operation.reads || *effective) {
                return Err(Unfit::Untried { operation: operation.name.clone(), without_effect: *accepted });
            }
        }
        Ok(())
    }
}
