//! A disk in memory that loses what was not synced, for tests and the simulator. Deterministic: every choice is drawn
//! from the generator that the caller hands in.
//!
//! The test keeps a [`SimulatedDisk`]; a process under test works on a [`MountedDisk`] made by
//! [`SimulatedDisk::mount`]. A crash, a kill or another mount ends the earlier mount: whatever still holds it gets
//! errors and can no longer change anything.

use crate::disk::{Disk, DiskFile};
use crate::marks::MARKS;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::Rng;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// How many unsynced contents of a page are remembered; the disk may hold any of them after a crash.
const VERSIONS: usize = 4;

type Page = Box<[u8; PAGE]>;

/// A page of a file.
#[derive(Clone)]
struct Versions {
    /// What it may hold after a crash, the durable content first, the current one last.
    contents: Vec<Page>,
    /// A sync could not write it. As on Linux it then passes for clean, so that later syncs claim success and leave it
    /// out, until it is written again.
    given_up: bool,
}

impl Versions {
    fn of(page: Page) -> Self {
        Versions { contents: vec![page], given_up: false }
    }

    fn current(&self) -> &[u8; PAGE] {
        &self.contents[self.contents.len() - 1]
    }

    fn push(&mut self, page: Page) {
        if self.contents.len() > VERSIONS {
            self.contents.remove(1);
        }
        self.contents.push(page);
        self.given_up = false;
    }

    fn synced(&mut self) {
        if !self.given_up {
            self.contents.drain(..self.contents.len() - 1);
        }
    }

    fn not_synced(&mut self) {
        self.given_up |= self.contents.len() > 1;
    }

    /// Keeps one version, or a mixture torn at the sectors.
    fn crash(&mut self, random: &mut Rng) {
        let count = self.contents.len();
        if count == 1 {
            return;
        }
        let whole = random.bool().then(|| random.usize(..count));
        let mut page = Box::new([0; PAGE]);
        for sector in 0..PAGE / SECTOR {
            let version = whole.unwrap_or_else(|| random.usize(..count));
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            page[range.clone()].copy_from_slice(&self.contents[version][range]);
        }
        *self = Versions::of(page);
    }
}

#[derive(Clone, Default)]
struct Inode {
    size: u64,
    durable_size: u64,
    pages: BTreeMap<u64, Versions>,
    /// A sync could not make the size durable; like `Versions::given_up`.
    size_given_up: bool,
    /// The log's marks: faults that are meant for what is written do not hit them, and what a crash leaves of them is
    /// drawn apart, so that all else is as without them.
    is_of_marks: bool,
}

impl Inode {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let len = (buffer.len() as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut done = 0;
        while done < len {
            let (page, within, step) = locate(offset + done as u64, len - done);
            match self.pages.get(&page) {
                Some(versions) => {
                    buffer[done..done + step].copy_from_slice(&versions.current()[within..within + step])
                }
                None => buffer[done..done + step].fill(0),
            }
            done += step;
        }
        len
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut done = 0;
        while done < bytes.len() {
            let (page, within, step) = locate(offset + done as u64, bytes.len() - done);
            let versions = self.pages.entry(page).or_insert_with(|| Versions::of(Box::new([0; PAGE])));
            let mut next = Box::new(*versions.current());
            next[within..within + step].copy_from_slice(&bytes[done..done + step]);
            versions.push(next);
            done += step;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
        self.size_given_up = false;
    }

    fn set_size(&mut self, size: u64) {
        if size < self.size {
            let zeros = vec![0; (self.size - size).min((PAGE as u64) - size % PAGE as u64) as usize];
            if self.pages.contains_key(&(size / PAGE as u64)) {
                self.write(size, &zeros);
            }
            self.pages.retain(|page, _| page * (PAGE as u64) < size);
        }
        self.size = size;
        self.size_given_up = false;
    }

    fn sync(&mut self) {
        self.pages.values_mut().for_each(Versions::synced);
        if !self.size_given_up {
            self.durable_size = self.size;
        }
    }

    fn fail_sync(&mut self) {
        self.pages.values_mut().for_each(Versions::not_synced);
        self.size_given_up |= self.size != self.durable_size;
    }

    fn crash(&mut self, random: &mut Rng) {
        if self.size != self.durable_size && random.bool() {
            self.size = self.durable_size;
        }
        self.durable_size = self.size;
        self.size_given_up = false;
        self.pages.retain(|page, _| page * (PAGE as u64) < self.size);
        self.pages.values_mut().for_each(|versions| versions.crash(random));
    }
}

/// The page an offset lies in, the place within it, and how many of `len` bytes fit there.
fn locate(offset: u64, len: usize) -> (u64, usize, usize) {
    let within = (offset % PAGE as u64) as usize;
    (offset / PAGE as u64, within, len.min(PAGE - within))
}

#[derive(Clone)]
enum NameChange {
    Create(String, u64),
    Rename(String, String),
    Delete(String),
}

impl NameChange {
    /// Applies the change, if the directory still has what it needs.
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Create(name, inode) => drop(names.insert(name, inode)),
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
            }
            NameChange::Delete(name) => drop(names.remove(&name)),
        }
    }
}

