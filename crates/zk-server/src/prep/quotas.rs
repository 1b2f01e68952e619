//! Whether a write stays within the quota of its subtree.
//!
//! What is ahead in the batch counts; within one multi the state before it, as in ZooKeeper, so that a multi may go beyond a limit.

use crate::tree::{DataTree, Usage};
use gracchus_zk_proto::ZkError;
use hashbrown::HashMap;

#[derive(Debug)]
pub(super) struct Quotas {
    enforced: bool,
    /// Nodes and bytes to come, by the path that has the quota.
    ahead: HashMap<String, Usage>,
    /// Those of the multi at hand.
    of_multi: Option<Vec<(String, Usage)>>,
}

impl Quotas {
    pub fn new(enforced: bool) -> Self {
        Quotas {
            enforced,
            ahead: HashMap::new(),
            of_multi: None,
        }
    }

    pub fn begin_multi(&mut self) {
        self.of_multi = Some(Vec::new());
    }

    pub fn end_multi(&mut self, applied: bool) {
        for (path, more) in self.of_multi.take().unwrap_or_default() {
            if applied {
                self.add(path, more);
            }
        }
    }

    /// Refuses what a hard limit forbids: so many nodes more, and data that had this many bytes and is to have that many.
    pub fn check(
        &self,
        tree: &DataTree,
        path: &str,
        count: i64,
        before: usize,
        after: usize,
    ) -> Result<(), ZkError> {
        if !self.enforced {
            return Ok(());
        }
        let Some((holder, (limits, usage))) = tree
            .quota_of(path)
            .and_then(|holder| Some((holder, tree.quota(holder)?)))
        else {
            return Ok(());
        };
        let bytes = difference(before, after);
        let ahead = self.ahead.get(holder).copied().unwrap_or_default();
        let before = usage.plus(ahead.count, ahead.bytes);
        let usage = before.plus(count, bytes);
        for (what, was, now, hard, soft) in [
            (
                "nodes",
                before.count,
                usage.count,
                limits.hard_count,
                limits.count,
            ),
            (
                "bytes",
                before.bytes,
                usage.bytes,
                limits.hard_bytes,
                limits.bytes,
            ),
        ] {
            if now == was {
                continue;
            }
            match (hard, soft) {
                (Some(limit), _) if now > limit => {
                    tracing::debug!(
                        "{path}: refused, {holder} would hold {now} {what}; its hard limit is {limit}"
                    );
                    return Err(ZkError::QuotaExceeded);
                }
                // Once, as it is crossed.
                (None, Some(limit)) if now > limit && was <= limit => tracing::warn!(
                    "{holder} holds {now} {what}, more than the {limit} of its soft quota"
                ),
                _ => {}
            }
        }
        Ok(())
    }

    /// Counts a write that is ahead.
    pub fn note(&mut self, tree: &DataTree, path: &str, count: i64, before: usize, after: usize) {
        if !self.enforced {
            return;
        }
        let Some(holder) = tree.quota_of(path) else {
            return;
        };
        let more = Usage {
            count,
            bytes: difference(before, after),
        };
        match &mut self.of_multi {
            Some(of_multi) => of_multi.push((holder.to_owned(), more)),
            None => self.add(holder.to_owned(), more),
        }
    }

    fn add(&mut self, path: String, more: Usage) {
        let usage = self.ahead.entry(path).or_default();
        *usage = usage.plus(more.count, more.bytes);
    }
}

fn difference(before: usize, after: usize) -> i64 {
    let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    signed(after) - signed(before)
}
