//! Trust as Java has it: a certificate that stands in the trust store itself, or one that an authority there has signed.

use super::dn;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct TrustedOrSigned {
    signed: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl TrustedOrSigned {
    pub fn new(signed: Arc<dyn ClientCertVerifier>, trusted: Vec<CertificateDer<'static>>) -> Self {
        TrustedOrSigned { signed, trusted }
    }
}

impl ClientCertVerifier for TrustedOrSigned {
    fn offer_client_auth(&self) -> bool {
        self.signed.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.trusted.iter().any(|trusted| trusted == end_entity) {
            return Ok(ClientCertVerified::assertion());
        }
        self.signed
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Whose certificate a server may show.
#[derive(Debug, Clone)]
pub(super) enum HostCheck {
    /// Anybody's who is trusted.
    None,
    /// The host's, by the name that was asked for or by its address.
    Either(String, IpAddr),
}

/// The same of a server, as its clients see it.
#[derive(Debug, Clone)]
pub(super) struct TrustedServer {
    trusted: Arc<Vec<CertificateDer<'static>>>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    check: HostCheck,
}

impl TrustedServer {
    pub fn new(
        trusted: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        TrustedServer {
            trusted: Arc::new(trusted),
            roots: Arc::new(roots),
            provider,
            check: HostCheck::None,
        }
    }

    pub fn checking(mut self, check: HostCheck) -> Self {
        self.check = check;
        self
    }

    fn is_of_the_host(&self, certificate: &CertificateDer<'_>) -> bool {
        let HostCheck::Either(host, address) = &self.check else {
            return true;
        };
        // What stands only in the subject counts where there are no alternative names.
        if let Some(named) = dn::host_in_subject(certificate) {
            return [host, &address.to_string()]
                .into_iter()
                .any(|host| covers(&named, host));
        }
        let Ok(parsed) = ParsedCertificate::try_from(certificate) else {
            return false;
        };
        let names = [
            ServerName::try_from(host.as_str()).ok(),
            Some(ServerName::IpAddress((*address).into())),
        ];
        names
            .iter()
            .flatten()
            .any(|name| verify_server_name(&parsed, name).is_ok())
    }
}

/// `a.b.c` is covered by itself and by `*.b.c`.
fn covers(named: &str, host: &str) -> bool {
    if named.eq_ignore_ascii_case(host) {
        return true;
    }
    match (named.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((_, rest))) if host.parse::<IpAddr>().is_err() => {
            domain.contains('.') && domain.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

impl ServerCertVerifier for TrustedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.trusted.iter().any(|trusted| trusted == end_entity) {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                &self.roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        if self.is_of_the_host(end_entity) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::NotValidForName.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
