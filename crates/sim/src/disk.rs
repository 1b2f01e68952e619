//! What a power cut leaves of a broker's files.
//!
//! The logs work on real files. Whenever they give one to the device, its content is copied aside; when the power fails, each
//! file goes back to that copy, with as much of what was written since as chance lets through: a prefix, zeros behind it, or
//! a sector missing. A file that was cut or replaced since is the old one or the new one; names that were not synced may be gone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::random::Random;

const LIVE: &str = "broker-";
const DURABLE: &str = "durable-";
/// A disk writes one whole, or not at all.
const SECTOR: usize = 512;

/// From now on, for all runs of this process.
pub fn watch() {
    gracchus_log::disk::watch_syncs(|path, whole| {
        if let Some(copy) = copy_of(path) {
            keep(path, &copy, whole);
        }
    });
}

/// Where the durable content of a simulated broker's file is.
fn copy_of(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    let mut found = false;
    for part in path.components() {
        let name = part.as_os_str().to_str()?;
        match name.strip_prefix(LIVE).filter(|_| !found) {
            Some(id) if out.to_str().is_some_and(|p| p.contains("gracchus-sim")) => {
                found = true;
                out.push(format!("{DURABLE}{id}"));
            }
            _ => out.push(part),
        }
    }
    found.then_some(out)
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn keep(path: &Path, copy: &Path, whole: bool) {
    if path.is_dir() {
        let _ = std::fs::create_dir_all(copy);
        let live = names(path);
        for gone in names(copy).difference(&live) {
            let gone = copy.join(gone);
            let _ = std::fs::remove_file(&gone);
            let _ = std::fs::remove_dir_all(&gone);
        }
        for name in live {
            let (from, to) = (path.join(&name), copy.join(&name));
            if whole {
                keep(&from, &to, true);
            } else if from.is_dir() {
                let _ = std::fs::create_dir_all(&to);
            } else if !to.exists() {
                // the name is sure, not what is in it
                let _ = std::fs::write(&to, b"");
            }
        }
    } else if path.is_file() {
        if let Some(parent) = copy.parent() {
            let _ = std::fs::create_dir_all(parent);
        }
        let _ = std::fs::copy(path, copy);
    }
}

/// The power of the broker with these files fails; nothing has them open.
pub fn power_cut(dir: &Path, random: &mut Random) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(copy) = copy_of(dir) {
        let _ = std::fs::create_dir_all(&copy);
        cut(dir, &copy, random, &mut told);
        // what the device has now is all there is
        keep(dir, &copy, true);
    }
    told
}

fn cut(live: &Path, durable: &Path, random: &mut Random, told: &mut Vec<String>) {
    let all: BTreeSet<String> = names(live).union(&names(durable)).cloned().collect();
    for name in all {
        let (now, then) = (live.join(&name), durable.join(&name));
        if now.is_dir() || then.is_dir() {
            let _ = std::fs::create_dir_all(&now);
            cut(&now, &then, random, told);
            continue;
        }
        let written = std::fs::read(&now).ok();
        let synced = std::fs::read(&then).ok();
        let after = match (written, synced) {
            (Some(written), Some(synced)) if written == synced => continue,
            (Some(written), Some(synced)) if written.starts_with(&synced) => {
                Some(torn(&written, synced.len(), random))
            }
            // cut, or replaced
            (Some(written), Some(synced)) => {
                Some(if random.chance(500) { written } else { synced })
            }
            (Some(written), None) if random.chance(700) => Some(torn(&written, 0, random)),
            (Some(_), None) => None,
            // removed, and that not synced
            (None, synced) => synced.filter(|_| random.chance(500)),
        };
        told.push(format!("{name}: {:?} bytes", after.as_ref().map(Vec::len)));
        match after {
            Some(bytes) => std::fs::write(&now, bytes).expect("the file is written"),
            None => {
                let _ = std::fs::remove_file(&now);
            }
        }
    }
}

/// The first `sure` bytes, and some of the others.
fn torn(written: &[u8], sure: usize, random: &mut Random) -> Vec<u8> {
    let more = written.len() - sure;
    let got = match random.below(3) {
        0 => 0,
        1 => more,
        _ => random.below(more as u64 + 1) as usize,
    };
    let mut bytes = written[..sure + got].to_vec();
    if random.chance(250) {
        // the size had got there before the data
        bytes.resize(written.len(), 0);
    }
    if got > 0 && random.chance(250) {
        // what is behind a sector got there, the sector did not
        let block = (sure + random.below(got as u64) as usize) / SECTOR;
        let end = ((block + 1) * SECTOR).min(bytes.len());
        bytes[(block * SECTOR).max(sure)..end].fill(0);
    }
    bytes
}
