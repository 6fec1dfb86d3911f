//! Options as statements give them: what is refused, and what becomes of them.

use protocol::model::{ClusterShape, Model, OptionWords, PartitionMove, RegionShape, read, store};
use strict::model::{Concurrency, LockingOptions, Options, Strict};
use types::HashSeed;

fn cluster(processes: u16) -> ClusterShape {
    let region = RegionShape { name: "a".to_owned(), processes: (1..=processes).collect() };
    ClusterShape { seed: HashSeed(1), regions: vec![region] }
}

fn created(words: &[(&[u8], &[u8])]) -> Result<Options, String> {
    let options = Strict.create(&OptionWords::new(Vec::new(), words));
    read(&options.map_err(|error| error.message.into_owned())?)
}

#[test]
fn options_belong_to_their_concurrency() {
    let locking: (&[u8], &[u8]) = (b"concurrency", b"locking");
    let options = created(&[(b"PHASING", b"off"), locking]).unwrap();
    let expected = Concurrency::Locking(LockingOptions { phasing: false, combining: true });
    assert_eq!(options.concurrency, expected);
    assert!(created(&[locking, (b"SKEWWAIT", b"5")]).unwrap_err().contains("CONCURRENCY optimistic"));
    assert!(created(&[(b"PHASING", b"off")]).unwrap_err().contains("CONCURRENCY locking"));
    assert!(created(&[(b"LOCKS", b"none")]).unwrap_err().contains("unknown keyspace option 'LOCKS'"));
    let unknown = created(&[(b"CONCURRENCY", b"qwstore")]).unwrap_err();
    assert!(unknown.contains("CONCURRENCY is optimistic, locking or occ, not 'qwstore'"));
    let regions = OptionWords::new(vec![b"a"], &[]);
    assert!(Strict.create(&regions).unwrap_err().message.contains("unknown keyspace option 'REGIONS'"));
}

#[test]
fn what_cannot_work_is_refused_with_its_reason() {
    let check = |words: &[(&[u8], &[u8])], cluster: &ClusterShape| {
        Strict.check(&store(&created(words).unwrap()), cluster)
    };
    assert_eq!(check(&[], &cluster(3)), Ok(()));
    assert!(check(&[], &cluster(2)).unwrap_err().contains("1, 3, 5"));
    assert!(check(&[(b"PARTITIONS", b"0")], &cluster(3)).is_err());
    assert!(check(&[(b"SKEWWAIT", b"1001")], &cluster(3)).is_err());
}

#[test]
fn the_catalog_follows_what_was_altered_and_nothing_else() {
    let before = created(&[(b"CLOCKBOUND", b"7")]).unwrap();
    let words = |name: &'static [u8]| OptionWords::new(Vec::new(), &[(name, b"9")]);
    let altered = Strict.alter(&store(&before), &words(b"SKEWWAIT")).unwrap();
    let to = PartitionMove { epoch: 2, processes: vec![1], joining: [4].into() };
    let after = Strict.note_move(&altered, 1, &to).unwrap();
    assert!(Strict.may_become(&store(&before), &after));
    let moved = read::<Options>(&after).unwrap();
    assert!(
        Strict.was_created_as(
            &store(&Options { moved: moved.moved.clone(), ..before.clone() }),
            &store(&before)
        )
    );
    let other = Options { partitions: 3, ..moved };
    assert!(!Strict.may_become(&store(&before), &store(&other)));
    let refused = Strict.alter(&after, &words(b"REPLICAS")).unwrap_err();
    assert!(refused.message.contains("REPLICAS stays"));
}

#[test]
fn a_cache_says_what_goes_and_a_replicated_one_how_much_it_has() {
    use protocol::eviction::Eviction;
    let lru: (&[u8], &[u8]) = (b"eviction", b"ALLKEYS-LRU");
    let memory: (&[u8], &[u8]) = (b"MAXMEMORY", b"1mb");
    let check = |options: &Options| Strict.check(&store(options), &cluster(3));
    let cache = created(&[lru, memory]).unwrap();
    assert_eq!((cache.eviction, cache.max_memory), (Some(Eviction::AllkeysLru), Some(1 << 20)));
    assert_eq!(check(&cache), Ok(()));
    assert!(check(&created(&[lru]).unwrap()).unwrap_err().contains("needs MAXMEMORY"));
    assert!(check(&created(&[memory]).unwrap()).unwrap_err().contains("by EVICTION"));
    assert!(created(&[(b"EVICTION", b"lru")]).unwrap_err().contains("volatile-ttl, not 'lru'"));
    let alter = |options: &Options, words: &[(&'static [u8], &'static [u8])]| -> Options {
        read(&Strict.alter(&store(options), &OptionWords::new(Vec::new(), words)).unwrap()).unwrap()
    };
    let larger = alter(&cache, &[(b"MAXMEMORY", b"2mb")]);
    assert_eq!((larger.eviction, larger.max_memory), (cache.eviction, Some(2 << 20)));
    let none = alter(&larger, &[(b"EVICTION", b"noeviction")]);
    assert_eq!((none.eviction, none.max_memory), (None, None));
    assert!(
        Strict.may_become(&store(&cache), &store(&larger))
            && Strict.may_become(&store(&larger), &store(&none))
    );
    let solo = Strict.create_solo(&OptionWords::new(Vec::new(), &[lru]), 1, protocol::Durability::Written);
    let solo = Strict.solo(&solo.unwrap().unwrap()).unwrap();
    assert_eq!((solo.eviction, solo.max_memory), (Some(Eviction::AllkeysLru), None));
}
