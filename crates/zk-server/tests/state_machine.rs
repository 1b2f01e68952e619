//! The tree without I/O: random histories against a plain model, and replay over snapshots of any moment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use gracchus_zk_proto::multi::MultiOp;
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::txn::{Txn, TxnHeader};
use gracchus_zk_proto::{Acl, Jute, OpCode};
use gracchus_zk_server::acl::Identity;
use gracchus_zk_server::prep::{Prep, Rules, Write};
use gracchus_zk_server::store::{snapshot_reader, snapshot_writer};
use gracchus_zk_server::tree::DataTree;
use parking_lot::RwLock;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn who() -> Identity {
    Identity::new("127.0.0.1".parse().unwrap())
}

fn rules() -> Rules {
    Rules {
        extended_types: true,
        ..Rules::default()
    }
}

fn create(path: String, flags: i32, op: OpCode) -> Write {
    Write::Create(
        op,
        CreateTtlRequest {
            path,
            data: Some("x".into()),
            acl: Some(if flags == 0 {
                Acl::open()
            } else {
                Acl::read_only()
            }),
            flags,
            ttl_ms: if op == OpCode::CreateTtl { 1000 } else { -1 },
        },
    )
}

fn path() -> impl Strategy<Value = String> {
    // Few names, so that histories meet each other.
    prop::collection::vec(0..3u8, 1..4)
        .prop_map(|names| names.iter().map(|name| format!("/{name}")).collect())
}

fn single() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => (path(), 0..4i32).prop_map(|(path, flags)| create(path, flags, OpCode::Create)),
        1 => path().prop_map(|path| create(path, 0, OpCode::Create2)),
        1 => path().prop_map(|path| create(path, 4, OpCode::CreateContainer)),
        1 => path().prop_map(|path| create(path, 5, OpCode::CreateTtl)),
        4 => (path(), -1..2i32).prop_map(|(path, version)| Write::Delete(DeleteRequest { path, version })),
        2 => (path(), -1..3i32).prop_map(|(path, version)| Write::SetData(SetDataRequest { path, data: None, version })),
        1 => (path(), -1..3i32).prop_map(|(path, version)| Write::SetAcl(SetAclRequest { path, acl: Some(Acl::open()), version })),
        1 => Just(Write::CloseSession),
    ]
}

fn multi() -> impl Strategy<Value = Write> {
    prop::collection::vec(single(), 0..5).prop_map(|writes| {
        let op = |write| {
            Some(match write {
                Write::Create(OpCode::Create, r) => MultiOp::Create(CreateRequest {
                    path: r.path,
                    data: r.data,
                    acl: r.acl,
                    flags: r.flags,
                }),
                Write::Delete(r) => MultiOp::Delete(r),
                Write::SetData(r) => MultiOp::SetData(r),
                _ => return None,
            })
        };
        Write::Multi(writes.into_iter().filter_map(op).collect())
    })
}

fn history() -> impl Strategy<Value = Vec<(i64, Write)>> {
    prop::collection::vec((1..4i64, prop_oneof![5 => single(), 1 => multi()]), 1..80)
}

/// Everything that must be equal, in one text.
fn picture(tree: &DataTree) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut open = vec!["/".to_owned()];
    while let Some(path) = open.pop() {
        let node = tree.get(&path).unwrap();
        let mut children: Vec<String> = node.child_paths().map(|child| child.to_string()).collect();
        children.sort();
        out.insert(
            path,
            format!(
                "{:?} {:?} {:?} {children:?}",
                node.data, node.acl.entries, node.stat
            ),
        );
        open.extend(children);
    }
    assert_eq!(out.len(), tree.node_count(), "no node without a way to it");
    let listed: usize = tree.ephemerals().map(|(_, paths)| paths.count()).sum();
    assert_eq!(listed, tree.ephemeral_count());
    out
}

