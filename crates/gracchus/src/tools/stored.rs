//! Records of the internal topics as text: `__consumer_offsets` as JSON in Kafka's field order, `__transaction_state` as
//! Kafka's dump tool prints it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use gracchus_kafka_proto::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue,
    OffsetCommitKey, OffsetCommitValue, TransactionLogKey, TransactionLogValue,
};
use gracchus_kafka_proto::{Message, decode_stored};
use serde_json::{Map, Value, json};

/// A key and a value as text.
pub(super) type Shown = (Option<String>, Option<String>);

fn version_of(bytes: &[u8]) -> Option<i16> {
    bytes.first_chunk().map(|b| i16::from_be_bytes(*b))
}

fn bytes_of(field: &[u8]) -> Bytes {
    Bytes::copy_from_slice(field)
}

fn decoded<M: Message>(field: &[u8]) -> Result<(i16, M), String> {
    decode_stored(bytes_of(field)).map_err(|e| e.to_string())
}

/// A record of `__consumer_offsets`, as `--offsets-decoder` shows it.
pub(super) fn offsets_record(offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
    match try_offsets_record(key, value) {
        Ok(Some((key, value))) => (
            Some(key.to_string()),
            Some(value.map_or_else(|| "<DELETE>".to_owned(), |v| v.to_string())),
        ),
        Ok(None) => {
            let kind = key.and_then(version_of).unwrap_or(-1);
            let text = format!("Unknown record type {kind} at offset {offset}, skipping.");
            (Some(text), None)
        }
        Err(e) => (
            Some(format!("Error at offset {offset}, skipping. {e}")),
            None,
        ),
    }
}

type KeyValue = (Value, Option<Value>);

