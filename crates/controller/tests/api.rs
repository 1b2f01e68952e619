//! What brokers ask the controller: AlterPartition, AllocateProducerIds, ControlledShutdown; and a session's end under it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use gracchus_controller::{ApiResult, Event};
use gracchus_kafka_proto::messages::alter_partition_request::{
    AlterPartitionRequest, BrokerState, PartitionData, TopicData,
};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::paths;
use support::{Harness, config};

fn epoch_of(h: &Harness, id: i32) -> i64 {
    h.members[&1].controller.context().brokers[&id].epoch
}

/// Leader 1 of t-0 reports an ISR, in version 3.
fn alter(
    h: &Harness,
    isr: &[i32],
    leader_epoch: i32,
    partition_epoch: i32,
    recovery: i8,
) -> AlterPartitionRequest {
    let brokers = isr.iter().map(|id| BrokerState {
        broker_id: *id,
        ..Default::default()
    });
    let partition = PartitionData {
        partition_index: 0,
        leader_epoch,
        new_isr: isr.to_vec(),
        new_isr_with_epochs: brokers.collect(),
        leader_recovery_state: recovery,
        partition_epoch,
        ..Default::default()
    };
    AlterPartitionRequest {
        broker_id: 1,
        broker_epoch: epoch_of(h, 1),
        topics: vec![TopicData {
            topic_name: "t".into(),
            topic_id: h.members[&1].controller.context().topics["t"].id,
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Error of the whole request and of its first partition.
fn ask(h: &mut Harness, request: AlterPartitionRequest, version: i16) -> (i16, Option<i16>) {
    h.replies.clear();
    h.event(
        1,
        Event::AlterPartition {
            token: 1,
            request,
            version,
        },
    );
    h.settle();
    let Some(ApiResult::AlterPartition(r)) = h.replies.get(&1) else {
        panic!("no answer")
    };
    (
        r.error_code,
        r.topics.first().map(|t| t.partitions[0].error_code),
    )
}

fn topic() -> Harness {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[1, 2, 3]]);
    h.settle();
    h.forget();
    h
}

#[test]
fn alter_partition_verdicts() {
    use ErrorCode as E;
    let ok = |e: ErrorCode| (0, Some(e.code()));
    let mut h = topic();

    let request = AlterPartitionRequest {
        broker_epoch: epoch_of(&h, 1) - 1,
        ..alter(&h, &[1], 0, 0, 0)
    };
    assert_eq!(ask(&mut h, request, 3), (E::StaleBrokerEpoch.code(), None));
    let request = AlterPartitionRequest {
        broker_epoch: epoch_of(&h, 1) + 1,
        ..alter(&h, &[1], 0, 0, 0)
    };
    assert_eq!(ask(&mut h, request, 3), (E::StaleBrokerEpoch.code(), None));
    let request = AlterPartitionRequest {
        broker_id: 9,
        ..alter(&h, &[1], 0, 0, 0)
    };
    assert_eq!(ask(&mut h, request, 3), (E::StaleBrokerEpoch.code(), None));

    let mut request = alter(&h, &[1], 0, 0, 0);
    request.topics[0].topic_id = Uuid::from_bytes([9; 16]);
    assert_eq!(ask(&mut h, request.clone(), 3), ok(E::UnknownTopicId));
    request.topics[0].topic_id = Uuid::ZERO;
    assert_eq!(ask(&mut h, request.clone(), 2), ok(E::UnknownTopicId));
    request.topics[0].topic_name = "no".into();
    assert_eq!(ask(&mut h, request, 1), ok(E::UnknownTopicOrPartition));
    let mut request = alter(&h, &[1], 0, 0, 0);
    request.topics[0].partitions[0].partition_index = 5;
    assert_eq!(ask(&mut h, request, 3), ok(E::UnknownTopicOrPartition));

    let request = alter(&h, &[1], 1, 0, 0);
    assert_eq!(ask(&mut h, request, 3), ok(E::NotController));
    let request = alter(&h, &[1], 0, 1, 0);
    assert_eq!(ask(&mut h, request, 3), ok(E::NotController));
    let request = alter(&h, &[1], -1, 0, 0);
    assert_eq!(ask(&mut h, request, 3), ok(E::FencedLeaderEpoch));
    let request = alter(&h, &[1, 2], 0, 0, 1);
    assert_eq!(ask(&mut h, request, 3), ok(E::InvalidRequest));
    let request = alter(&h, &[1], 0, 0, 1);
    assert_eq!(ask(&mut h, request, 3), ok(E::InvalidRequest));
    let request = alter(&h, &[1, 7], 0, 0, 0);
    assert_eq!(ask(&mut h, request.clone(), 3), ok(E::IneligibleReplica));
    assert_eq!(ask(&mut h, request, 1), ok(E::OperationNotAttempted));
    let request = alter(&h, &[3, 1, 2], 0, 0, 0);
    assert_eq!(ask(&mut h, request, 3), ok(E::None));
    assert_eq!(h.writes(), [] as [&str; 0]);
    assert_eq!(h.requests(), [] as [&str; 0]);

    let request = alter(&h, &[1, 2], 0, 0, 0);
    assert_eq!(ask(&mut h, request.clone(), 3), ok(E::None));
    assert_eq!(
        h.writes(),
        ["fenced set /brokers/topics/t/partitions/0/state"]
    );
    assert_eq!(h.led("t", 0), (1, 0, vec![1, 2]));
    let told = "UpdateMetadata [1, 2, 3] t-0:1/0[1, 2]";
    assert_eq!(
        h.requests(),
        [
            format!("1 {told}"),
            format!("2 {told}"),
            format!("3 {told}")
        ]
    );
    // the same again, with its old partition epoch: a retry
    assert_eq!(ask(&mut h, request, 3), ok(E::None));
    assert_eq!(h.writes(), [] as [&str; 0]);
    let request = alter(&h, &[1], 0, 0, 0);
    assert_eq!(ask(&mut h, request, 3), ok(E::InvalidUpdateVersion));
    // somebody else wrote the node
    let now = h.zk.data(&paths::partition_state("t", 0)).unwrap();
    h.zk.set(&paths::partition_state("t", 0), &now);
    let request = alter(&h, &[1], 0, 1, 0);
    assert_eq!(ask(&mut h, request, 3), ok(E::InvalidUpdateVersion));
}

#[test]
fn a_broker_that_shuts_down_may_not_join_an_isr() {
    let mut h = topic();
    let broker_epoch = epoch_of(&h, 3);
    h.event(
        1,
        Event::ControlledShutdown {
            token: 7,
            broker_id: 3,
            broker_epoch,
        },
    );
    h.settle();
    assert_eq!(h.led("t", 0), (1, 1, vec![1, 2]));
    let request = alter(&h, &[1, 2, 3], 1, 1, 0);
    assert_eq!(
        ask(&mut h, request, 3),
        (0, Some(ErrorCode::IneligibleReplica.code()))
    );
}

#[test]
fn producer_ids_come_in_blocks() {
    let mut h = topic();
    let ask = |h: &mut Harness, broker_id: i32, broker_epoch: i64| {
        h.replies.clear();
        h.event(
            1,
            Event::AllocateProducerIds {
                token: 1,
                broker_id,
                broker_epoch,
            },
        );
        h.settle();
        let Some(ApiResult::ProducerIds(r)) = h.replies.get(&1) else {
            panic!("no answer")
        };
        *r
    };
    let epoch = epoch_of(&h, 2);
    assert_eq!(ask(&mut h, 2, epoch), Ok((0, 1000)));
    assert_eq!(
        h.zk.data(paths::PRODUCER_ID_BLOCK).unwrap(),
        r#"{"version":1,"broker":2,"block_start":"0","block_end":"999"}"#
    );
    assert_eq!(ask(&mut h, 2, epoch), Ok((1000, 1000)));
    assert_eq!(ask(&mut h, 2, epoch - 1), Err(ErrorCode::StaleBrokerEpoch));
    assert_eq!(ask(&mut h, 2, epoch + 1), Err(ErrorCode::StaleBrokerEpoch));
    assert_eq!(ask(&mut h, 9, epoch), Err(ErrorCode::BrokerIdNotRegistered));
    h.zk.set(paths::PRODUCER_ID_BLOCK, "junk");
    assert_eq!(ask(&mut h, 2, epoch), Err(ErrorCode::UnknownServerError));
    assert_eq!(h.zk.data(paths::PRODUCER_ID_BLOCK).unwrap(), "junk");
}

#[test]
fn a_producer_id_block_taken_meanwhile_is_not_given_twice() {
    let mut h = topic();
    let broker_epoch = epoch_of(&h, 2);
    h.event(
        1,
        Event::AllocateProducerIds {
            token: 1,
            broker_id: 2,
            broker_epoch,
        },
    );
    for _ in 0..2 {
        let tick = h.ticks()[0]; // the event, then the read
        h.tick(tick);
    }
    h.zk.set(
        paths::PRODUCER_ID_BLOCK,
        r#"{"version":1,"broker":3,"block_start":"0","block_end":"999"}"#,
    );
    h.settle();
    assert_eq!(h.replies[&1], ApiResult::ProducerIds(Ok((1000, 1000))));
}

fn shut_down(
    h: &mut Harness,
    broker_id: i32,
    broker_epoch: i64,
) -> Result<Vec<(String, i32)>, ErrorCode> {
    h.replies.clear();
    h.event(
        1,
        Event::ControlledShutdown {
            token: 1,
            broker_id,
            broker_epoch,
        },
    );
    h.settle();
    let Some(ApiResult::ControlledShutdown(r)) = h.replies.get(&1) else {
        panic!("no answer")
    };
    r.clone()
}

#[test]
fn a_controlled_shutdown_moves_leaders() {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[2, 3], &[3, 2], &[2]]);
    h.settle();
    let epoch = epoch_of(&h, 2);
    assert_eq!(
        shut_down(&mut h, 9, epoch),
        Err(ErrorCode::BrokerNotAvailable)
    );
    assert_eq!(
        shut_down(&mut h, 2, epoch - 1),
        Err(ErrorCode::StaleBrokerEpoch)
    );
    h.forget();
    assert_eq!(shut_down(&mut h, 2, epoch), Ok(vec![])); // the partition with one replica does not count
    assert_eq!(h.led("t", 0), (3, 1, vec![3]));
    assert_eq!(h.led("t", 1), (3, 1, vec![3]));
    assert_eq!(h.led("t", 2), (2, 0, vec![2]));
    assert!(h.requests().contains(&"2 StopReplica t-1/0".to_owned()));
}

