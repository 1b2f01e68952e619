//! DescribeLogDirs (35): what is in which log directory (KIP-113), and how full it is (KIP-827).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use gracchus_kafka_proto::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use gracchus_log::manager::{DirDescription, LogDescription};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;

/// Answers. Looks at the file systems, so on a thread that may block.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    _ctx: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    // None = all partitions of all topics.
    let wanted: Option<HashSet<(String, i32)>> = request.topics.map(|topics| {
        let pairs = topics.into_iter().flat_map(|topic| {
            topic
                .partitions
                .into_iter()
                .map(move |partition| (topic.topic.clone(), partition))
        });
        pairs.collect()
    });
    let manager = replicas.clone();
    let dirs = tokio::task::spawn_blocking(move || manager.logs().describe_dirs()).await;
    let Ok(dirs) = dirs else {
        let error_code = ErrorCode::UnknownServerError.code();
        return DescribeLogDirsResponse {
            error_code,
            ..Default::default()
        };
    };
    let results = dirs
        .into_iter()
        .map(|dir| describe(replicas, dir, wanted.as_ref()))
        .collect();
    DescribeLogDirsResponse {
        results,
        ..Default::default()
    }
}

fn describe(
    replicas: &ReplicaManager,
    dir: DirDescription,
    wanted: Option<&HashSet<(String, i32)>>,
) -> DescribeLogDirsResult {
    // as AlterReplicaLogDirs takes it
    let path = std::path::absolute(&dir.path).unwrap_or(dir.path);
    let log_dir = path.display().to_string();
    if !dir.online {
        return DescribeLogDirsResult {
            error_code: ErrorCode::KafkaStorageError.code(),
            log_dir,
            ..Default::default()
        };
    }
    let mut topics: BTreeMap<Arc<str>, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in dir.logs {
        let key = (log.partition.topic.to_string(), log.partition.partition);
        if wanted.is_none_or(|wanted| wanted.contains(&key)) {
            let partitions = topics.entry(log.partition.topic.clone()).or_default();
            partitions.push(DescribeLogDirsPartition {
                partition_index: log.partition.partition,
                partition_size: i64::try_from(log.size).unwrap_or(i64::MAX),
                offset_lag: lag(replicas, &log),
                is_future_key: log.future,
                ..Default::default()
            });
        }
    }
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    DescribeLogDirsResult {
        log_dir,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| DescribeLogDirsTopic {
                name: name.to_string(),
                partitions,
                ..Default::default()
            })
            .collect(),
        total_bytes: bytes(dir.total_bytes),
        usable_bytes: bytes(dir.usable_bytes),
        ..Default::default()
    }
}

/// How far the log is behind: a live one its high watermark, a copy being moved the live one.
fn lag(replicas: &ReplicaManager, log: &LogDescription) -> i64 {
    let Some(live) = replicas.logs().get(&log.partition) else {
        return -1;
    };
    let live = live.lock();
    if log.future {
        return live.log_end_offset() - log.log_end_offset;
    }
    (live.high_watermark() - log.log_end_offset).max(0)
}
