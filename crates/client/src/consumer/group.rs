//! Membership in a classic group: join, sync, heartbeats, commit, leave.

use super::{ConsumerConfig, range};
use crate::admin::{Committed, commit_request};
use crate::{ClientError, Cluster, TopicPartition};
use bytes::Bytes;
use gracchus_kafka_proto::messages::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use gracchus_kafka_proto::messages::join_group_request::JoinGroupRequestProtocol;
use gracchus_kafka_proto::messages::leave_group_request::MemberIdentity;
use gracchus_kafka_proto::messages::sync_group_request::SyncGroupRequestAssignment;
use gracchus_kafka_proto::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use gracchus_kafka_proto::{ErrorCode, decode_stored, encode_stored};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

const PROTOCOL_TYPE: &str = "consumer";
const ASSIGNOR: &str = "range";
/// How often a leader looks whether its topics have other partitions now; oftener while one does not exist.
const TOPICS_CHECK: Duration = Duration::from_secs(60);
const MISSING_TOPIC_CHECK: Duration = Duration::from_secs(1);

/// What is sent with every request of a generation.
#[derive(Debug, Clone)]
struct Identity {
    group: String,
    member: String,
    instance: Option<String>,
    generation: i32,
}

pub(super) struct Member {
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    topics: Vec<String>,
    identity: Identity,
    /// Set by the heartbeat when the group wants everybody to join again.
    rejoin: Arc<AtomicBool>,
    heartbeat: Option<AbortHandle>,
    /// As leader: partitions of the topics when they were shared out, and when to look again.
    counts: Option<(HashMap<String, i32>, Instant)>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop_heartbeat();
    }
}

impl Member {
    pub(super) fn new(
        cluster: Cluster,
        config: Arc<ConsumerConfig>,
        group: String,
        topics: Vec<String>,
    ) -> Self {
        let instance = config.instance_id.clone();
        Member {
            cluster,
            config,
            topics,
            identity: Identity {
                group,
                member: String::new(),
                instance,
                generation: -1,
            },
            rejoin: Arc::new(AtomicBool::new(true)),
            heartbeat: None,
            counts: None,
        }
    }

    pub(super) fn is_member(&self) -> bool {
        self.identity.generation >= 0
    }

    fn stop_heartbeat(&mut self) {
        if let Some(task) = self.heartbeat.take() {
            task.abort();
        }
    }

    /// Whether the group rebalances, or its leader (this member) sees that the topics have changed.
    pub(super) async fn must_join(&mut self) -> Result<bool, ClientError> {
        if self.rejoin.load(Ordering::Acquire) {
            return Ok(true);
        }
        let Some((counts, due)) = &self.counts else {
            return Ok(false);
        };
        if Instant::now() < *due {
            return Ok(false);
        }
        let before = counts.clone();
        let topics: Vec<_> = before.keys().cloned().collect();
        match self.count_partitions(&topics).await {
            Ok(now) if now != before => return Ok(true),
            Ok(now) => self.counts = Some((now.clone(), Instant::now() + check_in(&now))),
            Err(e) => {
                tracing::debug!(error = %e, "the topics could not be looked at");
                self.counts = Some((before, Instant::now() + TOPICS_CHECK));
            }
        }
        Ok(false)
    }

    async fn count_partitions(
        &self,
        topics: &[String],
    ) -> Result<HashMap<String, i32>, ClientError> {
        if topics.is_empty() {
            return Ok(HashMap::new());
        }
        let answer = if self.config.allow_auto_create {
            self.cluster.metadata_creating(topics).await?
        } else {
            self.cluster.metadata(Some(topics)).await?
        };
        let mut out: HashMap<String, i32> = topics.iter().map(|t| (t.clone(), 0)).collect();
        for t in answer.topics {
            match ErrorCode::from_code(t.error_code) {
                ErrorCode::None
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::LeaderNotAvailable => {}
                code => {
                    return Err(ClientError::api(
                        code,
                        Some(&format!("{}: {:?}", code.message(), t.name)),
                    ));
                }
            }
            if let Some(name) = t.name {
                out.insert(name, i32::try_from(t.partitions.len()).unwrap_or(i32::MAX));
            }
        }
        Ok(out)
    }

