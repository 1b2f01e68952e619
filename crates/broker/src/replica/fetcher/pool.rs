//! All fetchers of this broker: for each leader it follows, `num.replica.fetchers` tasks, each with its own connection.
//! A task without partitions ends.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use gracchus_kafka_proto::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use gracchus_kafka_proto::{Request, Uuid};
use gracchus_log::TopicPartition;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::following::view;
use super::machine::Fetcher;
use super::round::{Round, Source, round};
use super::settings::Settings;
use super::steps::LogView;
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::net::client::BrokerConnection;
use crate::replica::partition::Partition;

/// A leader that does not answer is named at most so often.
const COMPLAIN_EVERY: u32 = 30;

/// How a partition is to be followed.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// ZERO when it has none.
    pub topic_id: Uuid,
    /// Of the leader.
    pub leader_epoch: i32,
    /// As it was when the role was given.
    pub log: LogView,
}

/// Who follows the partitions that others lead; told in the order of the roles.
pub trait Follow: Send + Sync {
    /// Follows it on this leader from now on.
    fn follow(&self, id: &TopicPartition, leader: i32, order: Order);
    /// Nobody fetches the partition any more.
    fn leave(&self, id: &TopicPartition);
}

impl Partition {
    /// Whom to follow (-1 nobody), and how; None for a leader, or without a log.
    pub fn following(&self) -> Option<(i32, Order)> {
        let role = self.role();
        let log = role.log.as_ref().filter(|_| !role.is_leader)?;
        let order = Order {
            topic_id: role.topic_id.unwrap_or(Uuid::ZERO),
            leader_epoch: role.leader_epoch,
            log: view(&log.lock()),
        };
        Some((role.leader_id, order))
    }
}

/// Which leader, and which of its fetchers.
type Place = (i32, u64);

/// What a fetcher's task has to take in: the last word about each partition, None to leave it.
#[derive(Debug, Default)]
struct Inbox {
    orders: Mutex<BTreeMap<TopicPartition, Option<Order>>>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Places {
    running: HashMap<Place, Arc<Inbox>>,
    at: HashMap<TopicPartition, Place>,
}

/// The fetchers.
pub struct Fetchers {
    broker: Weak<Broker>,
    hash: RandomState,
    places: Arc<Mutex<Places>>,
}

/// Lets the broker's replicas follow.
pub fn start(broker: &Arc<Broker>) {
    let fetchers = Fetchers {
        broker: Arc::downgrade(broker),
        hash: RandomState::new(),
        places: Arc::default(),
    };
    broker.replicas.follow_by(fetchers);
}

impl Follow for Fetchers {
    fn follow(&self, id: &TopicPartition, leader: i32, order: Order) {
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        let per_leader = broker
            .config
            .current()
            .num_replica_fetchers
            .max(1)
            .unsigned_abs();
        let place = (leader, self.hash.hash_one(id) % u64::from(per_leader));
        let mut places = self.places.lock();
        if places.at.get(id).is_some_and(|old| *old != place) {
            places.leave(id);
        }
        places.at.insert(id.clone(), place);
        let inbox = places.running.entry(place).or_insert_with(|| {
            let inbox = Arc::new(Inbox::default());
            let (owner, shutdown) = (broker.clone(), broker.shutdown.clone());
            let task = Task::new(owner, self.places.clone(), place, inbox.clone());
            broker.tasks.spawn(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = task.run() => {}
                }
            });
            inbox
        });
        inbox.orders.lock().insert(id.clone(), Some(order));
        inbox.news.notify_one();
    }

    fn leave(&self, id: &TopicPartition) {
        self.places.lock().leave(id);
    }
}

impl Places {
    /// Ends a task that has nothing to do, unless there is news for it.
    fn retire(&mut self, place: Place, inbox: &Inbox) -> bool {
        let ends = inbox.orders.lock().is_empty();
        if ends {
            self.running.remove(&place);
        }
        ends
    }

    fn leave(&mut self, id: &TopicPartition) {
        if let Some(place) = self.at.remove(id)
            && let Some(inbox) = self.running.get(&place)
        {
            inbox.orders.lock().insert(id.clone(), None);
            inbox.news.notify_one();
        }
    }
}

struct Task {
    broker: Arc<Broker>,
    places: Arc<Mutex<Places>>,
    place: Place,
    inbox: Arc<Inbox>,
    fetcher: Fetcher,
}

