//! Key and trust stores: PEM, PKCS12, JKS.

use super::{TlsError, jks};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fmt;
use std::path::{Path, PathBuf};

/// A store is no larger than this.
const MAX_STORE: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    Pem,
    Pkcs12,
    Jks,
}

impl StoreKind {
    /// By its type where that is set, by the file's ending otherwise.
    pub fn of(kind: Option<&str>, path: &Path) -> Result<StoreKind, String> {
        if let Some(kind) = kind.filter(|kind| !kind.is_empty()) {
            return match kind.to_ascii_uppercase().as_str() {
                "PEM" => Ok(StoreKind::Pem),
                "PKCS12" => Ok(StoreKind::Pkcs12),
                "JKS" => Ok(StoreKind::Jks),
                _ => Err(format!(
                    "{kind} is no type of store that is read here: PEM, PKCS12 and JKS are"
                )),
            };
        }
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("pem") => Ok(StoreKind::Pem),
            Some("p12") => Ok(StoreKind::Pkcs12),
            Some("jks") => Ok(StoreKind::Jks),
            _ => Err(format!(
                "the name of {} does not end in .pem, .p12 or .jks, so its type must be set",
                path.display()
            )),
        }
    }
}

/// A file and the password that opens it, which is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Store {
    pub path: PathBuf,
    pub kind: StoreKind,
    pub password: String,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.path.display())
    }
}

