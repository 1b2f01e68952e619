//! Notices that brokers leave in ZooKeeper: ISR changes, failed log directories.

use std::collections::BTreeSet;

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::ZnodeError;
use gracchus_registry::json::{IsrChange, LogDirEvent};
use gracchus_registry::op::{ANY_VERSION, MultiStep, ZkOp, ZkReply, ZkResult};
use gracchus_registry::paths;

use crate::context::PartitionKey;
use crate::leaders::Strategy;
use crate::machine::Controller;
use crate::takeover::{children, leader_isr};

/// What a notice says; one that can't be read is named, for it is taken away like the others.
fn content<T>(
    (path, result): &(String, ZkResult),
    parse: fn(&[u8]) -> Result<T, ZnodeError>,
) -> Option<T> {
    let Ok(ZkReply::Data { data, .. }) = result else {
        return None;
    };
    let content = parse(data.as_deref().unwrap_or_default());
    content
        .inspect_err(|error| tracing::error!("the notice {path} can't be read ({error}); removed"))
        .ok()
}

impl Controller {
    /// Lists, reads and, after `handle`, deletes the notices below a node.
    fn notices(
        &mut self,
        parent: &'static str,
        path_of: fn(&str) -> String,
        handle: impl FnOnce(&mut Controller, Vec<(String, ZkResult)>) + Send + 'static,
    ) {
        self.zk(
            vec![ZkOp::children_and_watch(parent)],
            move |me, results| {
                let notices: Vec<String> = children(results.first())
                    .iter()
                    .map(|n| path_of(n))
                    .collect();
                let reads = notices.iter().map(|path| ZkOp::get(path.clone())).collect();
                me.zk(reads, move |me, results| {
                    let fence = me.fence();
                    let deletes = notices
                        .iter()
                        .map(|path| {
                            ZkOp::fenced(
                                fence,
                                MultiStep::Delete {
                                    path: path.clone(),
                                    version: ANY_VERSION,
                                },
                            )
                        })
                        .collect();
                    let read = notices.into_iter().zip(results).collect();
                    me.zk_fenced(deletes, move |me, _| handle(me, read));
                });
            },
        );
    }

    /// Leaders below inter.broker.protocol.version 2.7 wrote their state nodes themselves.
    pub(crate) fn isr_notices(&mut self) {
        self.notices(
            paths::ISR_CHANGE_NOTIFICATION,
            paths::isr_change,
            |me, notices| {
                let named: BTreeSet<PartitionKey> = notices
                    .iter()
                    .filter_map(|notice| content(notice, IsrChange::parse))
                    .flat_map(|c| c.partitions)
                    .map(|p| PartitionKey::new(&p.topic, p.partition))
                    .filter(|key| me.cx.partition(key).is_some())
                    .collect();
                let named: Vec<PartitionKey> = named.into_iter().collect();
                let reads = named
                    .iter()
                    .map(|k| ZkOp::get(paths::partition_state(&k.topic, k.partition)))
                    .collect();
                me.zk(reads, move |me, results| {
                    for (key, result) in named.iter().zip(&results) {
                        if let (Some(found), Some(partition)) =
                            (leader_isr(key, result), me.cx.partition_mut(key))
                        {
                            partition.leader_isr = Some(found);
                            me.batch_metadata(key);
                        }
                    }
                    me.flush();
                    me.complete_reassignments(named);
                });
            },
        );
    }

    /// A directory of a broker failed: its answers to LeaderAndIsr tell which replicas are in it.
    pub(crate) fn log_dir_notices(&mut self) {
        self.notices(
            paths::LOG_DIR_EVENT_NOTIFICATION,
            paths::log_dir_event,
            |me, notices| {
                let brokers: BTreeSet<i32> = notices
                    .iter()
                    .filter_map(|notice| content(notice, LogDirEvent::parse))
                    .map(|e| e.broker_id)
                    .collect();
                for broker in brokers {
                    tracing::warn!(
                        "a log directory of broker {broker} failed; asking which replicas it held"
                    );
                    me.batch_replicas_of(&[broker]);
                }
                me.flush();
            },
        );
    }

    /// A broker names the replicas whose directory failed; one that it takes a role for works again.
    pub(crate) fn leader_and_isr_answered(
        &mut self,
        broker_id: i32,
        partitions: Vec<(PartitionKey, ErrorCode)>,
    ) {
        let mut failed = Vec::new();
        let mut works_again = false;
        for (key, error) in partitions {
            let replica = (broker_id, key.clone());
            if error == ErrorCode::KafkaStorageError && self.cx.offline_dirs.insert(replica.clone())
            {
                failed.push(key);
            } else if error == ErrorCode::None && self.cx.offline_dirs.remove(&replica) {
                tracing::info!("the replica of {key} on broker {broker_id} works again");
                self.batch_metadata(&key);
                works_again = true;
            }
        }
        if failed.is_empty() && !works_again {
            return;
        }
        let led: Vec<PartitionKey> = failed
            .iter()
            .filter(|k| {
                self.cx
                    .partition(k)
                    .and_then(|p| p.leader_isr.as_ref())
                    .is_some_and(|l| l.state.leader == broker_id)
            })
            .cloned()
            .collect();
        for key in &failed {
            self.batch_metadata(key);
        }
        let cuts = failed.into_iter().map(|key| (key, broker_id)).collect();
        self.elect_leaders(
            led,
            Strategy::Offline,
            0,
            Box::new(move |me| {
                me.cut_replicas(cuts, move |me| {
                    if works_again {
                        me.bring_online(Controller::flush);
                    } else {
                        me.flush();
                    }
                });
            }),
        );
    }
}
