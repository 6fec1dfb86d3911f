//! A run from its beginning to its end: traffic under faults, healing, the demand for progress, reads at rest.

use crate::chosen;
use crate::deployment::{Deployment, Mutants};
use crate::faults::Feature;
use crate::script::Script;
use crate::workload::Plan;
use crate::world::{Event, World};
use checker::{
    Check, Level, ListedLoss, Outcome, Report, SearchOutcome, Transaction, Violation, check, check_losses,
    check_unclaimed, search_requested,
};
use std::collections::BTreeMap;
use types::{PartitionId, RegionId};

/// How long traffic goes on after healing.
const CALM: u64 = 1_000_000;
/// Within what time everything undecided must end after that; see [`Options::patience`](crate::Options::patience).
pub(crate) const PATIENCE: u64 = 60_000_000;
/// How many configurations the search for a second opinion looks at before it gives up.
const SEARCHED: usize = 50_000;
/// How often that is looked at, and a read of everything repeated.
const ROUND: u64 = 500_000;

/// What came of one run of a seed.
#[derive(Debug)]
pub struct Run {
    /// The run as a script in which everything is written down.
    pub script: Script,
    /// A hash of everything that happened.
    pub trace_hash: u64,
    /// Every event, if the options request them.
    pub trace: Vec<String>,
    /// What clients did and saw.
    pub history: Vec<Transaction>,
    /// How often a session got the error that it lost dependencies.
    pub degraded: usize,
    /// What the checks found.
    pub report: Report,
    /// True if the history, of a causal protocol, was also checked without its claims, and that decided nothing.
    pub undecided_unclaimed: bool,
    /// True if the history, of a strict protocol, was also searched for an order without believing what is claimed, and the
    /// search gave up.
    pub gave_up: bool,
}

/// Runs a script and checks its history.
pub fn simulate<D: Deployment>(deployment: D, script: &Script, mutants: Mutants, readable: bool) -> Run {
    let mut world = World::new(deployment, script, mutants, readable);
    let listed = world.play(script);
    world.into_run(script, listed)
}

impl<D: Deployment> World<D> {
    /// Traffic under faults, calm, and what must hold when everything has come to rest; returns the losses that are listed then.
    pub(crate) fn play(&mut self, script: &Script) -> Option<BTreeMap<u16, Vec<ListedLoss>>> {
        (0..self.processes.len()).for_each(|process| self.start(process));
        self.add_clients(script.plans.as_deref());
        self.schedule_faults(&script.faults);
        self.after(0, Event::Observe);
        self.run_until(script.traffic);
        self.heal();
        self.run_until(script.traffic + CALM);
        self.traffic = false;
        let waits = self.deployment.waits_for_clocks() && self.swarm.has(Feature::ClockLeaps);
        let listed = if waits { None } else { self.come_to_rest() };
        self.observe();
        listed
    }

    /// Demands that everything ends, that clients get on, and that all replicas agree; what they list of lost writes.
    fn come_to_rest(&mut self) -> Option<BTreeMap<u16, Vec<ListedLoss>>> {
        self.demand_progress();
        self.demand_writes();
        self.demand_progress();
        self.read_at_rest();
        self.demand_losses()
    }

