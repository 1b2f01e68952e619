//! How far the loading of the logs is, for whoever waits for it.

use crate::naming::TopicPartition;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Watches a loading, and may stop it.
pub struct LoadControl<'a> {
    /// Once true, the loading ends soon. What was recovered by then is not recovered
    /// again by the next start, and what had been stopped cleanly still counts as that.
    pub stop: &'a AtomicBool,
    /// Called a few times a second, and at the end.
    pub progress: &'a (dyn Fn(&LoadProgress) + Sync),
    /// A recovery that takes longer keeps its progress on disk so often, for the case that it is killed.
    pub keep_every: Duration,
    /// Called with each log that can be used from now on, on the thread that loaded it.
    pub loaded: &'a (dyn Fn(&TopicPartition) + Sync),
    /// Called when a directory went offline.
    pub dir_failed: &'a (dyn Fn() + Sync),
}

impl Default for LoadControl<'_> {
    /// Nobody watches.
    fn default() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self {
            stop: &NEVER,
            progress: &|_| {},
            keep_every: Duration::from_secs(2),
            loaded: &|_| {},
            dir_failed: &|| {},
        }
    }
}

impl fmt::Debug for LoadControl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadControl")
            .field("stop", &self.stop)
            .field("keep_every", &self.keep_every)
            .finish_non_exhaustive()
    }
}

/// How far loading is. Shown, it reads `recovered 312/2,000 partitions, 14 GB/20 GB, 40 s left` after a crash and
/// `loaded 312/2,000 partitions` else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// Partitions opened, recovered ones among them.
    pub loaded: usize,
    pub total: usize,
    /// Partitions of directories whose last stop was not clean.
    pub recovered: usize,
    pub to_recover: usize,
    /// Bytes of records looked at, and in all above the recovery points.
    pub recovered_bytes: u64,
    pub to_recover_bytes: u64,
    /// Since the loading began.
    pub elapsed: Duration,
}

impl LoadProgress {
    pub fn is_recovery(&self) -> bool {
        self.to_recover > 0
    }

    /// By the bytes' rate so far; unknown in the first second.
    pub fn left(&self) -> Option<Duration> {
        if self.elapsed < Duration::from_secs(1) || self.recovered_bytes == 0 {
            return None;
        }
        let done = self.recovered_bytes as f64;
        let left = self.to_recover_bytes.saturating_sub(self.recovered_bytes) as f64;
        Duration::try_from_secs_f64(self.elapsed.as_secs_f64() * left / done).ok()
    }
}

impl fmt::Display for LoadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_recovery() {
            let (loaded, total) = (grouped(self.loaded), grouped(self.total));
            return write!(f, "loaded {loaded}/{total} partitions");
        }
        write!(
            f,
            "recovered {}/{} partitions, {}/{}",
            grouped(self.recovered),
            grouped(self.to_recover),
            size(self.recovered_bytes),
            size(self.to_recover_bytes)
        )?;
        match self.left() {
            Some(left) => write!(f, ", {} s left", left.as_secs()),
            None => Ok(()),
        }
    }
}

/// `2,000`
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `14 GB`
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 10_000 && unit + 1 < UNITS.len() {
        value /= 1000;
        unit += 1;
    }
    format!("{value} {}", UNITS.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut progress = LoadProgress {
            loaded: 1312,
            total: 12_345_678,
            ..LoadProgress::default()
        };
        assert_eq!(progress.to_string(), "loaded 1,312/12,345,678 partitions");
        progress = LoadProgress {
            recovered: 312,
            to_recover: 2000,
            recovered_bytes: 14_000_000_000,
            to_recover_bytes: 20_900_000_000,
            elapsed: Duration::from_millis(900),
            ..progress
        };
        assert_eq!(
            progress.to_string(),
            "recovered 312/2,000 partitions, 14 GB/20 GB"
        );
        progress.elapsed = Duration::from_secs(81);
        assert_eq!(
            progress.to_string(),
            "recovered 312/2,000 partitions, 14 GB/20 GB, 39 s left"
        );
        progress.to_recover_bytes = 0;
        progress.recovered_bytes = 0;
        assert_eq!(
            progress.to_string(),
            "recovered 312/2,000 partitions, 0 B/0 B"
        );
    }
}