#[test]
fn a_controlled_shutdown_names_what_could_not_move() {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[2, 3]]);
    h.settle();
    h.kill(3);
    h.settle();
    let epoch = epoch_of(&h, 2);
    assert_eq!(shut_down(&mut h, 2, epoch), Ok(vec![("t".to_owned(), 0)]));
}

#[test]
fn who_is_not_controller_says_so() {
    let mut h = topic();
    h.start(config(4));
    h.settle();
    h.event(
        4,
        Event::ControlledShutdown {
            token: 1,
            broker_id: 2,
            broker_epoch: 0,
        },
    );
    h.event(
        4,
        Event::AllocateProducerIds {
            token: 2,
            broker_id: 2,
            broker_epoch: 0,
        },
    );
    h.event(
        4,
        Event::AlterPartition {
            token: 3,
            request: AlterPartitionRequest::default(),
            version: 3,
        },
    );
    h.settle();
    assert!(h.replies.values().all(is_not_controller));
    assert_eq!(h.replies.len(), 3);
}

fn is_not_controller(result: &ApiResult) -> bool {
    match result {
        ApiResult::AlterPartition(r) => r.error_code == ErrorCode::NotController.code(),
        ApiResult::ProducerIds(r) => *r == Err(ErrorCode::NotController),
        ApiResult::ControlledShutdown(r) => *r == Err(ErrorCode::NotController),
        ApiResult::Elections(r) => *r == Err(ErrorCode::NotController),
        ApiResult::Reassigned(r) => *r == Err(ErrorCode::NotController),
        ApiResult::Reassignments(r) => *r == Err(ErrorCode::NotController),
    }
}

