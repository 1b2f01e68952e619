//! A topic's configuration as its log sees it.

use std::sync::Arc;

use gracchus_log::{CompressionType, LogConfig};
use gracchus_record::{Codec, TimestampType};

use crate::config::TopicConfig;

fn unsigned(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The topic-level keys that a log looks at.
pub fn log_config(topic: &TopicConfig) -> Arc<LogConfig> {
    let compression = match topic.compression_type.as_str() {
        "uncompressed" => CompressionType::Codec(Codec::None),
        "gzip" => CompressionType::Codec(Codec::Gzip),
        "snappy" => CompressionType::Codec(Codec::Snappy),
        "lz4" => CompressionType::Codec(Codec::Lz4),
        "zstd" => CompressionType::Codec(Codec::Zstd),
        _ => CompressionType::Producer,
    };
    Arc::new(LogConfig {
        segment_bytes: unsigned(topic.segment_bytes),
        segment_ms: topic.segment_ms,
        segment_jitter_ms: topic.segment_jitter_ms,
        segment_index_bytes: unsigned(topic.segment_index_bytes),
        index_interval_bytes: unsigned(topic.index_interval_bytes),
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms,
        retention_bytes: topic.retention_bytes,
        retention_ms: topic.retention_ms,
        max_message_bytes: unsigned(topic.max_message_bytes),
        file_delete_delay_ms: topic.file_delete_delay_ms,
        delete_retention_ms: topic.delete_retention_ms,
        min_compaction_lag_ms: topic.min_compaction_lag_ms,
        max_compaction_lag_ms: topic.max_compaction_lag_ms,
        min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
        compact: topic.compact,
        delete: topic.delete,
        compression,
        zstd: topic.zstd,
        gzip_level: topic.compression_gzip_level,
        lz4_level: topic.compression_lz4_level,
        zstd_level: topic.compression_zstd_level,
        preallocate: topic.preallocate,
        timestamp_type: if topic.log_append_time {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        },
        timestamp_before_max_ms: topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        magic: topic.record_version,
    })
}
