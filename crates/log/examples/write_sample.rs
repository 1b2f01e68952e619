//! Writes a log directory with some of everything, stopped cleanly, for other tools to read:
//! `cargo run -p gracchus-log --example write_sample -- DIR CLUSTER_ID BROKER_ID`

use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogManager, LogManagerConfig, SharedLog, TopicPartition,
    Uuid,
};
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::{BatchBuilder, Codec, NewRecord};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn config(topic: &str) -> Arc<LogConfig> {
    let mut config = LogConfig {
        index_interval_bytes: 512,
        ..LogConfig::default()
    };
    if topic == "rolled" || topic == "compacted" {
        config.segment_bytes = 4000;
        config.index_interval_bytes = 200;
    }
    if topic == "compacted" {
        config.compact = true;
        config.delete = false;
        config.min_cleanable_dirty_ratio = 0.0;
    }
    Arc::new(config)
}

struct Producer {
    id: i64,
    sequence: i32,
    transactional: bool,
    codec: Codec,
}

impl Producer {
    fn send(&mut self, log: &SharedLog, now: i64, keys: std::ops::Range<usize>) -> Outcome<()> {
        let mut builder = BatchBuilder::new(self.codec).transactional(self.transactional);
        if self.id >= 0 {
            builder = builder.producer(self.id, 0, self.sequence);
            self.sequence += keys.len() as i32;
        }
        for n in keys {
            let (key, value) = (format!("key-{}", n % 7), format!("value-{n:060}"));
            builder.push(NewRecord {
                timestamp: now + n as i64,
                key: Some(key.as_bytes()),
                value: (n % 5 != 4).then_some(value.as_bytes()),
                headers: &[],
            });
        }
        append(
            log,
            builder.build()?.bytes().clone(),
            AppendOrigin::Client,
            now,
        )
    }
}

fn append(log: &SharedLog, bytes: bytes::Bytes, origin: AppendOrigin, now: i64) -> Outcome<()> {
    let mut log = log.lock();
    log.append_as_leader(bytes, 0, origin, now)?;
    let end = log.log_end_offset();
    log.update_high_watermark(end);
    Ok(())
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("DIR is missing")?);
    let cluster = args.next().ok_or("CLUSTER_ID is missing")?;
    let broker: i32 = args.next().ok_or("BROKER_ID is missing")?.parse()?;
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?;
    let dirs = LogDirs::open(&[dir])?;
    dirs.write_identity(&cluster, broker, now)?;
    let manager = LogManager::load(
        dirs,
        LogManagerConfig::default(),
        config(""),
        &config,
        now,
        &LoadControl::default(),
    )?;
    let make = |topic: &str, number: u8| -> Outcome<SharedLog> {
        let log = manager.get_or_create(
            &TopicPartition::new(topic, 0),
            true,
            Some(Uuid::from_bytes([number; 16])),
            config(topic),
            now,
        )?;
        log.lock().assign_epoch_start(0, 0)?;
        Ok(log)
    };
    let plain = |codec| Producer {
        id: -1,
        sequence: 0,
        transactional: false,
        codec,
    };
    for (number, codec) in [
        (1, Codec::None),
        (2, Codec::Gzip),
        (3, Codec::Snappy),
        (4, Codec::Lz4),
        (5, Codec::Zstd),
    ] {
        let log = make(&format!("codec-{}", codec.name()), number)?;
        for n in 0..20 {
            plain(codec).send(&log, now, n * 10..n * 10 + 10)?;
        }
    }
    let rolled = make("rolled", 6)?;
    let mut producer = Producer {
        id: 100,
        ..plain(Codec::None)
    };
    for n in 0..100 {
        producer.send(&rolled, now, n * 3..n * 3 + 3)?;
    }
    let compacted = make("compacted", 7)?;
    for n in 0..100 {
        plain(Codec::Lz4).send(&compacted, now, n * 3..n * 3 + 3)?;
    }
    compacted.lock().roll(now)?;
    manager.run_cleaner_once(now);
    manager.run_file_deletion_once(i64::MAX);
    let txn = make("txn", 8)?;
    let mut producer = Producer {
        id: 200,
        transactional: true,
        ..plain(Codec::None)
    };
    for (n, marker) in [
        (0, Marker::Commit),
        (5, Marker::Abort),
        (10, Marker::Commit),
    ] {
        producer.send(&txn, now, n..n + 5)?;
        let end = EndTransaction {
            marker,
            coordinator_epoch: 0,
        };
        let batch = end.batch(now, 200, 0)?;
        append(&txn, batch.bytes().clone(), AppendOrigin::Markers, now)?;
    }
    let truncated = make("truncated", 9)?;
    plain(Codec::None).send(&truncated, now, 0..20)?;
    truncated.lock().delete_records(8)?;
    make("empty", 10)?;
    manager.shutdown(now);
    Ok(())
}
