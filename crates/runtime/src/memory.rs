//! How much memory the data takes, how much it may, and which keyspaces have none left (Corrections 81).
//!
//! ```text
//!   step over a partition --> its sums here             turn over instances --> their sums here
//!   command that may grow --> above the limit? --> keys of caches go (`eviction`) --> none can: OOM
//! ```
//!
//! Counted is what stores say that they occupy: records, values, indexes, deadlines, histories, queues for other regions;
//! not clients' buffers, nor what the allocator wastes. Stores count as they change, nothing is walked. Commands are refused
//! when they arrive; what other processes wrote, and what was decided, is always applied.
//!
//! Where keys may go, histories do not count against the limit: they stay until nobody reads older snapshots, however many
//! keys go, and a long snapshot would empty the cache.

use parking_lot::Mutex;
use protocol::eviction::{Eviction, NO_EVICTION};
use protocol::hosted::Holdings;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize};
use types::{Error, ErrorCode, Instant, KeyspaceId};

/// How many keys are drawn for one that goes, unless that is configured.
pub(crate) const SAMPLES: usize = 5;
/// So long nobody looks for keys that may go after none was found.
const BARREN_MILLIS: u64 = 10;

/// What is to be known of a partition's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupied {
    /// All of it, in bytes.
    pub(crate) bytes: usize,
    /// Of that, what goes with older snapshots.
    pub(crate) retained: usize,
}

impl Occupied {
    /// What goes when keys go.
    pub(crate) fn evictable(self) -> usize {
        self.bytes.saturating_sub(self.retained)
    }
}

/// Sums over partitions.
#[derive(Debug, Default)]
struct Sums {
    bytes: AtomicUsize,
    retained: AtomicUsize,
}

impl Sums {
    fn add(&self, more: Occupied, less: Occupied) {
        self.bytes.fetch_add(more.bytes.wrapping_sub(less.bytes), Relaxed);
        self.retained.fetch_add(more.retained.wrapping_sub(less.retained), Relaxed);
    }

    fn set(&self, to: Occupied) {
        self.bytes.store(to.bytes, Relaxed);
        self.retained.store(to.retained, Relaxed);
    }

    fn get(&self) -> Occupied {
        Occupied { bytes: self.bytes.load(Relaxed), retained: self.retained.load(Relaxed) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    /// In bytes; 0 for none.
    limit: AtomicU64,
    /// The policy's place among all, from 1; 0 for none.
    policy: AtomicU8,
    samples: AtomicUsize,
    /// Keyspaces with lower numbers follow the policy, unless they have one.
    numbered: AtomicU16,
    /// Partitions that the process keeps by itself.
    solo: Sums,
    /// Replicas.
    hosted: Sums,
    hosted_evicted: AtomicU64,
    evicted: AtomicU64,
    refused: AtomicU64,
    /// How often keys may have come to be among those that may go.
    changes: AtomicU64,
    /// In milliseconds of the process's life: until then it is taken for granted that no key may go.
    barren_until: AtomicU64,
    /// But only while the changes are so many.
    barren_at: AtomicU64,
    /// Caches that have more than their share, and no key that may go.
    full: Mutex<BTreeSet<KeyspaceId>>,
    any_full: AtomicBool,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            limit: AtomicU64::new(0),
            policy: AtomicU8::new(0),
            samples: AtomicUsize::new(SAMPLES),
            numbered: AtomicU16::new(0),
            solo: Sums::default(),
            hosted: Sums::default(),
            hosted_evicted: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            barren_until: AtomicU64::new(0),
            barren_at: AtomicU64::new(0),
            full: Mutex::default(),
            any_full: AtomicBool::new(false),
        }
    }
}

