//! Quotas: `/zookeeper/quota/PATH/zookeeper_limits` says how much a subtree may hold, `zookeeper_stats` beside it how much it does.
//!
//! The server keeps the second one current, without a change of its stat; the nearest node above with limits counts, the root
//! aside. Limits bind only where the configuration enforces them (`prep`).

use super::{DataTree, Node};
use crate::path;
use bytes::Bytes;

pub(super) const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// Nodes and bytes of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub count: i64,
    pub bytes: i64,
}

/// What a subtree may hold; hard ones are enforced, soft ones logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub count: Option<i64>,
    pub bytes: Option<i64>,
    pub hard_count: Option<i64>,
    pub hard_bytes: Option<i64>,
}

impl Limits {
    /// `count=10,bytes=1000=;byteHardLimit=20;countHardLimit=3`, in any part; -1 is none.
    pub fn parse(text: &[u8]) -> Limits {
        let mut limits = Limits::default();
        for pair in String::from_utf8_lossy(text).split([',', ';']) {
            let mut parts = pair.split('=');
            let (Some(key), Some(Ok(value))) = (parts.next(), parts.next().map(str::parse)) else {
                continue;
            };
            let value = Some(value).filter(|value| *value > -1);
            match key {
                "count" => limits.count = value,
                "bytes" => limits.bytes = value,
                "countHardLimit" => limits.hard_count = value,
                "byteHardLimit" => limits.hard_bytes = value,
                _ => {}
            }
        }
        limits
    }
}

impl Usage {
    fn parse(text: &[u8]) -> Usage {
        let limits = Limits::parse(text);
        Usage {
            count: limits.count.unwrap_or(-1),
            bytes: limits.bytes.unwrap_or(-1),
        }
    }

    fn text(self) -> Bytes {
        format!("count={},bytes={}", self.count, self.bytes).into()
    }

    pub fn plus(self, count: i64, bytes: i64) -> Usage {
        Usage {
            count: self.count.saturating_add(count),
            bytes: self.bytes.saturating_add(bytes),
        }
    }
}

/// The path that a node below `/zookeeper/quota` is about, and its last part.
fn subject(key: &str) -> Option<(&str, &str)> {
    let rest = key.strip_prefix(ROOT)?;
    let (subject, name) = rest.rsplit_once('/')?;
    (subject.starts_with('/')).then_some((subject, name))
}

fn length(node: &Node) -> i64 {
    node.data
        .as_ref()
        .map_or(0, |data| i64::try_from(data.len()).unwrap_or(i64::MAX))
}

impl DataTree {
    /// The nearest path at or above `path` that has limits.
    pub fn quota_of(&self, path: &str) -> Option<&str> {
        if self.quotas.is_empty() {
            return None;
        }
        let mut at = path::key(path);
        while !at.is_empty() {
            if let Some(found) = self.quotas.get(at) {
                return Some(found);
            }
            at = path::parent(at)?;
        }
        None
    }

    /// What a path with limits may hold and does hold.
    pub fn quota(&self, path: &str) -> Option<(Limits, Usage)> {
        let data = |name| {
            let node = self.nodes.get(&*format!("{ROOT}{path}/{name}"))?;
            Some(node.data.clone().unwrap_or_default())
        };
        let (limits, stats) = (data(LIMITS)?, data(STATS)?);
        Some((Limits::parse(&limits), Usage::parse(&stats)))
    }

    /// A node has come.
    pub(super) fn quota_created(&mut self, key: &str, bytes: i64) {
        match subject(key) {
            Some((subject, LIMITS)) => {
                self.quotas.insert(subject.into());
            }
            Some((subject, STATS)) => self.recount(subject),
            _ => self.quota_changed(key, 1, bytes),
        }
    }

    /// A node has gone.
    pub(super) fn quota_deleted(&mut self, key: &str, bytes: i64) {
        if let Some((subject, LIMITS)) = subject(key) {
            self.quotas.remove(subject);
        }
        self.quota_changed(key, -1, -bytes);
    }

    /// The subtree of `key` holds more, or less.
    pub(super) fn quota_changed(&mut self, key: &str, count: i64, bytes: i64) {
        let Some(stats) = self
            .quota_of(key)
            .map(|path| format!("{ROOT}{path}/{STATS}"))
        else {
            return;
        };
        let now = self
            .nodes
            .get(&*stats)
            .map(|node| Usage::parse(node.data.as_deref().unwrap_or_default()));
        if let Some(now) = now {
            self.set_usage(&stats, now.plus(count, bytes));
        }
    }

    fn set_usage(&mut self, stats: &str, usage: Usage) {
        let Some(node) = self.nodes.get_mut(stats) else {
            return;
        };
        let before = node.data.as_ref().map_or(0, Bytes::len) as u64;
        let text = usage.text();
        self.data_size = (self.data_size + text.len() as u64).saturating_sub(before);
        node.data = Some(text);
    }

    /// Counts a subtree anew.
    fn recount(&mut self, path: &str) {
        let mut usage = Usage::default();
        let mut open: Vec<&str> = vec![path];
        while let Some(key) = open.pop() {
            if let Some(node) = self.nodes.get(key) {
                usage = usage.plus(1, length(node));
                open.extend(node.child_paths().map(|child| &**child));
            }
        }
        self.set_usage(&format!("{ROOT}{path}/{STATS}"), usage);
    }

    /// After loading: which paths have limits, and what they hold.
    pub(crate) fn set_up_quotas(&mut self) {
        self.quotas.clear();
        let mut found: Vec<String> = Vec::new();
        let mut open: Vec<&str> = vec![ROOT];
        while let Some(key) = open.pop() {
            if let Some((subject, LIMITS)) = subject(key) {
                found.push(subject.to_owned());
            } else if let Some(node) = self.nodes.get(key) {
                open.extend(node.child_paths().map(|child| &**child));
            }
        }
        for path in found {
            self.recount(&path);
            self.quotas.insert(path.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_zookeeper_writes_them() {
        let limits = Limits::parse(b"count=10,bytes=1000=;byteHardLimit=20;countHardLimit=3");
        assert_eq!((limits.count, limits.bytes), (Some(10), Some(1000)));
        assert_eq!((limits.hard_count, limits.hard_bytes), (Some(3), Some(20)));
        let limits = Limits::parse(b"count=-1,bytes=5");
        assert_eq!((limits.count, limits.bytes), (None, Some(5)));
        assert_eq!(Limits::parse(b""), Limits::default());
        assert_eq!(Limits::parse(b"count=x,=,;;bytes"), Limits::default());
    }

    #[test]
    fn subjects() {
        assert_eq!(
            subject("/zookeeper/quota/a/b/zookeeper_limits"),
            Some(("/a/b", LIMITS))
        );
        assert_eq!(subject("/zookeeper/quota/zookeeper_limits"), None);
        assert_eq!(subject("/zookeeper/quota"), None);
        assert_eq!(subject("/a/zookeeper_limits"), None);
    }
}
