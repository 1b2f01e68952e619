//! The keys of `secureClientPort`'s TLS.

use super::ConfigError;
use super::keys::Entry;
use gracchus_security::tls::{ClientAuth, Store, StoreKind, TlsSettings, Versions};
use std::path::PathBuf;

/// One store's keys as they come.
#[derive(Default)]
struct StoreKeys {
    location: Option<PathBuf>,
    password: String,
    password_path: Option<PathBuf>,
    kind: Option<String>,
}

pub(super) struct TlsKeys {
    key_store: StoreKeys,
    trust_store: StoreKeys,
    client_auth: ClientAuth,
    versions: Versions,
    super_user: Option<String>,
}

impl Default for TlsKeys {
    fn default() -> Self {
        TlsKeys {
            key_store: StoreKeys::default(),
            trust_store: StoreKeys::default(),
            client_auth: ClientAuth::Need,
            versions: Versions {
                tls12: true,
                tls13: true,
            },
            super_user: None,
        }
    }
}

impl StoreKeys {
    fn take(&mut self, part: &str, entry: &Entry<'_>) -> Result<bool, ConfigError> {
        match part {
            "location" => self.location = Some(entry.value.into()),
            "password" => self.password = entry.value.into(),
            "passwordPath" => self.password_path = Some(entry.value.into()),
            "type" => self.kind = Some(entry.value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn store(self, key: &'static str) -> Result<Option<Store>, ConfigError> {
        let Some(path) = self.location else {
            return Ok(None);
        };
        let kind =
            StoreKind::of(self.kind.as_deref(), &path).map_err(|reason| ConfigError::Store {
                key,
                path: path.clone(),
                reason,
            })?;
        let password = match self.password_path {
            None => self.password,
            Some(path) => std::fs::read_to_string(&path)
                .map_err(|source| ConfigError::Unreadable { path, source })?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
        };
        Ok(Some(Store {
            path,
            kind,
            password,
        }))
    }
}

impl TlsKeys {
    /// True if the key is one of these.
    pub fn take(&mut self, name: &str, entry: &Entry<'_>) -> Result<bool, ConfigError> {
        if let Some(part) = name.strip_prefix("ssl.keyStore.") {
            return self.key_store.take(part, entry);
        }
        if let Some(part) = name.strip_prefix("ssl.trustStore.") {
            return self.trust_store.take(part, entry);
        }
        match name {
            "ssl.clientAuth" => {
                self.client_auth = match entry.value.to_ascii_lowercase().as_str() {
                    "need" => ClientAuth::Need,
                    "want" => ClientAuth::Want,
                    "none" => ClientAuth::None,
                    _ => return Err(entry.bad("need, want or none")),
                };
            }
            // The one that is spoken; both unless enabledProtocols says otherwise.
            "ssl.protocol" => {}
            "ssl.enabledProtocols" => {
                let words = entry.words();
                self.versions = Versions {
                    tls12: words.iter().any(|word| word == "TLSv1.2"),
                    tls13: words.iter().any(|word| word == "TLSv1.3"),
                };
                if !self.versions.tls12 && !self.versions.tls13 {
                    return Err(entry.bad("TLSv1.2, TLSv1.3 or both"));
                }
            }
            "ssl.crl" | "ssl.ocsp" | "ssl.clientHostnameVerification" if entry.flag(false)? => {
                return Err(entry.fatal(
                    "it is not served yet, so that clients it should keep out would come in",
                ));
            }
            "ssl.crl" | "ssl.ocsp" | "ssl.clientHostnameVerification" => {}
            // Of the server's own connections, which there are none of.
            "ssl.hostnameVerification" => {}
            "X509AuthenticationProvider.superUser" => self.super_user = Some(entry.value.into()),
            _ if name.starts_with("authProvider.") => {
                return Ok(entry.value.ends_with(".X509AuthenticationProvider"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub fn settings(self) -> Result<TlsSettings, ConfigError> {
        let key_store = self.key_store.store("ssl.keyStore")?;
        Ok(TlsSettings {
            key_store: key_store.ok_or(ConfigError::Missing("ssl.keyStore.location"))?,
            trust_store: self.trust_store.store("ssl.trustStore")?,
            client_auth: self.client_auth,
            versions: self.versions,
            super_user: self.super_user,
        })
    }
}
