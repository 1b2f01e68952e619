//! Notices to the controller, as Kafka writes them.

use crate::rig::fresh;
use gracchus_registry::json::TopicPartition;
use gracchus_registry::{ZkOp, ZkReply};

#[tokio::test]
async fn notices_are_numbered_and_as_kafkas() {
    let (registry, _events, _) = fresh("notices").await;
    registry.create_paths_at_start().await.unwrap();
    registry.notify_log_dir_event(2).await.unwrap();
    registry.notify_log_dir_event(2).await.unwrap();
    let partition = TopicPartition {
        topic: "rep".into(),
        partition: 1,
    };
    registry.notify_isr_changes(vec![partition]).await.unwrap();
    for (path, expected) in [
        (
            "/log_dir_event_notification/log_dir_event_0000000001",
            r#"{"version":1,"broker":2,"event":1}"#,
        ),
        (
            "/isr_change_notification/isr_change_0000000000",
            r#"{"version":1,"partitions":[{"topic":"rep","partition":1}]}"#,
        ),
    ] {
        let Ok(ZkReply::Data { data, .. }) = registry.execute_one(ZkOp::get(path)).await else {
            panic!("{path} is not there")
        };
        assert_eq!(data.unwrap(), expected);
    }
    registry.zk().close().await;
}
