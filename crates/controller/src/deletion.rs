//! Topic deletion, step by step; a new controller goes on wherever the old one stopped, since every step can be repeated.

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::op::{ANY_VERSION, MultiStep, ZkError, ZkOp};
use gracchus_registry::paths;

use crate::context::PartitionKey;
use crate::machine::Controller;
use crate::takeover::children;
use crate::topics::shown;

impl Controller {
    pub(crate) fn deletions_requested(&mut self) {
        self.zk(
            vec![ZkOp::children_and_watch(paths::DELETE_TOPICS)],
            |me, results| {
                if results.iter().any(Result::is_err) {
                    return;
                }
                for topic in children(results.first()) {
                    me.cx.deletions.entry(topic).or_default();
                }
                me.process_deletions(|_| {});
            },
        );
    }

    /// Starts what may start and finishes what is done.
    pub(crate) fn process_deletions(
        &mut self,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        let enabled = self.config.delete_topic_enable;
        let unknown: Vec<String> = self
            .cx
            .deletions
            .keys()
            .filter(|t| !enabled || !self.cx.topics.contains_key(t.as_str()))
            .cloned()
            .collect();
        let reads = unknown.iter().map(|t| ZkOp::get(paths::topic(t))).collect();
        self.zk(reads, move |me, results| {
            let fence = me.fence();
            let delete = |path: String| {
                ZkOp::fenced(
                    fence,
                    MultiStep::Delete {
                        path,
                        version: ANY_VERSION,
                    },
                )
            };
            let mut ops = Vec::new();
            let mut dropped = Vec::new();
            for (topic, result) in unknown.into_iter().zip(&results) {
                let is_gone = matches!(result, Err(f) if f.error == ZkError::NoNode);
                if enabled && !is_gone {
                    me.keep_deletion(&topic);
                    continue;
                }
                // a controller that died between the topic's node and the request left the configuration behind
                if enabled {
                    ops.push(delete(paths::topic_config(&topic)));
                }
                ops.push(delete(paths::delete_topic(&topic)));
                me.cx.deletions.remove(&topic);
                dropped.push(topic);
            }
            if !dropped.is_empty() {
                let why = if enabled {
                    "there is no such topic"
                } else {
                    "delete.topic.enable is false"
                };
                tracing::warn!("requests to delete {} are dropped: {why}", shown(&dropped));
            }
            me.zk_fenced(ops, |me, _| {
                me.start_deletions();
                me.finish_deletions(then);
            });
        });
    }

    /// The topic is there but its node can't be read, so nobody knows where its replicas are.
    fn keep_deletion(&mut self, topic: &str) {
        if let Some(deletion) = self.cx.deletions.get_mut(topic)
            && !std::mem::replace(&mut deletion.is_unreadable, true)
        {
            tracing::error!(
                "the deletion of {topic} waits until {} can be read: repair that node, or delete it",
                paths::topic(topic)
            );
        }
    }

