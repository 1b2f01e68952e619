//! `/feature`: the features that the cluster has finalized (KIP-584).

use super::fields::Fields;
use super::{ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Finalized levels of one feature; version 2 of the node has no minimum (then 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureLevels {
    pub min_version_level: i32,
    pub max_version_level: i32,
}

/// The node's data version is the epoch that ApiVersions shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureZnode {
    /// 2 at inter.broker.protocol.version 3.3-IV0 and above, else 1.
    pub version: i32,
    /// Feature versioning is in use: inter.broker.protocol.version 2.7-IV0 and above.
    pub enabled: bool,
    pub features: BTreeMap<String, FeatureLevels>,
}

impl FeatureZnode {
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Levels {
            #[serde(skip_serializing_if = "Option::is_none")]
            min_version_level: Option<i32>,
            max_version_level: i32,
        }
        #[derive(Serialize)]
        struct Json<'a> {
            features: BTreeMap<&'a str, Levels>,
            version: i32,
            status: i32,
        }
        let levels = |levels: &FeatureLevels| Levels {
            min_version_level: (self.version < 2).then_some(levels.min_version_level),
            max_version_level: levels.max_version_level,
        };
        to_json(&Json {
            features: self
                .features
                .iter()
                .map(|(name, l)| (name.as_str(), levels(l)))
                .collect(),
            version: self.version,
            status: i32::from(self.enabled),
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let version = fields.int("version")?;
        if !(1..=2).contains(&version) {
            return Err(ZnodeError::Version {
                found: version,
                known: "1, 2",
            });
        }
        let enabled = match fields.int("status")? {
            0 => false,
            1 => true,
            other => {
                return Err(ZnodeError::Value {
                    what: "status",
                    found: other.to_string(),
                });
            }
        };
        let features = fields
            .map_opt("features")?
            .ok_or(ZnodeError::Missing("features"))?;
        let features = features
            .iter()
            .map(|(name, levels)| {
                let levels = Fields::of(levels)?;
                let levels = FeatureLevels {
                    min_version_level: if version < 2 {
                        levels.int("min_version_level")?
                    } else {
                        1
                    },
                    max_version_level: levels.int("max_version_level")?,
                };
                Ok((name.clone(), levels))
            })
            .collect::<Result<_, ZnodeError>>()?;
        Ok(FeatureZnode {
            version,
            enabled,
            features,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        for text in [
            r#"{"features":{"f":{"max_version_level":3}},"version":2,"status":1}"#,
            r#"{"features":{"f":{"min_version_level":2,"max_version_level":3}},"version":1,"status":0}"#,
        ] {
            assert_eq!(
                FeatureZnode::parse(text.as_bytes()).unwrap().to_bytes(),
                text
            );
        }
    }

    #[test]
    fn broken() {
        for text in [
            "{oops",
            r#"{"version":3,"status":1,"features":{}}"#,
            r#"{"version":2,"status":5,"features":{}}"#,
            r#"{"version":2,"status":1}"#,
        ] {
            assert!(FeatureZnode::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
