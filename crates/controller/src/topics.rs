//! Topics appear, grow and vanish in ZooKeeper.

use std::collections::BTreeSet;

use gracchus_kafka_proto::Uuid;
use gracchus_registry::json::TopicAssignment;
use gracchus_registry::op::{ANY_VERSION, MultiStep, ZkOp, ZkReply};
use gracchus_registry::paths;

use crate::context::{PartitionKey, PartitionPhase, Topic};
use crate::machine::Controller;
use crate::takeover::{children, topic_of};

impl Controller {
    pub(crate) fn topics_changed(&mut self) {
        self.zk(
            vec![ZkOp::children_and_watch(paths::TOPICS)],
            |me, results| {
                if results.iter().any(Result::is_err) {
                    return;
                }
                let now: BTreeSet<String> = children(results.first()).into_iter().collect();
                me.cx.topics.retain(|name, _| now.contains(&**name));
                let new: Vec<String> = now
                    .into_iter()
                    .filter(|t| !me.cx.topics.contains_key(t.as_str()))
                    .collect();
                let reads = new
                    .iter()
                    .map(|t| ZkOp::get_and_watch(paths::topic(t)))
                    .collect();
                me.zk(reads, move |me, results| {
                    me.adopt_topics(&new, &results);
                    if !new.is_empty() {
                        tracing::info!("new topics: {}", shown(&new));
                    }
                    me.adopted(new);
                });
            },
        );
    }

    /// Topics just taken into the context: one that could not be read before may have states already.
    fn adopted(&mut self, topics: Vec<String>) {
        self.give_missing_topic_ids(move |me| {
            me.load_states(move |me| {
                let cx = &me.cx;
                let found = cx.keys_where(|t, p| {
                    p.phase == PartitionPhase::New
                        && p.leader_isr.is_some()
                        && topics.iter().any(|topic| topic == t)
                });
                for key in found {
                    let Some(partition) = me.cx.partition(&key) else {
                        continue;
                    };
                    let leader = partition.leader_isr.as_ref().map(|l| l.state.leader);
                    let replicas = partition.replicas.clone();
                    let is_led = leader.is_some_and(|leader| me.cx.is_alive(leader));
                    if let Some(partition) = me.cx.partition_mut(&key) {
                        partition.phase = if is_led {
                            PartitionPhase::Online
                        } else {
                            PartitionPhase::Offline
                        };
                    }
                    me.batch_leader_and_isr(&replicas, &key, false);
                }
                me.bring_online(|me| {
                    me.flush();
                    me.process_deletions(|_| {});
                });
            });
        });
    }

    /// The topic's node was written: new partitions are created; any other change is none of a writer's business.
    pub(crate) fn topic_modified(&mut self, topic: String) {
        self.zk(vec![ZkOp::get_and_watch(paths::topic(&topic))], move |me, results| {
            let Some(Ok(ZkReply::Data { data, .. })) = results.first() else { return };
            let found = match TopicAssignment::parse(data.as_deref().unwrap_or_default()) {
                Ok(found) => topic_of(found),
                Err(error) => {
                    tracing::error!("{} can't be read ({error}); what is known of it stays", paths::topic(&topic));
                    return;
                }
            };
            let deleting = me.cx.is_deleting(&topic);
            let is_renewed = |known: &Topic| {
                known.id != Uuid::ZERO && found.id != Uuid::ZERO && known.id != found.id
            };
            if me.cx.topics.get(topic.as_str()).is_some_and(is_renewed) {
                tracing::warn!(
                    "{} was deleted and made again by hand: brokers that have logs of the old topic refuse the new one until these are removed",
                    paths::topic(&topic)
                );
                me.cx.topics.remove(topic.as_str());
                me.cx.offline_dirs.retain(|(_, key)| *key.topic != *topic);
            }
            let Some(known) = me.cx.topics.get_mut(topic.as_str()) else {
                // it could not be read before, or it is another topic now
                me.cx.topics.insert(topic.as_str().into(), found);
                return me.adopted(vec![topic]);
            };
            let added: Vec<i32> = found.partitions.keys().copied().filter(|n| !known.partitions.contains_key(n)).collect();
            if added.is_empty() {
                return;
            }
            if deleting {
                tracing::warn!("partitions were added to {topic} while it is being deleted; the addition is taken back");
                let step = MultiStep::SetData {
                    path: paths::topic(&topic),
                    data: Some(known.assignment().to_bytes()),
                    version: ANY_VERSION,
                };
                let ops = vec![ZkOp::fenced(me.fence(), step)];
                return me.zk_fenced(ops, |_, _| {});
            }
            for (number, partition) in found.partitions {
                known.partitions.entry(number).or_insert(partition);
            }
            tracing::info!("new partitions of {topic}: {added:?}");
            let keys: Vec<PartitionKey> = added.iter().map(|n| PartitionKey::new(&topic, *n)).collect();
            me.create_states(keys, Controller::flush);
        });
    }
}

/// A list that does not fill the log.
pub(crate) fn shown(names: &[String]) -> String {
    const MOST: usize = 20;
    let mut text = names
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}