    /// Joins and gives the partitions that this member has now.
    pub(super) async fn join(&mut self) -> Result<Vec<TopicPartition>, ClientError> {
        self.stop_heartbeat();
        self.counts = None;
        let deadline = Instant::now() + self.config.rebalance_timeout + self.config.session_timeout;
        // topics that are not there yet are created, if the broker does so, before anybody is told to share them
        let topics = self.topics.clone();
        if let Err(e) = self.count_partitions(&topics).await
            && !e.is_retriable()
        {
            return Err(e);
        }
        loop {
            match self.try_join().await {
                Ok(assigned) => {
                    self.rejoin.store(false, Ordering::Release);
                    self.start_heartbeat();
                    return Ok(assigned);
                }
                Err(e) => {
                    match e.code() {
                        Some(ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId)
                            if self.identity.instance.is_none() =>
                        {
                            self.identity.member.clear();
                            self.identity.generation = -1;
                        }
                        Some(ErrorCode::IllegalGeneration | ErrorCode::UnknownMemberId) => {
                            self.identity.generation = -1;
                        }
                        Some(ErrorCode::MemberIdRequired | ErrorCode::RebalanceInProgress) => {
                            continue;
                        }
                        _ if e.is_retriable() => {}
                        _ => return Err(e),
                    }
                    if Instant::now() >= deadline {
                        return Err(e);
                    }
                    self.cluster.forget_coordinator(&self.identity.group);
                    tracing::debug!(error = %e, group = self.identity.group, "joins again");
                    tokio::time::sleep(self.cluster.config().retry_backoff).await;
                }
            }
        }
    }

    async fn try_join(&mut self) -> Result<Vec<TopicPartition>, ClientError> {
        let coordinator = self.cluster.group_coordinator(&self.identity.group).await?;
        let subscription = ConsumerProtocolSubscription {
            topics: self.topics.clone(),
            ..Default::default()
        };
        let request = JoinGroupRequest {
            group_id: self.identity.group.clone(),
            session_timeout_ms: millis(self.config.session_timeout),
            rebalance_timeout_ms: millis(self.config.rebalance_timeout),
            member_id: self.identity.member.clone(),
            group_instance_id: self.identity.instance.clone(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: ASSIGNOR.into(),
                metadata: encode_stored(1, &subscription)?,
                ..Default::default()
            }],
            ..Default::default()
        };
        let timeout = self.config.rebalance_timeout + Duration::from_secs(5);
        let joined = coordinator
            .send_waiting(&request, i16::MAX, timeout)
            .await?;
        if joined.error_code == ErrorCode::MemberIdRequired.code() {
            self.identity.member = joined.member_id.clone();
        }
        ClientError::check(joined.error_code, None)?;
        self.identity.member = joined.member_id.clone();
        self.identity.generation = joined.generation_id;
        let leads = joined.leader == joined.member_id;
        let assignments = if leads && !joined.skip_assignment {
            self.share_out(&joined).await?
        } else {
            Vec::new()
        };
        let request = SyncGroupRequest {
            group_id: self.identity.group.clone(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            group_instance_id: self.identity.instance.clone(),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: joined.protocol_name.clone(),
            assignments,
            ..Default::default()
        };
        let synced = coordinator
            .send_waiting(&request, i16::MAX, timeout)
            .await?;
        ClientError::check(synced.error_code, None)?;
        assigned(synced.assignment)
    }

    /// As leader: who gets what.
    async fn share_out(
        &mut self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let mut members = Vec::new();
        let mut topics: Vec<String> = Vec::new();
        for m in &joined.members {
            let (_, subscription) =
                decode_stored::<ConsumerProtocolSubscription>(m.metadata.clone())?;
            topics.extend(subscription.topics.iter().cloned());
            members.push((
                m.member_id.clone(),
                m.group_instance_id.clone(),
                subscription.topics,
            ));
        }
        topics.sort();
        topics.dedup();
        let counts = self.count_partitions(&topics).await?;
        let mut out = Vec::new();
        for (member_id, partitions) in range(&members, &counts) {
            let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
            for tp in partitions {
                by_topic.entry(tp.topic).or_default().push(tp.partition);
            }
            let assignment = ConsumerProtocolAssignment {
                assigned_partitions: by_topic
                    .into_iter()
                    .map(|(topic, partitions)| AssignedTopic { topic, partitions })
                    .collect(),
                ..Default::default()
            };
            out.push(SyncGroupRequestAssignment {
                member_id,
                assignment: encode_stored(1, &assignment)?,
                ..Default::default()
            });
        }
        let due = Instant::now() + check_in(&counts);
        self.counts = Some((counts, due));
        Ok(out)
    }

