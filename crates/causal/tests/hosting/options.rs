//! Options as statements give them: what is refused, and what becomes of them.

use anabranch_causal::cops::Handler;
use anabranch_causal::model::{Causal, Options, Protocol};
use protocol::model::{ClusterShape, Model, OptionWords, RegionShape, read, store};
use std::sync::Arc;
use types::HashSeed;

fn cluster(processes: &[u16]) -> ClusterShape {
    let region = |(region, each): (u16, &u16)| RegionShape {
        name: format!("r{region}"),
        processes: (0..*each).map(|process| region * 10 + process).collect(),
    };
    ClusterShape { seed: HashSeed(1), regions: (0..).zip(processes).map(region).collect() }
}

/// Which of two values counts.
#[derive(Debug)]
struct Choice(bool);

impl Handler for Choice {
    fn source(&self) -> &str {
        ""
    }

    fn merge(&self, _: &[u8], one: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
        Ok(if self.0 { one.max(other) } else { one }.to_vec())
    }
}

fn compile(source: &str) -> Result<Arc<dyn Handler>, String> {
    match source {
        "greatest" => Ok(Arc::new(Choice(true))),
        "first" => Ok(Arc::new(Choice(false))),
        _ => Err("it is no program".to_owned()),
    }
}

fn created(regions: &[&'static [u8]], words: &[(&[u8], &[u8])]) -> Result<Options, String> {
    let words = OptionWords::new(regions.to_vec(), words);
    Options::create(&words, compile).map_err(|error| error.message.into_owned())
}

#[test]
fn what_cannot_work_is_refused_with_its_reason() {
    let two = cluster(&[1, 1]);
    let check = |regions: &[&'static [u8]], words: &[(&[u8], &[u8])]| {
        created(regions, words).and_then(|options| options.check(&two))
    };
    assert_eq!(check(&[], &[]), Ok(()));
    assert_eq!(check(&[], &[(b"REPLICAS", b"1")]), Ok(()));
    assert!(check(&[], &[(b"REPLICAS", b"3")]).unwrap_err().contains("1 to 2 here, not 3"));
    assert!(check(&[b"r1", b"x"], &[]).unwrap_err().contains("no region 'x'; there are r0, r1"));
    assert!(check(&[b"r1", b"r1"], &[]).unwrap_err().contains("twice"));
    assert_eq!(check(&[b"r1"], &[]), Ok(()));
    assert!(check(&[], &[(b"PARTITIONS", b"0")]).unwrap_err().contains("partition"));
    assert!(check(&[], &[(b"COPIES", b"3")]).unwrap_err().contains("region 'r0' has 1"));
    assert!(check(&[], &[(b"COPIES", b"2")]).unwrap_err().contains("1 or 3"));
    assert!(check(&[], &[(b"LOCKS", b"none")]).unwrap_err().contains("unknown keyspace option 'LOCKS'"));
    assert!(check(&[], &[(b"PROTOCOL", b"cure")]).unwrap_err().contains("pocc or cops, not 'cure'"));
    let wren = check(&[b"r1"], &[(b"PROTOCOL", b"wren")]);
    assert!(wren.unwrap_err().contains("every partition in every region"));
}

#[test]
fn where_partitions_are_chooses_the_protocol_unless_it_is_named() {
    assert_eq!(created(&[], &[]).unwrap().protocol, Protocol::Wren);
    assert_eq!(created(&[], &[(b"REPLICAS", b"1")]).unwrap().protocol, Protocol::Paris);
    assert_eq!(created(&[b"r1"], &[]).unwrap().protocol, Protocol::Paris);
    assert_eq!(created(&[], &[(b"PROTOCOL", b"PaRiS")]).unwrap().protocol, Protocol::Paris);
}

#[test]
fn a_region_that_holds_nothing_needs_no_processes_for_copies() {
    let copies: (&[u8], &[u8]) = (b"COPIES", b"3");
    let placed = created(&[b"r0", b"r1"], &[copies, (b"REPLICAS", b"2")]).unwrap();
    assert_eq!(placed.check(&cluster(&[3, 3, 2])), Ok(()));
    for protocol in ["wren", "pocc", "cops"] {
        let everywhere = created(&[], &[copies, (b"PROTOCOL", protocol.as_bytes())]).unwrap();
        assert_eq!(everywhere.check(&cluster(&[3, 3])), Ok(()));
        assert!(everywhere.check(&cluster(&[3, 3, 2])).unwrap_err().contains("region 'r2' has 2"));
    }
}

#[test]
fn a_region_is_evicted_from_copies_of_wren_only() {
    for (protocol, evicts) in [("wren", true), ("paris", false), ("pocc", false), ("cops", false)] {
        let options = created(&[], &[(b"COPIES", b"3"), (b"PROTOCOL", protocol.as_bytes())]).unwrap();
        let evicted = Causal::BARE.note_eviction(&store(&options), "r1", "r0", &cluster(&[3, 3]));
        assert_eq!(evicted.is_ok(), evicts, "{protocol}");
    }
}

#[test]
fn an_eviction_is_all_that_becomes_of_options() {
    let cluster = cluster(&[1, 1, 1]);
    let before = store(&created(&[], &[(b"REPLICAS", b"2")]).unwrap());
    let after = Causal::BARE.note_eviction(&before, "r2", "r0", &cluster).unwrap();
    assert!(Causal::BARE.may_become(&before, &after) && !Causal::BARE.may_become(&after, &before));
    assert!(Causal::BARE.was_created_as(&after, &before));
    assert_eq!(read::<Options>(&after).unwrap().evicted, ["r2"]);
    let refused = |region: &str, own_region: &str| {
        Causal::BARE.note_eviction(&after, region, own_region, &cluster).unwrap_err()
    };
    assert!(refused("r1", "r0").contains("nobody else has"));
    assert!(refused("r0", "r2").contains("ask one of a region that stays"));
    assert!(refused("x", "r0").contains("no region 'x'"));
}

#[test]
fn cops_is_created_without_what_it_does_not_have() {
    let cops: (&[u8], &[u8]) = (b"PROTOCOL", b"cops");
    let on: (&[u8], &[u8]) = (b"TRANSACTIONS", b"on");
    let two = cluster(&[1, 1]);
    let check = |words: &[(&[u8], &[u8])]| {
        created(&[], words).and_then(|options| options.check(&two).map(|()| options))
    };
    assert!(!check(&[cops]).unwrap().transactions && check(&[cops, on]).unwrap().transactions);
    assert!(check(&[on]).unwrap_err().contains("of PROTOCOL cops"));
    assert!(check(&[cops, (b"COPIES", b"3")]).unwrap_err().contains("region 'r0' has 1"));
    assert!(check(&[cops, (b"REPLICAS", b"1")]).unwrap_err().contains("every partition in every region"));
    assert!(!check(&[cops]).unwrap().ignore_conflicts, "conflicts are listed unless that is refused");
    assert!(check(&[cops, (b"CONFLICTS", b"ignore")]).unwrap().ignore_conflicts);
    let keep: (&[u8], &[u8]) = (b"CONFLICTS", b"keep");
    assert!(check(&[cops, keep]).unwrap().keep_conflicts);
    let by: (&[u8], &[u8]) = (b"CONFLICTS", b"handler");
    let greatest: (&[u8], &[u8]) = (b"HANDLER", b"greatest");
    assert_eq!(check(&[cops, by, greatest]).unwrap().handler.as_deref(), Some("greatest"));
    assert!(check(&[cops, by]).unwrap_err().contains("go together"));
    assert!(check(&[cops, keep, greatest]).unwrap_err().contains("go together"));
    assert!(
        check(&[cops, by, (b"HANDLER", b"first")]).unwrap_err().contains("HANDLER: it is not commutative")
    );
    assert!(check(&[cops, by, (b"HANDLER", b"")]).unwrap_err().contains("HANDLER: it is no program"));
    assert!(check(&[keep]).unwrap_err().contains("CONFLICTS keep is of PROTOCOL cops"));
    let many = created(&[], &[cops]).unwrap().check(&cluster(&[1; 9]));
    assert!(many.unwrap_err().contains("at most 8 regions"));
    let stored = store(&check(&[cops, on]).unwrap());
    assert_eq!(read::<Options>(&stored).unwrap(), check(&[cops, on]).unwrap());
    let evicted = Causal::BARE.note_eviction(&stored, "r1", "r0", &two).unwrap();
    assert_eq!(read::<Options>(&evicted).unwrap().evicted, ["r1"]);
}

/// Copies of these protocols cannot do without a region yet.
#[test]
fn a_region_is_not_evicted_from_copies_of_pocc_and_cops() {
    let cluster = cluster(&[3, 3]);
    for protocol in [&b"pocc"[..], b"cops", b"paris"] {
        let copied = store(&created(&[], &[(b"PROTOCOL", protocol), (b"COPIES", b"3")]).unwrap());
        let refused = Causal::BARE.note_eviction(&copied, "r1", "r0", &cluster).unwrap_err();
        assert!(refused.contains("cannot be evicted from it yet"), "{refused}");
    }
    let wren = store(&created(&[], &[(b"COPIES", b"3")]).unwrap());
    assert!(Causal::BARE.note_eviction(&wren, "r1", "r0", &cluster).is_ok());
    let keep = created(&[], &[(b"PROTOCOL", b"pocc"), (b"COPIES", b"3"), (b"DEPENDANTS", b"keep")]).unwrap();
    assert!(keep.check(&cluster).unwrap_err().contains("leave it out"));
}
