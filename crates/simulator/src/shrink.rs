//! Makes the script of a failing run short: leaves out faults, then clients, then transactions and their steps, then
//! calms what the options bring, as long as the same kind of violation shows (delta debugging, Zeller and Hildebrandt
//! 2002).
//!
//! What is left out changes what happens to the rest: later transactions begin in another state, packets go other ways.
//! So a smaller script may fail for another reason; the kind of check that fails is the same.

use crate::deployment::{Deployment, Mutants};
use crate::faults::Swarm;
use crate::finale::Run;
use crate::run::{Options, Panic, run_once};
use crate::script::{Script, TimedPlan};
use crate::workload::Passing;
use checker::{Check, Violation};
use std::collections::BTreeSet;

/// The shrunk run of a failing seed.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The script as it was before: how many faults and how many transactions.
    pub before: (usize, usize),
    /// What is left.
    pub script: Script,
    /// What it shows.
    pub violations: Vec<Violation>,
    /// How many runs it took.
    pub runs: usize,
}

/// How a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Panic,
    Violation(Check),
}

struct Shrinker<'r> {
    run: &'r dyn Fn(&Script) -> Result<Run, Box<Panic>>,
    kind: Kind,
    /// The smallest script that fails so far.
    best: Script,
    violations: Vec<Violation>,
    runs: usize,
    limit: usize,
}

/// Shrinks a failing script with at most so many runs; `None` if it does not fail.
pub fn shrink<D: Deployment>(
    script: Script,
    mutants: Mutants,
    limit: usize,
    build: impl Fn() -> D,
) -> Option<Shrunk> {
    let options = Options { mutants, ..Options::default() };
    shrink_by(script, limit, &|script| run_once(build(), script, &options))
}

fn shrink_by(
    script: Script,
    limit: usize,
    run: &dyn Fn(&Script) -> Result<Run, Box<Panic>>,
) -> Option<Shrunk> {
    let (kind, best, violations) = match run(&script) {
        Ok(run) => {
            let first = run.report.violations.iter().min_by_key(|violation| violation.check)?;
            (Kind::Violation(first.check), run.script, run.report.violations)
        }
        Err(panic) => (Kind::Panic, panic.script, Vec::new()),
    };
    let before = (best.faults(), best.transactions());
    let mut shrinker = Shrinker { run, kind, best, violations, runs: 1, limit };
    // A shorter run is the same run up to its end, and all that follows takes less time.
    shrinker.shorten();
    // With less noise, what is left out changes less of the rest.
    shrinker.calm();
    loop {
        let size = shrinker.size();
        shrinker.shorten();
        shrinker.drop_faults();
        shrinker.drop_clients();
        shrinker.drop_transactions();
        shrinker.drop_steps();
        shrinker.calm();
        if shrinker.size() == size || shrinker.spent() {
            break;
        }
    }
    let Shrinker { best, violations, runs, .. } = shrinker;
    Some(Shrunk { before, script: best, violations, runs })
}

