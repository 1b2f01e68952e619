//! Every record survives encoding and decoding; arbitrary bytes are refused, never a panic.

#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use gracchus_zk_proto::data::{Acl, Stat};
use gracchus_zk_proto::jute::{Jute, JuteError, Reader};
use gracchus_zk_proto::multi::{MultiOp, MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::response::*;
use gracchus_zk_proto::txn::*;
use gracchus_zk_proto::{ConnectRequest, OpCode, WatcherEvent};
use proptest::prelude::*;

fn data() -> impl Strategy<Value = Option<Bytes>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50).prop_map(Bytes::from))
}

fn acl() -> impl Strategy<Value = Option<Vec<Acl>>> {
    let entry = (any::<i32>(), ".{0,8}", ".{0,8}").prop_map(|(p, s, i)| Acl::new(p, &s, &i));
    proptest::option::of(proptest::collection::vec(entry, 0..4))
}

fn create() -> impl Strategy<Value = CreateRequest> {
    (".{0,20}", data(), acl(), any::<i32>()).prop_map(|(path, data, acl, flags)| CreateRequest {
        path,
        data,
        acl,
        flags,
    })
}

fn stat() -> impl Strategy<Value = Stat> {
    (any::<[i64; 5]>(), any::<[i32; 5]>(), any::<i64>()).prop_map(|(l, i, owner)| Stat {
        czxid: l[0],
        mzxid: l[1],
        ctime: l[2],
        mtime: l[3],
        version: i[0],
        cversion: i[1],
        aversion: i[2],
        ephemeral_owner: owner,
        data_length: i[3],
        num_children: i[4],
        pzxid: l[4],
    })
}

fn multi_op() -> impl Strategy<Value = MultiOp> {
    prop_oneof![
        create().prop_map(MultiOp::Create),
        create().prop_map(MultiOp::Create2),
        create().prop_map(MultiOp::CreateContainer),
        (create(), any::<i64>()).prop_map(|(c, ttl_ms)| MultiOp::CreateTtl(CreateTtlRequest {
            path: c.path,
            data: c.data,
            acl: c.acl,
            flags: c.flags,
            ttl_ms,
        })),
        (".*", any::<i32>())
            .prop_map(|(path, version)| MultiOp::Delete(DeleteRequest { path, version })),
        (".*", data(), any::<i32>()).prop_map(|(path, data, version)| MultiOp::SetData(
            SetDataRequest {
                path,
                data,
                version
            }
        )),
        (".*", any::<i32>())
            .prop_map(|(path, version)| MultiOp::Check(CheckVersionRequest { path, version })),
        (".*", any::<bool>())
            .prop_map(|(path, watch)| MultiOp::GetData(PathWatchRequest { path, watch })),
    ]
}

fn multi_result() -> impl Strategy<Value = MultiResult> {
    prop_oneof![
        ".*".prop_map(MultiResult::Create),
        (".*", stat())
            .prop_map(|(path, stat)| MultiResult::Create2(Create2Response { path, stat })),
        Just(MultiResult::Delete),
        stat().prop_map(MultiResult::SetData),
        Just(MultiResult::Check),
        any::<i32>().prop_map(MultiResult::Error),
        (data(), stat())
            .prop_map(|(data, stat)| MultiResult::GetData(GetDataResponse { data, stat })),
    ]
}

fn txn() -> impl Strategy<Value = Txn> {
    let simple = prop_oneof![
        (".*", data(), acl(), any::<bool>(), any::<i32>()).prop_map(
            |(path, data, acl, ephemeral, parent_cversion)| {
                Txn::Create(CreateTxn {
                    path,
                    data,
                    acl: acl.unwrap_or_default(),
                    ephemeral,
                    parent_cversion,
                })
            }
        ),
        ".*".prop_map(|path| Txn::Delete(DeleteTxn { path })),
        (".*", data(), any::<i32>()).prop_map(|(path, data, version)| Txn::SetData(SetDataTxn {
            path,
            data,
            version
        })),
        any::<i32>().prop_map(|err| Txn::Error(ErrorTxn { err })),
        any::<i32>().prop_map(|timeout_ms| Txn::CreateSession(CreateSessionTxn { timeout_ms })),
        proptest::option::of(proptest::collection::vec(".*", 0..4)).prop_map(Txn::CloseSession),
    ];
    prop_oneof![
        simple.clone(),
        proptest::collection::vec(simple, 0..4).prop_map(Txn::Multi)
    ]
}

