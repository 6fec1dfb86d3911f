//! The model `strict` with `CONCURRENCY qwstore`, and with `LOCKS readwrite` and `LOCKS none`.

use super::{joined, split};
use crate::qwstore;
use protocol::Durability;
use protocol::hosted::{Hosted, HostedNodes, Hosting, Place};
use protocol::model::{
    ClusterShape, Model, OptionWords, PartitionMove, Properties, Property, Solo, StoredOptions, read,
};
use strict::locking;
use strict::model::{
    Concurrency, LockingOptions, Options, Strict, host_locking, host_shards, locking_options, topology,
};
use types::Error;

/// Locks of readers and writers.
const READ_WRITE: &str = "readwrite";
/// No locks.
const NONE: &str = "none";
/// No order.
const QWSTORE: &str = "qwstore";

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct StrictBaselines;

impl Model for StrictBaselines {
    fn name(&self) -> &'static str {
        Strict.name()
    }

    fn create(&self, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        let names = ["optimistic", "locking", "occ", QWSTORE];
        if words.get("CONCURRENCY").map_or(Ok(0), |word| word.one_of(&names))? == 3 {
            return Ok(joined(Strict.create(&words.without("CONCURRENCY"))?, Some(QWSTORE)));
        }
        let Some(word) = words.get("LOCKS") else { return Strict.create(words) };
        let locks = [None, Some(READ_WRITE), Some(NONE)][word.one_of(&["typed", READ_WRITE, NONE])?];
        let rest = words.without("LOCKS");
        if words.get("CONCURRENCY").is_none_or(|word| word.one_of(&names) != Ok(1)) {
            return Err(Error::err("PHASING, COMBINING and LOCKS are for CONCURRENCY locking"));
        }
        let in_vain = |name| rest.get(name).is_some();
        if locks == Some(NONE) && (in_vain("PHASING") || in_vain("COMBINING")) {
            return Err(Error::err("LOCKS none has no locks, no PHASING and no COMBINING"));
        }
        Ok(joined(Strict.create(&rest)?, locks))
    }

    fn create_solo(
        &self,
        words: &OptionWords<'_>,
        process: u16,
        durability: Durability,
    ) -> Result<Option<StoredOptions>, Error> {
        Strict.create_solo(words, process, durability)
    }

    fn solo(&self, options: &StoredOptions) -> Option<Solo> {
        Strict.solo(options)
    }

    fn alter(&self, options: &StoredOptions, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        let (baseline, rest) = split(options);
        if words.get("LOCKS").is_some() {
            return Err(Error::err("LOCKS stays: leaders would hand out locks by different rules"));
        }
        Ok(joined(Strict.alter(&rest, words)?, baseline.as_deref()))
    }

    fn check(&self, options: &StoredOptions, cluster: &ClusterShape) -> Result<(), String> {
        Strict.check(&split(options).1, cluster)
    }

    fn may_become(&self, earlier: &StoredOptions, now: &StoredOptions) -> bool {
        let ((earlier, of_earlier), (now, of_now)) = (split(earlier), split(now));
        earlier == now && Strict.may_become(&of_earlier, &of_now)
    }

    fn was_created_as(&self, options: &StoredOptions, created: &StoredOptions) -> bool {
        let ((options, of_options), (created, of_created)) = (split(options), split(created));
        options == created && Strict.was_created_as(&of_options, &of_created)
    }

    fn partitions(&self, options: &StoredOptions) -> u16 {
        Strict.partitions(&split(options).1)
    }

    fn describe(&self, options: &StoredOptions, cluster: &ClusterShape) -> Properties {
        let (baseline, rest) = split(options);
        let mut properties = Strict.describe(&rest, cluster);
        match baseline.as_deref() {
            Some(QWSTORE) => return vec![("concurrency", QWSTORE.into())],
            Some(NONE) => properties
                .iter_mut()
                .filter(|(name, _)| ["phasing", "combining"].contains(name))
                .for_each(|(_, value)| *value = Property::from("off")),
            _ => {}
        }
        if properties.iter().any(|(name, _)| *name == "phasing") {
            properties.push(("locks", baseline.as_deref().unwrap_or("typed").into()));
        }
        properties
    }

    fn placement(&self, options: &StoredOptions, place: &Place<'_>) -> Vec<Vec<u16>> {
        Strict.placement(&split(options).1, place)
    }

    fn host(&self, options: &StoredOptions, place: &Place<'_>) -> Result<Box<dyn Hosted>, String> {
        let (baseline, rest) = split(options);
        let Some(baseline) = baseline else { return Strict.host(&rest, place) };
        let options: Options = read(&rest)?;
        match (baseline.as_str(), &options.concurrency) {
            (QWSTORE, _) => Ok(host_qwstore(&options, place)),
            (READ_WRITE | NONE, Concurrency::Locking(locking)) => {
                let set_up = with_locks(&baseline, locking, place);
                Ok(host_locking(&topology(&options, place), set_up, place))
            }
            _ => Err(format!("there is no baseline '{baseline}' here")),
        }
    }

    fn note_move(
        &self,
        options: &StoredOptions,
        partition: u16,
        to: &PartitionMove,
    ) -> Result<StoredOptions, String> {
        Strict.note_move(options, partition, to)
    }

    fn note_eviction(
        &self,
        options: &StoredOptions,
        region: &str,
        own_region: &str,
        cluster: &ClusterShape,
    ) -> Result<StoredOptions, String> {
        Strict.note_eviction(options, region, own_region, cluster)
    }
}

