//! `/cluster/id`.

use super::fields::Fields;
use super::{TopicId, ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// The cluster's id: base64url of 16 random bytes. The version of this node is a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId(pub String);

impl ClusterId {
    pub fn from_random(bytes: [u8; 16]) -> Self {
        ClusterId(TopicId::from_bytes(bytes).to_string())
    }

    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            version: &'a str,
            id: &'a str,
        }
        to_json(&Json {
            version: "1",
            id: &self.0,
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        Ok(ClusterId(Fields::parse(data)?.text("id")?))
    }
}
