//! Whose configuration a `/config` node holds, and how names are made safe for a path.

use crate::paths::CONFIG;
use std::fmt;

/// The literal name of the default entity of a kind; never encoded.
pub const DEFAULT: &str = "<default>";

/// One owner of dynamic configuration. Names are plain here and sanitised in paths; `None` is the default entity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigEntity {
    Topic(String),
    Broker(Option<i32>),
    User(Option<String>),
    /// Quotas of a client id within a user.
    UserClient {
        user: Option<String>,
        client: Option<String>,
    },
    Client(Option<String>),
    Ip(Option<String>),
}

impl ConfigEntity {
    /// The path below `/config`, as notices in `/config/changes` name it: `topics/t`, `users/alice/clients/app-1`.
    pub fn entity_path(&self) -> String {
        let safe = |name: &Option<String>| match name {
            Some(name) => sanitize(name),
            None => DEFAULT.to_owned(),
        };
        match self {
            Self::Topic(topic) => format!("topics/{topic}"),
            Self::Broker(Some(id)) => format!("brokers/{id}"),
            Self::Broker(None) => format!("brokers/{DEFAULT}"),
            Self::User(user) => format!("users/{}", safe(user)),
            Self::UserClient { user, client } => {
                format!("users/{}/clients/{}", safe(user), safe(client))
            }
            Self::Client(client) => format!("clients/{}", safe(client)),
            Self::Ip(Some(ip)) => format!("ips/{ip}"),
            Self::Ip(None) => format!("ips/{DEFAULT}"),
        }
    }

    /// The whole path of its node.
    pub fn path(&self) -> String {
        format!("{CONFIG}/{}", self.entity_path())
    }

    /// Reads what [`entity_path`](Self::entity_path) writes. `None`: no kind that Kafka 3.9 knows.
    pub fn from_entity_path(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let (kind, name) = (parts.next()?, parts.next()?);
        let rest = (parts.next(), parts.next(), parts.next());
        if name.is_empty() {
            return None;
        }
        let plain = |name: &str| -> Option<Option<String>> {
            if name == DEFAULT {
                Some(None)
            } else {
                Some(Some(desanitize(name)?))
            }
        };
        if let (Some("clients"), Some(client), None) = rest {
            return (kind == "users" && !client.is_empty()).then_some(Self::UserClient {
                user: plain(name)?,
                client: plain(client)?,
            });
        }
        if rest.0.is_some() {
            return None;
        }
        Some(match kind {
            "topics" => Self::Topic(name.to_owned()),
            "brokers" if name == DEFAULT => Self::Broker(None),
            "brokers" => Self::Broker(Some(name.parse().ok()?)),
            "users" => Self::User(plain(name)?),
            "clients" => Self::Client(plain(name)?),
            "ips" if name == DEFAULT => Self::Ip(None),
            "ips" => Self::Ip(Some(name.to_owned())),
            _ => return None,
        })
    }

    /// An emptied node of these kinds is deleted; topics and brokers keep an empty map.
    pub fn is_deleted_when_empty(&self) -> bool {
        !matches!(self, Self::Topic(_) | Self::Broker(_))
    }
}

impl fmt::Display for ConfigEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entity_path())
    }
}

/// A user or client name as a path part: URL encoding of its UTF-8, a space as `%20`, `*` as `%2A`.
pub fn sanitize(name: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(name.len());
    for &byte in name.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(char::from(
                    HEX.get(usize::from(digit)).copied().unwrap_or(b'0'),
                ));
            }
        }
    }
    out
}

/// The inverse of [`sanitize`]; also takes `+` for a space, as URL decoding does. `None`: a broken escape or no UTF-8.
pub fn desanitize(name: &str) -> Option<String> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_sanitised_as_by_kafka() {
        assert_eq!(sanitize("CN=bob/x@y"), "CN%3Dbob%2Fx%40y");
        assert_eq!(sanitize("a b*c+~"), "a%20b%2Ac%2B%7E");
        assert_eq!(sanitize("<default>"), "%3Cdefault%3E");
        assert_eq!(desanitize("a+b"), Some("a b".into()));
        assert_eq!(desanitize("a%2"), None);
        assert_eq!(desanitize("%FF"), None);
    }

    #[test]
    fn unknown_entities_are_refused() {
        for path in [
            "planets/mars",
            "topics",
            "topics/",
            "topics/a/b",
            "brokers/x",
            "users/a/clients",
            "users/a/clients/",
            "clients/a/clients/b",
            "",
        ] {
            assert_eq!(ConfigEntity::from_entity_path(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn sanitising_is_undone(name in any::<String>()) {
            let safe = sanitize(&name);
            prop_assert!(!safe.contains('/'));
            prop_assert_eq!(desanitize(&safe), Some(name));
        }

        #[test]
        fn entity_paths_are_read_back(name in ".{1,20}", other in ".{1,20}", id in any::<i32>()) {
            for entity in [
                ConfigEntity::Broker(Some(id)), ConfigEntity::Broker(None),
                ConfigEntity::User(Some(name.clone())), ConfigEntity::User(None),
                ConfigEntity::UserClient { user: Some(name.clone()), client: Some(other.clone()) },
                ConfigEntity::UserClient { user: None, client: None },
                ConfigEntity::Client(Some(other.clone())), ConfigEntity::Ip(None),
            ] {
                prop_assert_eq!(ConfigEntity::from_entity_path(&entity.entity_path()), Some(entity));
            }
        }
    }
}
