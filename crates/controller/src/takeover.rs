//! A new controller loads the cluster and puts it in order.

use gracchus_kafka_proto::Uuid;
use gracchus_registry::json::{BrokerRegistration, FeatureZnode, PartitionState, TopicAssignment};
use gracchus_registry::op::{ANY_VERSION, MultiStep, ZkError, ZkOp, ZkReply, ZkResult};
use gracchus_registry::paths;

use crate::action::Action;
use crate::context::{LeaderIsr, LiveBroker, Partition, PartitionKey, PartitionPhase, Topic};
use crate::machine::Controller;

/// Names below a node, empty when there is none.
pub(crate) fn children(result: Option<&ZkResult>) -> Vec<String> {
    match result {
        Some(Ok(ZkReply::Children { children, .. })) => children.clone(),
        _ => Vec::new(),
    }
}

/// A broker's registration and epoch; a node that can't be read is named and left out.
pub(crate) fn live_broker(id: i32, result: &ZkResult) -> Option<LiveBroker> {
    let Ok(ZkReply::Data { data, stat }) = result else {
        return None;
    };
    match BrokerRegistration::parse(data.as_deref().unwrap_or_default()) {
        Ok(registration) => Some(LiveBroker {
            epoch: stat.czxid,
            registration,
        }),
        Err(error) => {
            tracing::error!(
                "{} can't be read ({error}): broker {id} counts as not there",
                paths::broker(id)
            );
            None
        }
    }
}

/// A state node's content; one that can't be read is named.
pub(crate) fn leader_isr(key: &PartitionKey, result: &ZkResult) -> Option<LeaderIsr> {
    let Ok(ZkReply::Data { data, stat }) = result else {
        return None;
    };
    match PartitionState::parse(data.as_deref().unwrap_or_default()) {
        Ok(state) => Some(LeaderIsr {
            state,
            partition_epoch: stat.version,
        }),
        Err(error) => {
            tracing::error!(
                "{} can't be read: {error}",
                paths::partition_state(&key.topic, key.partition)
            );
            None
        }
    }
}

pub(crate) fn topic_of(mut assignment: TopicAssignment) -> Topic {
    let mut adding = |n: &i32| assignment.adding_replicas.remove(n).unwrap_or_default();
    let mut removing = |n: &i32| assignment.removing_replicas.remove(n).unwrap_or_default();
    Topic {
        id: assignment.topic_id.unwrap_or(Uuid::ZERO),
        partitions: assignment
            .partitions
            .into_iter()
            .map(|(n, replicas)| {
                let partition = Partition {
                    replicas,
                    adding: adding(&n),
                    removing: removing(&n),
                    phase: PartitionPhase::New,
                    leader_isr: None,
                };
                (n, partition)
            })
            .collect(),
    }
}

impl Controller {
    pub(crate) fn take_over(&mut self) {
        if !self.config.has_features {
            return self.watch_and_load();
        }
        self.zk(vec![ZkOp::get(paths::FEATURE)], |me, results| {
            let wanted =
                FeatureZnode { version: me.config.feature_version, enabled: true, features: Default::default() };
            match results.first() {
                Some(Ok(ZkReply::Data { data, .. })) => {
                    match FeatureZnode::parse(data.as_deref().unwrap_or_default()) {
                        Ok(found) if found.enabled && found.version == wanted.version => me.watch_and_load(),
                        Ok(found) => {
                            let data = Some(FeatureZnode { features: found.features, ..wanted }.to_bytes());
                            let path = paths::FEATURE.into();
                            me.zk(vec![ZkOp::SetData { path, data, version: ANY_VERSION }], |me, _| me.watch_and_load());
                        }
                        Err(error) => {
                            tracing::error!(
                                "/feature can't be read ({error}): treated as no features; repair or delete it"
                            );
                            me.watch_and_load();
                        }
                    }
                }
                Some(Err(failure)) if failure.error == ZkError::NoNode => {
                    let ops = vec![ZkOp::create(paths::FEATURE, Some(wanted.to_bytes()))];
                    me.zk(ops, |me, _| me.watch_and_load());
                }
                _ => me.give_up_office("/feature can't be read"),
            }
        });
    }

    fn watch_and_load(&mut self) {
        let ops = vec![
            ZkOp::children_and_watch(paths::BROKER_IDS),
            ZkOp::children_and_watch(paths::TOPICS),
            ZkOp::children_and_watch(paths::DELETE_TOPICS),
            ZkOp::children_and_watch(paths::LOG_DIR_EVENT_NOTIFICATION),
            ZkOp::children_and_watch(paths::ISR_CHANGE_NOTIFICATION),
            ZkOp::exists_and_watch(paths::PREFERRED_REPLICA_ELECTION),
            ZkOp::exists_and_watch(paths::REASSIGN_PARTITIONS),
        ];
        self.zk(ops, |me, results| {
            if results.iter().take(5).any(Result::is_err) {
                return me.give_up_office("the cluster's nodes can't be listed");
            }
            let at = |i: usize| children(results.get(i));
            let (ids, topics, deletions) = (at(0), at(1), at(2));
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
            // what a notice told the last controller is found out anew below
            let notices = at(3)
                .iter()
                .map(|n| delete(paths::log_dir_event(n)))
                .chain(at(4).iter().map(|n| delete(paths::isr_change(n))))
                .collect();
            me.zk_fenced(notices, |me, _| me.load(ids, topics, deletions));
        });
    }

