//! What the tests share: the captures unpacked, batches made, logs read.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use gracchus_log::partition::OpenOptions;
use gracchus_log::{LogConfig, PartitionLog, ReadLimit, RecordsPart, TopicPartition};
use gracchus_record::{BatchBuilder, Codec, Entries, Entry, NewRecord};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unpacks a captured archive; knows just enough of tar for it.
pub fn unpack(name: &str, into: &Path) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_end(&mut tar)
        .unwrap();
    let mut rest = tar.as_slice();
    while rest.len() >= 512 && rest[0] != 0 {
        let text = |from: usize, to: usize| {
            let field = &rest[from..to];
            let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).trim().to_string()
        };
        let size = usize::from_str_radix(&text(124, 136), 8).unwrap();
        let prefix = text(345, 500);
        let name = match prefix.is_empty() {
            true => text(0, 100),
            false => format!("{prefix}/{}", text(0, 100)),
        };
        let path = into.join(name.trim_start_matches("./"));
        match rest[156] {
            b'5' => std::fs::create_dir_all(&path).unwrap(),
            b'0' | 0 => {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &rest[512..512 + size]).unwrap();
            }
            b'x' => {} // finer times, which nothing here looks at
            kind => panic!("unknown kind {kind} of {name}"),
        }
        rest = &rest[512 + size.div_ceil(512) * 512..];
    }
}

/// How many cases a property test runs; many with `cargo xtask test --long`.
pub fn cases(few: u32, many: u32) -> proptest::test_runner::Config {
    let long = std::env::var_os("GRACCHUS_TEST_LONG").is_some_and(|v| v != "0");
    proptest::test_runner::Config {
        cases: if long { many } else { few },
        failure_persistence: None,
        ..Default::default()
    }
}

/// All files below a directory, by their path in it.
pub fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_path_buf();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

pub fn copy_dir(from: &Path, to: &Path) {
    for (name, bytes) in files(from) {
        let path = to.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// The bytes of what a read gave.
pub fn bytes_of(parts: &[RecordsPart]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            RecordsPart::Bytes(bytes) => all.extend_from_slice(bytes),
            RecordsPart::File(region) => {
                let mut buf = vec![0; region.len as usize];
                region.file.read_exact_at(&mut buf, region.offset).unwrap();
                all.extend_from_slice(&buf);
            }
        }
    }
    all
}

/// Everything from `from` on, batch by batch, read as a follower does.
pub fn read_all(log: &mut PartitionLog, from: i64) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut offset = from;
    while offset < log.log_end_offset() {
        let data = log.read(offset, 4096, ReadLimit::LogEnd, true).unwrap();
        if data.bytes == 0 {
            break;
        }
        for entry in Entries::new(Bytes::from(bytes_of(&data.parts))) {
            let entry = entry.unwrap();
            entry.check_crc().unwrap();
            if entry.last_offset() >= offset {
                offset = entry.last_offset() + 1;
                all.push(entry);
            }
        }
    }
    all
}

/// Offset, key and value.
pub type Plain = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Offset, key and value of every record.
pub fn records(entries: &[Entry]) -> Vec<Plain> {
    let mut all = Vec::new();
    for entry in entries {
        entry
            .for_each_record(1 << 24, |r| {
                all.push((
                    r.offset,
                    r.key.map(<[u8]>::to_vec),
                    r.value.map(<[u8]>::to_vec),
                ));
                Ok::<_, gracchus_record::RecordError>(())
            })
            .unwrap();
    }
    all
}

/// A producer's batch of these keys and values.
pub struct Made {
    pub producer: (i64, i16, i32),
    pub transactional: bool,
    pub codec: Codec,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            producer: (-1, -1, -1),
            transactional: false,
            codec: Codec::None,
        }
    }
}

impl Made {
    pub fn bytes(&self, timestamp: i64, records: &[(&str, Option<&str>)]) -> Bytes {
        let (id, epoch, sequence) = self.producer;
        let mut builder = BatchBuilder::new(self.codec)
            .producer(id, epoch, sequence)
            .transactional(self.transactional);
        for (key, value) in records {
            builder.push(NewRecord {
                timestamp,
                key: Some(key.as_bytes()),
                value: value.map(str::as_bytes),
                headers: &[],
            });
        }
        builder.build().unwrap().bytes().clone()
    }
}

/// A plain batch with `count` records of about `size` bytes.
pub fn plain(timestamp: i64, count: usize, size: usize) -> Bytes {
    let value = "v".repeat(size);
    let records: Vec<_> = (0..count).map(|_| ("key", Some(value.as_str()))).collect();
    Made::default().bytes(timestamp, &records)
}

pub fn open(
    dir: &Path,
    config: &Arc<LogConfig>,
    change: impl FnOnce(&mut OpenOptions),
) -> PartitionLog {
    std::fs::create_dir_all(dir).unwrap();
    let mut options = OpenOptions {
        config: config.clone(),
        ..OpenOptions::default()
    };
    change(&mut options);
    PartitionLog::open(dir, TopicPartition::new("t", 0), options).unwrap()
}
