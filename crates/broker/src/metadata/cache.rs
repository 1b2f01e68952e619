//! What this broker knows of the cluster.
//!
//! Readers take a snapshot ([`MetadataCache::snapshot`], one atomic load) and see one consistent state; UpdateMetadata
//! replaces it. Who waits for something to become known (CreateTopics, Metadata after an auto-creation) uses
//! [`MetadataCache::wait_until`].

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use gracchus_kafka_proto::Uuid;
use hashbrown::HashMap;
use tokio::sync::watch;

use super::elections::Elections;

/// One listener of one live broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Listener name, e.g. `PLAINTEXT`.
    pub listener: String,
    /// Security protocol id of UpdateMetadata: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
    /// Host as advertised.
    pub host: String,
    /// Port as advertised.
    pub port: i32,
}

/// One live broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBroker {
    /// Its id.
    pub id: i32,
    /// Its rack, if it has one.
    pub rack: Option<String>,
    /// Where it listens.
    pub endpoints: Vec<Endpoint>,
}

impl LiveBroker {
    /// Where it listens under this listener name.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|e| e.listener == listener)
    }
}

/// A partition as the controller last told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Leader's broker id, -1 when none. (-2, "being deleted", removes the partition from the cache.)
    pub leader: i32,
    /// Leader epoch.
    pub leader_epoch: i32,
    /// Epoch of the controller that decided it.
    pub controller_epoch: i32,
    /// In-sync replicas.
    pub isr: Vec<i32>,
    /// zkVersion of the state znode.
    pub partition_epoch: i32,
    /// Assigned replicas, preferred first.
    pub replicas: Vec<i32>,
    /// Replicas in failed log dirs.
    pub offline_replicas: Vec<i32>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicInfo {
    /// `Uuid::ZERO` when the topic has none (inter.broker.protocol.version below 2.8).
    pub id: Uuid,
    /// Partitions by index.
    pub partitions: Arc<BTreeMap<i32, Arc<PartitionInfo>>>,
}

/// One consistent state of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The controller's id, None when unknown.
    pub controller_id: Option<i32>,
    /// Live brokers by id.
    pub brokers: BTreeMap<i32, Arc<LiveBroker>>,
    /// Topics by name.
    pub topics: HashMap<Arc<str>, Arc<TopicInfo>>,
    /// Topic names by id.
    pub topic_names: HashMap<Uuid, Arc<str>>,
}

impl Snapshot {
    /// The partition, if known.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&Arc<PartitionInfo>> {
        self.topics.get(topic)?.partitions.get(&partition)
    }

    /// The topic's id, ZERO when it has none or is unknown.
    pub fn topic_id(&self, topic: &str) -> Uuid {
        self.topics.get(topic).map_or(Uuid::ZERO, |t| t.id)
    }

    /// The topic's name by its id.
    pub fn topic_name(&self, id: &Uuid) -> Option<&Arc<str>> {
        self.topic_names.get(id)
    }

    /// True if the broker is alive.
    pub fn is_alive(&self, broker: i32) -> bool {
        self.brokers.contains_key(&broker)
    }
}

/// The cache.
pub struct MetadataCache {
    current: ArcSwap<Snapshot>,
    version: watch::Sender<u64>,
    writer: parking_lot::Mutex<()>,
    /// Topics that ZooKeeper knew at the start, until the controller has told of them.
    awaited: ArcSwapOption<Vec<String>>,
    /// The controllers that have spoken.
    pub elections: Elections,
}

impl Default for MetadataCache {
    fn default() -> Self {
        Self {
            current: ArcSwap::from_pointee(Snapshot::default()),
            version: watch::channel(0).0,
            writer: parking_lot::Mutex::new(()),
            awaited: ArcSwapOption::empty(),
            elections: Elections::default(),
        }
    }
}

impl MetadataCache {
    /// The present state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Replaces the state by what `change` makes of it, and wakes who waits. Updates are serialised.
    pub fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        {
            let _serialised = self.writer.lock();
            let mut next = Snapshot::clone(&self.current.load());
            change(&mut next);
            self.current.store(Arc::new(next));
        }
        self.version.send_modify(|v| *v = v.wrapping_add(1));
    }

    /// Until the controller has told of these topics, the state is not worth an answer to a client.
    pub fn await_topics(&self, topics: Vec<String>) {
        self.awaited.store(Some(Arc::new(topics)));
    }

    /// True when the controller has told what there is: itself, and the topics that were there at the start. Its first
    /// word names brokers only.
    pub fn is_told(&self, snapshot: &Snapshot) -> bool {
        let Some(awaited) = &*self.awaited.load() else {
            return snapshot.controller_id.is_some();
        };
        let told = snapshot.controller_id.is_some()
            && awaited
                .iter()
                .all(|t| snapshot.topics.contains_key(t.as_str()));
        if told {
            // once is enough: topics are deleted later
            self.awaited.store(None);
        }
        told
    }

    /// Topics that the controller has not told of; they are awaited no longer.
    pub fn give_up_awaited(&self) -> Vec<String> {
        let awaited = self.awaited.swap(None);
        let snapshot = self.snapshot();
        awaited
            .iter()
            .flat_map(|topics| topics.iter())
            .filter(|t| !snapshot.topics.contains_key(t.as_str()))
            .cloned()
            .collect()
    }

    /// Waits until `condition` holds, at most `timeout`; true if it does.
    pub async fn wait_until(
        &self,
        timeout: std::time::Duration,
        mut condition: impl FnMut(&Snapshot) -> bool,
    ) -> bool {
        let mut version = self.version.subscribe();
        let wait = async {
            loop {
                version.borrow_and_update();
                if condition(&self.current.load()) {
                    return;
                }
                if version.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(timeout, wait).await.is_ok()
    }
}