/// Runs a history in batches, each prepared as a whole before any of it is applied.
fn run(history: &[(i64, Write)], batch: usize) -> (Vec<(TxnHeader, Txn)>, Vec<DataTree>) {
    let mut tree = DataTree::new();
    let mut log = Vec::new();
    for batch in history.chunks(batch) {
        let mut prep = Prep::new(&tree, rules());
        let mut txns = Vec::new();
        for (session, write) in batch {
            let zxid = (log.len() + txns.len() + 1) as i64;
            let txn = prep.prepare(*session, &who(), write.clone());
            let header = TxnHeader {
                client_id: *session,
                cxid: 0,
                zxid,
                time: zxid,
                op: txn.opcode().code(),
            };
            txns.push((header, txn));
        }
        for (header, txn) in txns {
            tree.apply(&header, txn.clone(), &mut |_| {});
            log.push((header, txn));
        }
    }
    (log, vec![tree])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// However the writes fall into batches, the transactions and the tree are the same.
    #[test]
    fn batches_change_nothing(history in history(), batch in 2..40usize) {
        let (one_log, one) = run(&history, 1);
        let (log, many) = run(&history, batch);
        prop_assert_eq!(one_log, log);
        prop_assert_eq!(picture(&one[0]), picture(&many[0]));
    }

    /// A snapshot may be fuzzy: named after an earlier transaction than its content shows. The log heals it.
    #[test]
    fn replay_over_a_fuzzy_snapshot(history in history(), taken in any::<prop::sample::Index>(), named in any::<prop::sample::Index>()) {
        let (log, trees) = run(&history, 1);
        let taken = taken.index(log.len() + 1);
        let named = named.index(taken + 1);
        let mut tree = DataTree::new();
        for (header, txn) in &log[..taken] {
            tree.apply(header, txn.clone(), &mut |_| {});
        }
        let dir = tempfile::tempdir().unwrap();
        let written = snapshot_writer::write(&RwLock::new(tree), dir.path()).unwrap();
        let mut tree = snapshot_reader::read(&written.path, named as i64).unwrap();
        for (header, txn) in &log[named..] {
            // Through bytes, as from a log file.
            let mut bytes = bytes::BytesMut::new();
            txn.write(&mut bytes);
            let txn = Txn::read(header.op, &mut gracchus_zk_proto::Reader::new(bytes.freeze())).unwrap();
            tree.apply(header, txn, &mut |_| {});
        }
        prop_assert_eq!(picture(&tree), picture(&trees[0]));
    }

    /// A live tree's changes name every node that appears or goes.
    #[test]
    fn changes_are_complete(history in history()) {
        let (log, _) = run(&history, 1);
        let mut tree = DataTree::new();
        let mut known: std::collections::BTreeSet<String> = picture(&tree).into_keys().collect();
        for (header, txn) in log {
            let mut changed = Vec::new();
            tree.apply(&header, txn, &mut |change| match change {
                gracchus_zk_server::tree::Change::Created { path, .. } => changed.push((true, path.to_owned())),
                gracchus_zk_server::tree::Change::Deleted { path, .. } => changed.push((false, path.to_owned())),
                gracchus_zk_server::tree::Change::DataChanged { .. } => {}
            });
            for (created, path) in changed {
                let new = if created { known.insert(path) } else { known.remove(&path) };
                prop_assert!(new);
            }
        }
        let now: std::collections::BTreeSet<String> = picture(&tree).into_keys().collect();
        prop_assert_eq!(known, now);
    }
}

#[test]
fn sequence_numbers_stick_at_their_end() {
    // Apache ZooKeeper 3.9.5 with a crafted snapshot: ...2147483646, ...2147483647, then NodeExists for ever.
    let mut tree = DataTree::new();
    let header = |zxid| TxnHeader {
        client_id: 1,
        cxid: 0,
        zxid,
        time: 0,
        op: OpCode::Create.code(),
    };
    let mut bytes = bytes::BytesMut::new();
    gracchus_zk_proto::txn::CreateTxn {
        path: "/first".into(),
        data: None,
        acl: Acl::open(),
        ephemeral: false,
        parent_cversion: i32::MAX - 1,
    }
    .write(&mut bytes);
    let txn = Txn::read(
        OpCode::Create.code(),
        &mut gracchus_zk_proto::Reader::new(bytes.freeze()),
    )
    .unwrap();
    tree.apply(&header(1), txn, &mut |_| {});
    let mut made = Vec::new();
    for zxid in 2..5 {
        let txn =
            Prep::new(&tree, rules()).prepare(1, &who(), create("/s".into(), 2, OpCode::Create));
        made.push(match &txn {
            Txn::Create(txn) => Ok(txn.path.clone()),
            Txn::Error(error) => Err(error.err),
            other => panic!("{other:?}"),
        });
        tree.apply(&header(zxid), txn, &mut |_| {});
    }
    assert_eq!(
        made,
        [
            Ok("/s2147483646".into()),
            Ok("/s2147483647".into()),
            Err(-110)
        ]
    );
}
