//! Names: topic-partitions, partition directories, files of a segment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A topic and a partition of it; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What a partition directory is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirKind {
    /// `<topic>-<p>`
    Live,
    /// `<topic>-<p>.<32 hex>-future`: being moved here from another directory
    Future,
    /// `<topic>-<p>.<32 hex>-delete`: to be removed
    Delete,
    /// `<topic>-<p>.<32 hex>-stray`: not of this broker; kept, never served
    Stray,
}

/// Reads a partition directory's name; `None` when it is none.
pub fn parse_dir_name(name: &str) -> Option<(TopicPartition, DirKind)> {
    let (stem, kind) = if let Some(stem) = name.strip_suffix("-delete") {
        (strip_unique(stem), DirKind::Delete)
    } else if let Some(stem) = name.strip_suffix("-future") {
        (strip_unique(stem), DirKind::Future)
    } else if let Some(stem) = name.strip_suffix("-stray") {
        (strip_unique(stem), DirKind::Stray)
    } else {
        (None, DirKind::Live)
    };
    // A topic may itself be called x-delete: without the unique part the name is a live one.
    let (stem, kind) = match stem {
        Some(stem) => (stem, kind),
        None => (name, DirKind::Live),
    };
    let (topic, partition) = stem.rsplit_once('-')?;
    let plain = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
    if topic.is_empty() || !plain {
        return None;
    }
    Some((TopicPartition::new(topic, partition.parse().ok()?), kind))
}

/// Cuts `.<unique>` off, which contains neither dots nor dashes.
fn strip_unique(stem: &str) -> Option<&str> {
    let (stem, unique) = stem.rsplit_once('.')?;
    let known = unique.len() == 32 && unique.bytes().all(|b| b.is_ascii_alphanumeric());
    known.then_some(stem)
}

/// `<topic>-<p>.<unique>-delete`, the topic cut so that the name fits in a file name's 255 bytes.
pub fn delete_dir_name(partition: &TopicPartition, unique: &str) -> String {
    cut_dir_name(partition, unique, "delete")
}

/// `<topic>-<p>.<unique>-stray`, cut in the same way.
pub fn stray_dir_name(partition: &TopicPartition, unique: &str) -> String {
    cut_dir_name(partition, unique, "stray")
}

fn cut_dir_name(partition: &TopicPartition, unique: &str, what: &str) -> String {
    let suffix = format!("-{}.{unique}-{what}", partition.partition);
    let room = 255usize.saturating_sub(suffix.len());
    let topic = partition
        .topic
        .char_indices()
        .take_while(|(at, c)| at + c.len_utf8() <= room)
        .map(|(_, c)| c)
        .collect::<String>();
    topic + &suffix
}

/// `<topic>-<p>.<unique>-future`; none where that does not fit in a file name's 255 bytes, since a start would not know the
/// topic again.
pub fn future_dir_name(partition: &TopicPartition, unique: &str) -> Option<String> {
    let name = format!("{partition}.{unique}-future");
    (name.len() <= 255).then_some(name)
}

/// The kinds of files of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    Snapshot,
}

impl FileKind {
    /// Without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::TxnIndex => "txnindex",
            Self::Snapshot => "snapshot",
        }
    }

    pub(crate) const SEGMENT: [Self; 4] = [
        Self::Log,
        Self::OffsetIndex,
        Self::TimeIndex,
        Self::TxnIndex,
    ];
}

/// `%020d.<extension>` in `dir`.
pub fn segment_file(dir: &Path, base_offset: i64, kind: FileKind) -> PathBuf {
    dir.join(format!("{base_offset:020}.{}", kind.extension()))
}

/// `%020d.<extension><suffix>` in `dir`; the suffix brings its dot: `.deleted`, `.cleaned`, `.swap`.
pub fn segment_file_with(dir: &Path, base_offset: i64, kind: FileKind, suffix: &str) -> PathBuf {
    dir.join(format!("{base_offset:020}.{}{suffix}", kind.extension()))
}

/// A segment file's name, read: base offset, kind, and what follows (`""`, `.deleted`, `.cleaned`, `.swap`).
pub fn parse_segment_file(name: &str) -> Option<(i64, FileKind, &str)> {
    let (digits, rest) = name.split_once('.')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let base = digits.parse().ok()?;
    let (extension, suffix) = match rest.find('.') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let kind = match extension {
        "log" => FileKind::Log,
        "index" => FileKind::OffsetIndex,
        "timeindex" => FileKind::TimeIndex,
        "txnindex" => FileKind::TxnIndex,
        "snapshot" => FileKind::Snapshot,
        _ => return None,
    };
    Some((base, kind, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names() {
        let cases = [
            ("a-0", Some(("a", 0, DirKind::Live))),
            ("a-b-12", Some(("a-b", 12, DirKind::Live))),
            (
                "doomed-0.88de0ebebb8e4a4fba62035d750d1983-delete",
                Some(("doomed", 0, DirKind::Delete)),
            ),
            (
                "mover-0.e08ae38c39d6429ea0d06eed4a990ae0-future",
                Some(("mover", 0, DirKind::Future)),
            ),
            (
                "s.x-7.e08ae38c39d6429ea0d06eed4a990ae0-stray",
                Some(("s.x", 7, DirKind::Stray)),
            ),
            ("x-delete-3", Some(("x-delete", 3, DirKind::Live))),
            ("x-delete", None),
            ("remote-log-index-cache", None),
            ("-1", None),
            ("a-", None),
            ("a-+1", None),
            ("a-99999999999", None),
            ("lost+found", None),
        ];
        for (name, expected) in cases {
            let expected = expected.map(|(t, p, kind)| (TopicPartition::new(t, p), kind));
            assert_eq!(parse_dir_name(name), expected, "{name}");
        }
    }

    #[test]
    fn a_long_topic_is_cut_for_its_deletion() {
        let partition = TopicPartition::new("t".repeat(249), 1234);
        let name = delete_dir_name(&partition, "e08ae38c39d6429ea0d06eed4a990ae0");
        assert_eq!(name.len(), 255);
        assert_eq!(parse_dir_name(&name).unwrap().1, DirKind::Delete);
    }

    #[test]
    fn a_copy_is_named_after_all_of_its_topic() {
        let unique = "e08ae38c39d6429ea0d06eed4a990ae0";
        let partition = TopicPartition::new("t".repeat(213), 0);
        let name = future_dir_name(&partition, unique).unwrap();
        assert_eq!(parse_dir_name(&name), Some((partition, DirKind::Future)));
        let longer = TopicPartition::new("t".repeat(214), 0);
        assert_eq!(future_dir_name(&longer, unique), None);
    }

    #[test]
    fn file_names() {
        assert_eq!(
            segment_file(Path::new("d"), 33, FileKind::TimeIndex),
            Path::new("d/00000000000000000033.timeindex")
        );
        assert_eq!(
            parse_segment_file("00000000000000000033.log.deleted"),
            Some((33, FileKind::Log, ".deleted"))
        );
        assert_eq!(parse_segment_file("leader-epoch-checkpoint"), None);
        assert_eq!(parse_segment_file("99999999999999999999.log"), None);
        assert_eq!(parse_segment_file("1.lag"), None);
    }
}
