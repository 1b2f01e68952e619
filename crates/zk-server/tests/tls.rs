//! TLS on `secureClientPort`: stores of each kind, client certificates as ids, and who is kept out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::{BufMut, BytesMut};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::response::{GetAclResponse, GetDataResponse, WhoAmIResponse};
use gracchus_zk_proto::{Acl, ConnectResponse, Jute, OpCode, Reader, ReplyHeader};
use gracchus_zk_server::{StartError, ZkConfig};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use support::*;

struct Authority(Issuer<'static, KeyPair>, String);

struct Party {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Test");
    name.push(DnType::OrganizationalUnitName, "Dev");
    name.push(DnType::CommonName, common);
    name
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority(Issuer::new(params, key), pem)
    }

    fn party(&self, common: &str) -> Party {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.distinguished_name = name(common);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Party {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            key,
        }
    }
}

fn secure(dir: &Path, authority: &Authority, more: &str) -> ZkConfig {
    let server = authority.party("server");
    std::fs::write(
        dir.join("key.pem"),
        server.pem + &server.key.serialize_pem(),
    )
    .unwrap();
    std::fs::write(dir.join("trust.pem"), &authority.1).unwrap();
    let dir_text = dir.display();
    let text = format!(
        "dataDir={dir_text}\nclientPort=0\nsecureClientPort=0\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location={dir_text}/key.pem\nssl.trustStore.location={dir_text}/trust.pem\n{more}"
    );
    let parsed = ZkConfig::parse(&text).unwrap();
    ZkConfig {
        secure_address: parsed.secure_address,
        tls: parsed.tls,
        enforced_schemes: parsed.enforced_schemes,
        ..config(dir)
    }
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn tls(address: SocketAddr, authority: &Authority, party: Option<&Party>) -> Stream {
    use rustls_pki_types::pem::PemObject;
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.1.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match party {
        None => builder.with_no_client_auth(),
        Some(party) => {
            let key = PrivatePkcs8KeyDer::from(party.key.serialize_der());
            let chain = vec![party.certificate.clone()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from(key))
                .unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, raw(address))
}

/// A session over TLS; `None` if the server does not let the client in.
fn session(stream: &mut Stream) -> Option<ConnectResponse> {
    send_frame(stream, &connect_request(10_000).to_bytes()).ok()?;
    ConnectResponse::from_bytes(read_frame(stream)?).ok()
}

fn call(stream: &mut Stream, op: OpCode, body: &impl Jute) -> (i32, Reader) {
    let mut frame = BytesMut::new();
    frame.put_i32(1);
    frame.put_i32(op.code());
    body.write(&mut frame);
    send_frame(stream, &frame).unwrap();
    let mut reader = Reader::new(read_frame(stream).unwrap());
    (ReplyHeader::read(&mut reader).unwrap().err, reader)
}

fn create(path: &str, data: Vec<u8>, acl: Vec<Acl>) -> CreateRequest {
    CreateRequest {
        path: path.into(),
        data: Some(data.into()),
        acl: Some(acl),
        flags: 0,
    }
}

const SUBJECT: &str = "CN=kafka-client,OU=Dev,O=Test";

#[test]
fn a_client_is_who_its_certificate_says() {
    let tmp = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let more = "X509AuthenticationProvider.superUser=CN=root,OU=Dev,O=Test\n";
    let server = Server::start(secure(tmp.path(), &authority, more));
    let address = server.handle().secure_addr().unwrap();
    let mut client = tls(address, &authority, Some(&authority.party("kafka-client")));
    assert_ne!(session(&mut client).unwrap().session_id, 0);
    let (_, mut body) = call(&mut client, OpCode::WhoAmI, &false);
    let who = WhoAmIResponse::read(&mut body).unwrap().clients;
    assert!(
        who.iter()
            .any(|c| (&*c.scheme, &*c.user) == ("x509", SUBJECT)),
        "{who:?}"
    );
    // auth in a list becomes the id; so does the id itself; what is no subject is refused.
    let request = create("/own", vec![], vec![Acl::new(31, "auth", "")]);
    assert_eq!(call(&mut client, OpCode::Create, &request).0, 0);
    let path = PathRequest {
        path: "/own".into(),
    };
    let (_, mut body) = call(&mut client, OpCode::GetAcl, &path);
    assert_eq!(
        GetAclResponse::read(&mut body).unwrap().acl,
        [Acl::new(31, "x509", SUBJECT)]
    );
    for (id, expected) in [(SUBJECT, 0), ("not a dn", -114)] {
        let request = create("/x", vec![], vec![Acl::new(31, "x509", id)]);
        assert_eq!(call(&mut client, OpCode::Create, &request).0, expected);
    }
    // Others are kept away from it, on either port; the superuser is not.
    let read = PathWatchRequest {
        path: "/own".into(),
        watch: false,
    };
    assert_eq!(server.client().get("/own"), Err(-102));
    for (common, expected) in [("other", -102), ("root", 0)] {
        let mut other = tls(address, &authority, Some(&authority.party(common)));
        session(&mut other).unwrap();
        assert_eq!(call(&mut other, OpCode::GetData, &read).0, expected);
    }
    server.stop();
}

#[test]
fn large_answers_and_requests_pass() {
    let tmp = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let server = Server::start(secure(tmp.path(), &authority, ""));
    let address = server.handle().secure_addr().unwrap();
    let mut client = tls(address, &authority, Some(&authority.party("a")));
    session(&mut client).unwrap();
    let data = vec![b'x'; 900_000];
    let request = create("/big", data.clone(), Acl::open());
    assert_eq!(call(&mut client, OpCode::Create, &request).0, 0);
    let read = PathWatchRequest {
        path: "/big".into(),
        watch: false,
    };
    // Pipelined, so that much waits to be encrypted while the socket is full.
    for xid in 0..50 {
        let mut frame = BytesMut::new();
        frame.put_i32(xid);
        frame.put_i32(OpCode::GetData.code());
        read.write(&mut frame);
        send_frame(&mut client, &frame).unwrap();
    }
    for xid in 0..50 {
        let mut reader = Reader::new(read_frame(&mut client).unwrap());
        assert_eq!(ReplyHeader::read(&mut reader).unwrap().xid, xid);
        let got = GetDataResponse::read(&mut reader).unwrap().data.unwrap();
        assert_eq!(got, data);
    }
    server.stop();
}

#[test]
fn clients_without_a_trusted_certificate_are_kept_out_unless_they_need_none() {
    let authority = Authority::new();
    let stranger = Authority::new().party("kafka-client");
    let trusted = authority.party("a");
    for (auth, without) in [("need", false), ("want", true), ("none", true)] {
        let tmp = tempfile::tempdir().unwrap();
        let more = format!("ssl.clientAuth={auth}\n");
        let server = Server::start(secure(tmp.path(), &authority, &more));
        let address = server.handle().secure_addr().unwrap();
        let is_let_in = |party| session(&mut tls(address, &authority, party)).is_some();
        assert!(is_let_in(Some(&trusted)), "{auth}");
        assert_eq!(is_let_in(None), without, "{auth}");
        assert_eq!(is_let_in(Some(&stranger)), auth == "none", "{auth}");
        // No TLS at all, and garbage: closed, and others served.
        let mut plain = raw(address);
        plain
            .write_all(&[0, 0, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .unwrap();
        let _ = plain.read_to_end(&mut Vec::new());
        assert!(is_let_in(Some(&trusted)), "{auth}");
        server.stop();
    }
}

#[test]
fn a_certificate_that_is_itself_in_the_trust_store_is_trusted() {
    let tmp = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let config = secure(tmp.path(), &authority, "");
    let known = Authority::new().party("known");
    std::fs::write(tmp.path().join("trust.pem"), &known.pem).unwrap();
    let server = Server::start(config);
    let address = server.handle().secure_addr().unwrap();
    assert!(session(&mut tls(address, &authority, Some(&known))).is_some());
    let other = Authority::new().party("known");
    assert!(session(&mut tls(address, &authority, Some(&other))).is_none());
    server.stop();
}

#[test]
fn certificates_can_be_demanded_on_every_port() {
    let tmp = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let more = "enforce.auth.enabled=true\nenforce.auth.schemes=x509\n";
    let server = Server::start(secure(tmp.path(), &authority, more));
    let address = server.handle().secure_addr().unwrap();
    let mut client = tls(address, &authority, Some(&authority.party("a")));
    session(&mut client).unwrap();
    assert_eq!(call(&mut client, OpCode::WhoAmI, &false).0, 0);
    assert_eq!(server.client().get("/"), Err(-124));
    server.stop();
}

#[test]
fn stores_that_cannot_be_used_stop_the_start_by_name() {
    let tmp = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let config = secure(tmp.path(), &authority, "");
    let cases: [(&str, &[u8], &str); 3] = [
        ("key.pem", b"no key", "key store"),
        ("trust.pem", b"", "trust store"),
        (
            "key.pem",
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
            "encrypted",
        ),
    ];
    for (file, content, word) in cases {
        let config = secure(tmp.path(), &authority, "");
        std::fs::write(tmp.path().join(file), content).unwrap();
        let error = Server::try_start(config).err().unwrap();
        assert!(matches!(error, StartError::Tls(_)));
        assert!(error.to_string().contains(word), "{error}");
    }
    std::fs::remove_file(tmp.path().join("key.pem")).unwrap();
    let error = Server::try_start(config).err().unwrap().to_string();
    assert!(error.contains("ssl.keyStore.location"), "{error}");
    assert!(
        !tmp.path().join("version-2").exists(),
        "nothing on disk is touched"
    );
}
