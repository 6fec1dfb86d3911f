//! The model `causal` as a process knows it: its options, where its partitions are, and what hosts them.

mod copied;
mod cops;
mod hosting;
mod options;
mod placement;

pub use copied::host_copies;
pub use cops::host_cops;
pub use hosting::host_partitions;
pub use options::{Options, Protocol};
pub use placement::{groups, set_up, topology};

use crate::cops::Handler;
use crate::{paris, pocc, wren};
use protocol::hosted::{Hosted, Place};
use protocol::model::{ClusterShape, Model, OptionWords, Properties, StoredOptions, read, store};
use std::fmt::{self, Debug};
use std::sync::Arc;
use types::Error;

/// The model's name.
const NAME: &str = "causal";

/// Makes a handler of conflicts of a program, or says what is wrong with it. What runs programs is outside of this crate.
pub type Compile = fn(&str) -> Result<Arc<dyn Handler>, String>;

/// Causal snapshots in every region, in keyspaces whose partitions are replicated by regions.
#[derive(Clone, Copy)]
pub struct Causal {
    compile: Compile,
}

impl Causal {
    /// Of a program that runs no handlers.
    pub const BARE: Causal = Causal::new(|_| Err("this program runs no handlers".to_owned()));

    /// Keyspaces whose handlers are made by `compile`.
    pub const fn new(compile: Compile) -> Self {
        Causal { compile }
    }
}

impl Debug for Causal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Causal").finish_non_exhaustive()
    }
}

impl Model for Causal {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create(&self, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        Options::create(words, self.compile).map(|options| store(&options))
    }

    fn alter(&self, options: &StoredOptions, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        options::refuse_changes(words).map(|()| options.clone())
    }

    fn check(&self, options: &StoredOptions, cluster: &ClusterShape) -> Result<(), String> {
        read::<Options>(options)?.check(cluster)
    }

    fn may_become(&self, earlier: &StoredOptions, now: &StoredOptions) -> bool {
        let (Ok(earlier), Ok(now)) = (read::<Options>(earlier), read::<Options>(now)) else { return false };
        now.evicted.starts_with(&earlier.evicted)
            && Options { evicted: now.evicted.clone(), ..earlier } == now
    }

    fn was_created_as(&self, options: &StoredOptions, created: &StoredOptions) -> bool {
        let (Ok(options), Ok(created)) = (read::<Options>(options), read::<Options>(created)) else {
            return false;
        };
        Options { evicted: Vec::new(), ..options } == created
    }

    fn partitions(&self, options: &StoredOptions) -> u16 {
        read::<Options>(options).map_or(0, |options| options.partitions)
    }

    fn acknowledged_replicas(&self, options: &StoredOptions, _: &ClusterShape) -> u16 {
        // A majority of a partition's copies in the session's region has it; other regions get it later.
        read::<Options>(options).map_or(0, |options| options.copies / 2)
    }

    fn describe(&self, options: &StoredOptions, cluster: &ClusterShape) -> Properties {
        read::<Options>(options).map(|options| options.describe(cluster)).unwrap_or_default()
    }

    fn placement(&self, options: &StoredOptions, place: &Place<'_>) -> Vec<Vec<u16>> {
        read::<Options>(options).map(|options| placement::processes(&options, place)).unwrap_or_default()
    }

    fn host(&self, options: &StoredOptions, place: &Place<'_>) -> Result<Box<dyn Hosted>, String> {
        let options: Options = read(options)?;
        // It was compiled when it was given. One that cannot be any more merges nothing, and reads say what values there are.
        let handler = options.handler.as_deref().and_then(|source| (self.compile)(source).ok());
        Ok(host(&options, handler, place))
    }

    fn note_eviction(
        &self,
        options: &StoredOptions,
        region: &str,
        own_region: &str,
        cluster: &ClusterShape,
    ) -> Result<StoredOptions, String> {
        let mut options: Options = read(options)?;
        options.note_eviction(region, own_region, cluster)?;
        Ok(store(&options))
    }
}

/// A keyspace's instances in a process.
fn host(options: &Options, handler: Option<Arc<dyn Handler>>, place: &Place<'_>) -> Box<dyn Hosted> {
    let set_up = set_up(options, place);
    match (options.protocol, options.is_copied()) {
        (Protocol::Wren, false) => host_partitions::<wren::Snapshot>(options, set_up, place),
        (Protocol::Wren, true) => host_copies::<wren::Snapshot>(options, set_up, place),
        (Protocol::Paris, false) => host_partitions::<paris::Universal>(options, set_up, place),
        (Protocol::Paris, true) => host_copies::<paris::Universal>(options, set_up, place),
        (Protocol::Pocc, false) => host_partitions::<pocc::Snapshot>(options, set_up, place),
        (Protocol::Pocc, true) => host_copies::<pocc::Snapshot>(options, set_up, place),
        (Protocol::Cops, _) => host_cops(options, false, handler, place),
    }
}
