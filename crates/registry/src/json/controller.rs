//! `/controller` and `/controller_epoch`.

use super::fields::Fields;
use super::{ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// Who is controller. Version 2 since Kafka 3.4, version 1 before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerZnode {
    pub broker_id: i32,
    pub timestamp_ms: i64,
    /// Above 0 when a KRaft controller that migrates the cluster owns the node, else -1 (KIP-866).
    pub kraft_controller_epoch: i32,
}

impl ControllerZnode {
    pub fn new(broker_id: i32, timestamp_ms: i64) -> Self {
        ControllerZnode {
            broker_id,
            timestamp_ms,
            kraft_controller_epoch: -1,
        }
    }

    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json {
            version: i32,
            brokerid: i32,
            timestamp: String,
            #[serde(rename = "kraftControllerEpoch")]
            kraft_controller_epoch: i32,
        }
        to_json(&Json {
            version: 2,
            brokerid: self.broker_id,
            timestamp: self.timestamp_ms.to_string(),
            kraft_controller_epoch: self.kraft_controller_epoch,
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        Ok(ControllerZnode {
            broker_id: fields.int("brokerid")?,
            timestamp_ms: fields.long_or("timestamp", -1)?,
            kraft_controller_epoch: fields.int_or("kraftControllerEpoch", -1)?,
        })
    }
}

/// `/controller_epoch` is decimal text.
pub fn parse_controller_epoch(data: &[u8]) -> Result<i32, ZnodeError> {
    if data.is_empty() {
        return Err(ZnodeError::Empty);
    }
    let bad = || ZnodeError::Value {
        what: "the controller epoch",
        found: String::from_utf8_lossy(data).into_owned(),
    };
    std::str::from_utf8(data)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(bad)
}

pub fn format_controller_epoch(epoch: i32) -> Bytes {
    epoch.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_has_no_kraft_epoch() {
        let v1 = ControllerZnode::parse(br#"{"version":1,"brokerid":3,"timestamp":"12"}"#).unwrap();
        assert_eq!(v1, ControllerZnode::new(3, 12));
        assert_eq!(
            v1.to_bytes().as_ref(),
            br#"{"version":2,"brokerid":3,"timestamp":"12","kraftControllerEpoch":-1}"#
        );
        assert_eq!(
            ControllerZnode::parse(b"{}"),
            Err(ZnodeError::Missing("brokerid"))
        );
    }

    #[test]
    fn epoch_is_a_plain_number() {
        assert_eq!(parse_controller_epoch(b"17"), Ok(17));
        assert_eq!(parse_controller_epoch(b""), Err(ZnodeError::Empty));
        assert!(parse_controller_epoch(b"x").is_err());
        assert!(parse_controller_epoch(b"99999999999").is_err());
        assert_eq!(format_controller_epoch(3).as_ref(), b"3");
    }
}
