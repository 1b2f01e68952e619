//! Access control: who a connection is, what a list grants, which lists may be set.

use base64::Engine;
use gracchus_security::tls;
use gracchus_zk_proto::{Acl, Id, ZkError, perms};
use sha1::{Digest, Sha1};
use std::net::IpAddr;

/// Entries of a list beyond which it is refused; far above any real use, well under a frame.
const MAX_ENTRIES: usize = 10_000;

/// Ids that one connection may prove.
pub const MAX_IDS: usize = 128;

/// The ids that a connection has proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub address: IpAddr,
    /// Without the address itself; in the order they came.
    pub ids: Vec<Id>,
}

impl Identity {
    pub fn new(address: IpAddr) -> Self {
        Identity {
            address: address.to_canonical(),
            ids: Vec::new(),
        }
    }

    /// Adds an id once; false if there are too many.
    pub fn add(&mut self, scheme: &str, id: &str) -> bool {
        let id = Id {
            scheme: scheme.into(),
            id: id.into(),
        };
        let known = self.ids.contains(&id);
        let room = self.ids.len() < MAX_IDS;
        if !known && room {
            self.ids.push(id);
        }
        known || room
    }

    fn is_super(&self) -> bool {
        self.ids.iter().any(|id| id.scheme == "super")
    }
}

/// An access control list as nodes share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclList {
    /// Its number in snapshots; -1 is the implicit open list of the built-in nodes.
    pub key: i64,
    pub entries: Vec<Acl>,
    /// What `world:anyone` may do: answers most checks at once.
    world: i32,
}

impl AclList {
    pub fn new(key: i64, entries: Vec<Acl>) -> Self {
        let world = entries
            .iter()
            .filter(|acl| acl.id.scheme == "world" && acl.id.id == "anyone")
            .fold(0, |all, acl| all | acl.perms);
        AclList {
            key,
            entries,
            world,
        }
    }

    /// Whether `who` has one of the `wanted` permissions. An empty list grants everything.
    pub fn allows(&self, wanted: i32, who: &Identity) -> bool {
        self.world & wanted != 0
            || self.entries.is_empty()
            || who.is_super()
            || self.entries.iter().any(|acl| {
                acl.perms & wanted != 0
                    && match acl.id.scheme.as_str() {
                        "world" => acl.id.id == "anyone",
                        "ip" => address_matches(who.address, &acl.id.id),
                        _ => who.ids.contains(&acl.id),
                    }
            })
    }

    /// The list as getACL shows it: password hashes only to those who may administer the node.
    pub fn shown_to(&self, who: &Identity) -> Vec<Acl> {
        let mut entries = self.entries.clone();
        if !self.allows(perms::ADMIN, who) {
            for acl in entries.iter_mut().filter(|acl| acl.id.scheme == "digest") {
                if let Some((user, _)) = acl.id.id.split_once(':') {
                    acl.id.id = format!("{user}:x");
                }
            }
        }
        entries
    }
}

/// `address` or `address/bits`.
fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some((address, bits))
}

fn address_matches(address: IpAddr, network: &str) -> bool {
    let Some((wanted, bits)) = parse_network(network) else {
        return false;
    };
    let (a, b, width) = match (address, wanted) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a)), u128::from(u32::from(b)), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    let shift = width - u32::from(bits);
    bits == 0 || a >> shift == b >> shift
}

/// `user:base64(sha1(user:password))`.
pub fn digest_id(credentials: &[u8]) -> String {
    let credentials = String::from_utf8_lossy(credentials);
    let user = credentials.split(':').next().unwrap_or_default();
    let hash = Sha1::digest(credentials.as_bytes());
    format!(
        "{user}:{}",
        base64::engine::general_purpose::STANDARD.encode(hash)
    )
}

/// Schemes that only some servers know.
#[derive(Debug, Clone, Copy, Default)]
pub struct Schemes {
    pub sasl: bool,
    pub x509: bool,
}

