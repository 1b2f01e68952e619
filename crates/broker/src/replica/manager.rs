//! Which partitions are hosted here.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::{LogError, LogManager, TopicPartition};
use hashbrown::{Equivalent, HashMap};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::fetcher::Follow;
use super::isr_changes::IsrChanges;
use super::moves::queue::Queue;
use super::partition::{Partition, report};
use super::recovering::Waiting;
use super::session::FetchSessions;
use super::throttle::Throttle;
use crate::config::ConfigStore;
use crate::metadata::MetadataCache;
use crate::metrics::{TopicMetrics, TopicRegistry};

/// Told of leadership, in order, after the role has changed: the coordinators load and unload their partitions so.
pub trait LeadershipObserver: Send + Sync {
    /// This broker leads the partition in this epoch.
    fn became_leader(&self, partition: &TopicPartition, leader_epoch: i32);
    /// This broker does not lead the partition (any more). `leader_epoch` is None when it was deleted.
    fn lost_leadership(&self, partition: &TopicPartition, leader_epoch: Option<i32>);
}

/// What happened to the log directories, for the controller to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageNews {
    /// One failed; others work.
    DirFailed,
    /// None works any more.
    AllDirsFailed,
    /// Logs that could not be opened for want of space or file descriptors are open now: their roles are asked for anew.
    LogsOpened,
}

type TellStorageNews = Box<dyn Fn(StorageNews) + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Hosted {
    Online(Arc<Partition>),
    /// In a log directory that failed.
    Offline,
    /// Assigned, but the disk was full or the process out of file descriptors when its log was to be opened.
    Unopened(Unopened),
}

/// How to open the log when it can be.
#[derive(Clone, Copy)]
pub(crate) struct Unopened {
    pub(crate) is_new: bool,
    pub(crate) topic_id: Uuid,
    /// Done, and told; the controller's next LeaderAndIsr gives the role.
    pub(crate) opened: bool,
}

/// Looks a partition up without an allocation: hashes as [`TopicPartition`] does.
pub(crate) struct Name<'a>(pub(crate) &'a str, pub(crate) i32);

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
        self.1.hash(state);
    }
}

impl Equivalent<TopicPartition> for Name<'_> {
    fn equivalent(&self, key: &TopicPartition) -> bool {
        self.1 == key.partition && *self.0 == *key.topic
    }
}

/// The replicas of this broker.
pub struct ReplicaManager {
    pub(crate) broker_id: i32,
    pub(crate) config: Arc<ConfigStore>,
    pub(crate) metadata: Arc<MetadataCache>,
    pub(crate) logs: Arc<LogManager>,
    pub(crate) hosted: RwLock<HashMap<TopicPartition, Hosted>>,
    /// What the controller has said of logs that are not loaded yet.
    pub(crate) waiting: Mutex<std::collections::HashMap<TopicPartition, Waiting>>,
    /// Serialises LeaderAndIsr and StopReplica; holds the highest controller epoch seen.
    pub(crate) controller_epoch: Mutex<i32>,
    /// True after the first LeaderAndIsr: a broker that never got one must not overwrite the checkpoints.
    pub(crate) checkpoints_high_watermarks: AtomicBool,
    pub(crate) sessions: FetchSessions,
    pub(crate) isr_changes: IsrChanges,
    pub(crate) leader_throttle: Throttle,
    pub(crate) follower_throttle: Throttle,
    pub(crate) move_throttle: Throttle,
    pub(crate) moves: Mutex<Queue>,
    pub(crate) moves_changed: Notify,
    /// Counters by topic.
    pub topics: TopicRegistry,
    pub(crate) fetchers: OnceLock<Box<dyn Follow>>,
    observers: OnceLock<Vec<Arc<dyn LeadershipObserver>>>,
    storage_news: OnceLock<TellStorageNews>,
}

