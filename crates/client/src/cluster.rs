//! A cluster as a client sees it: which broker leads what, and one connection to each broker in use.

use crate::connection::{Connection, ConnectionConfig};
use crate::{ClientError, TopicPartition};
use gracchus_kafka_proto::messages::metadata_request::MetadataRequestTopic;
use gracchus_kafka_proto::messages::{FindCoordinatorRequest, MetadataRequest, MetadataResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a cluster is reached.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// `host:port`, tried in order.
    pub bootstrap: Vec<String>,
    pub connection: ConnectionConfig,
    /// How long an operation is retried before its last error is given back.
    pub api_timeout: Duration,
    pub retry_backoff: Duration,
}

impl ClusterConfig {
    /// From a comma-separated list of `host:port`.
    pub fn new(bootstrap: &str) -> Self {
        ClusterConfig {
            bootstrap: bootstrap
                .split(',')
                .map(str::trim)
                .filter(|s| !s.is_empty())
                .map(str::to_owned)
                .collect(),
            connection: ConnectionConfig::default(),
            api_timeout: Duration::from_secs(60),
            retry_backoff: Duration::from_millis(100),
        }
    }
}

/// A broker's advertised address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
}

impl Node {
    pub fn address(&self) -> String {
        // an IPv6 address needs brackets before a port
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Who leads a partition, as last heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    pub broker: i32,
    pub epoch: i32,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<i32, Node>,
    controller: i32,
    leaders: HashMap<TopicPartition, Leader>,
    partitions: HashMap<String, i32>,
    topic_ids: HashMap<String, Uuid>,
    connections: HashMap<i32, Connection>,
    /// Of groups, by group id.
    coordinators: HashMap<String, i32>,
}

/// Cheap to clone; clones share connections and what was heard.
#[derive(Clone)]
pub struct Cluster {
    config: Arc<ClusterConfig>,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.config.bootstrap.join(","))
    }
}

impl Cluster {
    /// Finds the cluster's brokers through the first bootstrap server that answers; retries until the API timeout, and
    /// tells `failed` why each attempt failed.
    pub async fn connect(
        config: ClusterConfig,
        failed: impl Fn(&ClientError),
    ) -> Result<Self, ClientError> {
        let cluster = Cluster {
            config: Arc::new(config),
            state: Arc::default(),
        };
        let last = Mutex::new(None);
        let attempt = || async {
            let answer = cluster.metadata(Some(&[])).await;
            answer.map(drop).inspect_err(|error| {
                failed(error);
                *last.lock() = Some(error.clone());
            })
        };
        let patience = cluster.config.api_timeout;
        // a server that takes the connection and is silent must not take longer than one that is not there
        match tokio::time::timeout(patience, cluster.retry(attempt)).await {
            Ok(done) => done?,
            Err(_) => {
                return Err(last.into_inner().unwrap_or_else(|| ClientError::NoBroker {
                    bootstrap: cluster.config.bootstrap.join(","),
                    reason: format!("no answer within {} ms", patience.as_millis()),
                }));
            }
        }
        Ok(cluster)
    }

    /// The same cluster over connections of its own: a broker answers a connection's requests one after the other, so a
    /// request that it holds (a fetch, a join) would hold up everything behind it.
    pub fn separate(&self) -> Self {
        let state = self.state.lock();
        Cluster {
            config: self.config.clone(),
            state: Arc::new(Mutex::new(State {
                nodes: state.nodes.clone(),
                controller: state.controller,
                ..State::default()
            })),
        }
    }

    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// The live brokers, by id.
    pub fn nodes(&self) -> Vec<Node> {
        self.state.lock().nodes.values().cloned().collect()
    }

    /// Runs it again while its error is one that passes by itself.
    pub async fn retry<T, F>(&self, mut each: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let deadline = Instant::now() + self.config.api_timeout;
        loop {
            match each().await {
                Err(e) if e.is_retriable() && Instant::now() < deadline => {
                    tracing::debug!(error = %e, "retried");
                    tokio::time::sleep(self.config.retry_backoff).await;
                }
                done => return done,
            }
        }
    }

