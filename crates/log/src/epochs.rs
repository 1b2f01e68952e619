//! Which leader epoch began at which offset (KIP-101): the file `leader-epoch-checkpoint` and its cache.

use crate::checkpoint::header;
use crate::disk::{self, Sync};
use crate::error::LogError;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// File name in a partition's directory.
pub const FILE: &str = "leader-epoch-checkpoint";

const LIMIT: u64 = 64 << 20;

/// An epoch and the offset of the first record that its leader could write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

/// The epochs of a log, both columns rising. Changes are written at once; a file lost in a power cut is rebuilt from
/// the batches, which carry their epochs.
#[derive(Debug, Clone, Default)]
pub struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
    /// What the file holds.
    written: Vec<EpochEntry>,
}

impl LeaderEpochCache {
    /// Reads the file; an absent one is empty.
    pub fn read(dir: &Path) -> Result<Self, LogError> {
        let path = dir.join(FILE);
        let Some(bytes) = disk::read_small(&path, LIMIT)? else {
            return Ok(Self::default());
        };
        let entries = parse(&bytes).map_err(|detail| LogError::corrupt(&path, detail))?;
        Ok(Self {
            written: entries.clone(),
            entries,
        })
    }

    /// Of a damaged file, which the next `write` replaces whatever there is to say.
    pub(crate) fn lost() -> Self {
        Self {
            entries: Vec::new(),
            written: vec![EpochEntry {
                epoch: -1,
                start_offset: -1,
            }],
        }
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Notes an epoch without writing; true if that changed anything. Older or equal epochs change nothing; entries that
    /// begin at or after the offset give way.
    pub fn note(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || start_offset < 0 || self.latest().is_some_and(|l| epoch <= l.epoch) {
            return false;
        }
        while self
            .latest()
            .is_some_and(|l| l.start_offset >= start_offset)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry {
            epoch,
            start_offset,
        });
        true
    }

    /// Notes an epoch that a leader or its batches name and writes the file if that changed anything. What does not
    /// rise with it, in epoch or offset, gives way. On an error nothing has changed.
    pub fn assign(&mut self, dir: &Path, epoch: i32, start_offset: i64) -> Result<bool, LogError> {
        let same = |l: EpochEntry| l.epoch == epoch && l.start_offset <= start_offset;
        if epoch < 0 || start_offset < 0 || self.latest().is_some_and(same) {
            return Ok(false);
        }
        self.change(dir, |cache| {
            cache
                .entries
                .retain(|e| e.epoch < epoch && e.start_offset < start_offset);
            cache.entries.push(EpochEntry {
                epoch,
                start_offset,
            });
            true
        })
    }

    /// Forgets all epochs that begin at or after `offset`.
    pub fn truncate_from_end(&mut self, dir: &Path, offset: i64) -> Result<bool, LogError> {
        self.change(dir, |cache| {
            let before = cache.entries.len();
            cache.entries.retain(|e| e.start_offset < offset);
            cache.entries.len() != before
        })
    }

    /// Forgets the epochs that end at or before `offset`; the one that holds there now begins there.
    pub fn truncate_from_start(&mut self, dir: &Path, offset: i64) -> Result<bool, LogError> {
        self.change(dir, |cache| cache.cut_start(offset))
    }

    /// Forgets all, file and all: the log stores a format without epochs.
    pub(crate) fn remove(&mut self, dir: &Path) -> Result<bool, LogError> {
        *self = Self::default();
        disk::remove_if_exists(&dir.join(FILE))
    }

    pub fn clear(&mut self, dir: &Path) -> Result<bool, LogError> {
        self.change(dir, |cache| {
            let had = !cache.entries.is_empty();
            cache.entries.clear();
            had
        })
    }

    /// As [`Self::truncate_from_end`] and [`Self::truncate_from_start`], in memory alone: for opening a log, where the
    /// next opening would do the same, and the next change writes all.
    pub fn bound(&mut self, start: i64, end: i64) {
        self.entries.retain(|e| e.start_offset < end);
        self.cut_start(start);
    }

    fn cut_start(&mut self, offset: i64) -> bool {
        let Some(at) = self.entries.iter().rposition(|e| e.start_offset <= offset) else {
            return false;
        };
        let moved = self
            .entries
            .get(at)
            .is_some_and(|e| e.start_offset < offset);
        self.entries.drain(..at);
        if let Some(first) = self.entries.first_mut() {
            first.start_offset = offset;
        }
        at > 0 || moved
    }

    fn change(
        &mut self,
        dir: &Path,
        change: impl FnOnce(&mut Self) -> bool,
    ) -> Result<bool, LogError> {
        let before = self.entries.clone();
        if !change(self) {
            return Ok(false);
        }
        if let Err(error) = self.write(dir) {
            self.entries = before;
            return Err(error);
        }
        Ok(true)
    }

    /// Writes the file, unless it holds just this.
    pub fn write(&mut self, dir: &Path) -> Result<(), LogError> {
        if self.written == self.entries {
            return Ok(());
        }
        let path: PathBuf = dir.join(FILE);
        disk::replace(&path, format(&self.entries).as_bytes(), Sync::PageCache)?;
        self.written.clone_from(&self.entries);
        Ok(())
    }

