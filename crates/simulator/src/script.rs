//! A run as data: the shape, the options, the faults with their times, and what clients do.
//!
//! A seed is drawn into a script, and a script is run. What clients do is drawn while it runs, because it depends on
//! when their transactions end; it is recorded, so that the run can be written as a script in which everything is
//! written down, and things left out of it (`shrink`). Noise (delays, losses, the lengths of syncs) is drawn from the
//! seed, by a stream of its own for every link, process and client.
//!
//! # The file
//!
//! One JSON object a line. The first says protocol, seed, shape, options and how long traffic lasts; then faults, in
//! order of time, and transactions:
//!
//! ```json
//! {"protocol":"tapir","seed":17,"layout":{...},"swarm":{...},"traffic":8000000,"clients":2}
//! {"at":1200000,"fault":{"kill":{"process":2,"down":400000}}}
//! {"client":0,"at":900000,"gateway":3,"shape":"one","steps":[{"key":"counter:0","operation":"0003...","text":"..."}]}
//! ```
//!
//! Times are microseconds of virtual time. A transaction begins at its time or when the client's transaction before it
//! has ended, at its gateway or, if that one is dead, at another.

use crate::damage::{Damage, Repair};
use crate::deployment::{Deployment, Host, Layout};
use crate::faults::{Feature, Swarm};
use crate::schedule;
use crate::workload::Plan;
use checker::Level;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::BufRead;
use types::{PartitionId, Rng};

/// How long traffic lasts under faults, in microseconds of virtual time.
const TRAFFIC: u64 = 8_000_000;
/// How long where outages last for minutes.
const LONG_TRAFFIC: u64 = 200_000_000;

/// A direction between two processes.
pub(crate) type Link = (u16, u16);

/// Something that goes wrong. Times and durations are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// A process dies, for so long.
    Kill { process: u16, down: u64 },
    /// A process loses power, now or right after its next write, before that is synced.
    PowerCut { process: u16, down: u64, after_write: bool },
    /// A process dies and comes back with an empty disk.
    LoseDisk { process: u16, down: u64 },
    /// A process dies so many events after a client's next request to it.
    CoordinatorDeath { process: u16, events: u32, down: u64 },
    /// A process dies with the next reply to a client that leaves together with packets to others, which are lost.
    LastReply { process: u16, down: u64 },
    /// Links are cut.
    Cut { links: Vec<Link>, lasts: u64 },
    /// Links are slower.
    SlowLinks { links: Vec<Link>, by: u64, lasts: u64 },
    /// Links lose so many of a thousand packets more.
    LossyLinks { links: Vec<Link>, share: u32, lasts: u64 },
    /// A process stands still.
    Pause { process: u16, lasts: u64 },
    /// A process takes so long for every step, and as many milliseconds more for a sync.
    Slow { process: u16, step: u64, lasts: u64 },
    /// A disk's next write fails after so many bytes.
    WriteError { process: u16, bytes: usize },
    /// A disk's next sync fails.
    SyncError { process: u16 },
    /// A process dies for so long, and after so many reads of its next start its disk fails once.
    ReadError { process: u16, reads: u32, down: u64 },
    /// A disk has so many bytes left.
    FullDisk { process: u16, room: u64, lasts: u64 },
    /// A wall clock jumps.
    ClockJump { process: u16, by: i64 },
    /// An operator at a gateway moves a partition to other processes.
    Reconfigure { process: u16, partition: u16, to: Vec<u16> },
    /// All processes of a region are lost with their disks, one so long after the other; and so long after the last one an
    /// operator lets the others go on without it.
    LoseRegion {
        region: u16,
        #[serde(rename = "apart")]
        interval: u64,
        after: u64,
    },
    /// These processes are lost with their disks, more than a partition survives; so long after that an operator lets those
    /// that are left go on.
    LoseMajority { lost: Vec<u16>, after: u64 },
    /// A process dies for so long and its disk is damaged, somewhere by this seed; what it refuses is repaired so.
    Damage { process: u16, damage: Damage, repair: Repair, seed: u64, down: u64 },
    /// A process's disk is copied.
    CopyDisk { process: u16 },
    /// A process dies for so long and has the copy of its disk afterwards.
    OlderDisk { process: u16, down: u64 },
    /// All processes lose power, the first one for so long, each further one for so much longer.
    BlackOut {
        down: u64,
        #[serde(rename = "apart")]
        interval: u64,
    },
}

/// A fault and when it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimedFault {
    pub at: u64,
    pub fault: Fault,
}