impl Task {
    fn new(
        broker: Arc<Broker>,
        places: Arc<Mutex<Places>>,
        place: Place,
        inbox: Arc<Inbox>,
    ) -> Self {
        let settings = Settings::new(broker.identity.broker_id, &broker.config.current());
        Self {
            broker,
            places,
            place,
            inbox,
            fetcher: Fetcher::new(settings),
        }
    }

    async fn run(mut self) {
        let mut leader = Leader {
            broker: self.broker.clone(),
            id: self.place.0,
            name: format!(
                "broker-{}-fetcher-{}",
                self.broker.identity.broker_id, self.place.1
            ),
            connection: None,
        };
        let backoff = u64::try_from(self.fetcher.settings().backoff_ms).unwrap_or(1000);
        let backoff = Duration::from_millis(backoff);
        let mut failures = 0u32;
        loop {
            let orders = std::mem::take(&mut *self.inbox.orders.lock());
            for (id, order) in orders {
                match order {
                    Some(o) => self.fetcher.follow(id, o.topic_id, o.leader_epoch, o.log),
                    None => self.fetcher.leave(&id),
                }
            }
            if self.fetcher.is_empty() && self.places.lock().retire(self.place, &self.inbox) {
                return;
            }
            match round(
                &mut self.fetcher,
                &mut leader,
                &self.broker.replicas,
                now_ms,
            )
            .await
            {
                Round::Done => failures = 0,
                Round::Idle(until) => self.wait(until).await,
                Round::Failed(reason) => {
                    leader.connection = None;
                    if failures.is_multiple_of(COMPLAIN_EVERY) {
                        tracing::warn!(
                            "fetching from broker {} failed: {reason}; trying again",
                            self.place.0
                        );
                    }
                    failures = failures.saturating_add(1);
                    tokio::select! {
                        () = self.inbox.news.notified() => {}
                        () = tokio::time::sleep(backoff) => {}
                    }
                }
            }
        }
    }

    async fn wait(&self, until: i64) {
        let pause = u64::try_from(until.saturating_sub(now_ms())).unwrap_or(0);
        // far enough, and no overflow
        let pause = Duration::from_millis(pause.min(86_400_000));
        tokio::select! {
            () = self.inbox.news.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The source broker, over its inter-broker listener.
struct Leader {
    broker: Arc<Broker>,
    id: i32,
    name: String,
    connection: Option<BrokerConnection>,
}

impl Leader {
    async fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, String> {
        // out of its place while in use: what is given up half-way must not leave its answer for the next
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = connection
            .send(version, request)
            .await
            .map_err(|e| e.to_string())?;
        self.connection = Some(connection);
        Ok(answer)
    }

    async fn connect(&self) -> Result<BrokerConnection, String> {
        let listener = &self.broker.listeners.inter_broker;
        let snapshot = self.broker.metadata.snapshot();
        let live = snapshot.brokers.get(&self.id).ok_or("it is not alive")?;
        let endpoint = live
            .endpoint(listener)
            .ok_or_else(|| format!("it has no listener {listener}"))?;
        let port = u16::try_from(endpoint.port).map_err(|_| "it has no valid port")?;
        let config = self.broker.config.current();
        let patience = u64::try_from(config.replica_socket_timeout_ms).unwrap_or(30_000);
        BrokerConnection::connect(
            &endpoint.host,
            port,
            &self.name,
            Duration::from_millis(patience),
        )
        .await
        .map_err(|e| format!("{}:{port}: {e}", endpoint.host))
    }
}

impl Source for Leader {
    async fn fetch(
        &mut self,
        version: i16,
        mut request: FetchRequest,
    ) -> Result<FetchResponse, String> {
        if version >= 15 {
            request.replica_state.replica_epoch = self.broker.identity.broker_epoch();
        }
        self.send(version, &request).await
    }

    async fn epochs(
        &mut self,
        version: i16,
        request: OffsetForLeaderEpochRequest,
    ) -> Result<OffsetForLeaderEpochResponse, String> {
        self.send(version, &request).await
    }

    async fn offsets(
        &mut self,
        version: i16,
        request: ListOffsetsRequest,
    ) -> Result<ListOffsetsResponse, String> {
        self.send(version, &request).await
    }
}