    /// The epoch that holds at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let at = self.entries.partition_point(|e| e.start_offset <= offset);
        at.checked_sub(1)
            .and_then(|at| self.entries.get(at))
            .map(|e| e.epoch)
    }

    /// The largest epoch at or below `epoch`, and where it ends (KIP-279):
    /// the present epoch ends at the log's end; an epoch that is newer than all known, or older than the first, gives
    /// `None` (older than the first: that epoch with the first one's start).
    pub fn end_offset_for(&self, epoch: i32, log_end: i64) -> Option<(i32, i64)> {
        if epoch < 0 {
            return None;
        }
        let latest = self.latest()?;
        if epoch == latest.epoch {
            return Some((epoch, log_end));
        }
        let next = self.entries.partition_point(|e| e.epoch <= epoch);
        let higher = self.entries.get(next)?;
        match next.checked_sub(1).and_then(|at| self.entries.get(at)) {
            Some(floor) => Some((floor.epoch, higher.start_offset)),
            None => Some((epoch, higher.start_offset)),
        }
    }
}

fn format(entries: &[EpochEntry]) -> String {
    let mut text = format!("0\n{}\n", entries.len());
    for e in entries {
        let _ = writeln!(text, "{} {}", e.epoch, e.start_offset);
    }
    text
}

fn parse(bytes: &[u8]) -> Result<Vec<EpochEntry>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_string())?;
    let mut lines = text.lines();
    let count = header(&mut lines)?;
    let mut cache = LeaderEpochCache::default();
    let mut seen = 0usize;
    for line in lines.filter(|l| !l.trim().is_empty()) {
        let bad = || format!("{line:?} is not epoch and offset");
        let (epoch, offset) = line.trim().split_once(' ').ok_or_else(bad)?;
        // Entries that do not rise are dropped as Kafka drops them on reading.
        cache.note(
            epoch.trim().parse().map_err(|_| bad())?,
            offset.trim().parse().map_err(|_| bad())?,
        );
        seen += 1;
    }
    if seen != count {
        return Err(format!("it announces {count} lines and has {seen}"));
    }
    Ok(cache.entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
        let mut cache = LeaderEpochCache::default();
        for (epoch, offset) in entries {
            assert!(cache.note(*epoch, *offset));
        }
        cache
    }

    #[test]
    fn file_there_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut c = LeaderEpochCache::read(dir.path()).unwrap();
        assert!(c.assign(dir.path(), 0, 0).unwrap());
        assert_eq!(
            std::fs::read(dir.path().join(FILE)).unwrap(),
            b"0\n1\n0 0\n"
        );
        assert!(!c.assign(dir.path(), 0, 7).unwrap());
        assert!(c.assign(dir.path(), 3, 7).unwrap());
        let again = LeaderEpochCache::read(dir.path()).unwrap();
        assert_eq!(again.entries(), c.entries());
    }

    #[test]
    fn an_epoch_without_records_gives_way() {
        let c = cache(&[(0, 0), (1, 5), (2, 5)]);
        assert_eq!(
            c.entries().iter().map(|e| e.epoch).collect::<Vec<_>>(),
            [0, 2]
        );
    }

    #[test]
    fn ends_of_epochs() {
        let c = cache(&[(2, 10), (4, 20), (7, 30)]);
        let table = [
            (7, Some((7, 44))),
            (8, None),
            (6, Some((4, 30))),
            (4, Some((4, 30))),
            (3, Some((2, 20))),
            (2, Some((2, 20))),
            (1, Some((1, 10))),
            (-1, None),
        ];
        for (epoch, expected) in table {
            assert_eq!(c.end_offset_for(epoch, 44), expected, "epoch {epoch}");
        }
        assert_eq!(cache(&[]).end_offset_for(0, 44), None);
        assert_eq!(c.epoch_for_offset(9), None);
        assert_eq!(c.epoch_for_offset(29), Some(4));
        assert_eq!(c.epoch_for_offset(30), Some(7));
    }

    #[test]
    fn truncation() {
        let dir = tempfile::tempdir().unwrap();
        let mut c = cache(&[(2, 10), (4, 20), (7, 30)]);
        assert!(c.truncate_from_start(dir.path(), 25).unwrap());
        let pairs = |c: &LeaderEpochCache| {
            c.entries()
                .iter()
                .map(|e| (e.epoch, e.start_offset))
                .collect::<Vec<_>>()
        };
        assert_eq!(pairs(&c), [(4, 25), (7, 30)]);
        assert!(!c.truncate_from_start(dir.path(), 25).unwrap());
        assert!(!c.truncate_from_end(dir.path(), 31).unwrap());
        assert!(c.truncate_from_end(dir.path(), 30).unwrap());
        assert_eq!(pairs(&c), [(4, 25)]);
        assert!(c.clear(dir.path()).unwrap());
    }

    #[test]
    fn damage_is_named() {
        for text in ["", "0\n", "0\n1\n", "0\n1\n5\n", "0\n1\na b\n", "7\n0\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