fn round_trip<T: Jute + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes = value.to_bytes();
    assert!(bytes.len() >= T::MIN_SIZE);
    let mut r = Reader::new(bytes.clone());
    assert_eq!(&T::read(&mut r).unwrap(), value);
    assert_eq!(r.remaining(), 0);
    for cut in 0..bytes.len() {
        let _ = T::from_bytes(bytes.slice(..cut));
    }
}

proptest! {
    #[test]
    fn requests(c in create(), ops in proptest::collection::vec(multi_op(), 0..6), paths in proptest::collection::vec(".*", 0..5)) {
        round_trip(&c);
        round_trip(&MultiRequest { ops });
        round_trip(&SetWatches2Request {
            relative_zxid: 7, data: paths.clone(), exist: vec![], child: paths.clone(), persistent: vec![], persistent_recursive: paths,
        });
    }

    #[test]
    fn responses(results in proptest::collection::vec(multi_result(), 0..6), s in stat(), d in data()) {
        round_trip(&MultiResponse { results });
        round_trip(&GetDataResponse { data: d, stat: s });
    }

    #[test]
    fn transactions(t in txn()) {
        let mut out = BytesMut::new();
        t.write(&mut out);
        let mut r = Reader::new(out.freeze());
        prop_assert_eq!(Txn::read(t.opcode().code(), &mut r).unwrap(), t);
        prop_assert_eq!(r.remaining(), 0);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), op in -12i32..110) {
        let bytes = Bytes::from(bytes);
        let _ = MultiRequest::from_bytes(bytes.clone());
        let _ = MultiResponse::from_bytes(bytes.clone());
        let _ = CreateRequest::from_bytes(bytes.clone());
        let _ = SetWatches2Request::from_bytes(bytes.clone());
        let _ = ConnectRequest::from_bytes(bytes.clone());
        let _ = WatcherEvent::from_bytes(bytes.clone());
        let _ = Txn::read(op, &mut Reader::new(bytes));
    }
}

#[test]
fn the_read_only_byte_is_optional_in_the_handshake() {
    let old = ConnectRequest {
        timeout_ms: 5,
        password: Some(Bytes::from_static(&[0; 16])),
        ..Default::default()
    };
    assert_eq!(old.to_bytes().len(), 44);
    round_trip(&old);
    round_trip(&ConnectRequest {
        read_only: Some(true),
        ..old
    });
}

#[test]
fn a_count_beyond_the_input_is_refused_before_allocation() {
    let bytes = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
    assert!(matches!(
        Vec::<String>::from_bytes(bytes.clone()),
        Err(JuteError::Truncated { .. })
    ));
    assert!(matches!(
        Option::<Bytes>::from_bytes(bytes),
        Err(JuteError::Truncated { .. })
    ));
    assert_eq!(
        Option::<Bytes>::from_bytes(Bytes::from_static(&[0xff; 4])),
        Ok(None)
    );
    assert_eq!(
        Option::<Bytes>::from_bytes(Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe])),
        Err(JuteError::BadLength(-2))
    );
}

#[test]
fn a_multi_transaction_in_a_multi_transaction_is_refused() {
    let mut out = BytesMut::new();
    Txn::Multi(vec![Txn::Multi(vec![])]).write(&mut out);
    assert!(Txn::read(OpCode::Multi.code(), &mut Reader::new(out.freeze())).is_err());
}
