//! Commands that change something.

use super::acl;
use super::options::Given;
use super::output::{CliError, check_path};
use super::read::{Context, subtree};
use base64::Engine as _;
use bytes::Bytes;
use gracchus_zk_client::{Acl, AddWatchMode, CreateMode, Op, ZkError};
use gracchus_zk_proto::WatcherType;

pub(super) async fn create(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("create [-s] [-e] [-c] [-t ttl] path [data] [acl]"))?;
    let (sequential, ephemeral, container) = (given.has('s'), given.has('e'), given.has('c'));
    if container && (sequential || ephemeral) {
        return Err(CliError::new(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.",
        ));
    }
    let ttl_ms = match given.value('t') {
        None => None,
        Some(text) => Some(
            text.parse::<i64>()
                .map_err(|_| CliError::new("-t argument must be a long value"))?,
        ),
    };
    if ttl_ms.is_some() && ephemeral {
        return Err(CliError::new("TTLs cannot be used with Ephemeral znodes"));
    }
    if ttl_ms.is_some() && container {
        return Err(CliError::new("TTLs cannot be used with Container znodes"));
    }
    let mode = match (container, sequential, ephemeral, ttl_ms.is_some()) {
        (true, ..) => CreateMode::Container,
        (_, true, true, _) => CreateMode::EphemeralSequential,
        (_, false, true, _) => CreateMode::Ephemeral,
        (_, true, false, true) => CreateMode::PersistentSequentialWithTtl,
        (_, false, false, true) => CreateMode::PersistentWithTtl,
        (_, true, false, false) => CreateMode::PersistentSequential,
        (_, false, false, false) => CreateMode::Persistent,
    };
    if sequential {
        check_path(&format!("{path}1"))?; // the number that comes behind makes "/a/" a good start
    } else {
        check_path(path)?;
    }
    let data = given
        .word(1)
        .map(|data| Bytes::copy_from_slice(data.as_bytes()));
    let acls = match given.word(2) {
        Some(text) => acl::parse(text, c.sink),
        None => Acl::open(),
    };
    if acls.is_empty() {
        c.sink.err("KeeperErrorCode = InvalidACL");
        return Err(CliError::zk(ZkError::InvalidAcl, "null"));
    }
    let created = if mode == CreateMode::Container || mode.has_ttl() {
        c.zk.create2(path, data, acls, mode, ttl_ms)
            .await
            .map(|(path, _)| path)
    } else {
        c.zk.create(path, data, acls, mode).await
    };
    match created {
        Ok(path) => {
            c.sink.err(&format!("Created {path}"));
            Ok(())
        }
        Err(error) => {
            if error == ZkError::InvalidAcl {
                c.sink
                    .err(&format!("KeeperErrorCode = InvalidACL for {path}"));
            }
            Err(CliError::zk(error, path))
        }
    }
}

pub(super) async fn set(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let help = "
set path data [-s] [-v version] [-b]
 -b         Supply data in base64 format
 -s         Print znode stats additionally
 -v <arg>   Set with an expected version
";
    let (Some(path), Some(data)) = (given.word(0), given.word(1)) else {
        return Err(CliError::new(help));
    };
    let version = given.version()?;
    let data = if given.has('b') {
        base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(|e| CliError::new(format!("-b: the data is not base64: {e}")))?
    } else {
        data.as_bytes().to_vec()
    };
    check_path(path)?;
    let stat =
        c.zk.set_data(path, Some(data.into()), version)
            .await
            .map_err(|e| CliError::zk(e, path))?;
    if given.has('s') {
        c.sink.stat(&stat);
    }
    Ok(())
}

pub(super) async fn delete(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("delete [-v version] path"))?;
    if given.words.len() > 1 {
        c.sink.err("'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.");
    }
    let version = given.version()?;
    check_path(path)?;
    c.zk.delete(path, version)
        .await
        .map_err(|e| CliError::zk(e, path))
}

/// A node and all below it, the deepest first.
pub(super) async fn delete_all(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("deleteall path [-b batch size]"))?;
    let batch = match given.value('b') {
        None => 1000,
        Some(text) => text
            .parse::<usize>()
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| CliError::new("-b argument must be a number above 0"))?,
    };
    check_path(path)?;
    if path == "/" {
        return Err(CliError::zk(ZkError::BadArguments, path)); // all but the root and /zookeeper would be gone before it is refused
    }
    let all = subtree(c.zk, path).await?;
    let from_below: Vec<&String> = all.iter().rev().collect();
    for part in from_below.chunks(batch) {
        let replies: Vec<_> = part
            .iter()
            .map(|path| {
                c.zk.submit(Op::Delete {
                    path: (*path).clone(),
                    version: -1,
                })
            })
            .collect();
        for (path, reply) in part.iter().zip(replies) {
            match reply.await.result {
                Ok(_) | Err(ZkError::NoNode) => {}
                Err(error) => {
                    c.sink.err("Failed to delete some node(s) in the subtree!");
                    return Err(CliError::zk(error, path));
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn set_acl(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let (Some(path), Some(text)) = (given.word(0), given.word(1)) else {
        return Err(CliError::new("setAcl [-s] [-v version] [-R] path acl"));
    };
    let acls = acl::parse(text, c.sink);
    let version = given.version()?;
    if acls.is_empty() {
        return Err(CliError::zk(ZkError::InvalidAcl, "null"));
    }
    check_path(path)?;
    let nodes = if given.has('R') {
        subtree(c.zk, path).await?
    } else {
        vec![path.to_owned()]
    };
    for node in nodes {
        match c.zk.set_acl(&node, acls.clone(), version).await {
            Ok(stat) if given.has('s') => c.sink.stat(&stat),
            Ok(_) => {}
            Err(ZkError::NoNode) if node != path => {}
            Err(error) => return Err(CliError::zk(error, &node)),
        }
    }
    Ok(())
}

pub(super) async fn add_auth(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let scheme = given
        .word(0)
        .ok_or_else(|| CliError::new("addauth scheme auth"))?;
    let auth = given.word(1).unwrap_or_default().as_bytes().to_vec();
    c.zk.add_auth(scheme, auth.into()).await.map_err(|e| {
        CliError::new(format!(
            "KeeperErrorCode = {e}; the server refuses scheme {scheme} with this secret"
        ))
    })
}

pub(super) async fn add_watch(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let usage = "addWatch [-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE";
    let path = given.word(0).ok_or_else(|| CliError::new(usage))?;
    let mode = match given.value('m') {
        None | Some("PERSISTENT_RECURSIVE") => AddWatchMode::PersistentRecursive,
        Some("PERSISTENT") => AddWatchMode::Persistent,
        Some(_) => return Err(CliError::new(usage)),
    };
    check_path(path)?;
    c.zk.add_watch(path, mode)
        .await
        .map_err(|e| CliError::zk(e, path))
}

pub(super) async fn remove_watches(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("removewatches path [-c|-d|-a] [-l]"))?;
    let kind = match (given.has('c'), given.has('d')) {
        (true, _) => WatcherType::Children,
        (_, true) => WatcherType::Data,
        _ => WatcherType::Any,
    };
    check_path(path)?;
    c.zk.remove_watches(path, kind)
        .await
        .map_err(|e| CliError::zk(e, path))
}
