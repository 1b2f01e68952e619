//! Watchers are told what a transaction changes.

use crate::acl::AclList;
use crate::net::conn::Conn;
use crate::path;
use crate::read::event_frame;
use crate::state::Shared;
use crate::tree::Change;
use crate::watch::ConnId;
use gracchus_zk_proto::{EventType, perms};
use std::sync::Arc;

/// Tells watchers of changes while the tree is locked, so that no later answer overtakes an event.
pub(super) struct Watching<'a> {
    shared: &'a Shared,
    pub touched: Vec<Arc<Conn>>,
    told: Vec<ConnId>,
}

impl<'a> Watching<'a> {
    /// `touched` collects the connections that have something to send.
    pub fn new(shared: &'a Shared, touched: Vec<Arc<Conn>>) -> Self {
        Watching {
            shared,
            touched,
            told: Vec::new(),
        }
    }

    pub fn tell(&mut self, zxid: i64, change: Change<'_>) {
        let mut watches = self.shared.watches.lock();
        if watches.is_empty() {
            return;
        }
        let shown = match &change {
            Change::Created { path, .. }
            | Change::Deleted { path, .. }
            | Change::DataChanged { path, .. } => path::shown(path),
        };
        let mut told = std::mem::take(&mut self.told);
        told.clear();
        watches.trigger_data(shown, &mut told);
        let (acl, kind, parent_acl) = match change {
            Change::Created {
                acl, parent_acl, ..
            } => (acl, EventType::Created, Some(parent_acl)),
            Change::Deleted {
                acl, parent_acl, ..
            } => (acl, EventType::Deleted, Some(parent_acl)),
            Change::DataChanged { acl, .. } => (acl, EventType::DataChanged, None),
        };
        if kind == EventType::Deleted {
            let mut also = Vec::new();
            watches.trigger_child(shown, &mut also);
            also.retain(|conn| !told.contains(conn));
            told.append(&mut also);
        }
        self.send(zxid, kind, shown, acl, &told);
        if let Some(parent_acl) = parent_acl {
            let parent = path::shown(path::parent(shown).unwrap_or_default());
            told.clear();
            watches.trigger_child(parent, &mut told);
            self.send(zxid, EventType::ChildrenChanged, parent, parent_acl, &told);
        }
        self.told = told;
    }

    fn send(&mut self, zxid: i64, kind: EventType, path: &str, acl: &AclList, to: &[ConnId]) {
        if to.is_empty() {
            return;
        }
        let frame = event_frame(zxid, kind, path);
        let conns = self.shared.conns.lock();
        for id in to {
            let Some(conn) = conns.get(id) else { continue };
            if !self.shared.rules.skip_acl && !acl.allows(perms::READ, &conn.identity()) {
                continue;
            }
            conn.out.lock().event(&frame);
            if conn.mark_wake() {
                self.touched.push(conn.clone());
            }
        }
    }
}
