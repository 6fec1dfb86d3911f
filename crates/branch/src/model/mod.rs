//! The model `branch` as a process knows it: its options, where its sites are, and what hosts them.

mod hosting;
mod options;
mod placement;

pub use options::Options;
pub use placement::topology;

use crate::Handler;
use hosting::SiteHosting;
use protocol::hosted::{Hosted, HostedNodes, Place};
use protocol::model::{ClusterShape, Model, OptionWords, Properties, StoredOptions, read, store};
use std::fmt::{self, Debug, Formatter};
use types::{Address, Error};

/// The model's name.
const NAME: &str = "branch";

/// Makes a merge handler of a program, or says what is wrong with it. What runs programs is outside of this crate.
pub type Compile = fn(&str) -> Result<Box<dyn Handler>, String>;

/// Sequential storage for each session, in keyspaces that fork where updates meet.
#[derive(Clone, Copy)]
pub struct Branch {
    compile: Compile,
}

impl Branch {
    /// Keyspaces whose handlers are made by `compile`.
    pub const fn new(compile: Compile) -> Self {
        Branch { compile }
    }
}

impl Debug for Branch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch").finish_non_exhaustive()
    }
}

impl Model for Branch {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create(&self, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        Options::create(words, self.compile).map(|options| store(&options))
    }

    fn alter(&self, options: &StoredOptions, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        let mut options: Options = read(options).map_err(Error::err)?;
        options.alter(words, self.compile)?;
        Ok(store(&options))
    }

    fn check(&self, options: &StoredOptions, _: &ClusterShape) -> Result<(), String> {
        read::<Options>(options)?.check()
    }

    fn may_become(&self, earlier: &StoredOptions, now: &StoredOptions) -> bool {
        let (Ok(earlier), Ok(now)) = (read::<Options>(earlier), read::<Options>(now)) else { return false };
        earlier.partitions == now.partitions
    }

    fn was_created_as(&self, options: &StoredOptions, created: &StoredOptions) -> bool {
        options == created
    }

    fn partitions(&self, options: &StoredOptions) -> u16 {
        read::<Options>(options).map_or(0, |options| options.partitions)
    }

    fn describe(&self, options: &StoredOptions, _: &ClusterShape) -> Properties {
        read::<Options>(options).map(|options| options.describe()).unwrap_or_default()
    }

    /// The sites first, then the partitions of records.
    fn placement(&self, options: &StoredOptions, place: &Place<'_>) -> Vec<Vec<u16>> {
        let Ok(options) = read::<Options>(options) else { return Vec::new() };
        let topology = placement::topology(&options, place);
        let partitions = topology.partitions.first().map_or(0, Vec::len);
        let records = (0..partitions).map(|number| {
            let of_region = |partitions: &Vec<Address>| partitions.get(number).map(|at| at.process.0);
            topology.partitions.iter().filter_map(of_region).collect()
        });
        std::iter::once(topology.sites.iter().map(|at| at.process.0).collect()).chain(records).collect()
    }

    fn host(&self, options: &StoredOptions, place: &Place<'_>) -> Result<Box<dyn Hosted>, String> {
        let options: Options = read(options)?;
        // One that cannot be compiled any more is as good as none: nothing is merged by it. `configure` says so.
        let handler = options.handler(self.compile).unwrap_or_default();
        let nodes = placement::nodes(&options, handler, place);
        Ok(Box::new(HostedNodes::new(nodes, SiteHosting::new(self.compile))))
    }

    fn note_eviction(
        &self,
        _: &StoredOptions,
        _: &str,
        _: &str,
        _: &ClusterShape,
    ) -> Result<StoredOptions, String> {
        Err("it has branches: its sites go on without one another as they are".to_owned())
    }
}