    fn undecided(&self) -> Vec<(usize, usize)> {
        let lives = self
            .processes
            .iter()
            .enumerate()
            .filter_map(|(index, process)| Some((index, process.life.as_ref()?)));
        lives
            .map(|(index, life)| {
                (
                    index,
                    life.replicas.iter().map(|replica| self.deployment.undecided(replica.protocol())).sum(),
                )
            })
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn demand_progress(&mut self) {
        let end = self.now + self.patience;
        while self.now < end {
            let is_idle = self.clients.iter().all(|client| client.open.is_empty());
            if is_idle && self.undecided().is_empty() && self.has_agreed() {
                return;
            }
            self.run_until(self.now + ROUND);
        }
        for (process, count) in self.undecided() {
            let message = format!("process {process} has {count} undecided transactions long after healing");
            self.recorder.no_progress(message);
        }
    }

    /// Every client must get a small write committed, in a third of the time, and every held reply must leave.
    fn demand_writes(&mut self) {
        let mut waiting: Vec<usize> = (0..self.clients.len()).collect();
        let end = self.now + self.patience / 3;
        for client in &waiting {
            self.clients[*client].last = None;
        }
        while self.now < end && !waiting.is_empty() {
            for client in &waiting {
                if self.clients[*client].open.is_empty() {
                    let plan = self.workload.small_write();
                    self.begin(*client, plan, true);
                }
            }
            self.run_until(self.now + ROUND / 10);
            waiting.retain(|client| self.clients[*client].last != Some(Outcome::Committed));
        }
        for client in waiting {
            let gateway = self.clients[client].gateway;
            let message = format!("client {client} of p{gateway} got no write committed long after healing");
            self.recorder.no_progress(message);
        }
        for index in 0..self.processes.len() {
            let held = self.processes[index].life.as_ref().map_or(0, |life| life.replies.len());
            if held > 0 {
                let message = format!("p{index} still holds {held} replies when everything has come to rest");
                self.recorder.no_progress(message);
            }
        }
    }

    /// Reads everything through every gateway until all answer, and answer alike.
    fn read_at_rest(&mut self) {
        self.run_until(self.now + 4 * ROUND);
        let readers: Vec<usize> =
            self.gateways().into_iter().map(|gateway| self.add_client(Some(gateway))).collect();
        let end = self.now + self.patience;
        loop {
            let places = self.read_everything(&readers);
            let all = places.len() == readers.len();
            let replies = |places: &[usize]| {
                let steps = places.iter().flat_map(|place| &self.recorder.history[*place].steps);
                steps.map(|step| step.reply.clone()).collect::<Vec<_>>()
            };
            let alike = places.windows(2).all(|pair| replies(&pair[0]) == replies(&pair[1]));
            if (all && alike) || self.now >= end {
                places.iter().flatten().for_each(|place| self.recorder.history[*place].at_rest = true);
                if !all {
                    let message = "long after healing some gateway does not answer reads".into();
                    self.recorder.no_progress(message);
                }
                return;
            }
            self.run_until(self.now + ROUND);
        }
    }

    /// One read of everything by each reader, key by key where keys are not read together; the places of those that were answered.
    fn read_everything(&mut self, readers: &[usize]) -> Vec<Vec<usize>> {
        let plan = self.workload.read_all();
        let plans: Vec<Plan> = match self.deployment.reads_key_by_key() {
            true => {
                plan.steps.iter().map(|step| Plan { steps: vec![step.clone()], ..plan.clone() }).collect()
            }
            false => vec![plan],
        };
        let mut places: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for plan in &plans {
            for (reader, place) in self.read_by_each(readers, plan) {
                places.entry(reader).or_default().push(place);
            }
        }
        places.into_values().filter(|places| places.len() == plans.len()).collect()
    }

    /// The same read by each reader; those that were answered, and the places.
    fn read_by_each(&mut self, readers: &[usize], plan: &Plan) -> Vec<(usize, usize)> {
        for reader in readers {
            self.clients[*reader].last = None;
            self.begin(*reader, plan.clone(), true);
        }
        let places: Vec<Option<usize>> =
            readers.iter().map(|reader| self.clients[*reader].open.first().map(|open| open.place)).collect();
        let end = self.now + 12 * ROUND;
        while self.now < end && readers.iter().any(|reader| !self.clients[*reader].open.is_empty()) {
            self.run_until(self.now + ROUND / 10);
        }
        let answered = |(reader, place): (&usize, Option<usize>)| {
            let place = place.filter(|_| self.clients[*reader].last == Some(Outcome::Committed))?;
            Some((*reader, place))
        };
        readers.iter().zip(places).filter_map(answered).collect()
    }

    /// What each region lists of what was lost to concurrent writes, where that is listed: as soon as one replica speaks for
    /// each of its partitions. A leader may be missing for a moment, at rest too, but not for longer.
    fn demand_losses(&mut self) -> Option<BTreeMap<u16, Vec<ListedLoss>>> {
        if !self.deployment.lists_losses() {
            return None;
        }
        let end = self.now + self.patience;
        let speaks = |lists: &Vec<Vec<ListedLoss>>| lists.len() == 1;
        let mut lists = self.lists();
        while self.now < end && !lists.values().all(speaks) {
            self.run_until(self.now + ROUND / 10);
            lists = self.lists();
        }
        let mut listed: BTreeMap<u16, Vec<ListedLoss>> = BTreeMap::new();
        for ((region, partition), lists) in lists {
            if !speaks(&lists) {
                self.recorder.no_progress(format!(
                    "{} replicas speak for partition {} of region {region} long after everything has come to rest",
                    lists.len(),
                    partition.0
                ));
            }
            listed.entry(region).or_default().extend(lists.into_iter().flatten());
        }
        Some(listed)
    }

    /// By region and partition what those list who speak for it. A region that is lost for good lists nothing.
    fn lists(&self) -> BTreeMap<(u16, PartitionId), Vec<Vec<ListedLoss>>> {
        let mut lists: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for process in self.processes.iter().filter(|process| !process.is_gone) {
            let region = process.host.region.0;
            for partition in &process.host.partitions {
                lists.entry((region, *partition)).or_default();
            }
            for replica in process.life.iter().flat_map(|life| &life.replicas) {
                if let (Some(partition), Some(list)) =
                    (replica.node().slot.partition, self.deployment.losses(replica.protocol()))
                {
                    lists.entry((region, partition)).or_default().push(list);
                }
            }
        }
        lists
    }

    pub(crate) fn into_run(mut self, script: &Script, listed: Option<BTreeMap<u16, Vec<ListedLoss>>>) -> Run {
        std::mem::take(&mut self.decided).into_iter().for_each(|claim| self.recorder.outcome(claim, None));
        self.recorder.merge_pipelines();
        self.recorder.begin_threads_anew(self.deployment.gives_up_dependants());
        self.recorder.expand_keysets();
        chosen::tell(&mut self.recorder.history);
        if self.deployment.merges_by_handler() {
            self.recorder.merges_were_handled();
        }
        if self.deployment.keeps_siblings() {
            self.recorder.leave_out_siblings();
        }
        self.take_cut();
        let judged = self.judge_loss();
        // What was answered may be lost, and what was refused may have committed.
        let whole = judged.is_none();
        if whole {
            self.recorder.check_atomicity();
        }
        if whole && self.deployment.level() == Level::StrictSerializable {
            self.recorder.check_watches();
        }
        let (trace_hash, trace) = self.trace.finish();
        let mut report = judged.unwrap_or_else(|| check(&self.recorder.history, self.deployment.level()));
        report.violations.splice(0..0, self.recorder.violations);
        if let Some(listed) = listed {
            let holds = |region, key: &[u8]| self.deployment.holds(self.setting, RegionId(region), key);
            let until_replaced = self.deployment.keeps_siblings();
            report.violations.extend(check_losses(&self.recorder.history, &listed, &holds, until_replaced));
        }
        let script = Script { plans: Some(self.began), ..script.clone() };
        let degraded = self.recorder.degraded.len();
        let run = Run {
            script,
            trace_hash,
            trace,
            history: self.recorder.history,
            degraded,
            report,
            undecided_unclaimed: false,
            gave_up: false,
        };
        run.with_second_opinions(whole)
    }
}

impl Run {
    /// With what checks find that believe no claim. Of a history that is not whole no order is looked for.
    fn with_second_opinions(mut self, whole: bool) -> Self {
        let report = &mut self.report;
        let is_searched = whole && report.violations.is_empty() && report.model == Level::StrictSerializable;
        let searched = is_searched.then(|| search_requested(&self.history, SEARCHED));
        if searched == Some(SearchOutcome::Impossible) {
            let message =
                "the claims explain the history, but a search that believes none finds no order".into();
            report.violations.push(Violation { check: Check::Order, message, transactions: Vec::new() });
        }
        let unclaimed = second_opinion(&self.history, report);
        if let Some(unclaimed) = &unclaimed {
            report.violations.extend(unclaimed.violations.iter().cloned());
        }
        report.ok = report.violations.is_empty();
        self.undecided_unclaimed = unclaimed.is_some_and(|unclaimed| unclaimed.undecided);
        self.gave_up = searched == Some(SearchOutcome::GaveUp);
        self
    }
}

/// What a causal history is without its claims, if these explain it. Sessions of a region that was lost may have seen what was
/// given up, which only claims tell.
fn second_opinion(history: &[Transaction], report: &Report) -> Option<Report> {
    let applies = report.model == Level::TransactionalCausal
        && report.violations.is_empty()
        && !history.iter().any(|transaction| transaction.given_up);
    applies.then(|| check_unclaimed(history, Level::TransactionalCausal)).map(|mut report| {
        for violation in &mut report.violations {
            violation.message = format!("the claims explain it, but without them: {}", violation.message);
        }
        report
    })
}
