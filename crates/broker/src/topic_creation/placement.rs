//! Where the replicas of new partitions go, by Kafka's rule: leaders round robin, the other replicas spread by a shift
//! that grows with each round; racks alternate when all brokers have one (KIP-36).

use std::collections::{BTreeMap, BTreeSet};

use gracchus_kafka_proto::ErrorCode;

use super::Refusal;

/// A live broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: i32,
    /// `broker.rack`.
    pub rack: Option<String>,
}

/// Where the round robin begins, both below the number of brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Place of the first leader.
    pub leader: usize,
    /// First shift of the followers.
    pub shift: usize,
}

impl Start {
    /// A new topic's.
    pub fn random(brokers: usize) -> Self {
        let draw = || rand::random_range(0..brokers.max(1));
        Self {
            leader: draw(),
            shift: draw(),
        }
    }

    /// Of partitions added to a topic whose partition 0 prefers this broker.
    pub fn after(brokers: &[Candidate], first_leader: i32) -> Self {
        let at = brokers.iter().position(|b| b.id >= first_leader);
        Self {
            leader: at.unwrap_or(0),
            shift: at.unwrap_or(0),
        }
    }
}

/// Replicas of the partitions `first..first + count`, the preferred leader first. `brokers` ascends by id.
pub fn place(
    brokers: &[Candidate],
    first: i32,
    count: i32,
    replicas: i16,
    start: Start,
) -> Result<BTreeMap<i32, Vec<i32>>, Refusal> {
    let refuse = |error, message: String| Err(Refusal { error, message });
    if count <= 0 {
        return refuse(
            ErrorCode::InvalidPartitions,
            "Number of partitions must be larger than 0.".into(),
        );
    }
    if replicas <= 0 {
        return refuse(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0.".into(),
        );
    }
    let wanted = usize::try_from(replicas).unwrap_or(0);
    if wanted > brokers.len() {
        return refuse(
            ErrorCode::InvalidReplicationFactor,
            format!(
                "Replication factor: {replicas} larger than available brokers: {}.",
                brokers.len()
            ),
        );
    }
    let with_rack = brokers.iter().filter(|b| b.rack.is_some()).count();
    if with_rack != 0 && with_rack != brokers.len() {
        return refuse(
            ErrorCode::UnknownServerError,
            "Not all brokers have rack information for replica rack aware assignment.".into(),
        );
    }
    let order = if with_rack == 0 {
        brokers.iter().collect()
    } else {
        alternate(brokers)
    };
    let racks = order
        .iter()
        .map(|b| &b.rack)
        .collect::<BTreeSet<_>>()
        .len()
        .max(1);
    let mut placed = BTreeMap::new();
    let mut shift = start.shift;
    for partition in first.max(0)..first.max(0).saturating_add(count) {
        let index = usize::try_from(partition).unwrap_or(0);
        if index > 0 && index % order.len() == 0 {
            shift = shift.wrapping_add(1);
        }
        let leader = (index + start.leader) % order.len();
        placed.insert(
            partition,
            replicas_of(&order, racks, leader, shift, wanted, with_rack != 0),
        );
    }
    Ok(placed)
}

/// One partition's replicas. A rack is used a second time only when every rack has a replica.
fn replicas_of(
    order: &[&Candidate],
    racks: usize,
    leader: usize,
    shift: usize,
    wanted: usize,
    by_rack: bool,
) -> Vec<i32> {
    let mut chosen: Vec<&Candidate> = order.get(leader).copied().into_iter().collect();
    let mut used_racks: BTreeSet<&Option<String>> = chosen.iter().map(|b| &b.rack).collect();
    let others = order.len().saturating_sub(1);
    let shift = if by_rack {
        shift.wrapping_mul(racks)
    } else {
        shift
    };
    // one round over the others visits each broker; with racks a second may be needed for those passed over
    for step in 0..others.saturating_mul(2) {
        if chosen.len() >= wanted {
            break;
        }
        let distance = 1 + shift.wrapping_add(step) % others;
        let Some(broker) = order.get((leader + distance) % order.len()).copied() else {
            continue;
        };
        let rack_taken = by_rack && used_racks.len() < racks && used_racks.contains(&broker.rack);
        if rack_taken || chosen.iter().any(|b| b.id == broker.id) {
            continue;
        }
        used_racks.insert(&broker.rack);
        chosen.push(broker);
    }
    chosen.into_iter().map(|b| b.id).collect()
}