/// How replicas are set up that lock readers and writers only, or nothing.
fn with_locks(baseline: &str, options: &LockingOptions, place: &Place<'_>) -> locking::Options {
    let mut set_up = locking_options(options, place);
    set_up.locks.readers_and_writers = baseline == READ_WRITE;
    if baseline == NONE {
        set_up.concurrency = locking::Concurrency::Unlocked;
    }
    set_up
}

struct QwStoreHosting;

impl Hosting for QwStoreHosting {
    type Protocol = qwstore::Node;
}

fn host_qwstore(options: &Options, place: &Place<'_>) -> Box<dyn Hosted> {
    let (topology, life) = (topology(options, place), place.life);
    let set_up = qwstore::Options { durability: life.durability, ..qwstore::Options::default() };
    let coordinator =
        qwstore::Node::coordinator(topology.clone(), life.process, life.incarnation, set_up.clone());
    let nodes = host_shards(&topology, place, coordinator, |_, _| qwstore::Node::replica(&topology, &set_up));
    Box::new(HostedNodes::new(nodes, QwStoreHosting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::model::RegionShape;
    use types::HashSeed;

    fn create(words: &[(&[u8], &[u8])]) -> Result<StoredOptions, String> {
        StrictBaselines
            .create(&OptionWords::new(Vec::new(), words))
            .map_err(|error| error.message.into_owned())
    }

    const LOCKING: (&[u8], &[u8]) = (b"CONCURRENCY", b"locking");

    #[test]
    fn the_product_refuses_what_a_baseline_keeps() {
        let region = RegionShape { name: "a".to_owned(), processes: vec![1, 2, 3] };
        let cluster = ClusterShape { seed: HashSeed(1), regions: vec![region] };
        let qwstore = create(&[(b"CONCURRENCY", b"QWStore")]).unwrap();
        let typed = create(&[LOCKING, (b"LOCKS", b"typed")]).unwrap();
        let unlocked = create(&[LOCKING, (b"LOCKS", b"none")]).unwrap();
        for options in [&qwstore, &typed, &unlocked] {
            assert_eq!(StrictBaselines.check(options, &cluster), Ok(()));
        }
        assert_eq!(Strict.check(&typed, &cluster), Ok(()));
        assert!(Strict.check(&qwstore, &cluster).is_err() && Strict.check(&unlocked, &cluster).is_err());
        let says = |options, name: &str| {
            let properties = StrictBaselines.describe(options, &cluster);
            properties.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        assert_eq!(says(&qwstore, "concurrency"), Some("qwstore".into()));
        assert_eq!(
            (says(&typed, "locks"), says(&unlocked, "phasing")),
            (Some("typed".into()), Some("off".into()))
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        let locks: (&[u8], &[u8]) = (b"LOCKS", b"none");
        assert!(create(&[locks]).unwrap_err().contains("CONCURRENCY locking"));
        assert!(create(&[LOCKING, locks, (b"PHASING", b"on")]).unwrap_err().contains("no PHASING"));
        assert!(
            create(&[(b"CONCURRENCY", b"luck")]).unwrap_err().contains("optimistic, locking, occ or qwstore")
        );
    }
}
