//! A fetcher's questions as requests, and the records of their answers.

use bytes::Bytes;
use gracchus_kafka_proto::messages::fetch_request::{
    FetchPartition, FetchTopic, ForgottenTopic, ReplicaState,
};
use gracchus_kafka_proto::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsTopic,
};
use gracchus_kafka_proto::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use gracchus_kafka_proto::messages::{
    FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
};
use gracchus_kafka_proto::{Records, RecordsPart, Uuid};
use gracchus_log::TopicPartition;

use super::machine::{Fetcher, Followed, Phase};

/// The first version of Fetch that names topics by id, and the last that does not.
const BY_ID_FROM: i16 = 13;

/// Where the last epochs of logs end that have to be compared; None if there are none.
pub(super) fn epochs(fetcher: &Fetcher, now_ms: i64) -> Option<OffsetForLeaderEpochRequest> {
    let mut topics: Vec<OffsetForLeaderTopic> = Vec::new();
    for id in &fetcher.unsettled {
        let Some(followed) = fetcher.followed.get(id) else {
            continue;
        };
        let Some(leader_epoch) = followed.log.latest_epoch else {
            continue;
        };
        if followed.phase != Phase::Truncating || !followed.is_ready(now_ms) {
            continue;
        }
        let partition = OffsetForLeaderPartition {
            partition: id.partition,
            current_leader_epoch: followed.leader_epoch,
            leader_epoch,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(last) if *last.topic == *id.topic => last.partitions.push(partition),
            _ => topics.push(OffsetForLeaderTopic {
                topic: id.topic.to_string(),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    (!topics.is_empty()).then(|| OffsetForLeaderEpochRequest {
        replica_id: fetcher.settings.broker_id,
        topics,
        ..Default::default()
    })
}

/// The ends or starts of logs that have not what was asked for.
pub(super) fn offsets(fetcher: &Fetcher, now_ms: i64) -> Option<ListOffsetsRequest> {
    let mut topics: Vec<ListOffsetsTopic> = Vec::new();
    for id in &fetcher.unsettled {
        let Some(followed) = fetcher.followed.get(id) else {
            continue;
        };
        let Phase::OutOfRange { ask } = followed.phase else {
            continue;
        };
        if !followed.is_ready(now_ms) {
            continue;
        }
        let partition = ListOffsetsPartition {
            partition_index: id.partition,
            current_leader_epoch: followed.leader_epoch,
            timestamp: ask,
            max_num_offsets: 1,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(last) if *last.name == *id.topic => last.partitions.push(partition),
            _ => topics.push(ListOffsetsTopic {
                name: id.topic.to_string(),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    (!topics.is_empty()).then(|| ListOffsetsRequest {
        replica_id: fetcher.settings.broker_id,
        topics,
        ..Default::default()
    })
}

/// Records of all partitions that are ready: in a session only what changed is named. None if there is nothing to ask
/// for.
pub(super) fn fetch(fetcher: &mut Fetcher, now_ms: i64) -> Option<(FetchRequest, i16)> {
    let wanted = fetcher.settings.fetch_version;
    let with_id: usize = fetcher.names.values().map(|(_, count)| count).sum();
    let by_id = wanted >= BY_ID_FROM && with_id == fetcher.followed.len();
    if by_id != fetcher.by_id {
        fetcher.session.lost();
        fetcher.by_id = by_id;
    }
    let version = if by_id {
        wanted
    } else {
        wanted.min(BY_ID_FROM - 1)
    };
    if fetcher.session.is_full() {
        fetcher.forget_session();
        fetcher.changed = fetcher.followed.keys().cloned().collect();
    }
    let name_of = |id: &TopicPartition| {
        if by_id {
            String::new()
        } else {
            id.topic.to_string()
        }
    };
    let mut topics: Vec<(TopicPartition, FetchTopic)> = Vec::new();
    let mut forgotten: Vec<(TopicPartition, Uuid)> =
        std::mem::take(&mut fetcher.forgotten).into_iter().collect();
    for id in std::mem::take(&mut fetcher.changed) {
        let Some(followed) = fetcher.followed.get_mut(&id) else {
            continue;
        };
        if followed.phase != Phase::Fetching || !followed.is_ready(now_ms) {
            if std::mem::take(&mut followed.in_session) {
                fetcher.in_session -= 1;
                forgotten.push((id, followed.topic_id));
            }
            continue;
        }
        // Left and followed again in between: naming it anew is enough, where it is the same topic.
        forgotten.retain(|(left, topic_id)| *left != id || *topic_id != followed.topic_id);
        if !std::mem::replace(&mut followed.in_session, true) {
            fetcher.in_session += 1;
        }
        let partition = partition(&id, followed, &fetcher.settings);
        match topics.last_mut() {
            Some((last, topic)) if last.topic == id.topic => topic.partitions.push(partition),
            _ => {
                let topic = FetchTopic {
                    topic: name_of(&id),
                    topic_id: if by_id { followed.topic_id } else { Uuid::ZERO },
                    partitions: vec![partition],
                    ..Default::default()
                };
                topics.push((id, topic));
            }
        }
    }
    if fetcher.in_session == 0 {
        // Nothing is ready. What the leader still has in a session is forgotten with the session.
        fetcher.session.lost();
        return None;
    }
    let forgotten_topics_data = forgotten
        .into_iter()
        .map(|(id, topic_id)| ForgottenTopic {
            topic: name_of(&id),
            topic_id: if by_id { topic_id } else { Uuid::ZERO },
            partitions: vec![id.partition],
            ..Default::default()
        })
        .collect();
    let settings = &fetcher.settings;
    let mut request = FetchRequest {
        max_wait_ms: settings.max_wait_ms,
        min_bytes: settings.min_bytes,
        max_bytes: settings.max_bytes,
        session_id: fetcher.session.id,
        session_epoch: fetcher.session.epoch,
        topics: topics.into_iter().map(|(_, topic)| topic).collect(),
        forgotten_topics_data,
        ..Default::default()
    };
    if version >= 15 {
        request.replica_state = ReplicaState {
            replica_id: settings.broker_id,
            ..Default::default()
        };
    } else {
        request.replica_id = settings.broker_id;
    }
    if version < 7 {
        // no sessions yet
        (request.session_id, request.session_epoch) = (0, -1);
        request.forgotten_topics_data.clear();
    }
    Some((request, version))
}

fn partition(
    id: &TopicPartition,
    followed: &Followed,
    settings: &super::settings::Settings,
) -> FetchPartition {
    FetchPartition {
        partition: id.partition,
        current_leader_epoch: followed.leader_epoch,
        fetch_offset: followed.log.end,
        last_fetched_epoch: if settings.truncates_on_fetch {
            followed.log.latest_epoch.unwrap_or(-1)
        } else {
            -1
        },
        log_start_offset: followed.log.start,
        partition_max_bytes: settings.partition_max_bytes,
        ..Default::default()
    }
}

/// The records in one piece, as they come in a frame.
pub(super) fn joined(records: Records) -> Bytes {
    let mut parts = records.parts.into_iter().filter_map(|part| match part {
        RecordsPart::Bytes(bytes) => Some(bytes),
        RecordsPart::File(_) => None, // no answer off a socket has any
    });
    match (parts.next(), parts.next()) {
        (None, _) => Bytes::new(),
        (Some(only), None) => only,
        (Some(first), Some(second)) => {
            let mut all = first.to_vec();
            all.extend_from_slice(&second);
            parts.for_each(|part| all.extend_from_slice(&part));
            all.into()
        }
    }
}
