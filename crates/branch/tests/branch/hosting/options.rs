//! Options as statements give them, and as the catalog keeps them.

use anabranch_branch::model::{Branch, Options};
use protocol::model::{ClusterShape, Model, OptionWords, read, store};
use types::HashSeed;

const BRANCH: Branch = Branch::new(|_| Err("not a program".to_owned()));

fn created(words: &[(&[u8], &[u8])]) -> Result<Options, String> {
    let options = BRANCH.create(&OptionWords::new(Vec::new(), words));
    read(&options.map_err(|error| error.message.into_owned())?)
}

#[test]
fn what_cannot_work_is_refused_with_its_reason() {
    let cluster = ClusterShape { seed: HashSeed(1), regions: Vec::new() };
    let check = |words: &[(&[u8], &[u8])]| {
        created(words).and_then(|options| BRANCH.check(&store(&options), &cluster))
    };
    assert_eq!(check(&[]), Ok(()));
    assert!(check(&[(b"MERGE", b"handler")]).unwrap_err().contains("needs HANDLER"));
    assert!(check(&[(b"HANDLER", b"x")]).unwrap_err().contains("HANDLER: not a program"));
    assert!(check(&[(b"REPLICAS", b"1")]).unwrap_err().contains("unknown keyspace option 'REPLICAS'"));
    let early: [(&[u8], &[u8]); 2] = [(b"COLLECT", b"optimistic"), (b"PARTITIONS", b"2")];
    assert!(check(&early).unwrap_err().contains("COLLECT optimistic needs"));
    assert!(check(&[(b"PARTITIONS", b"0")]).unwrap_err().contains("1 to 1024"));
}

#[test]
fn options_survive_the_catalog() {
    let options = created(&[(b"MERGE", b"manual"), (b"KEEPFOR", b"7"), (b"LOCAL", b"branch")]).unwrap();
    assert_eq!((options.merge_every_ms, options.keep_for_ms, options.forks_locally), (0, 7, true));
    assert_eq!(read(&store(&options)), Ok(options));
}
