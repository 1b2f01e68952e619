//! A file of fixed-size, rising entries: what the offset and the time index share.

use crate::disk;
use crate::error::LogError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Entries that wait in memory before they are written.
const PENDING: usize = 4096;
/// And most of them when the disk is full: of a segment of some hundred MiB.
const MOST_PENDING: usize = 1 << 20;

/// `N` bytes an entry. The first `stored` are in the file, the rest waits.
#[derive(Debug, Default)]
pub(super) struct Entries<const N: usize> {
    /// `None` until the file has been looked at.
    stored: Option<u32>,
    pending: Vec<u8>,
    /// The file has been made as large as it may become, zeros at its end.
    preallocated: bool,
}

impl<const N: usize> Entries<N> {
    /// Of a file that has just been made, or is to be rebuilt.
    pub(super) fn fresh() -> Self {
        Self {
            stored: Some(0),
            pending: Vec::new(),
            preallocated: false,
        }
    }

    fn stored(&mut self, path: &Path) -> Result<u32, LogError> {
        if let Some(n) = self.stored {
            return Ok(n);
        }
        let len = disk::file_len(path)?.unwrap_or(0);
        let mut n = u32::try_from(len / N as u64).unwrap_or(u32::MAX);
        // A file that was not trimmed ends in zeros; entries only rise, so a zero entry after the first is none.
        if n > 1 {
            let file = disk::open_read(path)?;
            let is_zero = |at: u32| -> Result<bool, LogError> {
                Ok(read_entry::<N>(&file, path, at)? == [0; N])
            };
            if is_zero(n - 1)? {
                let (mut low, mut high) = (0, n - 1);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if is_zero(middle)? {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                n = low;
            }
        }
        self.stored = Some(n);
        Ok(n)
    }

    pub(super) fn len(&mut self, path: &Path) -> Result<u32, LogError> {
        Ok(self.stored(path)? + (self.pending.len() / N) as u32)
    }

    /// The number of entries, if no file has to be looked at for it: an append needs no path then.
    pub(super) fn known_len(&self) -> Option<u32> {
        Some(self.stored? + (self.pending.len() / N) as u32)
    }

    /// The last entry, on the same condition.
    pub(super) fn known_last(&self) -> Option<[u8; N]> {
        self.pending.last_chunk().copied()
    }

    /// Adds the entry if that needs no file; false if [`Entries::push`] has to.
    pub(super) fn push_to_memory(&mut self, entry: [u8; N]) -> bool {
        let room = self.stored.is_some() && self.pending.len() + N < PENDING;
        if room {
            self.pending.extend_from_slice(&entry);
        }
        room
    }

    pub(super) fn get(&mut self, path: &Path, at: u32) -> Result<Option<[u8; N]>, LogError> {
        let stored = self.stored(path)?;
        if at >= stored {
            let from = (at - stored) as usize * N;
            return Ok(self
                .pending
                .get(from..from + N)
                .and_then(|e| e.try_into().ok()));
        }
        read_entry(&disk::open_read(path)?, path, at).map(Some)
    }

    pub(super) fn last(&mut self, path: &Path) -> Result<Option<[u8; N]>, LogError> {
        match self.len(path)?.checked_sub(1) {
            Some(at) => self.get(path, at),
            None => Ok(None),
        }
    }

    /// The last entry for which `keep` holds; it holds for a prefix of the entries.
    pub(super) fn floor(
        &mut self,
        path: &Path,
        keep: impl Fn(&[u8; N]) -> bool,
    ) -> Result<Option<(u32, [u8; N])>, LogError> {
        let stored = self.stored(path)?;
        let (waiting, _) = self.pending.as_chunks::<N>();
        let n = waiting.partition_point(&keep);
        if let Some(entry) = n.checked_sub(1).and_then(|at| waiting.get(at)) {
            return Ok(Some((stored + n as u32 - 1, *entry)));
        }
        if stored == 0 {
            return Ok(None);
        }
        let file = disk::open_read(path)?;
        let (mut low, mut high) = (0u32, stored);
        // Narrow to a page by single reads, then read the page.
        let page = (4096 / N) as u32;
        while high - low > page {
            let middle = low + (high - low) / 2;
            if keep(&read_entry(&file, path, middle)?) {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut buf = vec![0u8; (high - low) as usize * N];
        let got = disk::read_at_most(&file, &mut buf, u64::from(low) * N as u64)
            .map_err(|e| LogError::io("read", path, e))?;
        let (entries, _) = buf.get(..got).unwrap_or_default().as_chunks::<N>();
        let n = entries.partition_point(keep);
        Ok(n.checked_sub(1)
            .and_then(|at| entries.get(at).map(|e| (low + at as u32, *e))))
    }

    pub(super) fn push(&mut self, path: &Path, entry: [u8; N], max: u32) -> Result<(), LogError> {
        self.stored(path)?;
        self.pending.extend_from_slice(&entry);
        if self.pending.len() < PENDING {
            return Ok(());
        }
        match self.write_pending(path, max) {
            // They may wait for space; an index that does not fit in memory any more may not.
            Err(error) if error.is_out_of_space() && self.pending.len() < MOST_PENDING => Ok(()),
            result => result,
        }
    }

    /// Makes the file and, for an active segment, as large as it may become.
    pub(super) fn create(&mut self, path: &Path, max: u32) -> Result<(), LogError> {
        disk::make(path, u64::from(max) * N as u64)?;
        *self = Self::fresh();
        self.preallocated = true;
        Ok(())
    }

    pub(super) fn write_pending(&mut self, path: &Path, max: u32) -> Result<(), LogError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let stored = self.stored(path)?;
        let file = disk::open(path, true)?;
        if !self.preallocated {
            let len = u64::from(max.max(stored)) * N as u64;
            file.set_len(len)
                .map_err(|e| LogError::io("size", path, e))?;
            self.preallocated = true;
        }
        file.write_all_at(&self.pending, u64::from(stored) * N as u64)
            .map_err(|e| LogError::io("write", path, e))?;
        self.stored = Some(stored + (self.pending.len() / N) as u32);
        self.pending.clear();
        self.pending.shrink_to(0);
        Ok(())
    }

    /// Writes what waits and cuts the file to its entries.
    pub(super) fn trim(&mut self, path: &Path) -> Result<(), LogError> {
        if !self.preallocated && self.pending.is_empty() {
            return Ok(());
        }
        self.preallocated = true; // no use in growing it now
        self.write_pending(path, 0)?;
        let stored = self.stored(path)?;
        let file = disk::open(path, true)?;
        file.set_len(u64::from(stored) * N as u64)
            .map_err(|e| LogError::io("cut", path, e))?;
        self.preallocated = false;
        Ok(())
    }

    /// Makes the file hold exactly these entries, whatever else was in it.
    pub(super) fn cut_file(&mut self, path: &Path) -> Result<(), LogError> {
        self.preallocated = true;
        LogError::unless_full(self.write_pending(path, 0))?;
        let len = u64::from(self.stored(path)?) * N as u64;
        if disk::file_len(path)? != Some(len) {
            disk::open(path, true)?
                .set_len(len)
                .map_err(|e| LogError::io("cut", path, e))?;
        }
        self.preallocated = false;
        Ok(())
    }

    /// Keeps the first `n` entries and leaves the file trimmed.
    pub(super) fn keep(&mut self, path: &Path, n: u32) -> Result<(), LogError> {
        let stored = self.stored(path)?;
        if n >= stored {
            self.pending.truncate((n - stored) as usize * N);
            return Ok(());
        }
        self.pending.clear();
        let file = disk::open(path, true)?;
        file.set_len(u64::from(n) * N as u64)
            .map_err(|e| LogError::io("cut", path, e))?;
        self.stored = Some(n);
        self.preallocated = false;
        Ok(())
    }
}

fn read_entry<const N: usize>(file: &File, path: &Path, at: u32) -> Result<[u8; N], LogError> {
    let mut entry = [0u8; N];
    let got = disk::read_at_most(file, &mut entry, u64::from(at) * N as u64)
        .map_err(|e| LogError::io("read", path, e))?;
    if got != N {
        return Err(LogError::corrupt(
            path,
            format!("it ends before entry {at}"),
        ));
    }
    Ok(entry)
}
