//! The text files of offsets by partition: recovery points, high watermarks, log starts, the cleaner's.
//!
//! `0` newline, count newline, then `topic partition offset` lines.

use crate::disk::{self, Sync};
use crate::error::LogError;
use crate::naming::TopicPartition;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

/// File names in a log directory.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
pub const LOG_START: &str = "log-start-offset-checkpoint";
pub const CLEANER: &str = "cleaner-offset-checkpoint";

/// A million partitions of long names would still fit.
const LIMIT: u64 = 512 << 20;

/// Reads a checkpoint; an absent file is an empty one.
pub fn read(path: &Path) -> Result<HashMap<TopicPartition, i64>, LogError> {
    let Some(bytes) = disk::read_small(path, LIMIT)? else {
        return Ok(HashMap::new());
    };
    parse(&bytes).map_err(|detail| LogError::corrupt(path, detail))
}

/// Replaces a checkpoint, on the device.
pub fn write<'a>(
    path: &Path,
    entries: impl ExactSizeIterator<Item = (&'a TopicPartition, i64)>,
) -> Result<(), LogError> {
    disk::replace(path, format(entries).as_bytes(), Sync::Device)
}

fn format<'a>(entries: impl ExactSizeIterator<Item = (&'a TopicPartition, i64)>) -> String {
    let mut text = String::with_capacity(16 + entries.len() * 32);
    let _ = write!(text, "0\n{}\n", entries.len());
    for (partition, offset) in entries {
        let _ = writeln!(text, "{} {} {offset}", partition.topic, partition.partition);
    }
    text
}

fn parse(bytes: &[u8]) -> Result<HashMap<TopicPartition, i64>, String> {
    if bytes.is_empty() {
        // Kafka leaves the cleaner's file so until something was compacted
        return Ok(HashMap::new());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_string())?;
    let mut lines = text.lines();
    let count = header(&mut lines)?;
    let mut entries = HashMap::new();
    let mut seen = 0usize;
    for line in lines.filter(|l| !l.trim().is_empty()) {
        let bad = || format!("{line:?} is not topic, partition and offset");
        let mut words = line.split_whitespace();
        let (Some(topic), Some(partition), Some(offset), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad());
        };
        let partition: i32 = partition.parse().map_err(|_| bad())?;
        let offset: i64 = offset.parse().map_err(|_| bad())?;
        entries.insert(TopicPartition::new(topic, partition), offset);
        seen += 1;
    }
    if seen != count {
        return Err(format!("it announces {count} lines and has {seen}"));
    }
    Ok(entries)
}

/// The version and count lines that this and the leader epochs' file share.
pub(crate) fn header(lines: &mut std::str::Lines<'_>) -> Result<usize, String> {
    let version = lines.next().unwrap_or_default().trim();
    if version != "0" {
        return Err(format!("its version is {version:?}, not 0"));
    }
    let count = lines.next().unwrap_or_default().trim();
    count
        .parse()
        .map_err(|_| format!("its number of lines is {count:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kafkas_own() {
        let text = "0\n2\n__consumer_offsets 0 3\ncodec-zstd 0 31\n";
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(read[&TopicPartition::new("codec-zstd", 0)], 31);
        assert_eq!(read[&TopicPartition::new("__consumer_offsets", 0)], 3);
        let one = [(TopicPartition::new("tomb", 0), 48i64)];
        assert_eq!(
            format(one.iter().map(|(p, o)| (p, *o))),
            "0\n1\ntomb 0 48\n"
        );
        assert_eq!(format(one[..0].iter().map(|(p, o)| (p, *o))), "0\n0\n");
    }

    #[test]
    fn damage_is_named() {
        assert!(parse(b"").unwrap().is_empty());
        for text in [
            "1\n0\n",
            "0\n",
            "0\n2\na 0 1\n",
            "0\nx\n",
            "0\n1\na 0\n",
            "0\n1\na 0 1 2\n",
            "0\n1\na b 1\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(entries in proptest::collection::hash_map(("[a-z._-]{1,20}", 0..i32::MAX), any::<i64>(), 0..20)) {
            let entries: HashMap<_, _> = entries.into_iter()
                .map(|((t, p), o)| (TopicPartition::new(t, p), o)).collect();
            let text = format(entries.iter().map(|(p, o)| (p, *o)));
            prop_assert_eq!(parse(text.as_bytes()).unwrap(), entries);
        }

        #[test]
        fn anything_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
