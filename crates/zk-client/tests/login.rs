//! SASL DIGEST-MD5: what goes out when, and what a refusal leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bytes::Bytes;
use gracchus_security::digest_md5::{Credentials, Exchange, Users};
use gracchus_zk_client::{Login, SessionState, ZkClient, ZkConfig};
use gracchus_zk_proto::request::SaslRequest;
use gracchus_zk_proto::response::SaslResponse;
use gracchus_zk_proto::{Jute, OpCode, ZkError};
use support::*;

fn config(server: &Server, password: &str) -> ZkConfig {
    let mut config = server.config("");
    config.login = Some(Login {
        credentials: Credentials {
            user: "kafka".into(),
            password: password.into(),
        },
        source: "section Client of /etc/jaas.conf".into(),
    });
    config.auth = vec![("digest".into(), Bytes::from_static(b"a:b"))];
    config
}

async fn token(peer: &mut Peer) -> (i32, Bytes) {
    let (xid, mut r) = peer.expect(OpCode::Sasl).await;
    (xid, SaslRequest::read(&mut r).unwrap().token.unwrap())
}

async fn answer(peer: &mut Peer, xid: i32, token: Option<String>) {
    let token = token.map(Bytes::from);
    peer.reply(xid, 0, 0, &SaslResponse { token }.to_bytes())
        .await;
}

/// The server's side of a login with the password "right"; false if the client does not know it.
async fn log_in(peer: &mut Peer) -> bool {
    let (xid, first) = token(peer).await;
    assert!(first.is_empty());
    let exchange = Exchange::new("a-nonce".into());
    answer(peer, xid, Some(exchange.challenge())).await;
    let (xid, response) = token(peer).await;
    let users: Users = [("kafka".to_owned(), "right".to_owned())]
        .into_iter()
        .collect();
    match exchange.verify(&response, &users) {
        Ok((_, proof)) => {
            answer(peer, xid, Some(proof)).await;
            true
        }
        Err(_) => {
            let error = ZkError::AuthFailed.code();
            peer.reply(xid, 0, error, &SaslResponse { token: None }.to_bytes())
                .await;
            false
        }
    }
}

async fn authenticated(peer: &mut Peer) {
    let (xid, _) = peer.expect(OpCode::Auth).await;
    peer.reply(xid, 0, 0, &[]).await;
}

#[tokio::test]
async fn every_connection_logs_in_before_anything_else() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(config(&server, "right"));
    let waiting = zk.submit(get("/a", true));
    let (mut peer, _) = server.attach(7, 9000).await;
    assert!(log_in(&mut peer).await);
    let connected = |new| SessionState::Connected { session_id: 7, new };
    assert_eq!(session(&mut events).await, connected(true));
    authenticated(&mut peer).await;
    let (xid, _) = peer.expect(OpCode::GetData).await;
    peer.data(xid, 1, "").await;
    waiting.await.result.unwrap();
    drop(peer);
    assert_eq!(session(&mut events).await, SessionState::Disconnected);
    let (mut peer, asked) = server.attach(7, 9000).await;
    assert_eq!(asked.session_id, 7);
    assert!(log_in(&mut peer).await);
    assert_eq!(session(&mut events).await, connected(false));
    authenticated(&mut peer).await;
    peer.expect(OpCode::SetWatches).await;
}

#[tokio::test]
async fn a_refused_login_is_told_and_tried_again_in_the_same_session() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(config(&server, "right"));
    let (mut peer, _) = server.attach(7, 9000).await;
    let (xid, _) = token(&mut peer).await;
    let error = ZkError::AuthFailed.code();
    peer.reply(xid, 0, error, &SaslResponse { token: None }.to_bytes())
        .await;
    assert_eq!(session(&mut events).await, SessionState::AuthFailed);
    let told = zk.auth_failure().unwrap();
    for word in [
        "user kafka",
        "section Client of /etc/jaas.conf",
        "127.0.0.1:",
    ] {
        assert!(told.contains(word), "{told}");
    }
    peer.closed().await;
    let (mut peer, asked) = server.attach(7, 9000).await;
    assert_eq!(asked.session_id, 7);
    assert!(log_in(&mut peer).await);
    // New to the owner, who has not been told of it.
    let connected = SessionState::Connected {
        session_id: 7,
        new: true,
    };
    assert_eq!(session(&mut events).await, connected);
    assert_eq!(zk.auth_failure(), None);
}

#[tokio::test]
async fn a_wrong_password_is_not_repeated_in_the_error() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(config(&server, "wrong-one"));
    let (mut peer, _) = server.attach(7, 9000).await;
    assert!(!log_in(&mut peer).await);
    assert_eq!(session(&mut events).await, SessionState::AuthFailed);
    let told = zk.auth_failure().unwrap();
    assert!(
        told.contains("AuthFailed") || told.contains("uthentic"),
        "{told}"
    );
    assert!(!told.contains("wrong-one"), "{told}");
}

#[tokio::test]
async fn a_server_without_sasl_or_without_proof_is_not_gone_along_with() {
    for (proof, word) in [
        (None, "offers no SASL"),
        (
            Some("rspauth=00000000000000000000000000000000"),
            "not to be trusted",
        ),
    ] {
        let server = Server::start().await;
        let (zk, mut events) = ZkClient::start(config(&server, "right"));
        let (mut peer, _) = server.attach(7, 9000).await;
        let (mut xid, _) = token(&mut peer).await;
        if proof.is_some() {
            answer(&mut peer, xid, Some(Exchange::new("n".into()).challenge())).await;
            (xid, _) = token(&mut peer).await;
        }
        answer(&mut peer, xid, proof.map(str::to_owned)).await;
        assert_eq!(session(&mut events).await, SessionState::AuthFailed);
        let told = zk.auth_failure().unwrap();
        assert!(told.contains(word), "{told}");
        peer.closed().await;
    }
}
