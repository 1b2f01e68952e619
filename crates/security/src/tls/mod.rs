//! TLS: the stores that configurations name, whose certificates are trusted, and who a certificate stands for.

mod client;
mod dn;
mod jks;
mod server;
mod stores;
mod verifier;

pub use client::{ClientSettings, ClientTls, client_tls};
pub use dn::is_name;
pub use server::{ClientAuth, TlsSettings, server_config};
pub use stores::{Store, StoreKind};

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use std::path::PathBuf;

/// Why TLS can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "can't read the {what} {path}: {source}. Set {key}.location to a file that this user may read."
    )]
    Unreadable {
        what: &'static str,
        key: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the {what} {path} can't be used: {reason}")]
    Unusable {
        what: &'static str,
        path: PathBuf,
        reason: String,
    },
    #[error("TLS can't be set up: {0}")]
    Config(String),
}

/// Which versions are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub tls12: bool,
    pub tls13: bool,
}

impl Versions {
    fn list(self) -> Vec<&'static rustls::SupportedProtocolVersion> {
        let mut versions = Vec::new();
        if self.tls13 {
            versions.push(&rustls::version::TLS13);
        }
        if self.tls12 {
            versions.push(&rustls::version::TLS12);
        }
        versions
    }
}

/// Of a trust store: its certificates, and those that may have signed others.
fn roots(
    store: &Store,
    key: &'static str,
) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), TlsError> {
    let trusted = store.certificates("trust store", key)?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(trusted.iter().cloned());
    if added == 0 {
        return Err(TlsError::Unusable {
            what: "trust store",
            path: store.path.clone(),
            reason: "it holds no certificate that can be trusted".into(),
        });
    }
    Ok((trusted, roots))
}

/// Who the owner of this certificate is, as `x509` ids name it.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    dn::subject(certificate)
}