    async fn open(&self, address: &str) -> Result<Connection, ClientError> {
        Connection::connect(address, &self.config.connection).await
    }

    /// Any broker that can be reached: a connection in use, a known broker, a bootstrap server.
    pub async fn any(&self) -> Result<Connection, ClientError> {
        let ids: Vec<i32> = {
            let mut state = self.state.lock();
            state.connections.retain(|_, c| !c.is_closed());
            if let Some(connection) = state.connections.values().next() {
                return Ok(connection.clone());
            }
            state.nodes.keys().copied().collect()
        };
        for id in ids {
            if let Ok(connection) = self.broker(id).await {
                return Ok(connection);
            }
        }
        let mut reason = "no bootstrap server is given".to_owned();
        for address in &self.config.bootstrap {
            match self.open(address).await {
                Ok(connection) => return Ok(connection),
                Err(e) => reason = e.to_string(),
            }
        }
        Err(ClientError::NoBroker {
            bootstrap: self.config.bootstrap.join(","),
            reason,
        })
    }

    /// The connection to a broker, made when first asked for.
    pub async fn broker(&self, id: i32) -> Result<Connection, ClientError> {
        let node = {
            let state = self.state.lock();
            if let Some(connection) = state.connections.get(&id)
                && !connection.is_closed()
            {
                return Ok(connection.clone());
            }
            state.nodes.get(&id).cloned()
        };
        let node = node.ok_or_else(|| {
            ClientError::api(
                ErrorCode::BrokerNotAvailable,
                Some(&format!("broker {id} is not in the cluster's metadata")),
            )
        })?;
        let connection = self.open(&node.address()).await?;
        let mut state = self.state.lock();
        // another task may have been faster
        let kept = state
            .connections
            .entry(id)
            .and_modify(|c| {
                if c.is_closed() {
                    *c = connection.clone();
                }
            })
            .or_insert(connection);
        Ok(kept.clone())
    }

    /// The controller, as of the last metadata; asked for anew when it isn't known.
    pub async fn controller(&self) -> Result<Connection, ClientError> {
        let known = self.state.lock().controller;
        if known >= 0 && self.state.lock().nodes.contains_key(&known) {
            return self.broker(known).await;
        }
        self.metadata(Some(&[])).await?;
        let id = self.state.lock().controller;
        if id < 0 {
            return Err(ClientError::api(ErrorCode::NotController, None));
        }
        self.broker(id).await
    }

    /// Call after NOT_CONTROLLER.
    pub fn forget_controller(&self) {
        self.state.lock().controller = -1;
    }

    /// The group's coordinator, as last heard; asked for if it isn't known or can't be reached.
    pub async fn group_coordinator(&self, group: &str) -> Result<Connection, ClientError> {
        let known = self.state.lock().coordinators.get(group).copied();
        if let Some(id) = known {
            match self.broker(id).await {
                Ok(connection) => return Ok(connection),
                Err(_) => self.forget_coordinator(group),
            }
        }
        let connection = self.any().await?;
        let request = FindCoordinatorRequest {
            key: group.to_owned(),
            key_type: 0,
            ..Default::default()
        };
        // version 3 asks for one key; batches came with version 4
        let answer = connection.send_up_to(&request, 3).await?;
        ClientError::check(answer.error_code, answer.error_message.as_deref())?;
        {
            let mut state = self.state.lock();
            state.nodes.entry(answer.node_id).or_insert(Node {
                id: answer.node_id,
                host: answer.host,
                port: answer.port,
                rack: None,
            });
            state.coordinators.insert(group.to_owned(), answer.node_id);
        }
        self.broker(answer.node_id).await
    }

    /// Call after NOT_COORDINATOR and its like.
    pub fn forget_coordinator(&self, group: &str) {
        self.state.lock().coordinators.remove(group);
    }

    /// Asks for topics (`None`: all of them), without creating any, and remembers the answer.
    pub async fn metadata(
        &self,
        topics: Option<&[String]>,
    ) -> Result<MetadataResponse, ClientError> {
        self.ask_metadata(topics, false).await
    }

