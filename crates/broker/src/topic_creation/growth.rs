//! Partitions that a CreatePartitions request wants added to a topic: checked in Kafka's order and placed. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::create_partitions_request::CreatePartitionsTopic;
use gracchus_registry::json::TopicAssignment;

use super::placement::{Candidate, Start, place};
use super::plan::too_many;
use super::{MAX_PARTITIONS_PER_REQUEST, Refusal, listed, refusal};

/// The topic's assignment with the new partitions.
pub fn grow(
    wanted: &CreatePartitionsTopic,
    present: &TopicAssignment,
    brokers: &[Candidate],
) -> Result<TopicAssignment, Refusal> {
    let name = &wanted.name;
    let moving = present
        .adding_replicas
        .values()
        .chain(present.removing_replicas.values())
        .any(|replicas| !replicas.is_empty());
    if moving {
        return Err(refusal(
            ErrorCode::ReassignmentInProgress,
            format!("A partition reassignment is in progress for the topic '{name}'."),
        ));
    }
    let old = i32::try_from(present.partitions.len()).unwrap_or(i32::MAX);
    let added = wanted.count.saturating_sub(old);
    if added < 0 {
        return Err(refusal(
            ErrorCode::InvalidPartitions,
            format!(
                "Topic currently has {old} partitions, which is higher than the requested {}.",
                wanted.count
            ),
        ));
    }
    if added == 0 {
        return Err(refusal(
            ErrorCode::InvalidPartitions,
            format!("Topic already has {old} partitions."),
        ));
    }
    if added > MAX_PARTITIONS_PER_REQUEST {
        return Err(too_many());
    }
    let Some(first) = present.partitions.get(&0).filter(|r| !r.is_empty()) else {
        return Err(refusal(
            ErrorCode::UnknownServerError,
            format!(
                "Unexpected existing replica assignment for topic '{name}', partition id 0 is missing. Repair its znode."
            ),
        ));
    };
    let new = match &wanted.assignments {
        Some(given) => {
            let given: Vec<&[i32]> = given.iter().map(|a| a.broker_ids.as_slice()).collect();
            manual(&given, old, added, first.len(), brokers)?
        }
        None => {
            let replicas = i16::try_from(first.len()).unwrap_or(i16::MAX);
            let preferred = first.first().copied().unwrap_or(0);
            place(
                brokers,
                old,
                added,
                replicas,
                Start::after(brokers, preferred),
            )?
        }
    };
    let mut grown = present.clone();
    grown.partitions.extend(new);
    Ok(grown)
}

