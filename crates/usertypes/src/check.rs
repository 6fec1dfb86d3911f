//! The check that a type must pass: what its specification says commutes does, in scenes drawn from a fixed seed.
//!
//! A *scene* is a state that the type's own operations built, and two or three *steps*, each an operation that was
//! evaluated on this state, or an effect that was chosen elsewhere and comes blindly. If the specification says that the
//! steps commute pairwise, then in every order each operation gives the reply that it gave, chooses an effect that does
//! the same, and all orders leave equal states (Corrections 60, 66: pairs are not enough). Steps whose lock modes may be
//! held together must commute by the specification, and what the type combines must come to what evaluation comes to. A
//! scene that refutes this is made smaller before it is shown.
//!
//! Scenes are drawn from all operations first; then, for a type with lock modes of its own, from those in two modes that
//! may be held together; then, for one that combines, with one operation again and again.

mod claims;
mod draw;
mod scene;
mod show;

use crate::{Fault, Module};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use draw::Draw;
use scene::{Refutation, Scene, Verdict, judge};

/// How many scenes are played with so many steps: of any operations.
const SCENES: [(usize, usize); 2] = [(2, 400), (3, 200)];
/// The same of operations in modes that may be held together, for all such pairs of modes together.
const COMPATIBLE_PAIRS: [(usize, usize); 2] = [(2, 100), (3, 50)];
/// The same of one operation, called twice.
const AGAIN: usize = 60;
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
        /// The call.
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
    /// It is said to combine, and nothing ever did, so that nothing is known of that.
    NeverCombined,
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
            Unfit::NeverCombined => f.write_str(
                "it is said to combine, and nothing did with whatever was tried; say that it does not, or give arguments \
                 examples",
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
    let spec = module.spec();
    let mut draw = Draw::new(SEED, spec);
    let mut played = Played { module, give_up, report: Report::default(), tried: Tried::new(module) };
    let all: Vec<u8> = (0..spec.operations.len() as u8).collect();
    for (steps, count) in SCENES {
        played.play(count, || Scene::draw(&mut draw, steps, &all))?;
    }
    let pairs = claims::compatible_pairs(spec);
    for (steps, count) in COMPATIBLE_PAIRS {
        for operations in &pairs {
            played.play(count.div_ceil(pairs.len()), || Scene::draw(&mut draw, steps, operations))?;
        }
    }
    if spec.combines {
        played.play(AGAIN, || Scene::draw_again(&mut draw))?;
    }
    played.tried.finish(module)?;
    Ok(played.report)
}

/// What has been played so far.
struct Played<'m> {
    module: &'m Module,
    give_up: &'m dyn Fn() -> bool,
    report: Report,
    tried: Tried,
}

impl Played<'_> {
    fn play(&mut self, count: usize, mut draw: impl FnMut() -> Scene) -> Result<(), Unfit> {
        for _ in 0..count {
            if (self.give_up)() {
                return Err(Unfit::TooSlow { scenes: self.report.scenes });
            }
            let scene = draw();
            self.report.scenes += 1;
            match judge(self.module, &scene, &mut self.tried)? {
                Verdict::Commuted => self.report.commuting += 1,
                Verdict::Conflicting => {}
                Verdict::Refuted(_) => return Err(Unfit::Wrong(refuted(self.module, scene))),
            }
        }
        Ok(())
    }
}

/// The smallest scene that can be made of this one by leaving things out, in words.
fn refuted(module: &Module, mut scene: Scene) -> String {
    let mut tried = Tried::new(module);
    let mut found = Refutation::default();
    loop {
        if let Ok(Verdict::Refuted(again)) = judge(module, &scene, &mut tried) {
            found = again;
        }
        let smaller = scene
            .smaller()
            .into_iter()
            .find(|smaller| matches!(judge(module, smaller, &mut tried), Ok(Verdict::Refuted(_))));
        match smaller {
            Some(smaller) => scene = smaller,
            None => return format!("{}: {}{}", found.claim, show::scene(module, &scene), found.how),
        }
    }
}

/// What each operation came to so far.
pub(crate) struct Tried {
    accepted: Vec<bool>,
    effective: Vec<bool>,
    combined: bool,
}

impl Tried {
    fn new(module: &Module) -> Self {
        let none = alloc::vec![false; module.spec().operations.len()];
        Tried { accepted: none.clone(), effective: none, combined: false }
    }

    pub(crate) fn note(&mut self, operation: u8, accepted: bool, effective: bool) {
        self.accepted[usize::from(operation)] |= accepted;
        self.effective[usize::from(operation)] |= effective;
    }

    pub(crate) fn note_combined(&mut self) {
        self.combined = true;
    }

    fn finish(&self, module: &Module) -> Result<(), Unfit> {
        let operations = module.spec().operations.iter().zip(&self.accepted).zip(&self.effective);
        for ((operation, accepted), effective) in operations {
            if !accepted || !(operation.reads || *effective) {
                return Err(Unfit::Untried { operation: operation.name.clone(), without_effect: *accepted });
            }
        }
        if module.spec().combines && !self.combined {
            return Err(Unfit::NeverCombined);
        }
        Ok(())
    }
}
