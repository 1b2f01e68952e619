//! `/config/...` and its notices in `/config/changes`.

use super::fields::Fields;
use super::{ZnodeError, to_json};
use crate::entity::ConfigEntity;
use bytes::Bytes;
use indexmap::IndexMap;
use serde::Serialize;

/// All overrides of one entity; a change rewrites the whole map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigZnode {
    pub config: IndexMap<String, String>,
}

impl ConfigZnode {
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            version: i32,
            #[serde(serialize_with = "super::in_order")]
            config: &'a IndexMap<String, String>,
        }
        to_json(&Json {
            version: 1,
            config: &self.config,
        })
    }

    /// A node without data has no overrides. A number or boolean is taken as its text. Kafka also takes what is no JSON as
    /// "no overrides", silently; here it is an error, for the reader to tell the operator of.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = match Fields::parse(data) {
            Err(ZnodeError::Empty) => return Ok(Self::default()),
            other => other?,
        };
        let version = fields.int("version")?;
        if version != 1 {
            return Err(ZnodeError::Version {
                found: version,
                known: "1",
            });
        }
        let mut config = IndexMap::new();
        for (key, value) in fields
            .map_opt("config")?
            .ok_or(ZnodeError::Missing("config"))?
        {
            let text = match value {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::Bool(bool) => bool.to_string(),
                _ => {
                    return Err(ZnodeError::WrongType {
                        key: "config",
                        expected: "an object with strings",
                    });
                }
            };
            config.insert(key.clone(), text);
        }
        Ok(ConfigZnode { config })
    }
}

/// A notice that an entity's configuration changed; every broker rereads the entity's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// Below `/config`, as [`ConfigEntity::entity_path`] writes it.
    pub entity_path: String,
}

impl ConfigChange {
    pub fn new(entity: &ConfigEntity) -> Self {
        ConfigChange {
            entity_path: entity.entity_path(),
        }
    }

    /// `None`: of a kind that Kafka 3.9 does not know; log it and go on.
    pub fn entity(&self) -> Option<ConfigEntity> {
        ConfigEntity::from_entity_path(&self.entity_path)
    }

    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            version: i32,
            entity_path: &'a str,
        }
        to_json(&Json {
            version: 2,
            entity_path: &self.entity_path,
        })
    }

    /// Version 2, and version 1 of Kafka 0.9, which knows topics and clients only.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        match fields.int("version")? {
            1 => {
                let kind = fields.text("entity_type")?;
                if kind != "topics" && kind != "clients" {
                    return Err(ZnodeError::Value {
                        what: "entity_type",
                        found: kind,
                    });
                }
                Ok(ConfigChange {
                    entity_path: format!("{kind}/{}", fields.text("entity_name")?),
                })
            }
            2 => Ok(ConfigChange {
                entity_path: fields.text("entity_path")?,
            }),
            found => Err(ZnodeError::Version {
                found,
                known: "1, 2",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_content() {
        assert_eq!(ConfigZnode::parse(b""), Ok(ConfigZnode::default()));
        assert!(matches!(
            ConfigZnode::parse(b"{nope"),
            Err(ZnodeError::NotJson(_))
        ));
        assert!(ConfigZnode::parse(br#"{"version":2,"config":{}}"#).is_err());
        assert_eq!(
            ConfigZnode::parse(br#"{"version":1}"#),
            Err(ZnodeError::Missing("config"))
        );
        assert_eq!(
            ConfigZnode::parse(br#"{"version":1,"config":{"a":5}}"#)
                .unwrap()
                .config["a"],
            "5"
        );
    }

    #[test]
    fn notices() {
        let v1 =
            ConfigChange::parse(br#"{"version":1,"entity_type":"topics","entity_name":"good"}"#)
                .unwrap();
        assert_eq!(v1.entity(), Some(ConfigEntity::Topic("good".into())));
        let unknown =
            ConfigChange::parse(br#"{"version":2,"entity_path":"planets/mars"}"#).unwrap();
        assert_eq!(unknown.entity(), None);
        for broken in [
            "junk",
            r#"{"version":9}"#,
            r#"{"version":2}"#,
            r#"{"version":1,"entity_type":"users","entity_name":"a"}"#,
        ] {
            assert!(ConfigChange::parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
