//! The group coordinator in its shell, over a log in memory: waits, restarts, leadership, a log that is slow or fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gracchus_broker::group::log::{Appended, Piece};
use gracchus_broker::group::{GroupShell, OFFSETS_TOPIC, OffsetsLog, Settings};
use gracchus_broker::replica::LeadershipObserver;
use gracchus_groups::GroupConfig;
use gracchus_groups::request::*;
use gracchus_kafka_proto::ErrorCode;
use gracchus_log::TopicPartition as LogPartition;
use gracchus_record::{Batch, Codec};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[derive(Default)]
struct Memory {
    batches: Mutex<HashMap<i32, Vec<Batch>>>,
    /// Appends wait for a notice of `go`.
    slow: Mutex<bool>,
    go: Notify,
    /// Appends fail with this; the leadership is lost in the middle of it, as when a disk fails.
    broken: Mutex<Option<ErrorCode>>,
    observer: OnceLock<Arc<GroupShell>>,
}

impl OffsetsLog for Memory {
    fn append(self: Arc<Self>, partition: i32, batch: Bytes, acks: i16, _: Duration) -> Appended {
        if let Some(error) = *self.broken.lock() {
            if let Some(shell) = self.observer.get() {
                shell.lost_leadership(&LogPartition::new(OFFSETS_TOPIC, partition), None);
            }
            return Box::pin(async move { Err(error) });
        }
        let mut batch = Batch::parse(&batch).unwrap();
        batch.check_crc().unwrap();
        let base = {
            let mut all = self.batches.lock();
            let batches = all.entry(partition).or_default();
            let base = batches.last().map_or(0, |b| b.header.next_offset());
            let payload = batch.payload();
            batch.header.base_offset = base;
            batches.push(Batch::assemble(batch.header, &payload));
            base
        };
        let wait = acks != 0 && *self.slow.lock();
        Box::pin(async move {
            if wait {
                self.go.notified().await;
            }
            Ok(base)
        })
    }

    fn log_start(&self, _: i32) -> Result<i64, ErrorCode> {
        Ok(0)
    }

    fn read(&self, partition: i32, offset: i64, max_bytes: usize) -> Result<Piece, ErrorCode> {
        let all = self.batches.lock();
        let batches = all.get(&partition).map_or(&[][..], Vec::as_slice);
        let mut records = BytesMut::new();
        for batch in batches.iter().filter(|b| b.header.last_offset() >= offset) {
            if !records.is_empty() && records.len() + batch.bytes().len() > max_bytes {
                break;
            }
            records.extend_from_slice(batch.bytes());
        }
        Ok(Piece {
            records: records.freeze(),
            log_end: batches.last().map_or(0, |b| b.header.next_offset()),
        })
    }
}

struct Node {
    shell: Arc<GroupShell>,
    log: Arc<Memory>,
    shutdown: CancellationToken,
}

fn node(log: Arc<Memory>) -> Node {
    let settings = Settings {
        group: GroupConfig::default(),
        required_acks: -1,
        commit_timeout: Duration::from_secs(5),
        codec: Codec::None,
        // small, so that a load takes several reads
        load_buffer: 100,
        retention_check: Duration::from_secs(600),
        static_members: true,
    };
    let shutdown = CancellationToken::new();
    let shell = GroupShell::new(settings, log.clone(), shutdown.clone(), TaskTracker::new());
    shell.start(None);
    Node {
        shell,
        log,
        shutdown,
    }
}

