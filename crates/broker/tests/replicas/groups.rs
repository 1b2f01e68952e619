//! The group coordinator over real replicas of `__consumer_offsets`, one partition.

use std::sync::Arc;
use std::time::Duration;

use gracchus_broker::config::MetadataVersion;
use gracchus_broker::group::{GroupShell, OFFSETS_TOPIC, Settings};
use gracchus_groups::request::{
    CommittedOffset, ListGroups, OffsetCommit, OffsetFetch, TopicPartition,
};
use gracchus_kafka_proto::ErrorCode;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::rig::{ME, Rig};

const OTHER: i32 = 2;

fn shell(rig: &Rig) -> Arc<GroupShell> {
    let protocol = MetadataVersion::parse("3.9").unwrap();
    let settings = Settings::new(&rig.config.current(), protocol, Some(1));
    let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
    let shell = GroupShell::new(settings, rig.replicas.clone(), shutdown, tasks);
    rig.replicas.set_observers(vec![Arc::new(shell.clone())]);
    shell.start(Some(1));
    shell
}

async fn loaded(shell: &Arc<GroupShell>) {
    loop {
        let listed = shell.list_groups(ListGroups::default()).await;
        if listed.error == ErrorCode::None {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn commit(shell: &Arc<GroupShell>, offset: i64) -> ErrorCode {
    let request = OffsetCommit {
        group_id: "g".into(),
        generation_id: -1,
        offsets: vec![CommittedOffset {
            partition: TopicPartition::new("t", 0),
            offset,
            leader_epoch: -1,
            metadata: None,
            timestamp: -1,
        }],
        ..Default::default()
    };
    shell.commit_offsets(request).await[0].1
}

async fn committed(shell: &Arc<GroupShell>) -> (ErrorCode, Option<i64>) {
    let request = OffsetFetch {
        group_id: "g".into(),
        require_stable: false,
        partitions: Some(vec![TopicPartition::new("t", 0)]),
    };
    let result = shell.fetch_offsets(request).await;
    (result.error, result.offsets.first().map(|o| o.offset))
}

#[tokio::test]
async fn offsets_follow_the_leadership() {
    let rig = Rig::with(&[("offsets.load.buffer.size", "100")]);
    let shell = shell(&rig);
    assert_eq!(commit(&shell, 1).await, ErrorCode::NotCoordinator);
    rig.lead(OFFSETS_TOPIC, 1, &[ME], &[ME]);
    loaded(&shell).await;
    for offset in 1..=20 {
        assert_eq!(commit(&shell, offset).await, ErrorCode::None);
    }
    assert_eq!(committed(&shell).await, (ErrorCode::None, Some(20)));
    assert_eq!(rig.high_watermark(OFFSETS_TOPIC), 20);
    rig.follow(OFFSETS_TOPIC, 2, OTHER);
    assert_eq!(committed(&shell).await, (ErrorCode::NotCoordinator, None));
    assert_eq!(commit(&shell, 1).await, ErrorCode::NotCoordinator);
    // read back from the log
    rig.lead(OFFSETS_TOPIC, 3, &[ME], &[ME]);
    loaded(&shell).await;
    assert_eq!(committed(&shell).await, (ErrorCode::None, Some(20)));
}

#[tokio::test]
async fn commits_wait_for_the_in_sync_replicas() {
    let rig = Rig::with(&[
        ("offsets.commit.timeout.ms", "300"),
        ("min.insync.replicas", "2"),
    ]);
    let shell = shell(&rig);
    rig.lead(OFFSETS_TOPIC, 1, &[ME, OTHER], &[ME, OTHER]);
    loaded(&shell).await;
    let waiting = tokio::spawn({
        let shell = shell.clone();
        async move { commit(&shell, 7).await }
    });
    while rig.log_end(OFFSETS_TOPIC) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(committed(&shell).await, (ErrorCode::None, Some(-1)));
    // the follower asks for what comes after it
    rig.follower_fetch(OTHER, OFFSETS_TOPIC, 1).await;
    assert_eq!(waiting.await.unwrap(), ErrorCode::None);
    assert_eq!(committed(&shell).await, (ErrorCode::None, Some(7)));
    // a follower that does not come
    assert_eq!(commit(&shell, 8).await, ErrorCode::RequestTimedOut);
    assert_eq!(committed(&shell).await, (ErrorCode::None, Some(7)));
    // too few in sync
    rig.lead(OFFSETS_TOPIC, 2, &[ME, OTHER], &[ME]);
    assert_eq!(commit(&shell, 9).await, ErrorCode::CoordinatorNotAvailable);
}
