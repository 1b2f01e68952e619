//! TLS of a listener.

use super::verifier::TrustedOrSigned;
use super::{Store, TlsError, Versions, roots};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use std::sync::Arc;

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    Need,
    Want,
    None,
}

/// What a configuration says about a TLS listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub key_store: Store,
    /// Whose certificates are accepted; none is needed where clients show none.
    pub trust_store: Option<Store>,
    pub client_auth: ClientAuth,
    pub versions: Versions,
    /// The subject that may do everything.
    pub super_user: Option<String>,
}

/// What a TLS listener serves with.
pub fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = settings.key_store.key("key store", "ssl.keyStore")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let broken = |error: rustls::Error| TlsError::Config(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&settings.versions.list())
        .map_err(broken)?;
    let builder = match (settings.client_auth, &settings.trust_store) {
        (ClientAuth::None, _) => builder.with_no_client_auth(),
        (_, None) => {
            return Err(TlsError::Config(
                "clients must show certificates (ssl.clientAuth), and ssl.trustStore.location does not say which are trusted. Set it, or ssl.clientAuth=none".into(),
            ));
        }
        (client_auth, Some(store)) => {
            let (trusted, roots) = roots(store, "ssl.trustStore")?;
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
