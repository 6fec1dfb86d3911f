//! The model `strict` as a process knows it: its options, where its replicas are, and what hosts them.

mod locking;
mod options;
mod placement;
mod tapir;

pub use options::{Concurrency, LockingOptions, OptimisticOptions, Options, SoloOptions};
pub use placement::{host_locking, host_shards, locking_options, topology};

use protocol::Durability;
use protocol::hosted::{Hosted, Place};
use protocol::model::{
    ClusterShape, Model, OptionWords, PartitionMove, Properties, Solo, StoredOptions, read, store,
};
use types::{Address, Error};

/// The model's name.
const NAME: &str = "strict";

/// Strictly serializable transactions, in keyspaces of replicated shards, or of partitions that one process keeps by itself.
#[derive(Clone, Copy, Debug)]
pub struct Strict;

impl Model for Strict {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create(&self, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        Options::create(words).map(|options| store(&options))
    }

    fn create_solo(
        &self,
        words: &OptionWords<'_>,
        process: u16,
        durability: Durability,
    ) -> Result<Option<StoredOptions>, Error> {
        Ok(Options::create_solo(words, process, durability)?.map(|options| store(&options)))
    }

    fn solo(&self, options: &StoredOptions) -> Option<Solo> {
        read::<Options>(options).ok()?.solo()
    }

    fn alter(&self, options: &StoredOptions, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        let mut options: Options = read(options).map_err(Error::err)?;
        options.alter(words)?;
        Ok(store(&options))
    }

    fn check(&self, options: &StoredOptions, cluster: &ClusterShape) -> Result<(), String> {
        read::<Options>(options)?.check(cluster)
    }

    fn may_become(&self, earlier: &StoredOptions, now: &StoredOptions) -> bool {
        let (Ok(earlier), Ok(now)) = (read::<Options>(earlier), read::<Options>(now)) else { return false };
        earlier.altered_to(&now) == now
    }

    fn was_created_as(&self, options: &StoredOptions, created: &StoredOptions) -> bool {
        let (Ok(options), Ok(created)) = (read::<Options>(options), read::<Options>(created)) else {
            return false;
        };
        Options { moved: Default::default(), ..options } == created
    }

    fn partitions(&self, options: &StoredOptions) -> u16 {
        read::<Options>(options).map_or(0, |options| options.partitions)
    }

    fn acknowledged_replicas(&self, options: &StoredOptions, cluster: &ClusterShape) -> u16 {
        read::<Options>(options).map_or(0, |options| options.acknowledged_replicas(cluster))
    }

    fn describe(&self, options: &StoredOptions, _: &ClusterShape) -> Properties {
        read::<Options>(options).map(|options| options.describe()).unwrap_or_default()
    }

    fn placement(&self, options: &StoredOptions, place: &Place<'_>) -> Vec<Vec<u16>> {
        let Ok(options) = read::<Options>(options) else { return Vec::new() };
        if let Some(solo) = options.solo() {
            return vec![vec![solo.process]; usize::from(options.partitions)];
        }
        let processes = |members: &Vec<Address>| members.iter().map(|at| at.process.0).collect();
        topology(&options, place).shards.iter().map(processes).collect()
    }

    fn host(&self, options: &StoredOptions, place: &Place<'_>) -> Result<Box<dyn Hosted>, String> {
        placement::host(read(options)?, place)
    }

    fn note_move(
        &self,
        options: &StoredOptions,
        partition: u16,
        to: &PartitionMove,
    ) -> Result<StoredOptions, String> {
        let mut options: Options = read(options)?;
        options.note_move(partition, to);
        Ok(store(&options))
    }

    fn note_eviction(
        &self,
        _: &StoredOptions,
        _: &str,
        _: &str,
        _: &ClusterShape,
    ) -> Result<StoredOptions, String> {
        Err("it is strict: it goes on without a region while it has a majority of each partition; KEYSPACE PLACE replaces \
             replicas that are lost"
            .to_owned())
    }
}