/// Makes a list that a client asks for ready to be stored: duplicates go, `auth` becomes the client's own ids. `sasl` and
/// `x509` ids are known only where the configuration has those providers.
pub fn prepare(
    asked: Option<Vec<Acl>>,
    who: &Identity,
    known: Schemes,
) -> Result<Vec<Acl>, ZkError> {
    let asked = asked.unwrap_or_default();
    if asked.is_empty() || asked.len() > MAX_ENTRIES {
        return Err(ZkError::InvalidAcl);
    }
    let mut list: Vec<Acl> = Vec::with_capacity(asked.len());
    let mut add = |acl: Acl| {
        if !list.contains(&acl) {
            list.push(acl);
        }
    };
    for acl in asked {
        let valid = match acl.id.scheme.as_str() {
            "world" => acl.id.id == "anyone",
            "ip" => parse_network(&acl.id.id).is_some(),
            "digest" => acl.id.id.split(':').count() == 2,
            "sasl" => known.sasl && !acl.id.id.is_empty(),
            "x509" => known.x509 && tls::is_name(&acl.id.id),
            "auth" => {
                let own = who.ids.iter();
                let own = own.filter(|id| matches!(id.scheme.as_str(), "digest" | "sasl" | "x509"));
                let mut any = false;
                for id in own {
                    any = true;
                    add(Acl {
                        perms: acl.perms,
                        id: id.clone(),
                    });
                }
                if !any {
                    return Err(ZkError::InvalidAcl);
                }
                continue;
            }
            _ => false,
        };
        if !valid {
            return Err(ZkError::InvalidAcl);
        }
        add(acl);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(address: &str) -> Identity {
        Identity::new(address.parse().unwrap())
    }

    #[test]
    fn digest_as_zookeeper_computes_it() {
        assert_eq!(
            digest_id(b"super:admin"),
            "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
        );
    }

    #[test]
    fn networks() {
        assert!(address_matches("10.1.2.3".parse().unwrap(), "10.0.0.0/8"));
        assert!(!address_matches("11.1.2.3".parse().unwrap(), "10.0.0.0/8"));
        assert!(address_matches("11.1.2.3".parse().unwrap(), "0.0.0.0/0"));
        assert!(address_matches("::1".parse().unwrap(), "::1"));
        assert!(!address_matches("::1".parse().unwrap(), "127.0.0.1"));
        for bad in ["1.2.3", "1.2.3.4/33", "", "x", "1.2.3.4/-1"] {
            assert_eq!(parse_network(bad), None, "{bad}");
        }
    }

    #[test]
    fn grants() {
        let mut me = who("127.0.0.1");
        let list = AclList::new(
            1,
            vec![Acl::new(1, "world", "anyone"), Acl::new(2, "digest", "a:b")],
        );
        assert!(list.allows(perms::READ, &me));
        assert!(!list.allows(perms::WRITE, &me));
        me.add("digest", "a:b");
        assert!(list.allows(perms::WRITE, &me));
        assert!(!list.allows(perms::ADMIN, &me));
        me.add("super", "");
        assert!(list.allows(perms::ADMIN, &me));
    }

    #[test]
    fn lists_to_store() {
        let mut me = who("127.0.0.1");
        assert_eq!(
            prepare(None, &me, Schemes::default()),
            Err(ZkError::InvalidAcl)
        );
        assert_eq!(
            prepare(Some(vec![]), &me, Schemes::default()),
            Err(ZkError::InvalidAcl)
        );
        let auth = Some(vec![Acl::new(31, "auth", "")]);
        assert_eq!(
            prepare(auth.clone(), &me, Schemes::default()),
            Err(ZkError::InvalidAcl)
        );
        me.add("digest", "a:b");
        assert_eq!(
            prepare(auth, &me, Schemes::default()),
            Ok(vec![Acl::new(31, "digest", "a:b")])
        );
        let twice = Some([Acl::open(), Acl::open()].concat());
        assert_eq!(prepare(twice, &me, Schemes::default()), Ok(Acl::open()));
        let sasl = Some(vec![Acl::new(31, "sasl", "u")]);
        let all = Schemes {
            sasl: true,
            x509: true,
        };
        assert!(prepare(sasl, &me, all).is_ok());
        for (scheme, id) in [
            ("world", "other"),
            ("ip", "1.2.3"),
            ("digest", "u"),
            ("x509", "CN=a"),
            ("sasl", "u"),
        ] {
            assert_eq!(
                prepare(
                    Some(vec![Acl::new(31, scheme, id)]),
                    &me,
                    Schemes::default()
                ),
                Err(ZkError::InvalidAcl)
            );
        }
    }
}
