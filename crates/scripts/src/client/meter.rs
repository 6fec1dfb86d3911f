//! What a script has used of what it may use.

use super::at_work::AtWork;
use super::fiber::{Order, Switch};
use gateway::Event;
use mlua::{Error, Lua};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::ReplyBuf;

/// Lua counts its instructions so many at a time.
pub(super) const STRIDE: u32 = 100;
/// How many instructions a script executes before others have their turn, and how long it computes if these are slow
/// (Corrections 87).
const SLICE: u64 = 20_000;
const SLICE_TIME: Duration = Duration::from_micros(500);

/// What the program of a script is called in errors, and that of a library of functions.
pub(super) const SCRIPT: &str = "user_script";
pub(super) const FUNCTION: &str = "user_function";

/// What a script may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The libraries count their work in steps that take as long.
    pub instructions: u64,
    /// Of computing: a few instructions that handle much memory take long.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { instructions: 200_000_000, time: Duration::from_secs(10) }
    }
}

/// See the module. It also suspends the script.
#[derive(Debug)]
pub(super) struct Meter {
    allowed: Limits,
    pub switch: Switch,
    executed: Cell<u64>,
    /// How many are executed when the clock is looked at next.
    look_at: Cell<u64>,
    /// The instruction at which the slice ends, and when it began.
    pause_at: Cell<u64>,
    began: Cell<Instant>,
    /// How long the slices before it took.
    computed: Cell<Duration>,
    is_out_of_time: Cell<bool>,
    is_stopped: Cell<bool>,
    /// The script as others see it, who may end it.
    at_work: RefCell<Option<Arc<AtWork>>>,
    /// What its program is called in errors: one of [`SCRIPT`] and [`FUNCTION`].
    pub program: Cell<&'static str>,
    /// The number of its line, if it has one only: there is where an error arose that does not know.
    pub only_line: Cell<Option<i64>>,
}

impl Meter {
    pub(super) fn new(allowed: Limits) -> Self {
        Meter {
            allowed,
            switch: Switch::default(),
            executed: Cell::new(0),
            look_at: Cell::new(0),
            pause_at: Cell::new(0),
            began: Cell::new(Instant::now()),
            computed: Cell::new(Duration::ZERO),
            is_out_of_time: Cell::new(false),
            is_stopped: Cell::new(false),
            at_work: RefCell::new(None),
            program: Cell::new(SCRIPT),
            only_line: Cell::new(None),
        }
    }

    /// That of this interpreter.
    pub(super) fn of(lua: &Lua) -> Rc<Self> {
        let known = lua.app_data_ref::<Rc<Meter>>().map(|meter| Rc::clone(&meter));
        known.unwrap_or_else(|| {
            let meter = Rc::new(Meter::new(Limits::default()));
            lua.set_app_data(Rc::clone(&meter));
            meter
        })
    }

    /// Another script begins.
    pub(super) fn restart(&self) {
        self.executed.set(0);
        self.look_at.set(0);
        self.computed.set(Duration::ZERO);
        self.is_out_of_time.set(false);
        self.is_stopped.set(false);
        self.begin_slice();
    }

    fn begin_slice(&self) {
        self.pause_at.set(self.executed.get() + SLICE);
        self.began.set(Instant::now());
    }

    /// Counts the next instructions: the script goes on, perhaps after a pause, or ends.
    pub(super) fn count(&self, instructions: u64) -> mlua::Result<()> {
        let executed = self.executed.get().saturating_add(instructions);
        self.executed.set(executed);
        if executed < self.look_at.get() { Ok(()) } else { self.look(executed) }
    }

    #[cold]
    fn look(&self, executed: u64) -> mlua::Result<()> {
        self.look_at.set(executed.saturating_add(STRIDE.into()));
        let slice = self.began.get().elapsed();
        if slice > self.allowed.time.saturating_sub(self.computed.get()) {
            self.is_out_of_time.set(true);
        }
        if self.is_used_up() {
            return Err(Error::runtime(self.limit()));
        }
        match executed >= self.pause_at.get() || slice >= SLICE_TIME {
            true => self.wait(Event::Pauses).map(drop),
            false => Ok(()),
        }
    }

    /// Suspends the script, which asks for a command or pauses, and gives the reply to the command.
    pub(super) fn wait(&self, event: Event) -> mlua::Result<Option<ReplyBuf>> {
        if self.is_stopped.get() {
            return Err(Error::runtime(self.limit()));
        }
        self.computed.set(self.computed.get() + self.began.get().elapsed());
        let order = self.switch.suspend(event);
        self.begin_slice();
        match order {
            None => Ok(None),
            Some(Order::GoOn(answer)) => Ok(answer),
            Some(Order::Stop) => {
                self.is_stopped.set(true);
                Err(Error::runtime(self.limit()))
            }
        }
    }

    /// True if the script may execute nothing more.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_stopped.get() || self.is_killed() || self.has_reached_limit()
    }

    /// Others see the script from now on.
    pub(super) fn set_at_work(&self, at_work: Option<Arc<AtWork>>) {
        *self.at_work.borrow_mut() = at_work;
    }

    /// True if somebody has ended the script.
    pub(super) fn is_killed(&self) -> bool {
        self.at_work.borrow().as_ref().is_some_and(|at_work| at_work.is_killed())
    }

    /// True if it has used all that it may use.
    pub(super) fn has_reached_limit(&self) -> bool {
        self.is_out_of_time.get() || self.executed.get() > self.allowed.instructions
    }

    /// The error of a script that may execute nothing more.
    pub(super) fn limit(&self) -> String {
        if self.is_killed() {
            "Script killed by user with SCRIPT KILL...".to_owned()
        } else if self.is_out_of_time.get() {
            format!("the script computed for more than {} ms", self.allowed.time.as_millis())
        } else if self.has_reached_limit() {
            format!("the script executed more than {} instructions", self.allowed.instructions)
        } else {
            "the script is not needed any more".to_owned()
        }
    }
}