/// A client's transaction: when it began, or is to begin, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimedPlan {
    pub client: usize,
    pub at: u64,
    pub gateway: usize,
    #[serde(flatten)]
    pub plan: Plan,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub(crate) protocol: String,
    pub(crate) seed: u64,
    /// The shape.
    pub layout: Layout,
    /// The options.
    pub swarm: Swarm,
    /// How long traffic lasts, in microseconds.
    pub traffic: u64,
    pub(crate) faults: Vec<TimedFault>,
    /// What clients do, each one's in order; drawn from the seed if it is not said.
    pub(crate) plans: Option<Vec<TimedPlan>>,
}

/// A stream of random numbers for one purpose.
pub(crate) fn stream(seed: u64, purpose: &str, index: u64) -> Rng {
    let purpose = xxhash_rust::xxh3::xxh3_64_with_seed(purpose.as_bytes(), seed);
    Rng::with_seed(xxhash_rust::xxh3::xxh3_64_with_seed(&index.to_le_bytes(), purpose))
}

/// What a seed's run depends on of a deployment.
struct Abilities<'d> {
    lacks: Vec<Feature>,
    layout: Layout,
    hosts: &'d dyn Fn(Layout) -> Vec<Host>,
    waits_for_clocks: bool,
    /// How long traffic lasts, unless it lasts for minutes.
    traffic: u64,
}

impl Abilities<'_> {
    fn draw(self, protocol: &str, seed: u64, with: &[Feature]) -> Script {
        let Abilities { lacks, mut layout, .. } = self;
        let rare = Feature::all().filter(|feature| feature.is_rare_in(seed));
        let off: BTreeSet<Feature> = lacks.iter().copied().chain(rare).collect();
        let mut swarm = Swarm::draw(&mut stream(seed, "swarm", 0), &off);
        swarm.features.extend(with.iter().filter(|feature| !lacks.contains(feature)));
        if swarm.has(Feature::Focus) {
            swarm.focus(with, &mut stream(seed, "focus", 0));
        }
        let traffic = match swarm.has(Feature::LongOutages) {
            true => LONG_TRAFFIC,
            false => self.traffic,
        };
        if traffic > TRAFFIC {
            swarm.slow_down();
        }
        if self.waits_for_clocks && swarm.has(Feature::ClockLeaps) {
            // Those that are left agree on what stays when they have come to rest.
            for feature in [Feature::Eviction, Feature::FadingRegions, Feature::AcceptLoss] {
                swarm.features.remove(&feature);
            }
        }
        let loses = swarm.has(Feature::AcceptLoss);
        if loses {
            swarm.features.remove(&Feature::Reconfiguration);
        }
        if !swarm.has(Feature::Reconfiguration) && !loses {
            layout.spares = 0;
        }
        if swarm.has(Feature::FadingRegions) {
            layout = layout.with_parts_elsewhere();
        }
        let hosts = (self.hosts)(layout);
        let mut faults = schedule::draw(&mut stream(seed, "faults", 0), &swarm, &hosts, traffic);
        if loses {
            let members = &hosts[..hosts.len() - usize::from(layout.spares)];
            faults.extend(schedule::loss(&mut stream(seed, "loss", 0), members, traffic));
            faults.sort_by_key(|fault| fault.at);
        }
        faults.extend(schedule::of_disks(&mut stream(seed, "disks", 0), &swarm, &hosts, self.traffic));
        faults.sort_by_key(|fault| fault.at);
        if swarm.has(Feature::FadingRegions) {
            faults.extend(schedule::fading(&mut stream(seed, "fading", 0), &hosts, traffic));
            faults.sort_by_key(|fault| fault.at);
        }
        Script { protocol: protocol.to_owned(), seed, layout, swarm, traffic, faults, plans: None }
    }
}

impl Script {
    /// Draws a seed's run, which brings the features `with`.
    pub fn draw<D: Deployment>(protocol: &str, deployment: &D, seed: u64, with: &[Feature]) -> Self {
        Script::draw_for(None, protocol, deployment, seed, with)
    }