#[derive(Clone, Default)]
struct State {
    mount: u64,
    crashes: u64,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending: Vec<NameChange>,
    capacity: Option<u64>,
    write_fails_after: Option<usize>,
    sync_fails: bool,
    read_fails_after: Option<u32>,
    mark_fails: bool,
    operations_left: Option<u64>,
}

impl State {
    /// Counts an operation that changes the disk; true if the process dies before it.
    fn dies(&mut self) -> bool {
        match &mut self.operations_left {
            None => false,
            Some(0) => {
                self.mount += 1;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    fn end_faults(&mut self) {
        self.write_fails_after = None;
        self.sync_fails = false;
        self.mark_fails = false;
        self.read_fails_after = None;
        self.operations_left = None;
    }

    fn used(&self) -> u64 {
        self.inodes.values().map(|inode| inode.pages.len() as u64 * PAGE as u64).sum()
    }

    fn drop_unnamed(&mut self) {
        let State { inodes, names, durable_names, .. } = self;
        inodes.retain(|inode, _| {
            names.values().any(|named| named == inode) || durable_names.values().any(|named| named == inode)
        });
    }

    fn is_of_marks(&self, inode: u64) -> bool {
        self.inodes.get(&inode).is_some_and(|inode| inode.is_of_marks)
    }

    /// How many of `len` bytes at `offset` find room.
    fn room(&self, inode: u64, offset: u64, len: usize) -> usize {
        let Some(capacity) = self.capacity else { return len };
        let mut free = capacity.saturating_sub(self.used()) / PAGE as u64;
        let mut done = 0;
        while done < len {
            let (page, _, step) = locate(offset + done as u64, len - done);
            if !self.inodes.get(&inode).is_some_and(|inode| inode.pages.contains_key(&page)) {
                if free == 0 {
                    break;
                }
                free -= 1;
            }
            done += step;
        }
        done
    }
}

/// The controlling end of a simulated disk: survives crashes, injects faults. Clones control the same disk.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// An empty disk without faults and without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the earlier mount as if its process had been killed (nothing is lost), and begins another.
    pub fn mount(&self) -> Arc<MountedDisk> {
        let mut state = self.state();
        state.mount += 1;
        state.operations_left = None;
        Arc::new(MountedDisk { disk: self.clone(), mount: state.mount })
    }

    /// Cuts the power: of the writes, sizes and names that were not synced any subset remains, pages possibly torn
    /// between sectors. Injected faults end; the capacity stays.
    pub fn crash(&self, random: &mut Rng) {
        let mut state = self.state();
        let mut random_of_marks = random.clone();
        state.mount += 1;
        state.crashes += 1;
        state.end_faults();
        for change in std::mem::take(&mut state.pending) {
            if random.bool() {
                change.apply(&mut state.durable_names);
            }
        }
        state.names = state.durable_names.clone();
        for inode in state.inodes.values_mut() {
            inode.crash(if inode.is_of_marks { &mut random_of_marks } else { random });
        }
        state.drop_unnamed();
    }

    /// Another disk with the same content, durable and not, and without the injected faults.
    pub fn copy(&self) -> SimulatedDisk {
        let mut state = self.state().clone();
        state.end_faults();
        SimulatedDisk(Arc::new(Mutex::new(state)))
    }

    /// Limits the bytes that all files together may take (in whole pages of 4 KiB that were ever written); writes
    /// beyond are cut short and answer `StorageFull`. `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// The bytes that all files together take.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Makes the next write fail after this many of its bytes.
    pub fn fail_next_write(&self, after_bytes: usize) {
        self.state().write_fails_after = Some(after_bytes);
    }

    /// Makes the next sync of a file fail; what it should have synced is not made durable by a later one either,
    /// unless it is written again. A process that is only killed leaves it readable.
    pub fn fail_next_sync(&self) {
        self.state().sync_fails = true;
    }

    /// Makes the next mark of a log fail, half of it being written.
    pub fn fail_next_mark(&self) {
        self.state().mark_fails = true;
    }

    /// Makes a read of a file fail after so many others, once, of this mount or a later one.
    pub fn fail_read(&self, after: u32) {
        self.state().read_fails_after = Some(after);
    }

    /// Kills the mounting process before its operation after this many more that change the disk (a sync is one): for
    /// stopping at every point of a sequence. What was not synced is lost only if a [`crash`](Self::crash) follows.
    pub fn kill_after(&self, operations: u64) {
        self.state().operations_left = Some(operations);
    }

    /// Ends all injected faults and lifts the limit.
    pub fn heal(&self) {
        let mut state = self.state();
        state.end_faults();
        state.capacity = None;
    }

    /// The sizes of all files by name.
    pub fn files(&self) -> BTreeMap<String, u64> {
        let state = self.state();
        state
            .names
            .iter()
            .map(|(name, inode)| (name.clone(), state.inodes.get(inode).map_or(0, |i| i.size)))
            .collect()
    }

    /// Flips one bit on the medium; false if the file does not reach that far.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut byte = [0];
        self.read(name, offset, &mut byte) == 1 && self.overwrite(name, offset, &[byte[0] ^ (1 << (bit % 8))])
    }

    /// Reads a file behind the back of whoever mounted the disk; how many bytes there were.
    pub fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> usize {
        let state = self.state();
        let inode = state.names.get(name).and_then(|inode| state.inodes.get(inode));
        inode.map_or(0, |inode| inode.read(offset, buffer))
    }

    /// Overwrites bytes on the medium, durably; false if there is no such file.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.state();
        let Some(inode) = state.names.get(name).copied() else { return false };
        let Some(inode) = state.inodes.get_mut(&inode) else { return false };
        inode.write(offset, bytes);
        inode.sync();
        true
    }
}

