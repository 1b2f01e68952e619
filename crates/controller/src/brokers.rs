//! Brokers come, go and change.

use std::collections::{BTreeMap, BTreeSet};

use gracchus_registry::op::{ZkError, ZkOp};
use gracchus_registry::paths;

use crate::action::Action;
use crate::context::{LiveBroker, PartitionPhase};
use crate::machine::Controller;
use crate::takeover::{children, live_broker};

impl Controller {
    pub(crate) fn brokers_changed(&mut self) {
        self.zk(
            vec![ZkOp::children_and_watch(paths::BROKER_IDS)],
            |me, results| {
                if results.iter().any(Result::is_err) {
                    return; // the session is gone; its successor looks again
                }
                let ids: Vec<i32> = children(results.first())
                    .iter()
                    .filter_map(|id| id.parse().ok())
                    .collect();
                let reads = ids
                    .iter()
                    .map(|id| ZkOp::get_and_watch(paths::broker(*id)))
                    .collect();
                me.zk(reads, move |me, results| {
                    if results
                        .iter()
                        .any(|r| matches!(r, Err(f) if f.error == ZkError::SessionExpired))
                    {
                        return;
                    }
                    let now: BTreeMap<i32, LiveBroker> = ids
                        .iter()
                        .zip(&results)
                        .filter_map(|(id, r)| Some((*id, live_broker(*id, r)?)))
                        .collect();
                    me.apply_brokers(now);
                });
            },
        );
    }

    /// New ones first, then those that bounced (a newer epoch: failure, then start-up), then the dead.
    fn apply_brokers(&mut self, now: BTreeMap<i32, LiveBroker>) {
        let old = &self.cx.brokers;
        let dead: BTreeSet<i32> = old
            .keys()
            .copied()
            .filter(|id| !now.contains_key(id))
            .collect();
        let bounced: BTreeSet<i32> = now
            .iter()
            .filter(|(id, b)| old.get(id).is_some_and(|o| o.epoch < b.epoch))
            .map(|(id, _)| *id)
            .collect();
        let new: BTreeSet<i32> = now
            .keys()
            .copied()
            .filter(|id| !old.contains_key(id))
            .collect();
        if dead.is_empty() && bounced.is_empty() && new.is_empty() {
            return;
        }
        tracing::info!("brokers changed: new {new:?}, bounced {bounced:?}, gone {dead:?}");
        let started: BTreeMap<i32, LiveBroker> = now
            .into_iter()
            .filter(|(id, _)| new.contains(id) || bounced.contains(id))
            .collect();
        let gone: BTreeSet<i32> = dead.union(&bounced).copied().collect();
        self.brokers_failed(gone, move |me| me.brokers_started(started));
    }

    fn brokers_failed(
        &mut self,
        gone: BTreeSet<i32>,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        if gone.is_empty() {
            return then(self);
        }
        for id in &gone {
            self.cx.brokers.remove(id);
            self.cx.shutting_down.remove(id);
            self.act(Action::Disconnect { broker_id: *id });
        }
        self.cx.offline_dirs.retain(|(b, _)| !gone.contains(b));
        for (topic, deletion) in &mut self.cx.deletions {
            let hosts = self.cx.topics.get(topic.as_str()).map(|t| {
                t.partitions
                    .values()
                    .flat_map(|p| p.replicas.clone())
                    .collect::<BTreeSet<_>>()
            });
            deletion
                .blocked_by
                .extend(hosts.unwrap_or_default().intersection(&gone));
        }
        let cx = &self.cx;
        let led = cx.keys_where(|_, p| {
            p.leader_isr
                .as_ref()
                .is_some_and(|l| gone.contains(&l.state.leader))
        });
        for key in &led {
            if let Some(partition) = self.cx.partition_mut(key) {
                partition.phase = PartitionPhase::Offline;
            }
        }
        self.bring_online(move |me| {
            // the election took the dead out of the ISRs it wrote; what is left is cut here
            let members = me.cx.isr_members(|broker| gone.contains(&broker));
            me.cut_replicas(members, |me| {
                if me.batch.is_empty() {
                    me.batch
                        .metadata_brokers
                        .extend(me.cx.brokers.keys().copied());
                }
                me.flush();
                then(me);
            });
        });
    }

    fn brokers_started(&mut self, started: BTreeMap<i32, LiveBroker>) {
        if started.is_empty() {
            return;
        }
        let older: Vec<i32> = self.cx.brokers.keys().copied().collect();
        let ids: Vec<i32> = started.keys().copied().collect();
        for (broker_id, broker) in &started {
            self.act(Action::Connect {
                broker_id: *broker_id,
                registration: broker.registration.clone(),
            });
        }
        self.cx.brokers.extend(started);
        self.cx.offline_dirs.retain(|(b, _)| !ids.contains(b));
        self.batch.metadata_brokers.extend(older);
        self.flush();
        self.batch.metadata_brokers.extend(ids.iter().copied());
        self.batch
            .metadata_partitions
            .extend(self.cx.keys_where(|_, p| p.leader_isr.is_some()));
        self.flush();
        self.batch_replicas_of(&ids);
        for id in &ids {
            for deletion in self.cx.deletions.values_mut() {
                deletion.blocked_by.remove(id);
                deletion.waiting.retain(|(_, b)| b != id);
                deletion.started = false;
            }
        }
        self.bring_online(move |me| {
            me.flush();
            me.resume_reassignments_on(&ids, |me| me.process_deletions(|_| {}));
        });
    }

    /// Endpoints or features of a live broker changed in place.
    pub(crate) fn broker_modified(&mut self, id: i32) {
        self.zk(
            vec![ZkOp::get_and_watch(paths::broker(id))],
            move |me, results| {
                let Some(found) = results.first().and_then(|r| live_broker(id, r)) else {
                    return;
                };
                let Some(known) = me.cx.brokers.get_mut(&id) else {
                    return;
                };
                if known.epoch != found.epoch || known.registration == found.registration {
                    return; // a new registration is the children watch's affair
                }
                known.registration = found.registration.clone();
                me.act(Action::Connect {
                    broker_id: id,
                    registration: found.registration,
                });
                me.batch
                    .metadata_brokers
                    .extend(me.cx.brokers.keys().copied());
                // the new link does not have what still waited in the old one
                me.tell_anew(id);
            },
        );
    }

    /// Everything that a live broker has to know, and the deletions that it has not answered.
    pub(crate) fn tell_anew(&mut self, id: i32) {
        self.batch.metadata_brokers.insert(id);
        self.batch
            .metadata_partitions
            .extend(self.cx.keys_where(|_, p| p.leader_isr.is_some()));
        self.batch_replicas_of(&[id]);
        self.flush();
        for deletion in self.cx.deletions.values_mut() {
            if deletion.waiting.iter().any(|(_, broker)| *broker == id) {
                deletion.started = false;
            }
        }
        self.process_deletions(|_| {});
    }
}