type Key = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Store {
    fn bytes(&self, what: &'static str, key: &'static str) -> Result<Vec<u8>, TlsError> {
        let size = std::fs::metadata(&self.path).map(|found| found.len());
        if size.is_ok_and(|size| size > MAX_STORE) {
            return Err(self.unusable(what, "it is too large for a store of keys"));
        }
        std::fs::read(&self.path).map_err(|source| TlsError::Unreadable {
            what,
            key,
            path: self.path.clone(),
            source,
        })
    }

    fn unusable(&self, what: &'static str, reason: impl Into<String>) -> TlsError {
        TlsError::Unusable {
            what,
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    /// The private key and its certificates, the key's own first.
    pub(super) fn key(&self, what: &'static str, key: &'static str) -> Result<Key, TlsError> {
        let bytes = self.bytes(what, key)?;
        let no_key = || self.unusable(what, "it holds no private key with a certificate");
        match self.kind {
            StoreKind::Pem => {
                if bytes
                    .windows(21)
                    .any(|part| part == b"ENCRYPTED PRIVATE KEY")
                {
                    return Err(self.unusable(what, "its private key is encrypted, which is not read from PEM files: take it out with 'openssl pkcs8', or use a PKCS12 store"));
                }
                let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
                    self.unusable(what, format!("no private key can be read: {error}"))
                })?;
                let chain = self.pem_certificates(what, &bytes)?;
                if chain.is_empty() {
                    return Err(no_key());
                }
                Ok((chain, key))
            }
            StoreKind::Pkcs12 => {
                let store = self.pkcs12(what, &bytes)?;
                let (_, chain) = store.private_key_chain().ok_or_else(no_key)?;
                let certificates = chain.certs().iter();
                let certificates = certificates.map(|c| CertificateDer::from(c.as_der().to_vec()));
                let key = PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec());
                Ok((certificates.collect(), key.into()))
            }
            StoreKind::Jks => {
                let store = self.jks(what, &bytes)?;
                let entry = store.keys.into_iter().next().ok_or_else(no_key)?;
                let key = entry.open(&self.password).ok_or_else(|| {
                    self.unusable(what, "its private key has another password than the store")
                })?;
                let chain = entry.chain.into_iter().map(CertificateDer::from);
                Ok((chain.collect(), PrivatePkcs8KeyDer::from(key).into()))
            }
        }
    }

    /// All certificates of a trust store.
    pub(super) fn certificates(
        &self,
        what: &'static str,
        key: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let bytes = self.bytes(what, key)?;
        match self.kind {
            StoreKind::Pem => self.pem_certificates(what, &bytes),
            StoreKind::Pkcs12 => {
                let store = self.pkcs12(what, &bytes)?;
                let found = store.entries().filter_map(|(_, entry)| match entry {
                    p12_keystore::KeyStoreEntry::Certificate(certificate) => {
                        Some(CertificateDer::from(certificate.as_der().to_vec()))
                    }
                    _ => None,
                });
                Ok(found.collect())
            }
            StoreKind::Jks => {
                let store = self.jks(what, &bytes)?;
                Ok(store
                    .trusted
                    .into_iter()
                    .map(CertificateDer::from)
                    .collect())
            }
        }
    }

    fn pem_certificates(
        &self,
        what: &'static str,
        bytes: &[u8],
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        CertificateDer::pem_slice_iter(bytes)
            .collect::<Result<_, _>>()
            .map_err(|error| self.unusable(what, format!("a certificate can't be read: {error}")))
    }

    fn pkcs12(&self, what: &'static str, bytes: &[u8]) -> Result<p12_keystore::KeyStore, TlsError> {
        let policy = p12_keystore::Pkcs12ImportPolicy::Strict;
        p12_keystore::KeyStore::from_pkcs12(bytes, &self.password, policy).map_err(|error| {
            self.unusable(
                what,
                format!("it is no PKCS12 store, or its password is another one: {error}"),
            )
        })
    }

    fn jks(&self, what: &'static str, bytes: &[u8]) -> Result<jks::Jks, TlsError> {
        jks::read(bytes, &self.password).map_err(|reason| self.unusable(what, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str, kind: StoreKind, password: &str) -> Store {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stores");
        Store {
            path: dir.join(name),
            kind,
            password: password.into(),
        }
    }

    #[test]
    fn stores_that_keytool_made() {
        for (ending, kind) in [("p12", StoreKind::Pkcs12), ("jks", StoreKind::Jks)] {
            let key_store = store(&format!("key.{ending}"), kind, "secret1");
            let (chain, key) = key_store.key("key store", "ssl.keyStore").unwrap();
            assert_eq!(
                super::super::subject(&chain[0]).as_deref(),
                Some("CN=server,OU=Dev,O=Test")
            );
            // The key fits the certificate.
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            let signing = provider.key_provider.load_private_key(key).unwrap();
            let pair = rustls::sign::CertifiedKey::new(chain, signing);
            pair.keys_match().unwrap();
            let trust = store(&format!("trust.{ending}"), kind, "secret1");
            let trusted = trust.certificates("trust store", "ssl.trustStore").unwrap();
            assert_eq!(trusted.len(), 1);
            for (file, password) in [("key", "wrong"), ("trust", "")] {
                let wrong = store(&format!("{file}.{ending}"), kind, password);
                let error = wrong.certificates("store", "key").unwrap_err().to_string();
                assert!(error.contains("password"), "{error}");
            }
            // Neither has the other's form.
            let other = match kind {
                StoreKind::Jks => StoreKind::Pkcs12,
                _ => StoreKind::Jks,
            };
            let wrong = store(&format!("key.{ending}"), other, "secret1");
            assert!(wrong.key("key store", "key").is_err());
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = format!("{:?}", store("key.p12", StoreKind::Pkcs12, "secret1"));
        assert!(!shown.contains("secret1"), "{shown}");
    }

    #[test]
    fn damaged_stores_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, kind) in [("key.jks", StoreKind::Jks), ("key.p12", StoreKind::Pkcs12)] {
            let whole = std::fs::read(store(name, kind, "").path).unwrap();
            for cut in (0..whole.len()).step_by(37) {
                let path = dir.path().join(name);
                std::fs::write(&path, &whole[..cut]).unwrap();
                let store = Store {
                    path,
                    kind,
                    password: "secret1".into(),
                };
                assert!(store.key("key store", "key").is_err(), "{name} {cut}");
            }
        }
    }
}
