//! Topics and partition states.

use crate::rig::fresh;
use gracchus_registry::entity::ConfigEntity;
use gracchus_registry::json::*;
use gracchus_registry::op::CreateMode;
use gracchus_registry::registry::*;
use gracchus_registry::{RegistryError, paths};
use gracchus_zk_client::ZkError;

#[tokio::test]
async fn topics_are_created_and_states_written_conditionally() {
    let (registry, _events, _) = fresh("topics").await;
    registry.create_paths_at_start().await.unwrap();
    let topics: Vec<NewTopic> = (0..300)
        .map(|n| NewTopic {
            name: format!("t{n}"),
            assignment: TopicAssignment {
                topic_id: Some(TopicId::from_bytes([n as u8; 16])),
                partitions: [(0, vec![1])].into(),
                ..Default::default()
            },
            config: ConfigZnode::default(),
        })
        .collect();
    registry
        .zk()
        .create(
            "/config/topics/t3",
            None,
            registry.acl_for("/"),
            CreateMode::Persistent,
        )
        .await
        .unwrap();
    assert!(
        registry
            .mark_for_deletion(&["t4".into(), "t4".into()])
            .await
            .iter()
            .all(Result::is_ok)
    );
    let outcomes = registry.create_topics(&topics).await;
    assert_eq!(
        outcomes[4],
        Err(RegistryError::MarkedForDeletion("t4".into()))
    );
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        299
    );
    assert_eq!(
        registry.create_topics(&topics[..1]).await[0]
            .as_ref()
            .unwrap_err()
            .zk(),
        Some(ZkError::NodeExists)
    );
    let names = registry.topic_names(false).await.unwrap();
    assert_eq!(names.len(), 299);
    let stored = registry.topics(&names).await.unwrap();
    assert!(
        stored
            .iter()
            .all(|topic| topic.assignment.is_ok() && topic.version == 0)
    );
    assert_eq!(
        registry
            .config(&ConfigEntity::Topic("t3".into()))
            .await
            .unwrap(),
        ConfigZnode::default()
    );

    let partition = TopicPartition {
        topic: "t0".into(),
        partition: 0,
    };
    let mut state = PartitionState {
        controller_epoch: 1,
        leader: 1,
        leader_epoch: 0,
        isr: vec![1],
        leader_recovery_state: 0,
    };
    registry
        .create_recursive(&paths::partition_state("t0", 0), Some(state.to_bytes()))
        .await
        .unwrap();
    state.isr = vec![1, 2];
    assert_eq!(
        registry.set_partition_state(&partition, &state, 0).await,
        Ok(1)
    );
    assert_eq!(
        registry.set_partition_state(&partition, &state, 0).await,
        Ok(1),
        "already so"
    );
    state.isr = vec![2];
    assert_eq!(
        registry
            .set_partition_state(&partition, &state, 0)
            .await
            .unwrap_err()
            .zk(),
        Some(ZkError::BadVersion)
    );
    let states = registry
        .partition_states(&[
            partition,
            TopicPartition {
                topic: "t1".into(),
                partition: 0,
            },
        ])
        .await
        .unwrap();
    assert!(
        matches!(&states[..], [Some((Ok(found), stat)), None] if found.isr == [1, 2] && stat.version == 1)
    );
    registry
        .delete_recursive("/brokers/topics/t0")
        .await
        .unwrap();
    assert_eq!(registry.assignment("t0").await.unwrap(), None);
    registry.zk().close().await;
}