/// Leads all partitions, loaded.
async fn leader(log: Arc<Memory>) -> Node {
    let node = node(log);
    for partition in 0..50 {
        node.shell
            .became_leader(&LogPartition::new(OFFSETS_TOPIC, partition), 1);
    }
    // another topic is none of its business
    node.shell.became_leader(&LogPartition::new("t", 1), 1);
    loop {
        let listed = node.shell.list_groups(ListGroups::default()).await;
        if listed.error == ErrorCode::None {
            return node;
        }
        assert_eq!(listed.error, ErrorCode::CoordinatorLoadInProgress);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn join(member_id: &str) -> JoinGroup {
    JoinGroup {
        group_id: "g".into(),
        member_id: member_id.into(),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout_ms: 60_000,
        session_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![(
            "range".into(),
            Bytes::from_static(b"\0\0\0\0\0\0\xff\xff\xff\xff"),
        )],
        ..Default::default()
    }
}

fn commit(group: &str, offset: i64) -> OffsetCommit {
    OffsetCommit {
        group_id: group.into(),
        generation_id: -1,
        offsets: vec![CommittedOffset {
            partition: TopicPartition::new("t", 0),
            offset,
            leader_epoch: -1,
            metadata: None,
            timestamp: -1,
        }],
        ..Default::default()
    }
}

async fn fetched(node: &Node, group: &str) -> i64 {
    let fetch = OffsetFetch {
        group_id: group.into(),
        require_stable: false,
        partitions: Some(vec![TopicPartition::new("t", 0)]),
    };
    let result = node.shell.fetch_offsets(fetch).await;
    assert_eq!(result.error, ErrorCode::None);
    result.offsets[0].offset
}

/// Joins, syncs, and is the only member.
async fn member(node: &Node) -> (String, i32) {
    let joined = node.shell.join_group(join("")).await;
    assert_eq!(joined.error, ErrorCode::None);
    let sync = SyncGroup {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![(joined.member_id.clone(), Bytes::from_static(b"mine"))],
        ..Default::default()
    };
    let synced = node.shell.sync_group(sync).await;
    assert_eq!(
        (synced.error, &synced.assignment[..]),
        (ErrorCode::None, &b"mine"[..])
    );
    (joined.member_id, joined.generation_id)
}

#[tokio::test(start_paused = true)]
async fn a_member_waits_for_the_initial_delay_and_fails_by_silence() {
    let node = leader(Arc::default()).await;
    let begun = tokio::time::Instant::now();
    let (id, generation) = member(&node).await;
    assert!(begun.elapsed() >= Duration::from_secs(3) && begun.elapsed() < Duration::from_secs(4));
    let beat = Heartbeat {
        group_id: "g".into(),
        generation_id: generation,
        member_id: id,
        group_instance_id: None,
    };
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(node.shell.heartbeat(beat.clone()).await, ErrorCode::None);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(node.shell.heartbeat(beat).await, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn what_was_committed_is_there_after_a_restart() {
    let first = leader(Arc::default()).await;
    for group in 0..40 {
        let group = format!("group-{group}");
        for offset in 0..5 {
            assert_eq!(
                first.shell.commit_offsets(commit(&group, offset)).await[0].1,
                ErrorCode::None
            );
        }
    }
    let (id, generation) = member(&first).await;
    first.shutdown.cancel();
    first.shell.stop();
    let refused = first.shell.list_groups(ListGroups::default()).await;
    assert_eq!(refused.error, ErrorCode::CoordinatorNotAvailable);

    let second = leader(first.log.clone()).await;
    for group in 0..40 {
        assert_eq!(fetched(&second, &format!("group-{group}")).await, 4);
    }
    let described = second
        .shell
        .describe_group(DescribeGroup {
            group_id: "g".into(),
        })
        .await;
    assert_eq!(described.state, "Stable");
    assert_eq!(&described.members[0].assignment[..], b"mine");
    let beat = Heartbeat {
        group_id: "g".into(),
        generation_id: generation,
        member_id: id,
        group_instance_id: None,
    };
    assert_eq!(second.shell.heartbeat(beat).await, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn a_commit_waits_for_the_log_and_no_longer_than_its_time() {
    let node = leader(Arc::default()).await;
    *node.log.slow.lock() = true;
    let shell = node.shell.clone();
    let waiting = tokio::spawn(async move { shell.commit_offsets(commit("a", 7)).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!waiting.is_finished());
    assert_eq!(fetched(&node, "a").await, -1);
    node.log.go.notify_waiters();
    assert_eq!(waiting.await.unwrap()[0].1, ErrorCode::None);
    assert_eq!(fetched(&node, "a").await, 7);
    // the log never answers
    let outcome = node.shell.commit_offsets(commit("b", 7)).await;
    assert_eq!(outcome[0].1, ErrorCode::RequestTimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_under_an_append_takes_the_groups_along() {
    let node = leader(Arc::default()).await;
    node.log.observer.set(node.shell.clone()).ok().unwrap();
    member(&node).await;
    *node.log.broken.lock() = Some(ErrorCode::KafkaStorageError);
    let outcome = node.shell.commit_offsets(commit("a", 7)).await;
    assert_eq!(outcome[0].1, ErrorCode::NotCoordinator);
    let described = node
        .shell
        .describe_group(DescribeGroup {
            group_id: "a".into(),
        })
        .await;
    assert_eq!(described.error, ErrorCode::NotCoordinator);
}

#[tokio::test(start_paused = true)]
async fn losing_the_partition_answers_who_waits() {
    let node = leader(Arc::default()).await;
    let shell = node.shell.clone();
    let waiting = tokio::spawn(async move { shell.join_group(join("")).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let partition = LogPartition::new(OFFSETS_TOPIC, node.shell.partition_for("g"));
    node.shell.lost_leadership(&partition, Some(2));
    assert_eq!(waiting.await.unwrap().error, ErrorCode::NotCoordinator);
}

#[tokio::test(start_paused = true)]
async fn stopping_answers_who_waits() {
    let node = leader(Arc::default()).await;
    let shell = node.shell.clone();
    let waiting = tokio::spawn(async move { shell.join_group(join("")).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    node.shell.stop();
    assert_eq!(
        waiting.await.unwrap().error,
        ErrorCode::CoordinatorNotAvailable
    );
}

#[tokio::test(start_paused = true)]
async fn batches_are_as_kafka_writes_them() {
    let node = leader(Arc::default()).await;
    node.shell.commit_offsets(commit("a", 7)).await;
    member(&node).await;
    let batches = node.log.batches.lock();
    let only = |group: &str| batches[&node.shell.partition_for(group)][0].header;
    let (offsets, metadata) = (only("a"), only("g"));
    assert_eq!(
        (
            offsets.producer_id,
            offsets.producer_epoch,
            offsets.base_sequence
        ),
        (-1, -1, 0)
    );
    assert_eq!((metadata.producer_id, metadata.base_sequence), (-1, -1));
    assert!(!offsets.is_transactional() && !offsets.is_control());
    assert!(offsets.base_timestamp > 1_600_000_000_000);
}

/// Every batch of the groups' own in the captured logs of Apache Kafka 3.9.2, built again: the same bytes.
#[test]
fn captured_batches_are_built_again_byte_for_byte() {
    let logs: [&[u8]; 2] = [
        include_bytes!("../../groups/tests/golden/consumer_offsets-0.log"),
        include_bytes!("../../groups/tests/golden/consumer_offsets-1.log"),
    ];
    let mut built = 0;
    for log in logs {
        let mut rest = Bytes::from_static(log);
        while !rest.is_empty() {
            let captured = Batch::parse(&rest).unwrap();
            rest = rest.slice(captured.bytes().len()..);
            let header = &captured.header;
            if header.is_control() {
                continue;
            }
            let mut records = Vec::new();
            captured
                .for_each_record::<gracchus_record::RecordError>(usize::MAX, |record| {
                    let bytes = |part: Option<&[u8]>| part.map(Bytes::copy_from_slice);
                    records.push((bytes(record.key).unwrap(), bytes(record.value)));
                    Ok(())
                })
                .unwrap();
            let batch = gracchus_groups::AppendBatch {
                timestamp_ms: header.base_timestamp,
                records,
                transactional: header
                    .is_transactional()
                    .then_some((header.producer_id, header.producer_epoch)),
                base_sequence: header.base_sequence,
            };
            let ours = gracchus_broker::group::batch::encode(&batch, Codec::None).unwrap();
            let mut ours = Batch::parse(&ours).unwrap();
            let payload = ours.payload();
            // what the log fills in
            ours.header.base_offset = header.base_offset;
            ours.header.leader_epoch = header.leader_epoch;
            let ours = Batch::assemble(ours.header, &payload);
            assert_eq!(ours.bytes(), captured.bytes());
            built += 1;
        }
    }
    assert_eq!(built, 6);
}