impl ReplicaManager {
    /// Hosts nothing until the controller says so, though the logs are there.
    pub fn new(
        broker_id: i32,
        config: Arc<ConfigStore>,
        metadata: Arc<MetadataCache>,
        logs: Arc<LogManager>,
    ) -> Self {
        let slots = config.current().max_incremental_fetch_session_cache_slots;
        Self {
            broker_id,
            config,
            metadata,
            logs,
            hosted: RwLock::new(HashMap::new()),
            waiting: Mutex::default(),
            controller_epoch: Mutex::new(0),
            checkpoints_high_watermarks: AtomicBool::new(false),
            sessions: FetchSessions::new(usize::try_from(slots).unwrap_or(0)),
            isr_changes: IsrChanges::default(),
            leader_throttle: Throttle::of_leader(),
            follower_throttle: Throttle::of_follower(),
            move_throttle: Throttle::of_moves(),
            moves: Mutex::new(Queue::default()),
            moves_changed: Notify::new(),
            topics: TopicRegistry::default(),
            fetchers: OnceLock::new(),
            observers: OnceLock::new(),
            storage_news: OnceLock::new(),
        }
    }

    /// The coordinators; set once, before the first LeaderAndIsr.
    pub fn set_observers(&self, observers: Vec<Arc<dyn LeadershipObserver>>) {
        if self.observers.set(observers).is_err() {
            tracing::error!("the observers of leadership are set already");
        }
    }

    /// What is done about news of the log directories (the notice to the controller); set once.
    pub fn on_storage_news(&self, tell: impl Fn(StorageNews) + Send + Sync + 'static) {
        if self.storage_news.set(Box::new(tell)).is_err() {
            tracing::error!("the handler of news of the log directories is set already");
        }
    }

    pub(crate) fn tell_storage_news(&self, news: StorageNews) {
        if let Some(tell) = self.storage_news.get() {
            tell(news);
        }
    }

    /// Who follows what others lead; set once, before the first LeaderAndIsr.
    pub fn follow_by(&self, fetchers: impl Follow + 'static) {
        if self.fetchers.set(Box::new(fetchers)).is_err() {
            tracing::error!("the fetchers are started already");
        }
    }

    /// No fetcher asks for the partition any more.
    pub(crate) fn leave(&self, id: &TopicPartition) {
        if let Some(fetchers) = self.fetchers.get() {
            fetchers.leave(id);
        }
    }

    pub(crate) fn observers(&self) -> &[Arc<dyn LeadershipObserver>] {
        self.observers.get().map_or(&[], Vec::as_slice)
    }

    /// Fetch sessions.
    pub fn sessions(&self) -> &FetchSessions {
        &self.sessions
    }

    /// The log manager.
    pub fn logs(&self) -> &Arc<LogManager> {
        &self.logs
    }

    pub(crate) fn hosted(&self, topic: &str, partition: i32) -> Option<Hosted> {
        self.hosted.read().get(&Name(topic, partition)).cloned()
    }

    /// The partition, or the protocol's error: KAFKA_STORAGE_ERROR in a failed directory, NOT_LEADER_OR_FOLLOWER if
    /// other brokers have it, UNKNOWN_TOPIC_OR_PARTITION.
    pub fn partition(&self, topic: &str, partition: i32) -> Result<Arc<Partition>, ErrorCode> {
        match self.hosted.read().get(&Name(topic, partition)) {
            Some(Hosted::Online(found)) => return Ok(found.clone()),
            Some(Hosted::Offline | Hosted::Unopened(_)) => {
                return Err(ErrorCode::KafkaStorageError);
            }
            None => {}
        }
        if self
            .metadata
            .snapshot()
            .partition(topic, partition)
            .is_some()
        {
            Err(ErrorCode::NotLeaderOrFollower)
        } else {
            Err(ErrorCode::UnknownTopicOrPartition)
        }
    }

    /// The counters of a partition's topic, if it is hosted in a directory that works.
    pub fn topic_metrics(&self, topic: &str, partition: i32) -> Option<Arc<TopicMetrics>> {
        match self.hosted.read().get(&Name(topic, partition)) {
            Some(Hosted::Online(found)) => Some(found.metrics.clone()),
            _ => None,
        }
    }

    /// All partitions hosted in directories that work.
    pub fn online_partitions(&self) -> Vec<Arc<Partition>> {
        let hosted = self.hosted.read();
        let online = hosted.values().filter_map(|hosted| match hosted {
            Hosted::Online(partition) => Some(partition.clone()),
            Hosted::Offline | Hosted::Unopened(_) => None,
        });
        online.collect()
    }