/// Brokers so that neighbours are on different racks as far as possible: the first of each rack, the second of each, ...
fn alternate(brokers: &[Candidate]) -> Vec<&Candidate> {
    let mut by_rack: BTreeMap<&Option<String>, Vec<&Candidate>> = BTreeMap::new();
    for broker in brokers {
        by_rack.entry(&broker.rack).or_default().push(broker);
    }
    let rounds = by_rack.values().map(Vec::len).max().unwrap_or(0);
    (0..rounds)
        .flat_map(|round| {
            by_rack
                .values()
                .filter_map(move |rack| rack.get(round).copied())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(ids: std::ops::Range<i32>) -> Vec<Candidate> {
        ids.map(|id| Candidate { id, rack: None }).collect()
    }

    fn racked(racks: &[&str]) -> Vec<Candidate> {
        (0..)
            .zip(racks)
            .map(|(id, rack)| Candidate {
                id,
                rack: Some((*rack).to_owned()),
            })
            .collect()
    }

    /// The table in Kafka's documentation of the rule: five brokers, ten partitions, three replicas.
    #[test]
    fn round_robin_with_a_growing_shift() {
        let start = Start {
            leader: 0,
            shift: 0,
        };
        let placed = place(&plain(0..5), 0, 10, 3, start).unwrap();
        let expected = [
            [0, 1, 2],
            [1, 2, 3],
            [2, 3, 4],
            [3, 4, 0],
            [4, 0, 1],
            [0, 2, 3],
            [1, 3, 4],
            [2, 4, 0],
            [3, 0, 1],
            [4, 1, 2],
        ];
        for (partition, replicas) in (0..).zip(expected) {
            assert_eq!(placed[&partition], replicas, "partition {partition}");
        }
    }

    #[test]
    fn racks_alternate() {
        let brokers = racked(&["a", "a", "b", "b", "c", "c"]);
        let ids: Vec<i32> = alternate(&brokers).iter().map(|b| b.id).collect();
        assert_eq!(ids, [0, 2, 4, 1, 3, 5]);
        for leader in 0..6 {
            for shift in 0..6 {
                let placed = place(&brokers, 0, 12, 3, Start { leader, shift }).unwrap();
                for (partition, replicas) in placed {
                    let used: BTreeSet<_> = replicas
                        .iter()
                        .map(|id| &brokers[usize::try_from(*id).unwrap()].rack)
                        .collect();
                    assert_eq!(used.len(), 3, "partition {partition}: {replicas:?}");
                }
            }
        }
    }

    #[test]
    fn every_broker_is_reached_even_with_one_rack() {
        for brokers in [racked(&["a", "a", "a"]), racked(&["a", "a", "b", "a"])] {
            let all = i16::try_from(brokers.len()).unwrap();
            for shift in 0..5 {
                let placed = place(&brokers, 0, 8, all, Start { leader: 1, shift }).unwrap();
                for replicas in placed.values() {
                    let distinct: BTreeSet<_> = replicas.iter().collect();
                    assert_eq!(distinct.len(), brokers.len());
                }
            }
        }
    }

    #[test]
    fn impossible_wishes_have_kafkas_texts() {
        let start = Start {
            leader: 0,
            shift: 0,
        };
        let refused = |brokers: &[Candidate], count, replicas| {
            let Refusal { error, message } = place(brokers, 0, count, replicas, start).unwrap_err();
            (error, message)
        };
        assert_eq!(
            refused(&plain(1..2), 1, 3),
            (
                ErrorCode::InvalidReplicationFactor,
                "Replication factor: 3 larger than available brokers: 1.".into()
            )
        );
        assert_eq!(
            refused(&plain(1..2), 1, 0),
            (
                ErrorCode::InvalidReplicationFactor,
                "Replication factor must be larger than 0.".into()
            )
        );
        assert_eq!(
            refused(&plain(1..2), 0, 1),
            (
                ErrorCode::InvalidPartitions,
                "Number of partitions must be larger than 0.".into()
            )
        );
        let mut mixed = racked(&["a", "b"]);
        mixed[1].rack = None;
        assert_eq!(refused(&mixed, 1, 1).0, ErrorCode::UnknownServerError);
    }

    #[test]
    fn added_partitions_go_on_where_the_topic_began() {
        let brokers = plain(1..4);
        assert_eq!(
            Start::after(&brokers, 2),
            Start {
                leader: 1,
                shift: 1
            }
        );
        assert_eq!(Start::after(&brokers, 9).leader, 0);
        let placed = place(&brokers, 2, 2, 1, Start::after(&brokers, 2)).unwrap();
        assert_eq!(placed, BTreeMap::from([(2, vec![1]), (3, vec![2])]));
    }
}