    fn start_heartbeat(&mut self) {
        let task = tokio::spawn(heartbeats(
            self.cluster.clone(),
            self.identity.clone(),
            self.config.heartbeat_interval,
            self.rejoin.clone(),
        ));
        self.heartbeat = Some(task.abort_handle());
    }

    pub(super) async fn commit(
        &self,
        offsets: &[(TopicPartition, Committed)],
    ) -> Result<(), ClientError> {
        if offsets.is_empty() || !self.is_member() {
            return Ok(());
        }
        let id = &self.identity;
        let request = commit_request(
            &id.group,
            id.generation,
            &id.member,
            id.instance.as_deref(),
            offsets,
        );
        let coordinator = self.cluster.group_coordinator(&id.group).await?;
        let answer = coordinator.send_up_to(&request, 9).await?;
        for topic in answer.topics {
            for p in topic.partitions {
                match ErrorCode::from_code(p.error_code) {
                    ErrorCode::RebalanceInProgress
                    | ErrorCode::IllegalGeneration
                    | ErrorCode::UnknownMemberId => self.rejoin.store(true, Ordering::Release),
                    ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                        self.cluster.forget_coordinator(&id.group);
                    }
                    _ => {}
                }
                ClientError::check(p.error_code, None)?;
            }
        }
        Ok(())
    }

    /// Tells the group; a static member stays until its session ends.
    pub(super) async fn leave(&mut self) {
        self.stop_heartbeat();
        // with an id it may be waiting to join
        if self.identity.member.is_empty() || self.identity.instance.is_some() {
            return;
        }
        let leave = async {
            let coordinator = self.cluster.group_coordinator(&self.identity.group).await?;
            // members came with version 3; before, there is one member id
            let many = coordinator.version::<LeaveGroupRequest>(i16::MAX)? >= 3;
            let member = self.identity.member.clone();
            let request = if many {
                LeaveGroupRequest {
                    group_id: self.identity.group.clone(),
                    members: vec![MemberIdentity {
                        member_id: member,
                        ..Default::default()
                    }],
                    ..Default::default()
                }
            } else {
                LeaveGroupRequest {
                    group_id: self.identity.group.clone(),
                    member_id: member,
                    ..Default::default()
                }
            };
            let answer = coordinator.send(&request).await?;
            ClientError::check(answer.error_code, None)
        };
        if let Err(e) = leave.await {
            tracing::debug!(error = %e, "the group was not told");
        }
        self.identity.generation = -1;
        self.identity.member.clear();
    }
}

fn check_in(counts: &HashMap<String, i32>) -> Duration {
    if counts.values().any(|n| *n == 0) {
        MISSING_TOPIC_CHECK
    } else {
        TOPICS_CHECK
    }
}

fn millis(d: Duration) -> i32 {
    i32::try_from(d.as_millis()).unwrap_or(i32::MAX)
}

fn assigned(bytes: Bytes) -> Result<Vec<TopicPartition>, ClientError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let (_, assignment) = decode_stored::<ConsumerProtocolAssignment>(bytes)?;
    Ok(assignment
        .assigned_partitions
        .iter()
        .flat_map(|t| {
            t.partitions
                .iter()
                .map(|p| TopicPartition::new(&t.topic, *p))
        })
        .collect())
}

/// Until the group says otherwise.
async fn heartbeats(cluster: Cluster, id: Identity, interval: Duration, rejoin: Arc<AtomicBool>) {
    let request = HeartbeatRequest {
        group_id: id.group.clone(),
        generation_id: id.generation,
        member_id: id.member.clone(),
        group_instance_id: id.instance.clone(),
        ..Default::default()
    };
    loop {
        tokio::time::sleep(interval).await;
        let beat = async {
            let coordinator = cluster.group_coordinator(&id.group).await?;
            let answer = coordinator.send(&request).await?;
            ClientError::check(answer.error_code, None)
        };
        match beat.await {
            Ok(()) => {}
            Err(e) if e.is_retriable() && e.code() != Some(ErrorCode::RebalanceInProgress) => {
                tracing::debug!(error = %e, "heartbeat");
                cluster.forget_coordinator(&id.group);
            }
            Err(e) => {
                tracing::debug!(error = %e, group = id.group, "must join again");
                rejoin.store(true, Ordering::Release);
                return;
            }
        }
    }
}
