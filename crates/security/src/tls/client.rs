//! TLS of a client: whom it trusts, and what it shows.

use super::verifier::{HostCheck, TrustedServer};
use super::{Store, TlsError, Versions, roots};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::ServerName;
use std::sync::Arc;

/// What a configuration says about a client's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// What the keys of the stores begin with, such as `zookeeper.ssl`: for errors.
    pub key_store_keys: &'static str,
    pub trust_store_keys: &'static str,
    /// Shown to servers that ask for it.
    pub key_store: Option<Store>,
    pub trust_store: Store,
    pub versions: Versions,
    /// By Java's names; all that are known where none are named.
    pub cipher_suites: Vec<String>,
    /// The server's certificate must be of the host that was asked for.
    pub check_host: bool,
}

/// Settings made ready to connect with.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: ClientConfig,
    verifier: TrustedServer,
    check_host: bool,
}

/// Reads the stores.
pub fn client_tls(settings: &ClientSettings) -> Result<ClientTls, TlsError> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if !settings.cipher_suites.is_empty() {
        choose(&mut provider, &settings.cipher_suites)?;
    }
    let provider = Arc::new(provider);
    let (trusted, roots) = roots(&settings.trust_store, settings.trust_store_keys)?;
    let verifier = TrustedServer::new(trusted, roots, provider.clone());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&settings.versions.list())
        .map_err(|error| TlsError::Config(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier.clone()));
    let mut config = match &settings.key_store {
        None => builder.with_no_client_auth(),
        Some(store) => {
            let (chain, key) = store.key("key store", settings.key_store_keys)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::Unusable {
                    what: "key store",
                    path: store.path.clone(),
                    reason: error.to_string(),
                })?
        }
    };
    // Connections are few, and each looks at the server's certificate anew.
    config.resumption = Resumption::disabled();
    Ok(ClientTls {
        config,
        verifier,
        check_host: settings.check_host,
    })
}

impl ClientTls {
    /// For one connection: to `host`, at `address`. As ZooKeeper's client does, a certificate of either is accepted.
    pub fn for_host(
        &self,
        host: &str,
        address: std::net::IpAddr,
    ) -> (Arc<ClientConfig>, ServerName<'static>) {
        let mut config = self.config.clone();
        let by_address = ServerName::IpAddress(address.into());
        let name = ServerName::try_from(host.to_owned()).unwrap_or_else(|_| by_address.clone());
        let check = if self.check_host {
            HostCheck::Either(host.to_owned(), address)
        } else {
            HostCheck::None
        };
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(self.verifier.clone().checking(check)));
        (Arc::new(config), name)
    }
}

/// Java's name of a suite; rustls tells those of TLS 1.3 apart by their beginning.
fn java_name(suite: &rustls::SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => name,
    }
}

fn choose(provider: &mut CryptoProvider, wanted: &[String]) -> Result<(), TlsError> {
    let known: Vec<String> = provider.cipher_suites.iter().map(java_name).collect();
    // In the order of the configuration.
    let chosen: Vec<_> = wanted
        .iter()
        .filter_map(|name| {
            let mut suites = provider.cipher_suites.iter();
            suites.find(|suite| java_name(suite) == *name).copied()
        })
        .collect();
    if chosen.is_empty() {
        return Err(TlsError::Config(format!(
            "none of the cipher suites {} is spoken here; these are: {}",
            wanted.join(","),
            known.join(",")
        )));
    }
    provider.cipher_suites = chosen;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_by_java_s_names() {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        let wanted = [
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
        ]
        .map(String::from);
        choose(&mut provider, &wanted).unwrap();
        let chosen: Vec<_> = provider.cipher_suites.iter().map(java_name).collect();
        assert_eq!(chosen, wanted[1..]);
        let error = choose(&mut provider, &wanted[..1]).unwrap_err().to_string();
        assert!(
            error.contains("TLS_RSA_WITH_AES_128_CBC_SHA")
                && error.contains("TLS_AES_256_GCM_SHA384"),
            "{error}"
        );
    }
}
