//! `/kafka-acl...` and the notices of its changes.

use super::fields::Fields;
use super::{ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// One rule on a resource; the resource is the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AclEntry {
    /// `User:alice`.
    pub principal: String,
    /// `Allow` or `Deny`.
    #[serde(rename = "permissionType")]
    pub permission_type: String,
    pub host: String,
    pub operation: String,
}

/// All rules of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AclZnode {
    pub acls: Vec<AclEntry>,
}

impl AclZnode {
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            acls: &'a [AclEntry],
            version: i32,
        }
        to_json(&Json {
            acls: &self.acls,
            version: 1,
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let version = fields.int("version")?;
        if version > 1 {
            return Err(ZnodeError::Version {
                found: version,
                known: "1",
            });
        }
        let acls = fields
            .list("acls")?
            .iter()
            .map(|value| {
                let entry = Fields::of(value)?;
                Ok(AclEntry {
                    principal: entry.text("principal")?,
                    permission_type: entry.text("permissionType")?,
                    host: entry.text("host")?,
                    operation: entry.text("operation")?,
                })
            })
            .collect::<Result<_, ZnodeError>>()?;
        Ok(AclZnode { acls })
    }
}

/// A notice that a resource's rules changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclChange {
    /// As 3.9 writes it: `TOPIC`, `TRANSACTIONAL_ID`; old versions wrote `Topic`, `TransactionalId`.
    pub resource_type: String,
    /// May contain `:`.
    pub name: String,
    /// `LITERAL` or `PREFIXED`.
    pub pattern_type: String,
}

impl AclChange {
    /// Text for a literal name (`/kafka-acl-changes`), JSON for other patterns (`/kafka-acl-extended-changes`).
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            version: i32,
            #[serde(rename = "resourceType")]
            resource_type: &'a str,
            name: &'a str,
            #[serde(rename = "patternType")]
            pattern_type: &'a str,
        }
        if self.pattern_type == "LITERAL" {
            return format!("{}:{}", self.resource_type, self.name).into();
        }
        to_json(&Json {
            version: 1,
            resource_type: &self.resource_type,
            name: &self.name,
            pattern_type: &self.pattern_type,
        })
    }

    /// The text of `/kafka-acl-changes`.
    pub fn parse_literal(data: &[u8]) -> Result<Self, ZnodeError> {
        let text = String::from_utf8_lossy(data);
        match text.split_once(':') {
            Some((resource_type, name)) => Ok(AclChange {
                resource_type: resource_type.into(),
                name: name.into(),
                pattern_type: "LITERAL".into(),
            }),
            None => Err(ZnodeError::Value {
                what: "the notice",
                found: text.into_owned(),
            }),
        }
    }

    /// The JSON of `/kafka-acl-extended-changes`.
    pub fn parse_extended(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let version = fields.int("version")?;
        if version > 1 {
            return Err(ZnodeError::Version {
                found: version,
                known: "1",
            });
        }
        Ok(AclChange {
            resource_type: fields.text("resourceType")?,
            name: fields.text("name")?,
            pattern_type: fields.text("patternType")?,
        })
    }
}
