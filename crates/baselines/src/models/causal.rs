//! The model `causal` with `PROTOCOL cure`, `h-cure`, `bpr`, `cure-applied`, `h-cure-applied`, `nocc` and `log`.

use super::{joined, split};
use crate::{Blocking, Cure, HybridCure, Uncoordinated};
use causal::model::{Causal, Options, host_cops, host_partitions, set_up};
use causal::stable;
use causal::stable::MAX_REGIONS;
use protocol::hosted::{Hosted, Place};
use protocol::model::{ClusterShape, Model, OptionWords, Properties, StoredOptions, read};
use types::Error;

/// The protocols that a laboratory's keyspace may have: the product's first.
const PROTOCOLS: [&str; 11] =
    ["wren", "paris", "pocc", "cops", "cure", "h-cure", "bpr", "cure-applied", "h-cure-applied", "nocc", LOG];

/// One log in each region, which is exchanged.
const LOG: &str = "log";

/// The product's protocols.
const CAUSAL: Causal = Causal::BARE;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct CausalBaselines;

/// True if the protocol's writes or snapshots name a time for each region.
fn has_vectors(protocol: &str) -> bool {
    protocol.contains("cure") || protocol == LOG
}

impl Model for CausalBaselines {
    fn name(&self) -> &'static str {
        CAUSAL.name()
    }

    fn create(&self, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        let Some(word) = words.get("PROTOCOL") else { return CAUSAL.create(words) };
        match word.one_of(&PROTOCOLS)? {
            0..=3 => CAUSAL.create(words),
            named => {
                let mut options = CAUSAL.create(&words.without("PROTOCOL"))?;
                if PROTOCOLS[named] == LOG && words.get("PARTITIONS").is_none() {
                    options["partitions"] = 1.into();
                }
                Ok(joined(options, Some(PROTOCOLS[named])))
            }
        }
    }

    fn alter(&self, options: &StoredOptions, words: &OptionWords<'_>) -> Result<StoredOptions, Error> {
        let (baseline, rest) = split(options);
        Ok(joined(CAUSAL.alter(&rest, words)?, baseline.as_deref()))
    }

    fn check(&self, options: &StoredOptions, cluster: &ClusterShape) -> Result<(), String> {
        let (baseline, rest) = split(options);
        let Some(protocol) = baseline else { return CAUSAL.check(&rest, cluster) };
        let options: Options = read(&rest)?;
        if options.is_copied() {
            return Err(format!("PROTOCOL {protocol} is a baseline for measurements, without COPIES"));
        }
        if protocol == LOG && options.partitions != 1 {
            return Err("PROTOCOL log has one log in each region, and so one partition; leave PARTITIONS out, or take \
                        PROTOCOL cops"
                .to_owned());
        }
        if has_vectors(&protocol) && options.is_placed() {
            return Err(format!(
                "PROTOCOL {protocol} keeps every partition in every region; leave REPLICAS and REGIONS out, or take PROTOCOL \
                 bpr"
            ));
        }
        if has_vectors(&protocol) && usize::from(cluster.region_count()) > MAX_REGIONS {
            return Err(format!("PROTOCOL {protocol} is for at most {MAX_REGIONS} regions"));
        }
        CAUSAL.check(&rest, cluster)
    }

    fn may_become(&self, earlier: &StoredOptions, now: &StoredOptions) -> bool {
        let ((earlier, of_earlier), (now, of_now)) = (split(earlier), split(now));
        earlier == now && CAUSAL.may_become(&of_earlier, &of_now)
    }

    fn was_created_as(&self, options: &StoredOptions, created: &StoredOptions) -> bool {
        let ((options, of_options), (created, of_created)) = (split(options), split(created));
        options == created && CAUSAL.was_created_as(&of_options, &of_created)
    }

    fn partitions(&self, options: &StoredOptions) -> u16 {
        CAUSAL.partitions(&split(options).1)
    }

    fn describe(&self, options: &StoredOptions, cluster: &ClusterShape) -> Properties {
        let (baseline, rest) = split(options);
        let mut properties = CAUSAL.describe(&rest, cluster);
        if let Some(protocol) = baseline {
            properties.retain(|(name, _)| *name != "protocol");
            properties.insert(0, ("protocol", protocol.as_str().into()));
        }
        properties
    }

    fn placement(&self, options: &StoredOptions, place: &Place<'_>) -> Vec<Vec<u16>> {
        CAUSAL.placement(&split(options).1, place)
    }

    fn host(&self, options: &StoredOptions, place: &Place<'_>) -> Result<Box<dyn Hosted>, String> {
        let (baseline, rest) = split(options);
        let Some(protocol) = baseline else { return CAUSAL.host(&rest, place) };
        let options: Options = read(&rest)?;
        let applied_reads = protocol.ends_with("-applied");
        let set_up = stable::Options { applied_reads, ..set_up(&options, place) };
        match protocol.as_str() {
            "cure" | "cure-applied" => Ok(host_partitions::<Cure>(&options, set_up, place)),
            "h-cure" | "h-cure-applied" => Ok(host_partitions::<HybridCure>(&options, set_up, place)),
            "bpr" => Ok(host_partitions::<Blocking>(&options, set_up, place)),
            LOG => Ok(host_cops(&Options { ignore_conflicts: true, ..options }, true, None, place)),
            "nocc" => Ok(host_partitions::<Uncoordinated>(&options, set_up, place)),
            other => Err(format!("there is no baseline '{other}' here")),
        }
    }

    fn note_eviction(
        &self,
        options: &StoredOptions,
        region: &str,
        own_region: &str,
        cluster: &ClusterShape,
    ) -> Result<StoredOptions, String> {
        match split(options).0 {
            None => CAUSAL.note_eviction(options, region, own_region, cluster),
            Some(_) => Err(
                "it is kept by a baseline for measurements: a region cannot be evicted from it; restore its \
                            processes, or copy the keys to another keyspace"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::model::RegionShape;
    use types::HashSeed;

    fn created(words: &[(&[u8], &[u8])]) -> StoredOptions {
        CausalBaselines.create(&OptionWords::new(Vec::new(), words)).unwrap()
    }

    fn cluster(regions: u16) -> ClusterShape {
        let region = |id: u16| RegionShape { name: format!("r{id}"), processes: vec![id] };
        ClusterShape { seed: HashSeed(1), regions: (0..regions).map(region).collect() }
    }

    #[test]
    fn the_product_refuses_what_a_baseline_keeps() {
        let (wren, cure) = (created(&[(b"PROTOCOL", b"wren")]), created(&[(b"PROTOCOL", b"CURE")]));
        assert_eq!(
            (CausalBaselines.check(&wren, &cluster(2)), CAUSAL.check(&wren, &cluster(2))),
            (Ok(()), Ok(()))
        );
        assert_eq!(CausalBaselines.check(&cure, &cluster(2)), Ok(()));
        assert!(CAUSAL.check(&cure, &cluster(2)).unwrap_err().contains("baseline"));
        assert!(CausalBaselines.may_become(&cure, &cure) && !CausalBaselines.may_become(&cure, &wren));
        assert_eq!(CausalBaselines.describe(&cure, &cluster(2))[0], ("protocol", "cure".into()));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        let check =
            |words: &[(&[u8], &[u8])], regions| CausalBaselines.check(&created(words), &cluster(regions));
        let cure: (&[u8], &[u8]) = (b"PROTOCOL", b"h-cure");
        assert!(
            check(&[cure, (b"REPLICAS", b"1")], 2).unwrap_err().contains("every partition in every region")
        );
        assert!(check(&[cure], 9).unwrap_err().contains("at most 8 regions"));
        assert_eq!(check(&[(b"PROTOCOL", b"bpr"), (b"REPLICAS", b"1")], 9), Ok(()));
        let copies = check(&[(b"PROTOCOL", b"bpr"), (b"COPIES", b"3")], 2);
        assert!(copies.unwrap_err().contains("without COPIES"));
        let log: (&[u8], &[u8]) = (b"PROTOCOL", b"log");
        assert_eq!((check(&[log], 2), check(&[log, (b"PARTITIONS", b"1")], 2)), (Ok(()), Ok(())));
        assert!(check(&[log, (b"PARTITIONS", b"2")], 2).unwrap_err().contains("one log in each region"));
        let occult = OptionWords::new(Vec::new(), &[(b"PROTOCOL", b"occult")]);
        assert!(CausalBaselines.create(&occult).unwrap_err().message.contains("h-cure"));
        assert!(
            CausalBaselines
                .note_eviction(&created(&[cure]), "r1", "r0", &cluster(2))
                .unwrap_err()
                .contains("baseline")
        );
    }
}