fn manual(
    given: &[&[i32]],
    old: i32,
    added: i32,
    replication_factor: usize,
    brokers: &[Candidate],
) -> Result<BTreeMap<i32, Vec<i32>>, Refusal> {
    let refuse = |text: String| Err(refusal(ErrorCode::InvalidReplicaAssignment, text));
    let alive: BTreeSet<i32> = brokers.iter().map(|b| b.id).collect();
    let named: BTreeSet<i32> = given.iter().flat_map(|ids| ids.iter().copied()).collect();
    let unknown: Vec<&i32> = named.difference(&alive).collect();
    if !unknown.is_empty() {
        return refuse(format!(
            "Unknown broker(s) in replica assignment: {}.",
            listed(unknown)
        ));
    }
    if usize::try_from(added) != Ok(given.len()) {
        return refuse(format!(
            "Increasing the number of partitions by {added} but {} assignments provided.",
            given.len()
        ));
    }
    let new: BTreeMap<i32, Vec<i32>> = (old..).zip(given.iter().map(|ids| ids.to_vec())).collect();
    for (partition, ids) in &new {
        if ids.is_empty() {
            return refuse(format!(
                "Cannot have replication factor of 0 for partition id {partition}."
            ));
        }
        if ids.iter().collect::<BTreeSet<_>>().len() != ids.len() {
            return refuse(format!(
                "Duplicate brokers not allowed in replica assignment: {} for partition id {partition}.",
                listed(ids)
            ));
        }
    }
    let odd: Vec<(&i32, usize)> = new
        .iter()
        .map(|(partition, ids)| (partition, ids.len()))
        .filter(|(_, size)| *size != replication_factor)
        .collect();
    if !odd.is_empty() {
        return refuse(format!(
            "Inconsistent replication factor between partitions, partition 0 has {replication_factor} while partitions [{}] have replication factors [{}], respectively.",
            listed(odd.iter().map(|(partition, _)| partition)),
            listed(odd.iter().map(|(_, size)| size))
        ));
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gracchus_kafka_proto::messages::create_partitions_request::CreatePartitionsAssignment;

    fn present() -> TopicAssignment {
        TopicAssignment {
            partitions: BTreeMap::from([(0, vec![2, 3]), (1, vec![3, 1])]),
            ..Default::default()
        }
    }

    fn wanted(count: i32, assignments: Option<&[&[i32]]>) -> CreatePartitionsTopic {
        CreatePartitionsTopic {
            name: "t".into(),
            count,
            assignments: assignments.map(|all| {
                all.iter()
                    .map(|ids| CreatePartitionsAssignment {
                        broker_ids: ids.to_vec(),
                        ..Default::default()
                    })
                    .collect()
            }),
            ..Default::default()
        }
    }

    fn grown(
        count: i32,
        assignments: Option<&[&[i32]]>,
    ) -> Result<TopicAssignment, (ErrorCode, String)> {
        let brokers: Vec<Candidate> = (1..4).map(|id| Candidate { id, rack: None }).collect();
        grow(&wanted(count, assignments), &present(), &brokers)
            .map_err(|Refusal { error, message }| (error, message))
    }

    #[test]
    fn new_partitions_follow_the_old_ones() {
        let all = grown(4, None).unwrap().partitions;
        assert_eq!(all[&0], [2, 3]);
        assert_eq!(all[&1], [3, 1]);
        assert_eq!((all[&2].len(), all[&3].len()), (2, 2));
        // partition 2 of a topic that began at broker 2: two places on, broker 1
        assert_eq!((all[&2][0], all[&3][0]), (1, 2));
        let all = grown(3, Some(&[&[1, 3]])).unwrap().partitions;
        assert_eq!(all[&2], [1, 3]);
    }

    #[test]
    fn a_topic_that_is_reassigned_has_to_wait() {
        let brokers: Vec<Candidate> = (1..4).map(|id| Candidate { id, rack: None }).collect();
        let moved = BTreeMap::from([(1, vec![2])]);
        for (adding, removing) in [(&moved, &BTreeMap::new()), (&BTreeMap::new(), &moved)] {
            let present = TopicAssignment {
                adding_replicas: adding.clone(),
                removing_replicas: removing.clone(),
                ..present()
            };
            let refused = grow(&wanted(4, None), &present, &brokers).unwrap_err();
            assert_eq!(refused.error, ErrorCode::ReassignmentInProgress);
        }
        // of another topic nothing is known here, and nothing asked
        assert!(grow(&wanted(4, None), &present(), &brokers).is_ok());
    }

    #[test]
    fn counts() {
        assert_eq!(
            grown(1, None).unwrap_err(),
            (
                ErrorCode::InvalidPartitions,
                "Topic currently has 2 partitions, which is higher than the requested 1.".into()
            )
        );
        assert_eq!(
            grown(2, None).unwrap_err(),
            (
                ErrorCode::InvalidPartitions,
                "Topic already has 2 partitions.".into()
            )
        );
        assert_eq!(grown(-1, None).unwrap_err().0, ErrorCode::InvalidPartitions);
        assert_eq!(
            grown(i32::MAX, None).unwrap_err().0,
            ErrorCode::InvalidPartitions
        );
    }

    #[test]
    fn assignments() {
        let text = |given: &[&[i32]]| {
            let (error, text) = grown(3, Some(given)).unwrap_err();
            assert_eq!(error, ErrorCode::InvalidReplicaAssignment);
            text
        };
        assert_eq!(
            text(&[&[1, 9]]),
            "Unknown broker(s) in replica assignment: 9."
        );
        assert_eq!(
            text(&[]),
            "Increasing the number of partitions by 1 but 0 assignments provided."
        );
        assert_eq!(
            text(&[&[]]),
            "Cannot have replication factor of 0 for partition id 2."
        );
        assert_eq!(
            text(&[&[1, 1]]),
            "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 2."
        );
        assert_eq!(
            text(&[&[1]]),
            "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [2] have replication factors [1], respectively."
        );
    }

    #[test]
    fn not_while_its_replicas_move() {
        let mut moving = present();
        moving.adding_replicas.insert(1, vec![2]);
        let refused = grow(&wanted(4, None), &moving, &[]).unwrap_err();
        assert_eq!(refused.error, ErrorCode::ReassignmentInProgress);
    }
}
