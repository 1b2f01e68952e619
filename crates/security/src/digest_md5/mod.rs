//! SASL DIGEST-MD5 (RFC 2831) as ZooKeeper speaks it: quality of protection `auth`, one round. Both sides, without I/O.

mod client;
mod server;

pub use client::{Answer, Credentials, Mistrust};
pub use server::{Exchange, Refusal, Users};

use hashbrown::HashMap;
use md5::{Digest, Md5};

/// ZooKeeper's name for itself, which clients name in turn.
const REALM: &str = "zk-sasl-md5";
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";
/// Largest challenge or response that is read.
const MAX_TOKEN: usize = 4096;

/// What both sides hash.
struct Hashed<'a> {
    user: &'a str,
    realm: &'a str,
    password: &'a str,
    nonce: &'a str,
    cnonce: &'a str,
    acting_as: Option<&'a str>,
}

impl Hashed<'_> {
    /// The client's proof that it knows the password.
    fn response(&self, digest_uri: &str) -> String {
        self.proof(&format!("AUTHENTICATE:{digest_uri}"))
    }

    /// And the server's.
    fn rspauth(&self, digest_uri: &str) -> String {
        self.proof(&format!(":{digest_uri}"))
    }

    fn proof(&self, a2: &str) -> String {
        let secret = {
            let parts = [self.user, self.realm, self.password].map(encoded);
            Md5::digest(parts.join(&b':'))
        };
        let mut a1 = secret.to_vec();
        for part in [Some(self.nonce), Some(self.cnonce), self.acting_as]
            .into_iter()
            .flatten()
        {
            a1.push(b':');
            a1.extend_from_slice(part.as_bytes());
        }
        let (a1, a2) = (hex(&Md5::digest(&a1)), hex(&Md5::digest(a2)));
        let (nonce, cnonce) = (self.nonce, self.cnonce);
        hex(&Md5::digest(format!(
            "{a1}:{nonce}:00000001:{cnonce}:auth:{a2}"
        )))
    }
}

/// ISO 8859-1 where that can hold the text, UTF-8 otherwise: so the RFC wants it hashed.
fn encoded(text: &str) -> Vec<u8> {
    let narrow: Option<Vec<u8>> = text
        .chars()
        .map(|c| u8::try_from(u32::from(c)).ok())
        .collect();
    narrow.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes as long wherever they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// `name=value,name="quoted \" value"`; `None` if that is not what it is, or a name stands twice.
fn directives(bytes: &[u8]) -> Option<HashMap<String, String>> {
    if bytes.len() > MAX_TOKEN {
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if text.contains("charset=utf-8") || text.is_ascii() => text.to_owned(),
        _ => bytes.iter().map(|byte| char::from(*byte)).collect(),
    };
    let mut found = HashMap::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace() || *c == ',').is_some() {}
        if rest.peek().is_none() {
            return Some(found);
        }
        let mut name = String::new();
        while let Some(c) = rest.next_if(|c| *c != '=') {
            name.push(c);
        }
        rest.next()?;
        let mut value = String::new();
        if rest.next_if_eq(&'"').is_some() {
            loop {
                match rest.next()? {
                    '"' => break,
                    '\\' => value.push(rest.next()?),
                    c => value.push(c),
                }
            }
        } else {
            while let Some(c) = rest.next_if(|c| *c != ',') {
                value.push(c);
            }
        }
        let value = value.trim_end().to_owned();
        if found
            .insert(name.trim().to_ascii_lowercase(), value)
            .is_some()
        {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 2831, section 4 (IMAP).
    #[test]
    fn the_example_of_the_rfc() {
        let hashed = Hashed {
            user: "chris",
            realm: "elwood.innosoft.com",
            password: "secret",
            nonce: "OA6MG9tEQGm2hh",
            cnonce: "OA6MHXh6VqTrRk",
            acting_as: None,
        };
        let uri = "imap/elwood.innosoft.com";
        assert_eq!(hashed.response(uri), "d388dad90d4bbd760a152321f2143af7");
        assert_eq!(hashed.rspauth(uri), "ea40f60335c427b5527b84dbabcdfffd");
    }
}
