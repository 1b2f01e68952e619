//! `/delegation_token/tokens/ID` (KIP-48). The HMAC is not stored: each broker computes it from its secret.

use super::fields::Fields;
use super::{ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// A token; principals are sanitised (`User%3Aalice`), times in ms since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DelegationToken {
    pub issue_timestamp: i64,
    pub renewers: Vec<String>,
    /// The owner's in versions 1 and 2.
    pub token_requester: String,
    pub token_id: String,
    pub owner: String,
    pub expiry_timestamp: i64,
    pub max_timestamp: i64,
    version: i32,
}

impl DelegationToken {
    /// Written as version 3 (Kafka 3.3 and later).
    pub fn to_bytes(&self) -> Bytes {
        to_json(self)
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let version = fields.int("version")?;
        if !(1..=3).contains(&version) {
            return Err(ZnodeError::Version {
                found: version,
                known: "1 to 3",
            });
        }
        let owner = fields.text("owner")?;
        Ok(DelegationToken {
            issue_timestamp: fields.long("issueTimestamp")?,
            renewers: fields.texts("renewers")?,
            token_requester: if version < 3 {
                owner.clone()
            } else {
                fields.text("tokenRequester")?
            },
            token_id: fields.text("tokenId")?,
            owner,
            expiry_timestamp: fields.long("expiryTimestamp")?,
            max_timestamp: fields.long("maxTimestamp")?,
            version: 3,
        })
    }
}