    fn load(&mut self, ids: Vec<String>, topics: Vec<String>, deletions: Vec<String>) {
        let ids: Vec<i32> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        let ops = ids
            .iter()
            .map(|id| ZkOp::get_and_watch(paths::broker(*id)))
            .chain(topics.iter().map(|t| ZkOp::get_and_watch(paths::topic(t))))
            .collect();
        self.zk(ops, move |me, results| {
            if results
                .iter()
                .any(|r| matches!(r, Err(f) if f.error == ZkError::SessionExpired))
            {
                return;
            }
            let (brokers, assignments) = results.split_at_checked(ids.len()).unwrap_or_default();
            for (id, result) in ids.iter().zip(brokers) {
                if let Some(broker) = live_broker(*id, result) {
                    me.cx.brokers.insert(*id, broker);
                }
            }
            me.adopt_topics(&topics, assignments);
            for topic in deletions {
                me.cx.deletions.entry(topic).or_default();
            }
            me.give_missing_topic_ids(|me| me.load_states(Controller::put_in_order));
        });
    }

    /// Takes newly read topics into the context, all partitions New; a node that can't be read is named and left alone.
    pub(crate) fn adopt_topics(&mut self, names: &[String], results: &[ZkResult]) {
        for (name, result) in names.iter().zip(results) {
            let Ok(ZkReply::Data { data, .. }) = result else {
                continue;
            };
            match TopicAssignment::parse(data.as_deref().unwrap_or_default()) {
                Ok(assignment) => {
                    self.cx
                        .topics
                        .insert(name.as_str().into(), topic_of(assignment));
                }
                Err(error) => {
                    tracing::error!(
                        "{} can't be read ({error}); the topic is left as it is",
                        paths::topic(name)
                    );
                }
            }
        }
    }

    /// Topics of old tools and versions have no id yet.
    pub(crate) fn give_missing_topic_ids(
        &mut self,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        if !self.config.has_topic_ids {
            return then(self);
        }
        let fence = self.fence();
        let mut ops = Vec::new();
        for (name, topic) in &mut self.cx.topics {
            if topic.id == Uuid::ZERO {
                topic.id = (self.new_topic_id)();
                let data = Some(topic.assignment().to_bytes());
                let step = MultiStep::SetData {
                    path: paths::topic(name),
                    data,
                    version: ANY_VERSION,
                };
                ops.push(ZkOp::fenced(fence, step));
            }
        }
        self.zk_fenced(ops, |me, _| then(me));
    }

    /// Reads the state nodes of all partitions that have none in the context yet.
    pub(crate) fn load_states(&mut self, then: impl FnOnce(&mut Controller) + Send + 'static) {
        let keys = self.cx.keys_where(|_, p| p.leader_isr.is_none());
        let ops = keys
            .iter()
            .map(|k| ZkOp::get(paths::partition_state(&k.topic, k.partition)))
            .collect();
        let take = |me: &mut Controller,
                    keys: &mut std::vec::IntoIter<PartitionKey>,
                    results: Vec<ZkResult>| {
            for (result, key) in results.iter().zip(keys) {
                let found = leader_isr(&key, result);
                if let Some(partition) = me.cx.partition_mut(&key) {
                    partition.leader_isr = found;
                }
            }
        };
        self.zk_in_parts(ops, keys.into_iter(), take, |me, _| then(me));
    }

    /// Everything is known: tell the brokers, cut dead replicas, elect leaders, go on with what was under way.
    fn put_in_order(&mut self) {
        for (broker_id, broker) in self.cx.brokers.clone() {
            self.act(Action::Connect {
                broker_id,
                registration: broker.registration,
            });
        }
        let brokers: Vec<i32> = self.cx.brokers.keys().copied().collect();
        // the brokers must know each other before they are told of leaders
        self.batch.metadata_brokers.extend(brokers.iter().copied());
        self.flush();
        for topic in self.cx.topics.values_mut() {
            for partition in topic.partitions.values_mut() {
                partition.phase = match &partition.leader_isr {
                    None => PartitionPhase::New,
                    Some(l) if brokers.contains(&l.state.leader) => PartitionPhase::Online,
                    Some(_) => PartitionPhase::Offline,
                };
            }
        }
        self.batch_replicas_of(&brokers);
        // Kafka cuts first, which writes leader -1 and an epoch for it where the leader is dead; here the election's one
        // write does both
        self.bring_online(|me| {
            let dead = me.cx.isr_members(|broker| !me.cx.is_alive(broker));
            me.cut_replicas(dead, |me| {
                me.flush();
                me.start_balancing();
                me.resume_reassignments(|me| {
                    me.process_deletions(Controller::preferred_election_requested);
                });
            });
        });
    }
}
