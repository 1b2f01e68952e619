//! Waiting until the cluster has leaders for what was made.

use std::time::Duration;

use hashbrown::HashSet;

use crate::metadata::{MetadataCache, Snapshot};

/// Waits until the first `count` partitions of each topic have a leader; returns those of which not all have.
pub async fn leaders(
    metadata: &MetadataCache,
    topics: Vec<(String, i32)>,
    timeout_ms: i32,
) -> HashSet<String> {
    let mut missing = topics;
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let all = |snapshot: &Snapshot| {
        missing.retain(|(topic, count)| !led(snapshot, topic, *count));
        missing.is_empty()
    };
    metadata.wait_until(timeout, all).await;
    missing.into_iter().map(|(topic, _)| topic).collect()
}

fn led(snapshot: &Snapshot, topic: &str, count: i32) -> bool {
    snapshot.topics.get(topic).is_some_and(|known| {
        let with_leader = known
            .partitions
            .range(0..count.max(0))
            .filter(|(_, p)| p.leader >= 0)
            .count();
        usize::try_from(count).is_ok_and(|count| with_leader >= count)
    })
}