/// Key and value as `{"type": .., "data": ..}` and `{"version": .., "data": ..}`; `None` for other kinds of records.
pub(super) fn try_offsets_record(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Option<KeyValue>, String> {
    let key = key.ok_or("message had a missing key")?;
    let typed = |kind: i16, data: Value| json!({"type": kind.to_string(), "data": data});
    let versioned = |v: i16, data: Value| json!({"version": v.to_string(), "data": data});
    match version_of(key) {
        Some(kind @ 0..=1) => {
            let (_, k) = decoded::<OffsetCommitKey>(key)?;
            let data = json!({"group": k.group, "topic": k.topic, "partition": k.partition});
            let value = match value {
                None => None,
                Some(bytes) => {
                    let (v, c) = decoded::<OffsetCommitValue>(bytes)?;
                    Some(versioned(v, offset_commit(v, &c)))
                }
            };
            Ok(Some((typed(kind, data), value)))
        }
        Some(2) => {
            let (_, k) = decoded::<GroupMetadataKey>(key)?;
            let value = match value {
                None => None,
                Some(bytes) => {
                    let (v, g) = decoded::<GroupMetadataValue>(bytes)?;
                    Some(versioned(v, group_metadata(v, &g)))
                }
            };
            Ok(Some((typed(2, json!({"group": k.group})), value)))
        }
        Some(_) => Ok(None),
        None => Err("key is too short".into()),
    }
}

/// Only the fields that the version has.
fn offset_commit(version: i16, c: &OffsetCommitValue) -> Value {
    let mut out = Map::new();
    out.insert("offset".into(), c.offset.into());
    if version >= 3 {
        out.insert("leaderEpoch".into(), c.leader_epoch.into());
    }
    out.insert("metadata".into(), c.metadata.clone().into());
    out.insert("commitTimestamp".into(), c.commit_timestamp.into());
    if version == 1 {
        out.insert("expireTimestamp".into(), c.expire_timestamp.into());
    }
    out.into()
}

fn group_metadata(version: i16, g: &GroupMetadataValue) -> Value {
    let mut out = Map::new();
    out.insert("protocolType".into(), g.protocol_type.clone().into());
    out.insert("generation".into(), g.generation.into());
    out.insert("protocol".into(), g.protocol.clone().into());
    out.insert("leader".into(), g.leader.clone().into());
    if version >= 2 {
        let ms = g.current_state_timestamp;
        out.insert("currentStateTimestamp".into(), ms.into());
    }
    let consumers = g.protocol_type == "consumer";
    let members: Vec<Value> = g
        .members
        .iter()
        .map(|m| {
            let mut out = Map::new();
            out.insert("memberId".into(), m.member_id.clone().into());
            if version >= 3 {
                let instance = m.group_instance_id.clone();
                out.insert("groupInstanceId".into(), instance.into());
            }
            out.insert("clientId".into(), m.client_id.clone().into());
            out.insert("clientHost".into(), m.client_host.clone().into());
            if version >= 1 {
                out.insert("rebalanceTimeout".into(), m.rebalance_timeout.into());
            }
            out.insert("sessionTimeout".into(), m.session_timeout.into());
            let shown = |bytes: &Bytes, read: fn(&Bytes) -> Option<Value>| {
                let known = if consumers { read(bytes) } else { None };
                known.unwrap_or_else(|| BASE64_STANDARD.encode(bytes).into())
            };
            out.insert("subscription".into(), shown(&m.subscription, subscription));
            out.insert("assignment".into(), shown(&m.assignment, assignment));
            out.into()
        })
        .collect();
    out.insert("members".into(), members.into());
    out.into()
}

fn subscription(bytes: &Bytes) -> Option<Value> {
    let (version, s) = decode_stored::<ConsumerProtocolSubscription>(bytes.clone()).ok()?;
    let mut out = Map::new();
    out.insert("topics".into(), s.topics.into());
    let data = s.user_data.map(|d| BASE64_STANDARD.encode(d));
    out.insert("userData".into(), data.into());
    if version >= 1 {
        let owned: Vec<Value> = s
            .owned_partitions
            .into_iter()
            .map(|t| json!({"topic": t.topic, "partitions": t.partitions}))
            .collect();
        out.insert("ownedPartitions".into(), owned.into());
    }
    if version >= 2 {
        out.insert("generationId".into(), s.generation_id.into());
    }
    if version >= 3 {
        out.insert("rackId".into(), s.rack_id.into());
    }
    Some(out.into())
}

fn assignment(bytes: &Bytes) -> Option<Value> {
    let (_, a) = decode_stored::<ConsumerProtocolAssignment>(bytes.clone()).ok()?;
    let partitions: Vec<Value> = a
        .assigned_partitions
        .into_iter()
        .map(|t| json!({"topic": t.topic, "partitions": t.partitions}))
        .collect();
    let data = a.user_data.map(|d| BASE64_STANDARD.encode(d));
    Some(json!({"assignedPartitions": partitions, "userData": data}))
}

/// A transaction's state by its number.
fn state_name(status: i8) -> &'static str {
    match status {
        0 => "Empty",
        1 => "Ongoing",
        2 => "PrepareCommit",
        3 => "PrepareAbort",
        4 => "CompleteCommit",
        5 => "CompleteAbort",
        6 => "Dead",
        7 => "PrepareEpochFence",
        _ => "Unknown",
    }
}

/// A record of `__transaction_state`, as `--transaction-log-decoder` shows it.
pub(super) fn transaction_record(offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
    let failed = |e: String| {
        (
            Some(format!("Error at offset {offset}, skipping. {e}")),
            None,
        )
    };
    let Some(key) = key else {
        return failed("message had a missing key".into());
    };
    match version_of(key) {
        Some(0) => {}
        version => {
            let version = version.unwrap_or(-1);
            return (Some(format!("unknown::version={version}")), None);
        }
    }
    let id = match decoded::<TransactionLogKey>(key) {
        Ok((_, k)) => k.transactional_id,
        Err(e) => return failed(e),
    };
    let shown = match value.map(decoded::<TransactionLogValue>) {
        None => "<DELETE>".to_owned(),
        Some(Err(e)) => return failed(e),
        Some(Ok((_, t))) => {
            let partitions: Vec<_> = t
                .transaction_partitions
                .unwrap_or_default()
                .iter()
                .flat_map(|p| {
                    let ids = p.partition_ids.iter();
                    ids.map(|id| format!("{}-{id}", p.topic))
                        .collect::<Vec<_>>()
                })
                .collect();
            format!(
                "producerId:{},producerEpoch:{},state={},partitions=[{}],txnLastUpdateTimestamp={},txnTimeoutMs={}",
                t.producer_id,
                t.producer_epoch,
                state_name(t.transaction_status),
                partitions.join(","),
                t.transaction_last_update_timestamp_ms,
                t.transaction_timeout_ms
            )
        }
    };
    (
        Some(format!("transaction_metadata::transactionalId={id}")),
        Some(shown),
    )
}
