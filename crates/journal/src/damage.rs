//! Damage to a simulated disk, drawn: what bad sectors, mistaken operators and half-restored backups do.

use crate::disk::Disk;
use crate::segment::Numbered;
use crate::simulated::SimulatedDisk;
use types::Rng;

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit of some file is flipped.
    Bit,
    /// The newest segment's last bytes are zero.
    Tail,
    /// A segment, rather the newest, is gone.
    Segment,
    /// Two segments have each other's content.
    Exchange,
}

/// How many bytes become zeros at most.
const ZEROED: u64 = 20_000;

impl SimulatedDisk {
    /// Damages the disk of a process that is dead; says what was done, if there was something to do it to.
    pub fn damage(&self, damage: Damage, random: &mut Rng) -> Option<String> {
        let files: Vec<String> = self.files().into_keys().collect();
        let is_segment = |name: &&String| matches!(Numbered::parse(name), Some(Numbered::Segment(_)));
        let segments: Vec<&String> = files.iter().filter(is_segment).collect();
        let (newest, older) = segments.split_last()?;
        match damage {
            Damage::Bit => {
                let name = random.choice(&files)?;
                let (offset, bit) = (random.u64(..self.used_of(name)?), random.u8(..8));
                self.flip_bit(name, offset, bit)
                    .then(|| format!("bit {bit} of byte {offset} of {name} flips"))
            }
            Damage::Tail => {
                let used = self.used_of(newest)?;
                let zeroed = random.u64(1..=used.min(ZEROED));
                let done = self.overwrite(newest, used - zeroed, &vec![0; zeroed as usize]);
                done.then(|| format!("the last {zeroed} bytes of {newest} are zeroed"))
            }
            Damage::Segment => {
                let lost = if random.bool() { newest } else { random.choice(&segments)? };
                let mount = self.mount();
                mount.delete(lost).and_then(|()| mount.sync_directory()).ok()?;
                Some(format!("{lost} is lost"))
            }
            Damage::Exchange => {
                let other = random.choice(older)?;
                let mount = self.mount();
                for (from, to) in [(newest.as_str(), "aside"), (other, newest), ("aside", other)] {
                    mount.rename(from, to).ok()?;
                }
                mount.sync_directory().ok()?;
                Some(format!("{newest} and {other} are exchanged"))
            }
        }
    }

    /// How many bytes of a file come before nothing but zeros, if any do.
    fn used_of(&self, name: &str) -> Option<u64> {
        let mut bytes = vec![0; *self.files().get(name)? as usize];
        self.read(name, 0, &mut bytes);
        Some(bytes.iter().rposition(|byte| *byte != 0)? as u64 + 1)
    }
}
