//! Any bytes in any file of a journal whose process was killed: it opens with all that was synced, or refuses with a reason.
#![no_main]

use journal::{Log, LogOptions, Piece, SimulatedDisk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [file, high, low, bytes @ ..] = data else { return };
    let disk = SimulatedDisk::new();
    let options = LogOptions { segment_bytes: 4096, ..LogOptions::default() };
    let written: Vec<Vec<u8>> = (0..20u8).map(|number| vec![number; usize::from(number) * 50]).collect();
    let (mut log, _) = Log::open(disk.mount(), &options, &mut |_| Ok(())).expect("a fresh disk opens");
    for record in &written {
        log.append(record).expect("a healthy disk");
        log.sync_now().expect("a healthy disk");
    }
    drop(log);
    let names: Vec<String> = disk.files().into_keys().collect();
    disk.overwrite(&names[usize::from(*file) % names.len()], u64::from(u16::from_le_bytes([*low, *high])), bytes);
    let mut recovered: Vec<Vec<u8>> = Vec::new();
    let opened = Log::open(disk.mount(), &options, &mut |piece| {
        if let Piece::Record { bytes, .. } = piece {
            recovered.push(bytes.to_vec());
        }
        Ok(())
    });
    if opened.is_ok() {
        assert!(written == recovered, "what was synced is there");
    }
});