impl Shrinker<'_> {
    fn spent(&self) -> bool {
        self.runs >= self.limit
    }

    /// What is to become less.
    fn size(&self) -> (usize, usize, usize) {
        let steps = self.best.plans.iter().flatten().map(|plan| plan.plan.steps.len()).sum();
        (self.best.faults(), self.best.transactions(), steps)
    }

    /// Takes a script if it fails in the same way.
    fn offer(&mut self, script: Script) -> bool {
        if self.spent() || script == self.best {
            return false;
        }
        self.runs += 1;
        let run = (self.run)(&script);
        let same = match (&run, self.kind) {
            (Err(_), Kind::Panic) => true,
            (Ok(run), Kind::Violation(check)) => {
                run.report.violations.iter().any(|violation| violation.check == check)
            }
            _ => false,
        };
        if same {
            (self.best, self.violations) = (script, run.map(|run| run.report.violations).unwrap_or_default());
        }
        same
    }

    /// Ends traffic, and with it all that comes after, as early as possible.
    fn shorten(&mut self) {
        let mut step = self.best.traffic / 2;
        while step > 50_000 && !self.spent() {
            let mut script = self.best.clone();
            script.traffic -= step;
            let end = script.traffic;
            script.faults.retain(|fault| fault.at < end);
            script.plans.iter_mut().for_each(|plans| plans.retain(|plan| plan.at < end));
            if !self.offer(script) {
                step /= 2;
            }
            step = step.min(self.best.traffic / 2);
        }
    }

    fn drop_faults(&mut self) {
        self.drop_parts(|script| script.faults.len(), |script, keep| retain(&mut script.faults, keep));
    }

    fn drop_transactions(&mut self) {
        let drop = |script: &mut Script, keep: &BTreeSet<usize>| {
            script.plans.iter_mut().for_each(|plans| retain(plans, keep));
        };
        self.drop_parts(Script::transactions, drop);
    }

    fn drop_clients(&mut self) {
        let clients: BTreeSet<usize> = self.best.plans.iter().flatten().map(|plan| plan.client).collect();
        for client in clients {
            let mut script = self.best.clone();
            script.plans.iter_mut().for_each(|plans| plans.retain(|plan| plan.client != client));
            self.offer(script);
        }
    }

    fn drop_steps(&mut self) {
        for index in (0..self.best.transactions()).rev() {
            let plan = |script: &Script| script.plans.as_ref().map(|plans| plans[index].clone());
            let Some(TimedPlan { plan: before, .. }) = plan(&self.best) else { return };
            let mut script = self.best.clone();
            if let Some(plans) = &mut script.plans
                && before.passing != Passing::Nothing
            {
                plans[index].plan.passing = Passing::Nothing;
                self.offer(script);
            }
            for step in (0..before.steps.len()).rev() {
                let mut script = self.best.clone();
                if let Some(plans) = &mut script.plans
                    && plans[index].plan.steps.len() > 1
                {
                    plans[index].plan.steps.remove(step);
                    self.offer(script);
                }
            }
        }
    }

    /// Switches off, one after the other, what makes the world less simple.
    fn calm(&mut self) {
        let calmer: [fn(&mut Swarm); 11] = [
            |swarm| swarm.loss = 0.0,
            |swarm| swarm.duplication = 0.0,
            |swarm| swarm.reordering = 0.0,
            |swarm| swarm.jitter = 0.0,
            |swarm| swarm.asymmetry = 1.0,
            |swarm| swarm.clock_skew = 0,
            |swarm| swarm.clock_tick = 1,
            |swarm| swarm.checkpoint_interval = 0,
            |swarm| swarm.group_delay = 0,
            |swarm| swarm.sync = 100,
            |swarm| swarm.far = swarm.near,
        ];
        for calm in calmer {
            let mut script = self.best.clone();
            calm(&mut script.swarm);
            self.offer(script);
        }
    }

    /// Leaves out parts of a list: halves, then quarters, and so on down to single ones.
    fn drop_parts(&mut self, count: impl Fn(&Script) -> usize, keep: impl Fn(&mut Script, &BTreeSet<usize>)) {
        let mut size = count(&self.best).div_ceil(2);
        while size > 0 && !self.spent() {
            // From the end, since what comes later depends on what is earlier.
            let mut end = count(&self.best);
            while end > 0 && !self.spent() {
                let start = end.saturating_sub(size);
                let remaining =
                    (0..count(&self.best)).filter(|index| !(start..end).contains(index)).collect();
                let mut script = self.best.clone();
                keep(&mut script, &remaining);
                self.offer(script);
                end = start;
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

fn retain<T>(list: &mut Vec<T>, keep: &BTreeSet<usize>) {
    let mut index = 0;
    list.retain(|_| {
        index += 1;
        keep.contains(&(index - 1))
    });
}
