//! ZooKeeper as far as a controller sees it: versions, sessions with ephemerals, one-shot watches, multi.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use gracchus_registry::op::{
    CreateMode, MultiReply, MultiStep, Stat, ZkError, ZkFailure, ZkOp, ZkReply, ZkResult,
};
use gracchus_registry::paths;

#[derive(Debug, Clone)]
struct Node {
    data: Option<Bytes>,
    czxid: i64,
    version: i32,
    /// Session of an ephemeral, or 0.
    owner: i64,
}

#[derive(Debug, Default)]
pub struct ZooKeeper {
    /// Operations so far.
    pub executed: usize,
    nodes: BTreeMap<String, Node>,
    zxid: i64,
    last_session: i64,
    sessions: BTreeSet<i64>,
    data_watches: BTreeMap<String, BTreeSet<i64>>,
    child_watches: BTreeMap<String, BTreeSet<i64>>,
    fired: Vec<(i64, String)>,
    /// Writes of sessions that took effect: `create P`, `set P`, `delete P`; `fenced` where behind a check. Not those
    /// of [`Self::make`] and the like.
    pub log: Vec<String>,
    /// The same with the `/controller_epoch` version that the write was fenced with.
    pub fences: Vec<(i64, i32)>,
    /// As when its disk is full: writes answer SYSTEMERROR, reads go on.
    pub refuses_writes: bool,
}

impl ZooKeeper {
    pub fn open_session(&mut self) -> i64 {
        self.last_session += 1;
        self.sessions.insert(self.last_session);
        self.last_session
    }