    /// The same with so many microseconds of traffic, unless it lasts for minutes.
    pub(crate) fn draw_for<D: Deployment>(
        traffic: Option<u64>,
        protocol: &str,
        deployment: &D,
        seed: u64,
        with: &[Feature],
    ) -> Self {
        let mut lacks = deployment.lacks();
        if lacks.contains(&Feature::Interactive) {
            lacks.extend([Feature::Scripts, Feature::Renames]);
        }
        let is_strict = matches!(deployment.level(), Level::StrictSerializable | Level::Serializable);
        let accepts_loss = deployment.accept_loss(PartitionId(0), &[]).is_some();
        lacks.extend((!deployment.lists_losses()).then_some(Feature::Resolutions));
        lacks.extend((!deployment.spills()).then_some(Feature::SmallQueues));
        lacks.extend((!deployment.is_causal()).then_some(Feature::SharedThreads));
        lacks.extend((deployment.level() != Level::Branch).then_some(Feature::Constraints));
        lacks.extend((!is_strict).then_some(Feature::UserTypes));
        lacks.extend(lacks.contains(&Feature::LostDisks).then_some(Feature::OlderDisks));
        lacks.extend(lacks.contains(&Feature::Eviction).then_some(Feature::FadingRegions));
        lacks.extend((!accepts_loss).then_some(Feature::AcceptLoss));
        let abilities = Abilities {
            lacks,
            layout: deployment.layout(&mut stream(seed, "layout", 0)),
            hosts: &|layout| deployment.hosts(layout),
            waits_for_clocks: deployment.waits_for_clocks(),
            traffic: traffic.unwrap_or(TRAFFIC),
        };
        abilities.draw(protocol, seed, with)
    }

    /// How many faults it has.
    pub fn faults(&self) -> usize {
        self.faults.len()
    }

    /// How many transactions it says.
    pub fn transactions(&self) -> usize {
        self.plans.as_ref().map_or(0, Vec::len)
    }

    /// The protocol's name.
    pub fn protocol(&self) -> &str {
        &self.protocol
    }
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Header {
    protocol: String,
    seed: u64,
    layout: Layout,
    swarm: Swarm,
    traffic: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Fault(TimedFault),
    Plan(TimedPlan),
}

/// A line of a script is not what is expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} of the script: {}", self.line, self.reason)
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// The lines of the script's file.
    pub fn lines(&self) -> Vec<String> {
        let Script { protocol, seed, layout, swarm, traffic, .. } = self.clone();
        let header = Header { protocol, seed, layout, swarm, traffic };
        let json = |line: serde_json::Result<String>| line.unwrap_or_else(|error| error.to_string());
        let faults = self.faults.iter().map(|fault| json(serde_json::to_string(fault)));
        let plans = self.plans.iter().flatten().map(|plan| json(serde_json::to_string(plan)));
        std::iter::once(json(serde_json::to_string(&header))).chain(faults).chain(plans).collect()
    }

    /// Replaces the faults by those of these lines of a script's file.
    ///
    /// # Errors
    /// The first line that is no fault.
    pub fn set_faults(&mut self, lines: &[String]) -> Result<(), ScriptError> {
        let read = |(index, line): (usize, &String)| {
            serde_json::from_str(line)
                .map_err(|error| ScriptError { line: index + 1, reason: error.to_string() })
        };
        self.faults = lines.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        self.faults.sort_by_key(|fault: &TimedFault| fault.at);
        Ok(())
    }

    /// Reads a script; empty lines are skipped.
    ///
    /// # Errors
    /// The first line that cannot be read, or names a process or a client that there is not.
    pub fn read(input: impl BufRead) -> Result<Self, ScriptError> {
        let mut lines = Vec::new();
        for (index, line) in input.lines().enumerate() {
            let line = line.map_err(|error| ScriptError { line: index + 1, reason: error.to_string() })?;
            if !line.trim().is_empty() {
                lines.push((index + 1, line));
            }
        }
        let wrong = |line: usize, reason: String| ScriptError { line, reason };
        let mut lines = lines.into_iter();
        let Some((number, first)) = lines.next() else {
            return Err(wrong(
                1,
                "the script is empty; its first line says protocol, seed and options".into(),
            ));
        };
        let header: Header =
            serde_json::from_str(&first).map_err(|error| wrong(number, error.to_string()))?;
        let Header { protocol, seed, layout, swarm, traffic } = header;
        let (mut faults, mut plans) = (Vec::new(), Vec::new());
        for (number, line) in lines {
            match serde_json::from_str(&line) {
                Ok(Line::Fault(fault)) => faults.push(fault),
                Ok(Line::Plan(plan)) => plans.push(plan),
                Err(_) => return Err(wrong(number, "neither a fault nor a transaction".into())),
            }
        }
        faults.sort_by_key(|fault| fault.at);
        plans.sort_by_key(|plan| (plan.client, plan.at));
        Ok(Script { protocol, seed, layout, swarm, traffic, faults, plans: Some(plans) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployments::TapirDeployment;

    #[test]
    fn what_is_no_script_is_refused_with_its_line() {
        let refused = |text: &str| Script::read(text.as_bytes()).unwrap_err();
        assert_eq!(refused("").line, 1);
        assert_eq!(refused("{}").line, 1);
        let script = Script::draw("tapir", &TapirDeployment::default(), 1, &[]);
        let text = format!("{}\n\n{{\"at\":1}}", script.lines()[0]);
        assert_eq!(refused(&text).line, 3);
    }
}
