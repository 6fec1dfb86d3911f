//! What is done to a partition's store beside what clients ask for: keys that have expired are deleted, and a cache gives up
//! keys. Here is only which ones; they go by transactions like any other (Corrections 69, 81).

use mvcc::{By, Choice, Stamp, Store, Tracked};
use protocol::eviction::{Cache, Eviction};
use protocol::hosted::{Holdings, MaintenanceTask};
use types::Rng;

/// How many expired keys of a partition the owner requests at a time.
const EXPIRED_AT_ONCE: usize = 64;
/// A key that has expired is left alone for so long, in milliseconds: a transaction that saw it alive may be committing.
const PATIENCE_MILLIS: u64 = 500;
/// And for so much longer by each further replica, in case those before it do not do it.
const PATIENCE_OF_NEXT_MILLIS: u64 = 2_000;
/// How many keys of a cache go at a time.
const EVICTED_AT_ONCE: usize = 64;
/// How many keys are drawn for one that goes, in keyspaces that say which ones.
const SAMPLES: usize = 5;

/// What a store has to track for a policy.
pub fn tracked(policy: Eviction) -> Option<Tracked> {
    match policy {
        Eviction::AllkeysLru | Eviction::VolatileLru => Some(Tracked::Recency),
        Eviction::AllkeysLfu | Eviction::VolatileLfu => Some(Tracked::Frequency),
        Eviction::AllkeysRandom | Eviction::VolatileRandom | Eviction::VolatileTtl => None,
    }
}

/// How a policy chooses, with so many keys drawn.
pub fn choice(policy: Eviction, samples: usize) -> Choice {
    let by = match policy {
        Eviction::VolatileTtl => By::Deadline,
        _ if tracked(policy).is_some() => By::Usage(samples),
        _ => By::Chance,
    };
    Choice { volatile: policy.is_volatile(), by }
}

/// What a store occupies beyond its share, in bytes. Memory retained for snapshots does not count: it stays when keys
/// are evicted.
fn excess<S: Stamp>(store: &Store<S>, share: usize) -> usize {
    (store.memory() - store.retained()).saturating_sub(share)
}

/// What a store holds.
pub(crate) fn holdings<S: Stamp>(store: &Store<S>, cache: Option<Cache>) -> Holdings {
    let is_full = cache.is_some_and(|cache| {
        let none = if cache.policy.is_volatile() { store.dated() == 0 } else { store.is_empty() };
        none && cache.share.is_some_and(|share| excess(store, share) > 0)
    });
    Holdings {
        keys: store.len(),
        deadlines: store.dated(),
        memory: store.memory(),
        retained: store.retained(),
        evicted: 0,
        is_full,
    }
}

/// Adds the keys of a store that are to go, as far as that is up to the partition's leader, which has the rank 0; where
/// nobody leads, replicas have ranks from 0.
pub(crate) fn add_chores<S: Stamp>(
    store: &Store<S>,
    cache: Option<Cache>,
    (now_millis, rank): (u64, u64),
    random: &mut Rng,
    maintenance: &mut Vec<MaintenanceTask>,
) {
    let due = now_millis.saturating_sub(PATIENCE_MILLIS + rank * PATIENCE_OF_NEXT_MILLIS);
    maintenance.extend(store.expired(due, EXPIRED_AT_ONCE).map(|key| MaintenanceTask::Expire(key.into())));
    let Some(Cache { policy, share: Some(share) }) = cache else { return };
    // The next replicas let keys go where those before them leave more and more.
    let excess = excess(store, share + share / 8 * rank as usize);
    let each = (store.memory() - store.retained()) / store.len().max(1);
    let wanted = excess.div_ceil(each.max(1)).min(EVICTED_AT_ONCE);
    let mut keys: Vec<Box<[u8]>> = (0..wanted)
        .filter_map(|_| store.victim(choice(policy, SAMPLES), now_millis, random))
        .map(Into::into)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    maintenance.extend(keys.into_iter().map(MaintenanceTask::Evict));
}
