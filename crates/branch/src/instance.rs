//! What a process hosts of a `branch` keyspace: its region's site, or the way to it.

use crate::Mutants;
use crate::forward::Forward;
use crate::part::Part;
use crate::site::{Message, Options, Record, Site, Timer, Topology};
use protocol::{Durability, Input, Now, Outputs, Protocol};
use types::{Address, Incarnation, Rng};

/// See the variants.
#[derive(Debug)]
pub enum Instance {
    /// The site of the region.
    Site(Box<Site>),
    /// In another process of the region: it passes on what clients ask.
    Forward(Forward),
    /// Records of the region's site.
    Part(Box<Part>),
}

impl Instance {
    /// Records of the site whose State DAG is at `manager`.
    pub fn part(manager: Address, durability: Durability, mutants: Mutants) -> Self {
        Instance::Part(Box::new(Part::new(manager, durability, mutants)))
    }

    /// The record partition, if this is one.
    pub fn as_part(&self) -> Option<&Part> {
        match self {
            Instance::Part(part) => Some(part),
            Instance::Site(_) | Instance::Forward(_) => None,
        }
    }

    /// The site with this index, in one life.
    pub fn site(topology: Topology, index: usize, incarnation: Incarnation, options: Options) -> Self {
        Instance::Site(Box::new(Site::new(topology, index, incarnation, options)))
    }

    /// The way to a region's site, in one life.
    pub fn forward(site: Address, incarnation: Incarnation) -> Self {
        Instance::Forward(Forward::new(site, incarnation))
    }

    /// The site, if this is one.
    pub fn as_site(&self) -> Option<&Site> {
        match self {
            Instance::Site(site) => Some(site),
            Instance::Forward(_) | Instance::Part(_) => None,
        }
    }

    /// The claims made since the last call.
    pub fn take_claims(&mut self) -> Vec<protocol::Claim> {
        self.as_site_mut().map(Site::take_claims).unwrap_or_default()
    }

    /// See `as_site`.
    pub fn as_site_mut(&mut self) -> Option<&mut Site> {
        match self {
            Instance::Site(site) => Some(site),
            Instance::Forward(_) | Instance::Part(_) => None,
        }
    }
}

impl Protocol for Instance {
    const READS_ALONE: bool = true;

    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        for input in batch.drain(..) {
            match self {
                Instance::Site(site) => site.on_input(input, now, random, out),
                Instance::Forward(forward) => forward.on_input(input, now, out),
                Instance::Part(part) => part.on_input(input, now, out),
            }
        }
    }

    fn logged(&mut self, records: u64) {
        if let Instance::Site(site) = self {
            site.on_logged(records);
        }
    }

    fn log_refuses(&mut self) {
        if let Instance::Site(site) = self {
            site.set_refusing(true);
        }
    }

    fn log_healed(&mut self) {
        if let Instance::Site(site) = self {
            site.set_refusing(false);
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Instance::Site(site) => site.put_checkpoint(cursor, chunk),
            Instance::Part(part) => part.put_checkpoint(cursor, chunk),
            Instance::Forward(_) => None,
        }
    }
}
