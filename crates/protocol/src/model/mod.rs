//! A consistency model as a process knows it: a name, options that only the model understands, and instances to host.
//!
//! The models that a process serves are a value that it is given when it starts. A keyspace's entry in the cluster's catalog
//! has its model's name and the options as that model stores them; everybody else hands them on.

mod shape;
mod words;

pub use shape::{ClusterShape, RegionShape};
pub use words::{OptionWord, OptionWords, listed};

use crate::contract::Durability;
use crate::eviction::Eviction;
use crate::hosted::{Hosted, Place};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use types::Error;

/// The most shards or partitions of one keyspace.
const MAX_PARTITIONS: u16 = 1024;

/// A keyspace's options as its model stores them.
pub type StoredOptions = serde_json::Value;

/// Options as their model stores them.
pub fn store<T: Serialize>(options: &T) -> StoredOptions {
    let stored = serde_json::to_value(options);
    debug_assert!(stored.is_ok(), "options are plain data: {stored:?}");
    stored.unwrap_or_default()
}

/// Stored options as their model knows them.
///
/// # Errors
/// They are of another model, or of another version of it.
pub fn read<T: DeserializeOwned>(options: &StoredOptions) -> Result<T, String> {
    T::deserialize(options).map_err(|error| format!("its options are not understood: {error}"))
}

/// What KEYSPACE INFO says of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// A word.
    Text(String),
    /// A number.
    Number(u64),
    /// Several lines.
    List(Vec<String>),
}

impl From<&str> for Property {
    fn from(text: &str) -> Self {
        Property::Text(text.to_owned())
    }
}

/// What KEYSPACE INFO says of a keyspace's options, in order.
pub type Properties = Vec<(&'static str, Property)>;

/// What every process should know of a partition that was to move. The replicas themselves decide where it is, and
/// answer a query at any process that was ever one of them; this names such a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionMove {
    /// An epoch that has begun, and the processes of its replicas; the present one or an earlier.
    pub epoch: u32,
    /// See `epoch`.
    pub processes: Vec<u16>,
    /// Every process that was ever to join.
    pub joining: BTreeSet<u16>,
}

/// How one process keeps a keyspace by itself: every request runs to completion under the locks of its partitions, without
/// a coordinator and without messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solo {
    /// The process.
    pub process: u16,
    /// How many partitions; as many as suit the process's threads if the keyspace does not say.
    pub partitions: Option<u16>,
    /// How durable what it replies is.
    pub durability: Durability,
    /// Which keys go when memory is used up, if the keyspace says.
    pub eviction: Option<Eviction>,
    /// And how much memory that is for the keyspace alone, in bytes.
    pub max_memory: Option<u64>,
}

/// A model. Its options are given as it stored them; an error of any function but [`Model::check`] on options that were
/// checked is about the request.
pub trait Model: Sync {
    /// Its name in commands.
    fn name(&self) -> &'static str;

    /// The options that `KEYSPACE CREATE` asks for.
    ///
    /// # Errors
    /// An option is unknown, or has no such value.
    fn create(&self, words: &OptionWords<'_>) -> Result<StoredOptions, Error>;

    /// The options of a keyspace that `process`, the cluster's only one, keeps as [`Solo`], with this durability unless an
    /// option `DURABILITY` says another one. `None` if the model has no such keyspaces, or if the options ask for something
    /// that only replicated ones have.
    ///
    /// # Errors
    /// An option has no such value.
    fn create_solo(
        &self,
        words: &OptionWords<'_>,
        process: u16,
        durability: Durability,
    ) -> Result<Option<StoredOptions>, Error> {
        let _ = (words, process, durability);
        Ok(None)
    }

    /// How one process serves the keyspace alone; in all other cases there are instances to host.
    fn solo(&self, options: &StoredOptions) -> Option<Solo> {
        let _ = options;
        None
    }

    /// The options as `KEYSPACE ALTER` changes them.
    ///
    /// # Errors
    /// An option is unknown, stays as it is, or has no such value.
    fn alter(&self, options: &StoredOptions, words: &OptionWords<'_>) -> Result<StoredOptions, Error>;

    /// Can this cluster keep such a keyspace?
    ///
    /// # Errors
    /// Says why not.
    fn check(&self, options: &StoredOptions, cluster: &ClusterShape) -> Result<(), String>;

    /// True if a keyspace that had the options `earlier` may have these now.
    fn may_become(&self, earlier: &StoredOptions, now: &StoredOptions) -> bool;

    /// True if these are the options of a keyspace that was created with `created`, whatever has become of its partitions
    /// and regions since.
    fn was_created_as(&self, options: &StoredOptions, created: &StoredOptions) -> bool;

    /// How many shards or partitions there are.
    fn partitions(&self, options: &StoredOptions) -> u16;

    /// The least number of other processes that have an answered write, as long as the keyspace's guarantee holds.
    fn acknowledged_replicas(&self, options: &StoredOptions, cluster: &ClusterShape) -> u16 {
        let _ = (options, cluster);
        0
    }

    /// What KEYSPACE INFO says of the options.
    fn describe(&self, options: &StoredOptions, cluster: &ClusterShape) -> Properties;

    /// By partition, in order: the processes that keep it, in every region, as the options say. Empty if the model does not
    /// tell.
    fn placement(&self, options: &StoredOptions, place: &Place<'_>) -> Vec<Vec<u16>> {
        let _ = (options, place);
        Vec::new()
    }

    /// The keyspace's instances in a process.
    ///
    /// # Errors
    /// The options are not this model's.
    fn host(&self, options: &StoredOptions, place: &Place<'_>) -> Result<Box<dyn Hosted>, String>;

    /// The options once a partition was to move; called only for a keyspace whose [`Hosted::present`] lists the
    /// partition.
    ///
    /// # Errors
    /// Its partitions stay.
    fn note_move(
        &self,
        options: &StoredOptions,
        partition: u16,
        to: &PartitionMove,
    ) -> Result<StoredOptions, String> {
        let _ = (options, partition, to);
        Err("its partitions stay where they are: only those of strict keyspaces without leaders move"
            .to_owned())
    }

    /// The options once a region is gone for good. `own_region` is the region of the process that got the command.
    ///
    /// # Errors
    /// The keyspace does not go on without it, and why.
    fn note_eviction(
        &self,
        options: &StoredOptions,
        region: &str,
        own_region: &str,
        cluster: &ClusterShape,
    ) -> Result<StoredOptions, String>;
}

/// What is wrong with a number of partitions.
///
/// # Errors
/// There are none, or too many.
pub fn check_partitions(partitions: u16) -> Result<(), String> {
    match (1..=MAX_PARTITIONS).contains(&partitions) {
        true => Ok(()),
        false => Err(format!("it needs 1 to {MAX_PARTITIONS} partitions")),
    }
}