/// The session ends after each number of steps of each request, with another request waiting behind it.
#[test]
fn a_session_that_ends_under_a_request_answers_it_and_those_behind_it() {
    for which in 0..5 {
        for steps in 0..12 {
            let mut h = topic();
            let broker_epoch = epoch_of(&h, 1);
            match which {
                0 => {
                    let request = alter(&h, &[1, 2], 0, 0, 0);
                    h.event(
                        1,
                        Event::AlterPartition {
                            token: 1,
                            request,
                            version: 3,
                        },
                    );
                }
                1 => h.event(
                    1,
                    Event::AllocateProducerIds {
                        token: 1,
                        broker_id: 1,
                        broker_epoch,
                    },
                ),
                2 => h.event(
                    1,
                    Event::ControlledShutdown {
                        token: 1,
                        broker_id: 1,
                        broker_epoch,
                    },
                ),
                3 => h.create_topic("more", &[&[2, 3]]),
                _ => h.kill(2),
            }
            h.event(
                1,
                Event::AllocateProducerIds {
                    token: 2,
                    broker_id: 1,
                    broker_epoch,
                },
            );
            for _ in 0..steps {
                let Some(tick) = h.ticks().first().copied() else {
                    break;
                };
                h.tick(tick);
            }
            let answered: Vec<u64> = h.replies.keys().copied().collect();
            h.expire(1);
            let news = h.members.get_mut(&1).unwrap().inbox.pop_back().unwrap();
            h.members.get_mut(&1).unwrap().inbox.push_front(news);
            h.settle();
            for token in if which < 3 { vec![1, 2] } else { vec![2] } {
                let reply = h.replies.get(&token);
                let what = format!("request {which} after {steps} steps: {token} got {reply:?}");
                assert!(
                    reply.is_some_and(|r| answered.contains(&token) || is_not_controller(r)),
                    "{what}"
                );
            }
            assert!(h.active().is_empty());
            h.come_back(1);
            h.settle();
            assert_eq!(h.members[&1].active, Some(2));
            let (leader, _, isr) = h.led("t", 0);
            assert!(isr.contains(&leader), "{leader} {isr:?}");
        }
    }
}

