//! The calls to the operating system: positional reads and gathered writes, block reservation, locks, atomic files.
//! What is Linux's own sits here and nowhere else.

use crate::error::LogError;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static SYNC_WATCH: OnceLock<fn(&Path, bool)> = OnceLock::new();

/// Has `told` called for each file or directory that the device has now; true: with all below it. A simulation of power
/// cuts looks on so. Once in a process.
pub fn watch_syncs(told: fn(&Path, bool)) {
    let _ = SYNC_WATCH.set(told);
}

/// The device has it.
pub(crate) fn synced(path: &Path, whole: bool) {
    if let Some(told) = SYNC_WATCH.get() {
        told(path, whole);
    }
}

/// Most slices of one gathered write (IOV_MAX).
const MAX_SLICES: usize = 1024;

/// Opens for reading and writing; makes the file if asked.
pub(crate) fn open(path: &Path, create: bool) -> Result<File, LogError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .open(path)
        .map_err(|e| LogError::io("open", path, e))
}

/// Makes a file of `len` zeros; what was in one of that name is gone.
pub(crate) fn make(path: &Path, len: u64) -> Result<(), LogError> {
    let file = File::create(path).map_err(|e| LogError::io("create", path, e))?;
    if len > 0 {
        file.set_len(len)
            .map_err(|e| LogError::io("size", path, e))?;
    }
    Ok(())
}

pub(crate) fn open_read(path: &Path) -> Result<File, LogError> {
    File::open(path).map_err(|e| LogError::io("open", path, e))
}

/// Fills `buf` from `offset` as far as the file goes; the number of bytes read.
pub(crate) fn read_at_most(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..)
        && !rest.is_empty()
    {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes all slices at `offset`, in as few calls as the system allows.
pub(crate) fn write_all_vectored(
    file: &File,
    mut slices: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    while !slices.is_empty() {
        let batch = slices.get(..slices.len().min(MAX_SLICES)).unwrap_or(&[]);
        match rustix::io::pwritev(file, batch, offset) {
            Ok(0) if batch.iter().all(|s| s.is_empty()) => {
                let n = batch.len();
                slices = slices.get_mut(n..).unwrap_or_default();
            }
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                IoSlice::advance_slices(&mut slices, n);
                offset += n as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

pub(crate) fn file_len(path: &Path) -> Result<Option<u64>, LogError> {
    match std::fs::metadata(path) {
        Ok(m) => Ok(Some(m.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(LogError::io("read the size of", path, e)),
    }
}

pub(crate) fn remove_if_exists(path: &Path) -> Result<bool, LogError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(LogError::io("delete", path, e)),
    }
}

pub(crate) fn rename_if_exists(from: &Path, to: &Path) -> Result<bool, LogError> {
    match std::fs::rename(from, to) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(LogError::io("rename", from, e)),
    }
}

/// Reads a small file; `None` if there is none, an error if it is larger than `limit`.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, LogError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(LogError::io("open", path, e)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| LogError::io("read", path, e))?;
    if bytes.len() as u64 > limit {
        return Err(LogError::corrupt(
            path,
            format!("it is larger than {limit} bytes"),
        ));
    }
    Ok(Some(bytes))
}

/// Whether a replaced file has to survive a power cut, or only a killed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// fsync before the rename.
    Device,
    /// The page cache is enough: the content can be rebuilt.
    PageCache,
}

/// Replaces a file at once: `<path>.tmp`, then rename.
pub(crate) fn replace(path: &Path, bytes: &[u8], sync: Sync) -> Result<(), LogError> {
    // Where there is none yet and a torn one would be noticed, it is written in its place.
    if sync == Sync::PageCache
        && let Ok(file) = File::create_new(path)
    {
        return file.write_all_at(bytes, 0).map_err(|e| {
            let _ = std::fs::remove_file(path);
            LogError::io("write", path, e)
        });
    }
    let mut name = path.as_os_str().to_os_string();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let written = File::create(&temporary).and_then(|file| {
        file.write_all_at(bytes, 0)?;
        if sync == Sync::Device {
            file.sync_all()?;
        }
        Ok(())
    });
    if let Err(e) = written {
        // A half-written temporary file would only take space that is short already.
        let _ = std::fs::remove_file(&temporary);
        return Err(LogError::io("write", &temporary, e));
    }
    std::fs::rename(&temporary, path).map_err(|e| LogError::io("rename", &temporary, e))?;
    if sync == Sync::Device
        && let Some(parent) = path.parent()
    {
        sync_dir(parent)?;
        synced(path, false);
    }
    Ok(())
}

/// Gives a directory's names to the device.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), LogError> {
    open_read(dir)?
        .sync_all()
        .map_err(|e| LogError::sync(dir, e))?;
    synced(dir, false);
    Ok(())
}

/// Gives a file, or a directory's names, to the device, if it is there.
pub(crate) fn sync_if_exists(path: &Path) -> Result<(), LogError> {
    match open_if_exists(path)? {
        Some(file) => {
            file.sync_all().map_err(|e| LogError::sync(path, e))?;
            synced(path, false);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Gives all of the file system that holds `path` to the device: one call for thousands of files. False where the system
/// has no such call.
pub(crate) fn sync_file_system(path: &Path) -> Result<bool, LogError> {
    #[cfg(target_os = "linux")]
    {
        let dir = open_read(path)?;
        rustix::fs::syncfs(&dir).map_err(|e| LogError::sync(path, e.into()))?;
        synced(path, true);
        Ok(true)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        Ok(false)
    }
}

pub(crate) fn open_if_exists(path: &Path) -> Result<Option<File>, LogError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(LogError::io("open", path, e)),
    }
}

/// Reserves blocks beyond the end without changing the file's size. False if the file system does not do that or
/// has no room: the caller goes on without.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        fallocate(file, FallocateFlags::KEEP_SIZE, offset, len).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, len);
        false
    }
}

/// Locks a file for this process alone; `None` if somebody else has it. Both kinds of lock are taken: POSIX's, which is
/// what a JVM broker takes and sees, and flock's, which also keeps two brokers of one process apart.
pub(crate) fn lock_exclusive(file: &File) -> io::Result<Option<()>> {
    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    let refused =
        |e: rustix::io::Errno| e == rustix::io::Errno::WOULDBLOCK || e == rustix::io::Errno::ACCESS;
    let is_dir = file.metadata()?.is_dir(); // which POSIX does not lock
    let operation = FlockOperation::NonBlockingLockExclusive;
    let posix = if is_dir {
        Ok(())
    } else {
        fcntl_lock(file, operation)
    };
    for result in [flock(file, operation), posix] {
        match result {
            Ok(()) => {}
            Err(e) if refused(e) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Some(()))
}

/// Total and available bytes of the file system that holds `path`.
pub(crate) fn space(path: &Path) -> Option<(u64, u64)> {
    let s = rustix::fs::statvfs(path).ok()?;
    Some((
        s.f_blocks.saturating_mul(s.f_frsize),
        s.f_bavail.saturating_mul(s.f_frsize),
    ))
}