    /// How many partitions are hosted, led, under-replicated, and offline.
    pub fn counts(&self) -> PartitionCounts {
        let mut counts = PartitionCounts::default();
        for hosted in self.hosted.read().values() {
            counts.hosted += 1;
            match hosted {
                Hosted::Offline | Hosted::Unopened(_) => counts.offline += 1,
                Hosted::Online(partition) => {
                    let role = partition.role();
                    if !role.is_leader {
                        continue;
                    }
                    let in_sync = role.isr.confirmed().len();
                    let least = partition.effective_min_isr(&role);
                    counts.led += 1;
                    counts.under_replicated += usize::from(in_sync < role.replicas.len());
                    counts.under_min_isr += usize::from(in_sync < least);
                    counts.at_min_isr += usize::from(in_sync == least);
                }
            }
        }
        counts
    }

    /// An error of a log: takes its directory's partitions offline where it must. The protocol's error for it.
    pub(crate) fn log_failed(
        &self,
        partition: &TopicPartition,
        doing: &str,
        error: &LogError,
    ) -> ErrorCode {
        let code = report(partition, doing, error);
        if error.takes_dir_offline() {
            self.logs.handle_error(error);
            self.take_dirs_offline();
        }
        code
    }

    /// Partitions of directories that failed since the last look go offline.
    pub fn take_dirs_offline(&self) {
        for (dir, lost) in self.logs.take_newly_offline() {
            tracing::error!(
                dir = %dir.display(),
                partitions = lost.len(),
                "log directory failed; its partitions are offline until the disk is mended and the broker restarted"
            );
            for id in &lost {
                self.waiting.lock().remove(id);
                let before = self.hosted.write().insert(id.clone(), Hosted::Offline);
                self.leave(id);
                if let Some(Hosted::Online(partition)) = before {
                    partition.change_role(|role| {
                        role.log = None;
                        role.is_leader = false;
                    });
                    for observer in self.observers() {
                        observer.lost_leadership(id, None);
                    }
                }
            }
            self.tell_storage_news(if self.logs.online_dirs().is_empty() {
                StorageNews::AllDirsFailed
            } else {
                StorageNews::DirFailed
            });
        }
    }

    /// A topic's configuration changed.
    pub fn topic_config_changed(&self, topic: &str) {
        let config = super::log_config::log_config(&self.config.topic(topic));
        self.logs.update_topic_config(topic, config);
    }

    /// The broker's own configuration changed: defaults of every topic may have.
    pub fn broker_config_changed(&self) {
        self.configure_throttles();
        let default = super::log_config::log_config(&self.config.topic(""));
        self.logs.update_default_config(default);
        let mut topics: Vec<Arc<str>> = self
            .logs
            .logs()
            .into_iter()
            .map(|(id, _)| id.topic)
            .collect();
        topics.sort_unstable();
        topics.dedup();
        for topic in topics {
            self.topic_config_changed(&topic);
        }
    }

    pub(crate) fn enable_high_watermark_checkpoints(&self) {
        self.checkpoints_high_watermarks
            .store(true, Ordering::Release);
    }
}

/// Gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionCounts {
    /// Replicas here.
    pub hosted: usize,
    /// Led by this broker.
    pub led: usize,
    /// Led here with fewer in-sync replicas than assigned ones.
    pub under_replicated: usize,
    /// Led here with fewer in-sync replicas than `min.insync.replicas`: acks=all is refused.
    pub under_min_isr: usize,
    /// Led here with just as many.
    pub at_min_isr: usize,
    /// In failed directories, or not to be opened for want of space or file descriptors.
    pub offline: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_keys() {
        let mut map = HashMap::new();
        map.insert(TopicPartition::new("a-topic", 3), 1);
        assert_eq!(map.get(&Name("a-topic", 3)), Some(&1));
        assert_eq!(map.get(&Name("a-topic", 4)), None);
        assert_eq!(map.get(&Name("b", 3)), None);
    }
}