#[test]
fn a_lost_fence_answers_the_request_it_happened_to() {
    let mut h = topic();
    h.zk.set(paths::CONTROLLER_EPOCH, "50");
    let broker_epoch = epoch_of(&h, 1);
    h.event(
        1,
        Event::ControlledShutdown {
            token: 1,
            broker_id: 1,
            broker_epoch,
        },
    );
    h.settle();
    assert!(is_not_controller(&h.replies[&1]));
}

#[test]
fn a_zookeeper_that_cannot_write_costs_no_term() {
    let mut h = topic();
    let request = alter(&h, &[1, 2], 0, 0, 0);
    h.zk.refuses_writes = true;
    assert_eq!(
        ask(&mut h, request.clone(), 3),
        (0, Some(ErrorCode::UnknownServerError.code()))
    );
    assert_eq!(h.active(), [1]);
    h.zk.refuses_writes = false;
    assert_eq!(ask(&mut h, request, 3), (0, Some(0)));
}

#[test]
fn what_is_no_replica_joins_no_isr() {
    let mut h = Harness::with_brokers(4);
    h.create_topic("t", &[&[1, 2, 3]]);
    h.settle();
    let request = alter(&h, &[1, 4], 0, 0, 0);
    let ineligible = ErrorCode::IneligibleReplica.code();
    assert_eq!(ask(&mut h, request, 3), (0, Some(ineligible)));
}
