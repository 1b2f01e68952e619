//! SASL DIGEST-MD5 over the wire, and authentication that is demanded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::response::{GetAclResponse, SaslResponse, WhoAmIResponse};
use gracchus_zk_proto::{Acl, Jute, OpCode};
use gracchus_zk_server::ZkConfig;
use md5::{Digest, Md5};
use std::path::Path;
use support::*;

const AUTH_FAILED: i32 = -115;
const INVALID_ACL: i32 = -114;
const NO_AUTH: i32 = -102;
const REQUIRES_SASL: i32 = -124;

/// The captured server's users.
fn with_users(dir: &Path) -> ZkConfig {
    let jaas = dir.join("jaas.conf");
    let text = r#"Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_kafka="kafka-secret"
        user_super="super-secret";
    };"#;
    std::fs::write(&jaas, text).unwrap();
    let text = format!(
        "dataDir={}\nclientPort=0\nauthProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\njava.security.auth.login.config={}\nsuperUser=super\n",
        dir.display(),
        jaas.display()
    );
    let parsed = ZkConfig::parse(&text).unwrap();
    ZkConfig {
        sasl_users: parsed.sasl_users,
        sasl_provider: parsed.sasl_provider,
        sasl_super_user: parsed.sasl_super_user,
        ..config(dir)
    }
}

fn token(client: &mut Client, token: &[u8]) -> (i32, Option<Bytes>) {
    let request = SaslRequest {
        token: Some(Bytes::copy_from_slice(token)),
    };
    client.send(OpCode::Sasl, &request);
    let (header, mut body) = client.receive().unwrap();
    assert_eq!(header.zxid, 0);
    // A refusal has a record too.
    (header.err, SaslResponse::read(&mut body).unwrap().token)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Logs in as the Java client does; the error and the server's last token.
fn log_in(client: &mut Client, user: &str, password: &str) -> (i32, Option<Bytes>) {
    let (err, challenge) = token(client, b"");
    assert_eq!(err, 0);
    let challenge = String::from_utf8(challenge.unwrap().to_vec()).unwrap();
    let nonce = challenge.split("nonce=\"").nth(1).unwrap();
    let nonce = nonce.split('"').next().unwrap();
    let realm = "zk-sasl-md5";
    let secret = Md5::digest(format!("{user}:{realm}:{password}"));
    let a1 = [&secret[..], format!(":{nonce}:c0").as_bytes()].concat();
    let a2 = hex(&Md5::digest("AUTHENTICATE:zookeeper/zk-sasl-md5"));
    let response = hex(&Md5::digest(format!(
        "{}:{nonce}:00000001:c0:auth:{a2}",
        hex(&Md5::digest(a1))
    )));
    let answer = format!(
        "charset=utf-8,username=\"{user}\",realm=\"{realm}\",nonce=\"{nonce}\",nc=00000001,cnonce=\"c0\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response={response},qop=auth"
    );
    token(client, answer.as_bytes())
}

fn create(client: &mut Client, path: &str, acl: Vec<Acl>) -> i32 {
    let request = CreateRequest {
        path: path.into(),
        data: None,
        acl: Some(acl),
        flags: 0,
    };
    client.call(OpCode::Create, &request).0
}

#[test]
fn a_user_logs_in_and_owns_nodes() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(with_users(tmp.path()));
    let mut client = server.client();
    let (err, proof) = log_in(&mut client, "kafka", "kafka-secret");
    assert_eq!(err, 0);
    assert!(proof.unwrap().starts_with(b"rspauth="));
    let (_, mut body) = client.call(OpCode::WhoAmI, &false);
    let who = WhoAmIResponse::read(&mut body).unwrap().clients;
    assert!(
        who.iter()
            .any(|c| (&*c.scheme, &*c.user) == ("sasl", "kafka"))
    );
    let own = Acl::new(31, "sasl", "kafka");
    assert_eq!(
        create(
            &mut client,
            "/own",
            vec![own.clone(), Acl::new(1, "world", "anyone")]
        ),
        0
    );
    assert_eq!(
        create(&mut client, "/own/auth", vec![Acl::new(31, "auth", "")]),
        0
    );
    let path = PathRequest {
        path: "/own/auth".into(),
    };
    let (_, mut body) = client.call(OpCode::GetAcl, &path);
    assert_eq!(GetAclResponse::read(&mut body).unwrap().acl, [own]);
    // Nobody else's; the superuser's all the same.
    let set = SetDataRequest {
        path: "/own".into(),
        data: None,
        version: -1,
    };
    let mut other = server.client();
    assert_eq!(other.call(OpCode::SetData, &set).0, NO_AUTH);
    assert_eq!(log_in(&mut other, "super", "super-secret").0, 0);
    assert_eq!(other.call(OpCode::SetData, &set).0, 0);
    server.stop();
}

#[test]
fn wrong_credentials_end_the_connection() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(with_users(tmp.path()));
    for (user, password) in [("kafka", "wrong"), ("nobody", "kafka-secret")] {
        let mut client = server.client();
        assert_eq!(log_in(&mut client, user, password), (AUTH_FAILED, None));
        assert!(client.is_closed());
    }
    // A first token of any kind gets the challenge; an answer to no challenge of this server is none.
    let mut client = server.client();
    let (err, challenge) = token(&mut client, b"\xff\x00garbage");
    assert!(err == 0 && challenge.unwrap().starts_with(b"realm="));
    assert_eq!(token(&mut client, b"\xff\x00garbage"), (AUTH_FAILED, None));
    assert!(client.is_closed());
    server.stop();
}

#[test]
fn a_failed_login_is_forgiven_where_the_configuration_says_so() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = with_users(tmp.path());
    config.allow_sasl_failed = true;
    let server = Server::start(config);
    let mut client = server.client();
    assert_eq!(log_in(&mut client, "kafka", "wrong"), (0, None));
    assert!(client.get("/").is_ok());
    server.stop();
}

#[test]
fn without_users_there_is_no_sasl() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    assert_eq!(token(&mut client, b""), (0, None));
    assert_eq!(
        create(&mut client, "/a", vec![Acl::new(31, "sasl", "kafka")]),
        INVALID_ACL
    );
    server.stop();
}

#[test]
fn demanded_authentication_comes_before_everything_else() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = with_users(tmp.path());
    config.enforced_schemes = vec!["sasl".into()];
    config.allow_sasl_failed = true;
    let server = Server::start(config);
    let read = PathWatchRequest {
        path: "/".into(),
        watch: false,
    };
    for op in [
        OpCode::GetData,
        OpCode::Create,
        OpCode::Ping,
        OpCode::CloseSession,
    ] {
        let mut client = server.client();
        let xid = client.send(op, &read);
        let (header, _) = client.receive().unwrap();
        assert_eq!((header.xid, header.err), (xid, REQUIRES_SASL), "{op:?}");
        assert!(client.is_closed());
    }
    let mut client = server.client();
    assert_eq!(log_in(&mut client, "kafka", "wrong"), (REQUIRES_SASL, None));
    assert!(client.is_closed());
    let mut client = server.client();
    // Another scheme is no substitute.
    let auth = AuthRequest {
        auth_type: 0,
        scheme: Some("digest".into()),
        auth: Some(Bytes::from_static(b"a:b")),
    };
    assert_eq!(client.call(OpCode::Auth, &auth).0, 0);
    assert_eq!(log_in(&mut client, "kafka", "kafka-secret").0, 0);
    assert!(client.get("/").is_ok());
    server.stop();
}