    pub fn close_session(&mut self, session: i64) {
        self.sessions.remove(&session);
        for watches in [&mut self.data_watches, &mut self.child_watches] {
            for sessions in watches.values_mut() {
                sessions.remove(&session);
            }
        }
        let owned: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, n)| n.owner == session)
            .map(|(p, _)| p.clone())
            .collect();
        for path in owned {
            self.zxid += 1;
            self.remove(&path);
        }
    }

    pub fn take_fired(&mut self) -> Vec<(i64, String)> {
        std::mem::take(&mut self.fired)
    }

    /// A persistent node by an outsider, with its parents.
    pub fn make(&mut self, path: &str, data: Option<&str>) {
        if let Some(parent) =
            paths::parent(path).filter(|p| *p != "/" && !self.nodes.contains_key(*p))
        {
            let parent = parent.to_owned();
            self.make(&parent, None);
        }
        assert!(!self.nodes.contains_key(path), "{path} exists");
        self.zxid += 1;
        self.insert(path, data.map(|d| Bytes::from(d.to_owned())), 0);
    }

    /// An outsider writes a node.
    pub fn set(&mut self, path: &str, data: &str) {
        self.zxid += 1;
        self.write(path, Some(Bytes::from(data.to_owned())));
    }

    /// An outsider deletes a node.
    pub fn delete(&mut self, path: &str) {
        self.zxid += 1;
        self.remove(path);
    }

    pub fn data(&self, path: &str) -> Option<String> {
        let data = self.nodes.get(path)?.data.clone().unwrap_or_default();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    pub fn exists(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    pub fn version(&self, path: &str) -> i32 {
        self.nodes[path].version
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    pub fn children(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        self.nodes
            .range(prefix.clone()..)
            .take_while(|(p, _)| p.starts_with(&prefix))
            .map(|(p, _)| &p[prefix.len()..])
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    pub fn execute(&mut self, session: i64, op: &ZkOp) -> ZkResult {
        self.executed += 1;
        if !self.sessions.contains(&session) {
            return Err(ZkError::SessionExpired.into());
        }
        let is_read = matches!(
            op,
            ZkOp::Get { .. } | ZkOp::Exists { .. } | ZkOp::GetChildren { .. }
        );
        if self.refuses_writes && !is_read {
            return Err(ZkError::SystemError.into());
        }
        match op {
            ZkOp::Create { path, data, mode } => {
                let step = MultiStep::Create {
                    path: path.clone(),
                    data: data.clone(),
                    mode: *mode,
                };
                self.multi(session, &[step])?;
                Ok(ZkReply::Created {
                    path: path.clone(),
                    stat: self.stat(path),
                })
            }
            ZkOp::SetData {
                path,
                data,
                version,
            } => {
                let step = MultiStep::SetData {
                    path: path.clone(),
                    data: data.clone(),
                    version: *version,
                };
                self.multi(session, &[step])?;
                Ok(ZkReply::Set(self.stat(path)))
            }
            ZkOp::Delete { path, version } => {
                self.multi(
                    session,
                    &[MultiStep::Delete {
                        path: path.clone(),
                        version: *version,
                    }],
                )?;
                Ok(ZkReply::Deleted)
            }
            ZkOp::Multi(steps) => Ok(ZkReply::Multi(self.multi(session, steps)?)),
            ZkOp::Get { path, watch } => {
                let Some(node) = self.nodes.get(path) else {
                    return Err(ZkError::NoNode.into());
                };
                let data = node.data.clone();
                if *watch {
                    self.data_watches
                        .entry(path.clone())
                        .or_default()
                        .insert(session);
                }
                Ok(ZkReply::Data {
                    data,
                    stat: self.stat(path),
                })
            }
            ZkOp::Exists { path, watch } => {
                if *watch {
                    self.data_watches
                        .entry(path.clone())
                        .or_default()
                        .insert(session);
                }
                if !self.nodes.contains_key(path) {
                    return Err(ZkError::NoNode.into());
                }
                Ok(ZkReply::Exists(self.stat(path)))
            }
            ZkOp::GetChildren { path, watch } => {
                if !self.nodes.contains_key(path) {
                    return Err(ZkError::NoNode.into());
                }
                if *watch {
                    self.child_watches
                        .entry(path.clone())
                        .or_default()
                        .insert(session);
                }
                Ok(ZkReply::Children {
                    children: self.children(path),
                    stat: self.stat(path),
                })
            }
        }
    }

    fn stat(&self, path: &str) -> Stat {
        let node = &self.nodes[path];
        Stat {
            czxid: node.czxid,
            version: node.version,
            ephemeral_owner: node.owner,
            ..Stat::default()
        }
    }

    /// All or none: tried on a copy of the nodes first, so that a failure leaves no watch fired.
    fn multi(&mut self, session: i64, steps: &[MultiStep]) -> Result<Vec<MultiReply>, ZkFailure> {
        let mut versions: BTreeMap<&str, Option<i32>> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let path = step.path();
            let now = *versions
                .entry(path)
                .or_insert_with(|| self.nodes.get(path).map(|n| n.version));
            let fail = |error| Err(ZkFailure { error, step: at });
            let expect = |wanted: i32| match now {
                None => Some(ZkError::NoNode),
                Some(found) if wanted != -1 && wanted != found => Some(ZkError::BadVersion),
                Some(_) => None,
            };
            match step {
                MultiStep::Create { .. } => {
                    if now.is_some() {
                        return fail(ZkError::NodeExists);
                    }
                    if paths::parent(path).is_some_and(|p| p != "/" && !self.nodes.contains_key(p))
                    {
                        return fail(ZkError::NoNode);
                    }
                    versions.insert(path, Some(0));
                }
                MultiStep::SetData { version, .. } => {
                    if let Some(error) = expect(*version) {
                        return fail(error);
                    }
                    versions.insert(path, now.map(|v| v + 1));
                }
                MultiStep::Delete { version, .. } => {
                    if let Some(error) = expect(*version) {
                        return fail(error);
                    }
                    if !self.children(path).is_empty() {
                        return fail(ZkError::NotEmpty);
                    }
                    versions.insert(path, None);
                }
                MultiStep::Check { version, .. } => {
                    if let Some(error) = expect(*version) {
                        return fail(error);
                    }
                }
            }
        }
        self.zxid += 1;
        let mut fence = "";
        let mut replies = Vec::new();
        for step in steps {
            replies.push(match step {
                MultiStep::Create { path, data, mode } => {
                    let owner = if *mode == CreateMode::Ephemeral {
                        session
                    } else {
                        0
                    };
                    self.insert(path, data.clone(), owner);
                    self.log.push(format!("{fence}create {path}"));
                    MultiReply::Created { path: path.clone() }
                }
                MultiStep::SetData { path, data, .. } => {
                    self.write(path, data.clone());
                    self.log.push(format!("{fence}set {path}"));
                    MultiReply::Set(self.stat(path))
                }
                MultiStep::Delete { path, .. } => {
                    self.remove(path);
                    self.log.push(format!("{fence}delete {path}"));
                    MultiReply::Deleted
                }
                MultiStep::Check { version, .. } => {
                    fence = "fenced ";
                    self.fences.push((session, *version));
                    MultiReply::Checked
                }
            });
        }
        Ok(replies)
    }

    fn insert(&mut self, path: &str, data: Option<Bytes>, owner: i64) {
        let node = Node {
            data,
            czxid: self.zxid,
            version: 0,
            owner,
        };
        self.nodes.insert(path.to_owned(), node);
        self.fire(path, true);
    }

    fn write(&mut self, path: &str, data: Option<Bytes>) {
        let node = self.nodes.get_mut(path).expect("the node is there");
        node.data = data;
        node.version += 1;
        self.fire(path, false);
    }

    fn remove(&mut self, path: &str) {
        self.nodes.remove(path).expect("the node is there");
        for session in self.child_watches.remove(path).unwrap_or_default() {
            self.fired.push((session, path.to_owned()));
        }
        self.fire(path, true);
    }

    fn fire(&mut self, path: &str, changes_parent: bool) {
        for session in self.data_watches.remove(path).unwrap_or_default() {
            self.fired.push((session, path.to_owned()));
        }
        if changes_parent && let Some(parent) = paths::parent(path) {
            for session in self.child_watches.remove(parent).unwrap_or_default() {
                self.fired.push((session, parent.to_owned()));
            }
        }
    }
}
