//! TLS for `secureClientPort`: the stores that zoo.cfg names, whose certificates are trusted, and who a certificate stands for.

mod dn;
mod jks;
mod stores;
mod verifier;

pub(crate) use dn::is_name;
pub use stores::{Store, StoreKind};

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;
use std::path::PathBuf;
use std::sync::Arc;
use verifier::TrustedOrSigned;

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    Need,
    Want,
    None,
}

/// What zoo.cfg says about TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub key_store: Store,
    /// Whose certificates are accepted; none is needed where clients show none.
    pub trust_store: Option<Store>,
    pub client_auth: ClientAuth,
    /// TLS 1.2 is spoken beside 1.3.
    pub with_tls12: bool,
    pub with_tls13: bool,
    /// The subject that may do everything.
    pub super_user: Option<String>,
}

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
    #[error("secureClientPort is set, and TLS can't be set up: {0}")]
    Config(String),
}

/// What the TLS listener serves with.
pub(crate) fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = settings.key_store.key("key store", "ssl.keyStore")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let broken = |error: rustls::Error| TlsError::Config(error.to_string());
    let mut versions = Vec::new();
    if settings.with_tls13 {
        versions.push(&rustls::version::TLS13);
    }
    if settings.with_tls12 {
        versions.push(&rustls::version::TLS12);
    }
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(broken)?;
    let builder = match (settings.client_auth, &settings.trust_store) {
        (ClientAuth::None, _) => builder.with_no_client_auth(),
        (_, None) => {
            return Err(TlsError::Config(
                "clients must show certificates (ssl.clientAuth), and ssl.trustStore.location does not say which are trusted. Set it, or ssl.clientAuth=none".into(),
            ));
        }
        (client_auth, Some(store)) => {
            let trusted = store.certificates("trust store", "ssl.trustStore")?;
            let mut roots = rustls::RootCertStore::empty();
            let (added, _) = roots.add_parsable_certificates(trusted.iter().cloned());
            if added == 0 {
                return Err(TlsError::Unusable {
                    what: "trust store",
                    path: store.path.clone(),
                    reason: "it holds no certificate that can be trusted".into(),
                });
            }
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if client_auth == ClientAuth::Want {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier
                .build()
                .map_err(|error| TlsError::Config(error.to_string()))?;
            builder.with_client_cert_verifier(Arc::new(TrustedOrSigned::new(verifier, trusted)))
        }
    };
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::Unusable {
            what: "key store",
            path: settings.key_store.path.clone(),
            reason: error.to_string(),
        })?;
    Ok(Arc::new(config))
}

/// Who a client with this certificate is, as `x509` ids name it.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    dn::subject(certificate)
}