/// One process's view of a [`SimulatedDisk`], until the next crash, kill or mount.
pub struct MountedDisk {
    disk: SimulatedDisk,
    mount: u64,
}

impl MountedDisk {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.mount == self.mount { Ok(state) } else { Err(dead()) }
    }

    /// The state, for an operation that changes the disk.
    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state()?;
        if state.dies() { Err(dead()) } else { Ok(state) }
    }

    fn file(&self, inode: u64) -> Arc<dyn DiskFile> {
        Arc::new(SimulatedFile { disk: MountedDisk { disk: self.disk.clone(), mount: self.mount }, inode })
    }
}

fn dead() -> io::Error {
    io::Error::other("the simulated process is dead")
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

impl Disk for MountedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state()?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.change()?;
        if state.names.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} exists")));
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode { is_of_marks: name == MARKS, ..Inode::default() });
        state.names.insert(name.to_owned(), inode);
        state.pending.push(NameChange::Create(name.to_owned(), inode));
        Ok(self.file(inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inode = self.state()?.names.get(name).copied().ok_or_else(|| not_found(name))?;
        Ok(self.file(inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.change()?;
        let inode = state.names.remove(from).ok_or_else(|| not_found(from))?;
        state.names.insert(to.to_owned(), inode);
        state.pending.push(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let mut state = self.change()?;
        state.names.remove(name).ok_or_else(|| not_found(name))?;
        state.pending.push(NameChange::Delete(name.to_owned()));
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.change()?;
        state.durable_names = state.names.clone();
        state.pending.clear();
        state.drop_unnamed();
        Ok(())
    }

    fn boot(&self) -> u64 {
        self.disk.state().crashes + 1
    }
}

struct SimulatedFile {
    disk: MountedDisk,
    inode: u64,
}

impl SimulatedFile {
    fn with<T>(&self, work: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let mut state = self.disk.state()?;
        state.inodes.get_mut(&self.inode).map(work).ok_or_else(|| io::Error::other("the file was deleted"))
    }
}

impl DiskFile for SimulatedFile {
    fn size(&self) -> io::Result<u64> {
        self.with(|inode| inode.size)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        drop(self.disk.change()?);
        self.with(|inode| inode.set_size(size))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state()?;
        let fails = state.read_fails_after == Some(0);
        state.read_fails_after = state.read_fails_after.and_then(|left| left.checked_sub(1));
        drop(state);
        if fails {
            return Err(io::Error::other("injected read error"));
        }
        self.with(|inode| inode.read(offset, buffer))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.change()?;
        let fault = match state.is_of_marks(self.inode) {
            true => std::mem::take(&mut state.mark_fails).then_some(bytes.len() / 2),
            false => state.write_fails_after.take(),
        };
        let room = state.room(self.inode, offset, bytes.len());
        let written = room.min(fault.unwrap_or(usize::MAX));
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.write(offset, &bytes[..written]);
        }
        match fault {
            Some(_) => Err(io::Error::other("injected write error")),
            None if room < bytes.len() => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"))
            }
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.change()?;
        let fails = !state.is_of_marks(self.inode) && std::mem::take(&mut state.sync_fails);
        drop(state);
        self.with(if fails { Inode::fail_sync } else { Inode::sync })?;
        if fails { Err(io::Error::other("injected sync error")) } else { Ok(()) }
    }
}