    fn start_deletions(&mut self) {
        let waiting: Vec<String> = self
            .cx
            .deletions
            .iter()
            .filter(|(_, d)| !d.started)
            .map(|(t, _)| t.clone())
            .collect();
        let mut forgotten = Vec::new();
        let mut stops = Vec::new();
        for topic in waiting {
            let Some(known) = self.cx.topics.get(topic.as_str()) else {
                continue;
            };
            let replicas: Vec<(i32, i32)> = known
                .partitions
                .iter()
                .flat_map(|(n, p)| p.replicas.iter().map(|b| (*n, *b)))
                .collect();
            let moving = known
                .partitions
                .values()
                .any(crate::context::Partition::is_moving);
            let dead: std::collections::BTreeSet<i32> = replicas
                .iter()
                .map(|(_, b)| *b)
                .filter(|b| !self.cx.is_alive(*b))
                .collect();
            let partitions: Vec<i32> = known.partitions.keys().copied().collect();
            let Some(deletion) = self.cx.deletions.get_mut(&topic) else {
                continue;
            };
            deletion.blocked_by.extend(dead);
            if moving {
                tracing::info!("the deletion of {topic} waits for its reassignment to end");
                continue;
            }
            if !deletion.blocked_by.is_empty() {
                tracing::info!(
                    "the deletion of {topic} waits for brokers {:?}, which hold replicas of it",
                    deletion.blocked_by
                );
                continue;
            }
            deletion.started = true;
            deletion.waiting = replicas.iter().copied().collect();
            forgotten.extend(partitions.iter().map(|n| PartitionKey::new(&topic, *n)));
            stops.extend(
                replicas
                    .into_iter()
                    .map(|(n, b)| (PartitionKey::new(&topic, n), b)),
            );
        }
        if forgotten.is_empty() {
            return;
        }
        for key in &forgotten {
            self.batch_metadata(key); // with leader -2: forget it
        }
        for (key, broker) in &stops {
            self.batch_stop(*broker, key, false);
        }
        self.flush();
        for (key, broker) in &stops {
            self.batch_stop(*broker, key, true);
        }
        self.flush();
    }

    /// A broker's answer; only those with the delete flag count, which are the last ones sent.
    pub(crate) fn stop_replica_answered(
        &mut self,
        broker_id: i32,
        partitions: Vec<(PartitionKey, ErrorCode)>,
    ) {
        for (key, error) in partitions {
            let Some(deletion) = self.cx.deletions.get_mut(&*key.topic) else {
                continue;
            };
            if error == ErrorCode::None {
                deletion.waiting.remove(&(key.partition, broker_id));
            } else {
                tracing::warn!(
                    "broker {broker_id} could not delete {key} ({}); it is tried again when the broker restarts",
                    error.name()
                );
                deletion.blocked_by.insert(broker_id);
            }
        }
        self.finish_deletions(|_| {});
    }

    /// Deletes the nodes of topics whose replicas are all gone: the topic's own, its configuration, then the request.
    fn finish_deletions(&mut self, then: impl FnOnce(&mut Controller) + Send + 'static) {
        let done: Vec<String> = self
            .cx
            .deletions
            .iter()
            .filter(|(_, d)| d.started && d.waiting.is_empty() && d.blocked_by.is_empty())
            .map(|(t, _)| t.clone())
            .collect();
        let reads = done
            .iter()
            .map(|t| ZkOp::children(paths::topic_partitions(t)))
            .collect();
        self.zk(reads, move |me, results| {
            let fence = me.fence();
            let delete = |path: String| {
                ZkOp::fenced(
                    fence,
                    MultiStep::Delete {
                        path,
                        version: ANY_VERSION,
                    },
                )
            };
            let mut ops = Vec::new();
            for (topic, result) in done.iter().zip(&results) {
                for number in children(Some(result))
                    .iter()
                    .filter_map(|n| n.parse::<i32>().ok())
                {
                    ops.push(delete(paths::partition_state(topic, number)));
                    ops.push(delete(paths::partition(topic, number)));
                }
                ops.push(delete(paths::topic_partitions(topic)));
                ops.push(delete(paths::topic(topic)));
                ops.push(delete(paths::topic_config(topic)));
                ops.push(delete(paths::delete_topic(topic)));
            }
            let paths: Vec<String> = ops.iter().map(|op| op.path().to_owned()).collect();
            me.zk_fenced(ops, move |me, results| {
                for (path, result) in paths.iter().zip(&results) {
                    if let Err(failure) = result
                        && failure.error != ZkError::NoNode
                    {
                        tracing::error!("{path} can't be deleted: {}", failure.error);
                    }
                }
                for topic in &done {
                    me.cx.deletions.remove(topic);
                    me.cx.topics.remove(topic.as_str());
                    me.cx.offline_dirs.retain(|(_, key)| *key.topic != **topic);
                }
                if !done.is_empty() {
                    tracing::info!("deleted topics: {}", shown(&done));
                }
                then(me);
            });
        });
    }
}
