//! Which replica a consumer had better read from (KIP-392): one in its own rack. Plain rules, no I/O.

/// The value of `replica.selector.class` that asks for it.
pub const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// A follower that has what the consumer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its broker.
    pub id: i32,
    /// How far it is.
    pub log_end_offset: i64,
    /// Since when it has not had all that the leader has, in ms.
    pub behind_ms: i64,
}

/// The follower to read from, None for the leader: that of the consumer's rack that is furthest, unless the leader is in
/// that rack.
pub fn nearest(
    rack: &str,
    leader: i32,
    followers: impl Iterator<Item = Candidate>,
    rack_of: impl Fn(i32) -> Option<String>,
) -> Option<i32> {
    let is_near = |id: i32| rack_of(id).as_deref() == Some(rack);
    if rack.is_empty() || is_near(leader) {
        return None;
    }
    let near = followers.filter(|candidate| is_near(candidate.id));
    let best = near.max_by_key(|c| (c.log_end_offset, std::cmp::Reverse(c.behind_ms), c.id));
    best.map(|candidate| candidate.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_then_the_furthest() {
        let rack_of = |id: i32| ["a", "b", "b", "b"].get(id as usize).map(|r| r.to_string());
        let at = |id, log_end_offset, behind_ms| Candidate {
            id,
            log_end_offset,
            behind_ms,
        };
        let all = [at(1, 5, 0), at(2, 9, 7), at(3, 9, 3)];
        let ask = |rack, leader| nearest(rack, leader, all.iter().copied(), rack_of);
        assert_eq!(ask("b", 0), Some(3));
        assert_eq!(ask("b", 1), None, "the leader is near");
        assert_eq!(ask("a", 1), None, "nobody is near");
        assert_eq!(ask("", 0), None);
        assert_eq!(nearest("b", 0, std::iter::empty(), rack_of), None);
    }
}