impl Memory {
    /// The process's limit in bytes; 0 for none.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
        self.look_again();
    }

    /// What the process does with keys of numbered keyspaces at its limit.
    pub(crate) fn policy(&self) -> Option<Eviction> {
        usize::from(self.policy.load(Relaxed)).checked_sub(1).map(|place| Eviction::ALL[place])
    }

    /// The policy's name.
    pub(crate) fn policy_name(&self) -> &'static str {
        self.policy().map_or(NO_EVICTION, Eviction::as_str)
    }

    /// The stores' tracking is up to the caller.
    pub(crate) fn set_policy(&self, policy: Option<Eviction>) {
        let place = policy.and_then(|policy| Eviction::ALL.iter().position(|other| *other == policy));
        self.policy.store(place.map_or(0, |place| place as u8 + 1), Relaxed);
        self.look_again();
    }

    /// The policy of a keyspace that has none of its own.
    pub(crate) fn policy_of(&self, keyspace: KeyspaceId) -> Option<Eviction> {
        self.policy().filter(|_| keyspace.0 < self.numbered.load(Relaxed))
    }

    pub(crate) fn set_numbered(&self, databases: u16) {
        self.numbered.store(databases.max(1), Relaxed);
    }

    /// How many keys are drawn for one that goes.
    pub(crate) fn samples(&self) -> usize {
        self.samples.load(Relaxed)
    }

    pub(crate) fn set_samples(&self, samples: usize) {
        self.samples.store(samples.max(1), Relaxed);
    }

    /// A partition of this process occupies so much now, and did so before.
    pub(crate) fn recount(&self, now: Occupied, before: Occupied) {
        self.solo.add(now, before);
    }

    /// What all replicas hold.
    pub(crate) fn set_hosted(&self, holdings: Holdings) {
        self.hosted.set(Occupied { bytes: holdings.memory, retained: holdings.retained });
        self.hosted_evicted.store(holdings.evicted, Relaxed);
    }

    /// What the data occupies.
    pub(crate) fn used(&self) -> Occupied {
        let (solo, hosted) = (self.solo.get(), self.hosted.get());
        Occupied { bytes: solo.bytes + hosted.bytes, retained: solo.retained + hosted.retained }
    }

    /// By how many bytes the process is above its limit. With `evicting`, of what goes when keys go.
    #[inline]
    pub(crate) fn excess(&self, evicting: bool) -> usize {
        let limit = self.limit();
        if limit == 0 {
            return 0;
        }
        let used = self.used();
        let counted = if evicting { used.evictable() } else { used.bytes };
        counted.saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// How often other keys may have come to go: to be read before looking for one.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// No key was found that may go: looking at every cache is too much to be done at each command that is refused. Means
    /// nothing if there were other `changes` when the search began.
    pub(crate) fn set_barren(&self, now: Instant, changes: u64) {
        self.barren_at.store(changes, Relaxed);
        self.barren_until.store(now.0 / 1000 + BARREN_MILLIS, Relaxed);
    }

    /// Other keys may go from now on.
    pub(crate) fn look_again(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// True if the process is above its limit, and no key was found a moment ago that may go.
    #[inline]
    pub(crate) fn is_barren(&self, now: Instant) -> bool {
        now.0 / 1000 < self.barren_until.load(Relaxed)
            && self.barren_at.load(Relaxed) == self.changes()
            && self.excess(true) > 0
    }

    /// Keys have gone.
    pub(crate) fn count_evicted(&self, keys: usize) {
        self.evicted.fetch_add(keys as u64, Relaxed);
    }

    /// How many keys this process has let go.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed) + self.hosted_evicted.load(Relaxed)
    }

    /// A cache has, or has no longer, more than its share, and no key that may go.
    pub(crate) fn set_full(&self, keyspace: KeyspaceId, is_full: bool) {
        if !is_full && !self.any_full.load(Relaxed) {
            return;
        }
        let mut full = self.full.lock();
        let _ = if is_full { full.insert(keyspace) } else { full.remove(&keyspace) };
        self.any_full.store(!full.is_empty(), Relaxed);
    }

    /// True if the cache has no room.
    #[inline]
    pub(crate) fn is_full(&self, keyspace: KeyspaceId) -> bool {
        self.any_full.load(Relaxed) && self.full.lock().contains(&keyspace)
    }

    /// What a command gets that may need more memory.
    #[cold]
    pub(crate) fn refusal(&self, cache: Option<&str>) -> Error {
        self.refused.fetch_add(1, Relaxed);
        let text = "command not allowed when used memory > 'maxmemory'.";
        match cache {
            None => Error::new(ErrorCode::Oom, text),
            Some(name) => Error::new(
                ErrorCode::Oom,
                format!(
                    "{text} That is the MAXMEMORY of keyspace '{name}', none of whose keys may go: delete some, give keys a \
                         deadline, or KEYSPACE ALTER {name} MAXMEMORY"
                ),
            ),
        }
    }

    /// How many commands were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_count_unless_keys_may_go() {
        let memory = Memory::default();
        let (none, some) = (Occupied::default(), Occupied { bytes: 1000, retained: 600 });
        memory.recount(some, none);
        assert_eq!(memory.excess(false), 0, "there is no limit");
        memory.set_limit(500);
        assert_eq!((memory.excess(false), memory.excess(true)), (500, 0));
        memory.set_hosted(Holdings { memory: 200, ..Holdings::default() });
        assert_eq!((memory.excess(false), memory.excess(true)), (700, 100));
        memory.recount(none, some);
        assert_eq!(memory.used(), Occupied { bytes: 200, retained: 0 });
    }

    #[test]
    fn the_policy_is_that_of_numbered_keyspaces() {
        let memory = Memory::default();
        memory.set_numbered(16);
        for policy in Eviction::ALL {
            memory.set_policy(Some(policy));
            assert_eq!(memory.policy_of(KeyspaceId(15)), Some(policy));
            assert_eq!(memory.policy_of(KeyspaceId(16)), None);
        }
        memory.set_policy(None);
        assert_eq!((memory.policy_of(KeyspaceId(0)), memory.policy_name()), (None, "noeviction"));
    }

    #[test]
    fn for_a_moment_nobody_looks_for_keys_after_none_was_found() {
        let memory = Memory::default();
        let (none, some) = (Occupied::default(), Occupied { bytes: 1000, retained: 0 });
        memory.recount(some, none);
        memory.set_limit(500);
        assert!(!memory.is_barren(Instant(7_000)));
        memory.set_barren(Instant(7_000), memory.changes());
        assert!(memory.is_barren(Instant(7_000)) && memory.is_barren(Instant(16_999)));
        assert!(!memory.is_barren(Instant(17_000)), "the moment is over");
        memory.recount(none, some);
        assert!(!memory.is_barren(Instant(7_000)), "there is room");
        memory.recount(some, none);
        let changes = memory.changes();
        memory.set_policy(None);
        assert!(!memory.is_barren(Instant(7_000)), "other keys may go");
        memory.set_barren(Instant(7_000), changes);
        assert!(!memory.is_barren(Instant(7_000)), "the search began before that");
    }

    #[test]
    fn full_caches_are_named() {
        let memory = Memory::default();
        assert!(!memory.is_full(KeyspaceId(3)));
        memory.set_full(KeyspaceId(3), true);
        assert!(memory.is_full(KeyspaceId(3)) && !memory.is_full(KeyspaceId(4)));
        memory.set_full(KeyspaceId(3), false);
        assert!(!memory.is_full(KeyspaceId(3)));
        assert_eq!(
            memory.refusal(None).to_string(),
            "OOM command not allowed when used memory > 'maxmemory'."
        );
        assert!(memory.refusal(Some("shop")).message.contains("keyspace 'shop'"));
        assert_eq!(memory.refused(), 2);
    }
}
