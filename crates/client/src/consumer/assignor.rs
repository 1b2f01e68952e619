//! How partitions are shared among the members of a group.

use crate::TopicPartition;
use std::collections::{BTreeMap, HashMap};

/// Kafka's `range`: of each topic every member that wants it gets a run of neighbouring partitions, the first members
/// one more where it does not divide evenly. `members`: id, static instance id, topics. `counts`: partitions of a topic.
pub fn range(
    members: &[(String, Option<String>, Vec<String>)],
    counts: &HashMap<String, i32>,
) -> BTreeMap<String, Vec<TopicPartition>> {
    let mut out: BTreeMap<String, Vec<TopicPartition>> = members
        .iter()
        .map(|(id, _, _)| (id.clone(), Vec::new()))
        .collect();
    let mut topics: Vec<&String> = members.iter().flat_map(|(_, _, t)| t).collect();
    topics.sort();
    topics.dedup();
    for topic in topics {
        let count = counts.get(topic).copied().unwrap_or(0).max(0);
        let mut wanting: Vec<_> = members
            .iter()
            .filter(|(_, _, t)| t.contains(topic))
            .collect();
        // static members first, by instance id; the others by member id
        wanting.sort_by(|a, b| match (&a.1, &b.1) {
            (Some(x), Some(y)) => x.cmp(y),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => a.0.cmp(&b.0),
        });
        let members = i32::try_from(wanting.len()).unwrap_or(i32::MAX).max(1);
        let (each, more) = (count / members, count % members);
        let mut next = 0;
        for (i, (id, _, _)) in wanting.into_iter().enumerate() {
            let size = each + i32::from((i as i64) < i64::from(more));
            if let Some(list) = out.get_mut(id) {
                list.extend((next..next + size).map(|p| TopicPartition::new(topic, p)));
            }
            next += size;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(
        id: &str,
        instance: Option<&str>,
        topics: &[&str],
    ) -> (String, Option<String>, Vec<String>) {
        (
            id.into(),
            instance.map(Into::into),
            topics.iter().map(|t| (*t).to_owned()).collect(),
        )
    }

    fn shown(list: &[TopicPartition]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn first_members_get_one_more() {
        let counts = HashMap::from([("a".to_owned(), 3), ("b".to_owned(), 3)]);
        let members = [
            member("m2", None, &["a", "b"]),
            member("m1", None, &["a", "b"]),
        ];
        let got = range(&members, &counts);
        assert_eq!(shown(&got["m1"]), ["a-0", "a-1", "b-0", "b-1"]);
        assert_eq!(shown(&got["m2"]), ["a-2", "b-2"]);
    }

    #[test]
    fn only_those_who_want_a_topic_share_it_and_static_members_come_first() {
        let counts = HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let members = [
            member("m1", None, &["a"]),
            member("m9", Some("i"), &["a", "b", "gone"]),
        ];
        let got = range(&members, &counts);
        assert_eq!(shown(&got["m1"]), Vec::<String>::new());
        assert_eq!(shown(&got["m9"]), ["a-0", "b-0", "b-1"]);
    }
}
