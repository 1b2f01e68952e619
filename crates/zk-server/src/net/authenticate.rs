//! Who a client is: `auth` requests, the SASL exchange, and what is refused before either.

use super::connection::ConnTask;
use crate::acl;
use bytes::Bytes;
use gracchus_security::digest_md5::{Exchange, Refusal};
use gracchus_zk_proto::request::{AuthRequest, SaslRequest};
use gracchus_zk_proto::response::SaslResponse;
use gracchus_zk_proto::{Jute, ZkError};
use std::sync::atomic::Ordering::Relaxed;

/// Random bytes of a nonce.
const NONCE_BYTES: usize = 30;

impl ConnTask<'_> {
    /// True if the request may be worked on; otherwise it is refused and the connection ends.
    pub(super) fn is_let_in(&mut self, xid: i32) -> bool {
        let schemes = &self.shared.config.enforced_schemes;
        if schemes.is_empty() {
            return true;
        }
        let who = self.conn.identity();
        let is_known =
            |scheme: &String| scheme == "ip" || who.ids.iter().any(|id| id.scheme == *scheme);
        if schemes.iter().any(is_known) {
            return true;
        }
        tracing::warn!(
            "client {} (session 0x{:x}) has not authenticated by {}, which this server demands; it is closed",
            self.conn.peer,
            self.conn.session(),
            schemes.join(" or ")
        );
        let refusal = ZkError::SessionClosedRequireSaslAuth;
        self.conn.out.lock().reply(xid, 0, |_| Err(refusal));
        self.end_unauthenticated();
        false
    }

    fn has_id(&self, scheme: &str) -> bool {
        let who = self.conn.identity();
        who.ids.iter().any(|id| id.scheme == scheme)
    }

    /// The client's certificate says who it is.
    pub(super) fn is_shown(&mut self, subject: &str) {
        let settings = self.shared.config.tls.as_ref();
        let super_user = settings.and_then(|settings| settings.super_user.as_deref());
        self.conn.add_id("x509", subject);
        if super_user == Some(subject) {
            self.conn.add_id("super", "");
        }
    }

    fn end_unauthenticated(&mut self) {
        self.shared.metrics.auth_failed_count.fetch_add(1, Relaxed);
        self.closing = true;
        self.conn.close(true);
    }

    pub(super) fn auth(&mut self, xid: i32, body: Bytes) {
        let request = AuthRequest::from_bytes(body);
        let result = match &request {
            Err(_) => Err(ZkError::MarshallingError),
            Ok(request) => match request.scheme.as_deref() {
                Some("digest") => {
                    let id = acl::digest_id(request.auth.as_deref().unwrap_or_default());
                    let is_super = self.shared.config.super_digest.as_deref() == Some(&id);
                    let added = (!is_super || self.conn.add_id("super", ""))
                        && self.conn.add_id("digest", &id);
                    added.then_some(()).ok_or(ZkError::AuthFailed)
                }
                // The address is an id from the start, a certificate since the handshake.
                Some("ip") => Ok(()),
                Some("x509") if self.has_id("x509") => Ok(()),
                _ => Err(ZkError::AuthFailed),
            },
        };
        self.conn.out.lock().reply(xid, 0, |_| result);
        if result == Err(ZkError::AuthFailed) {
            let scheme = request
                .ok()
                .and_then(|request| request.scheme)
                .unwrap_or_default();
            tracing::warn!(
                "client {} (session 0x{:x}) asks for authentication by {scheme:?}, which is not offered, or for more than {} ids; it is closed",
                self.conn.peer,
                self.conn.session(),
                acl::MAX_IDS
            );
            self.end_unauthenticated();
        }
    }

    pub(super) fn sasl(&mut self, xid: i32, body: Bytes) {
        let shared = self.shared;
        let token = match SaslRequest::from_bytes(body) {
            Ok(request) => request.token.unwrap_or_default(),
            Err(_) => {
                let error = ZkError::MarshallingError;
                return self.conn.out.lock().reply(xid, 0, |_| Err(error));
            }
        };
        let answer = |token: Option<String>| {
            self.conn.out.lock().reply(xid, 0, |buf| {
                let token = token.map(Bytes::from);
                SaslResponse { token }.write(buf);
                Ok(())
            });
        };
        let Some(users) = &shared.config.sasl_users else {
            // As a server without a JAAS section for itself answers.
            return answer(None);
        };
        let Some(exchange) = self.sasl.take() else {
            // Whatever the first token is.
            let exchange = Exchange::new(nonce());
            answer(Some(exchange.challenge()));
            self.sasl = Some(exchange);
            return;
        };
        let refusal = match exchange.verify(&token, users) {
            Ok((user, proof)) => {
                let is_super = shared.config.sasl_super_user.as_ref() == Some(&user);
                if self.conn.add_id("sasl", &user) && (!is_super || self.conn.add_id("super", "")) {
                    tracing::debug!("client {} is {user} by SASL", self.conn.peer);
                    return answer(Some(proof));
                }
                Refusal::Credentials
            }
            Err(refusal) => refusal,
        };
        let demanded = shared
            .config
            .enforced_schemes
            .iter()
            .any(|scheme| scheme == "sasl");
        let kept = shared.config.allow_sasl_failed && !demanded;
        tracing::warn!(
            "client {} (session 0x{:x}) fails to authenticate by SASL DIGEST-MD5: {refusal}; {}",
            self.conn.peer,
            self.conn.session(),
            if kept {
                "it goes on without (allowSaslFailedClients)"
            } else {
                "it is closed"
            }
        );
        if kept {
            return answer(None);
        }
        let error = if demanded {
            ZkError::SessionClosedRequireSaslAuth
        } else {
            ZkError::AuthFailed
        };
        self.conn
            .out
            .lock()
            .refuse_with(xid, error, &SaslResponse { token: None });
        self.end_unauthenticated();
    }
}

fn nonce() -> String {
    use base64::Engine;
    let bytes: [u8; NONCE_BYTES] = std::array::from_fn(|_| rand::random());
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
