//! Sequential notices for the controller: ISRs that leaders changed themselves, log directories that failed.

use super::fields::Fields;
use super::{TopicPartition, ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// `/isr_change_notification/isr_change_N`, below inter.broker.protocol.version 2.7-IV2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IsrChange {
    pub partitions: Vec<TopicPartition>,
}

impl IsrChange {
    pub fn to_bytes(&self) -> Bytes {
        partitions_json(&self.partitions)
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        Ok(IsrChange {
            partitions: Fields::parse(data)?.partitions("partitions")?,
        })
    }
}

pub(super) fn partitions_json(partitions: &[TopicPartition]) -> Bytes {
    #[derive(Serialize)]
    struct Json<'a> {
        version: i32,
        partitions: &'a [TopicPartition],
    }
    to_json(&Json {
        version: 1,
        partitions,
    })
}

/// `/log_dir_event_notification/log_dir_event_N`: a log directory of this broker failed (KIP-112).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogDirEvent {
    pub broker_id: i32,
}

impl LogDirEvent {
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json {
            version: i32,
            broker: i32,
            event: i32,
        }
        to_json(&Json {
            version: 1,
            broker: self.broker_id,
            event: 1,
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        Ok(LogDirEvent {
            broker_id: Fields::parse(data)?.int("broker")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_kafka_writes_them() {
        let text = br#"{"version":1,"partitions":[{"topic":"rep","partition":1}]}"#;
        assert_eq!(IsrChange::parse(text).unwrap().to_bytes().as_ref(), text);
        let text = br#"{"version":1,"broker":2,"event":1}"#;
        assert_eq!(LogDirEvent::parse(text).unwrap().to_bytes().as_ref(), text);
        assert!(LogDirEvent::parse(b"junk").is_err());
    }
}