    /// As [`Cluster::metadata`], letting the broker create topics that it lacks, if it does so.
    pub async fn metadata_creating(
        &self,
        topics: &[String],
    ) -> Result<MetadataResponse, ClientError> {
        self.ask_metadata(Some(topics), true).await
    }

    async fn ask_metadata(
        &self,
        topics: Option<&[String]>,
        create: bool,
    ) -> Result<MetadataResponse, ClientError> {
        let connection = self.any().await?;
        let request = MetadataRequest {
            topics: topics.map(|names| {
                names
                    .iter()
                    .map(|name| MetadataRequestTopic {
                        name: Some(name.clone()),
                        ..Default::default()
                    })
                    .collect()
            }),
            allow_auto_topic_creation: create,
            ..Default::default()
        };
        let answer = connection.send(&request).await?;
        self.remember(&answer);
        Ok(answer)
    }

    fn remember(&self, answer: &MetadataResponse) {
        let mut state = self.state.lock();
        state.nodes = answer
            .brokers
            .iter()
            .map(|b| {
                let node = Node {
                    id: b.node_id,
                    host: b.host.clone(),
                    port: b.port,
                    rack: b.rack.clone(),
                };
                (b.node_id, node)
            })
            .collect();
        let State {
            nodes, connections, ..
        } = &mut *state;
        connections.retain(|id, c| nodes.get(id).is_some_and(|n| n.address() == c.address()));
        state.controller = answer.controller_id;
        for topic in &answer.topics {
            let Some(name) = &topic.name else { continue };
            state.leaders.retain(|tp, _| tp.topic != *name);
            state.partitions.remove(name);
            if topic.error_code != 0 {
                continue;
            }
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            state.partitions.insert(name.clone(), count);
            state.topic_ids.insert(name.clone(), topic.topic_id);
            for p in &topic.partitions {
                if p.leader_id >= 0 {
                    let leader = Leader {
                        broker: p.leader_id,
                        epoch: p.leader_epoch,
                    };
                    let tp = TopicPartition::new(name, p.partition_index);
                    state.leaders.insert(tp, leader);
                }
            }
        }
    }

    /// The partition's leader as last heard; `None` if it has to be asked for.
    pub fn known_leader(&self, tp: &TopicPartition) -> Option<Leader> {
        self.state.lock().leaders.get(tp).copied()
    }

    /// How many partitions the topic has, as last heard.
    pub fn known_partitions(&self, topic: &str) -> Option<i32> {
        self.state.lock().partitions.get(topic).copied()
    }

    /// The next question for this partition's leader goes to the cluster.
    pub fn forget_leader(&self, tp: &TopicPartition) {
        self.state.lock().leaders.remove(tp);
    }

    /// The partition's leader; asked for if it isn't known.
    pub async fn leader(&self, tp: &TopicPartition) -> Result<Leader, ClientError> {
        if let Some(leader) = self.known_leader(tp) {
            return Ok(leader);
        }
        let answer = self.metadata(Some(std::slice::from_ref(&tp.topic))).await?;
        for topic in &answer.topics {
            ClientError::check(topic.error_code, None)?;
            for p in topic
                .partitions
                .iter()
                .filter(|p| p.partition_index == tp.partition)
            {
                // a replica that is down does not matter as long as there is a leader
                if p.leader_id < 0 {
                    ClientError::check(p.error_code, None)?;
                }
            }
        }
        self.known_leader(tp)
            .ok_or_else(|| ClientError::api(ErrorCode::UnknownTopicOrPartition, None))
    }

    /// The partitions of the list by the broker that leads them.
    pub async fn by_leader(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<i32, Vec<TopicPartition>>, ClientError> {
        let mut topics: Vec<String> = partitions
            .iter()
            .filter(|tp| self.known_leader(tp).is_none())
            .map(|tp| tp.topic.clone())
            .collect();
        topics.sort();
        topics.dedup();
        if !topics.is_empty() {
            self.metadata(Some(&topics)).await?;
        }
        let mut out: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for tp in partitions {
            let leader = self.leader(tp).await?;
            out.entry(leader.broker).or_default().push(tp.clone());
        }
        Ok(out)
    }
}
