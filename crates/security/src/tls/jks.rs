//! Java's own key store format, JKS: entries, a keyed hash over all, private keys behind a stream of hashes.

use sha1::{Digest, Sha1};

const MAGIC: u32 = 0xfeed_feed;
/// Salts the keyed hash.
const WHITENER: &[u8] = b"Mighty Aphrodite";
const HASH: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Jks {
    pub keys: Vec<KeyEntry>,
    pub trusted: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct KeyEntry {
    /// An EncryptedPrivateKeyInfo.
    protected: Vec<u8>,
    pub chain: Vec<Vec<u8>>,
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(usize::from(length))
    }

    fn blob(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.take(length).map(<[u8]>::to_vec)
    }

    fn certificate(&mut self, version: u32) -> Option<Vec<u8>> {
        if version == 2 && self.text()? != b"X.509" {
            return None;
        }
        self.blob()
    }
}

/// Each character in two bytes, as Java hashes passwords.
fn wide(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// Reads a store whose hash the password confirms.
pub(super) fn read(bytes: &[u8], password: &str) -> Result<Jks, &'static str> {
    let Some(body) = bytes.len().checked_sub(HASH) else {
        return Err("it is no JKS store");
    };
    let (body, hash) = bytes.split_at(body);
    let mut at = Bytes(body);
    if at.u32() != Some(MAGIC) {
        return Err("it is no JKS store; if it is a PKCS12 one, set its type to PKCS12");
    }
    let hasher = Sha1::new()
        .chain_update(wide(password))
        .chain_update(WHITENER)
        .chain_update(body);
    if hasher.finalize()[..] != *hash {
        return Err("its password is another one, or it is damaged");
    }
    entries(&mut at).ok_or("it is damaged")
}

fn entries(at: &mut Bytes<'_>) -> Option<Jks> {
    let version = at.u32()?;
    let count = at.u32()?;
    let mut store = Jks::default();
    for _ in 0..count {
        let kind = at.u32()?;
        at.text()?;
        // When it was made.
        at.take(8)?;
        if kind == 1 {
            let protected = at.blob()?;
            let certificates = at.u32()?;
            let mut chain = Vec::new();
            for _ in 0..certificates {
                chain.push(at.certificate(version)?);
            }
            store.keys.push(KeyEntry { protected, chain });
        } else {
            store.trusted.push(at.certificate(version)?);
        }
    }
    Some(store)
}

impl KeyEntry {
    /// The PKCS8 key: `salt`, the key under a stream of hashes, and a hash of both.
    pub fn open(&self, password: &str) -> Option<Vec<u8>> {
        let blob = octets(&self.protected)?;
        let (salt, rest) = blob.split_at_checked(HASH)?;
        let (cipher, check) = rest.split_at_checked(rest.len().checked_sub(HASH)?)?;
        let password = wide(password);
        let mut link = salt.to_vec();
        let mut key = Vec::with_capacity(cipher.len());
        for piece in cipher.chunks(HASH) {
            let hash = Sha1::new().chain_update(&password).chain_update(&link);
            link = hash.finalize().to_vec();
            key.extend(piece.iter().zip(&link).map(|(a, b)| a ^ b));
        }
        let expected = Sha1::new().chain_update(&password).chain_update(&key);
        (expected.finalize()[..] == *check).then_some(key)
    }
}

/// The octet string of an EncryptedPrivateKeyInfo: a sequence of an algorithm and it.
fn octets(info: &[u8]) -> Option<&[u8]> {
    let info = super::dn::der(info)?;
    let (_, rest) = super::dn::der_and_rest(info)?;
    super::dn::der(rest)
}
