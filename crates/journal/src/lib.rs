//! The journal: a write-ahead log with group commit, checkpoints and recovery, over a small [`Disk`] trait.
//!
//! This crate starts no thread, takes no lock of its own, reads no clock and draws no entropy. It does not know what
//! a record or a chunk means. What it never does: acknowledge a group it could not write, apply half of one, or go on
//! after a failed sync.
//!
//! # Promises
//!
//! - A **group** is atomic: after a crash all of its records are recovered, or none.
//! - What is recovered is a prefix of what was written, and holds every group that was ever reported synced.
//! - What recovery cut never comes back, whatever is appended and crashes later.
//! - Damage above the last position known synced is a torn tail and is cut; damage at or below it refuses to start,
//!   naming file and offset (Corrections 82), unless the caller accepts the loss; recovery then reports it.
//! - A failed write undoes the group ([`LogError::NotWritten`]); a failed sync closes the log for good. What it left
//!   in the kernel's cache is not believed to be on disk: recovery writes it again before it calls it synced.
//!
//! What is assumed of the disk: a sector of 512 bytes is written whole or not at all (its neighbours on a page may be
//! torn), and a file's sync and a directory's sync keep what they promise.
//!
//! # What is noticed
//!
//! How far the log was synced stands in the manifest (as of its writing), in every segment's and group's header (as of
//! theirs), and in the newest **mark**, which is written after each sync and before anybody hears of it. So a log
//! whose last synced group is damaged, zeroed or gone with its segment is refused:
//!
//! - *After the death of a process* always: the kernel keeps a mark that was written. It also keeps what was not
//!   synced. Therefore a mark of the same run of the kernel says too which group was the last one written and which
//!   segment the newest, and a log that ends before is refused as well.
//! - *After a loss of power at rest*: the mark is synced by itself when a sync finds nothing new
//!   ([`Log::begin_idle_sync`]), once after each sync that is followed by rest.
//! - *After a loss of power under load*: the headers of later groups tell all syncs but the last one or two.
//!
//! Not noticed is the damage of
//!
//! - the last synced groups, if the power goes before their mark and before anything written behind them is durable.
//!   They look like groups that were never synced. A disk that keeps its promise does not damage them;
//! - groups that were written after the last mark and not synced, zeroed from where a group begins. Damaged otherwise
//!   they are cut, and [`Recovered::cut`] says so;
//! - a directory that is as a whole older than it was, or empty: it is consistent. A manifest alone that is older than
//!   the log or the marks is refused.
//!
//! Why a mark may be trusted: it claims what a finished sync or a finished write has made true, and nothing makes it
//! false later, since groups are not overwritten and a segment is not recycled before a checkpoint stands above it,
//! which the marks of later segments say, too; an opening that cuts replaces both marks, after the manifest and before
//! it recycles anything. Marks alternate between two sectors: a damaged or half-written one leaves the one before it.
//!
//! A sync costs one write of 72 bytes into the page cache more, a sync behind which nothing follows within the caller's
//! period one sync of that page more.
//!
//! # Files
//!
//! | name | content |
//! |---|---|
//! | `manifest` | identity, incarnation, epoch, checkpoints, how the last process ended; replaced atomically |
//! | `manifest.tmp` | the next manifest, while it is written |
//! | `marks` | how far the log was synced and written; two slots, overwritten in turn |
//! | `segment-GENERATION` | a part of the log; 16 hexadecimal digits |
//! | `spare-GENERATION` | a truncated segment that will be used again |
//! | `checkpoint-NUMBER` | a checkpoint |
//! | `lock` | held by the process that uses the directory ([`RealDisk`]) |
//!
//! A **generation** is `epoch << 32 | counter`, where the epoch counts the openings of the directory and is durable
//! before it is used: no two uses of a segment file ever share one, not even if a crash loses the file's renaming.
//! It is part of the segment's and of every group's header, so what an earlier use left in a file never parses.
//!
//! # Formats, version 1
//!
//! Integers are little-endian. Every header begins with a magic number, a `u16` version and a `u16` of flags, and
//! ends with a CRC32 (of the directory's identity followed by the header, unless said otherwise). These four fields
//! and the header's size stay in their places in every later version, so that an older program recognizes a newer
//! file and says so ([`OpenError::NewerVersion`]) where it would otherwise cut or refuse. A newer program reads every
//! version down to 1, and writes a new segment (each opening begins one) in its own.
//!
//! **Segment header**, 64 bytes at offset 0; its checksum is not seeded, the identity being in it:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `ANBS` |
//! | 4 | 2 + 2 | version, flags (0) |
//! | 8 | 8 | generation |
//! | 16 | 8 | the group after which the segment begins; older segments are void beyond it |
//! | 24 | 8 | newest group known synced |
//! | 32 | 16 | identity of the directory |
//! | 48 | 12 | zero |
//! | 60 | 4 | CRC32 |
//!
//! **Group**, one after the other from offset 64:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `ANBG` |
//! | 4 | 2 + 2 | version, flags (0) |
//! | 8 | 8 | generation of the segment |
//! | 16 | 8 | number of the group |
//! | 24 | 8 | number of the group before it |
//! | 32 | 8 | newest group known synced |
//! | 40 | 4 | bytes of payload |
//! | 44 | 4 | records in the payload |
//! | 48 | 4 | CRC32 of the payload, not seeded |
//! | 52 | 4 | CRC32 |
//! | 56 | | payload: for each record a `u32` length and its bytes |
//!
//! **Checkpoint**: a header of 64 bytes, chunks, a footer of 40 bytes at the end.
//!
//! | part | fields after magic, version, flags |
//! |---|---|
//! | header `ANBC` | number `u64`, group it stands after `u64`, zeros, CRC32 |
//! | chunk `ANBK`, 40 bytes | number `u64`, index `u64`, length `u64`, CRC32 of the bytes, CRC32; then the bytes |
//! | footer `ANBF` | number `u64`, count of chunks `u64`, own offset `u64`, zeros, CRC32 |
//!
//! **Manifest**; its checksum is not seeded and is its last four bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `ANBM` |
//! | 4 | 2 + 2 | version, flags (1: the last process ended in order; 2: there are marks) |
//! | 8 | 16 | identity of the directory |
//! | 24 | 4 | incarnation |
//! | 28 | 4 | epoch |
//! | 32 | 8 | newest group known synced |
//! | 40 | 4 | count of checkpoints, newest first |
//! | 44 | 32 each | number, group it stands after, first generation replay needs, size of the file |
//! | | 4 | CRC32 |
//!
//! **Mark**, 72 bytes at offset 0 or 512 of `marks`; its checksum is not seeded:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `ANBY` |
//! | 4 | 2 + 2 | version, flags (0) |
//! | 8 | 8 | number of the mark; the greater one counts |
//! | 16 | 8 | newest group known synced |
//! | 24 | 8 | newest group written |
//! | 32 | 8 | newest segment, by generation |
//! | 40 | 8 | run of the kernel, 0 if unknown |
//! | 48 | 4 | incarnation |
//! | 52 | 16 | identity of the directory |
//! | 68 | 4 | CRC32 |

mod checkpoint;
mod damage;
mod disk;
mod ending;
mod error;
mod format;
mod log;
mod manifest;
mod marks;
mod reader;
mod real;
mod recovery;
mod segment;
mod simulated;
mod unsynced;

pub use checkpoint::{CheckpointWriter, FinishedCheckpoint, FinishedInstallation, Installation};
pub use damage::Damage;
pub use disk::{Disk, DiskAction, DiskError, DiskFile};
pub use error::{LogError, OpenError};
pub use format::{DirectoryId, FORMAT_VERSION, GroupNumber};
pub use log::{FinishedSync, Log, MAX_GROUP_BYTES, RecordWriter, SyncTicket};
pub use real::RealDisk;
pub use recovery::{Cut, LogOptions, Lost, Mutant, Mutants, Piece, Recovered};
pub use simulated::{MountedDisk, SimulatedDisk};
