//! A coordinator, a clock and a log that the test controls.

use bytes::Bytes;
use gracchus_groups::group::State;
use gracchus_groups::request::*;
use gracchus_groups::response::*;
use gracchus_groups::{
    Action, AppendBatch, AppendToken, Event, GroupConfig, GroupCoordinator, LoadedPartition,
    PartitionLoader, ReplyToken, Request, Response,
};
use gracchus_kafka_proto::ErrorCode;
use std::collections::{BTreeMap, HashMap, VecDeque};

pub const G: &str = "g";
pub const SESSION: i32 = 10_000;
pub const REBALANCE: i32 = 60_000;

pub struct Bench {
    pub coordinator: GroupCoordinator,
    pub now: i64,
    next_token: u64,
    pub replies: HashMap<ReplyToken, Response>,
    /// What the log holds, by partition.
    pub log: BTreeMap<i32, Vec<(i64, AppendBatch)>>,
    next_offset: i64,
    /// Appends are held back instead of done.
    pub hold: bool,
    pub held: VecDeque<(i32, AppendBatch, AppendToken)>,
    /// What appends end with.
    pub log_error: Option<ErrorCode>,
    pub loads: Vec<(i32, i32)>,
}

impl Bench {
    /// Owns all partitions.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut GroupConfig)) -> Self {
        let mut bench = Self::unloaded(change);
        for partition in 0..50 {
            bench.event(Event::Elected {
                partition,
                leader_epoch: 0,
            });
            bench.finish_load(partition, 0, LoadedPartition::default());
        }
        bench
    }

    /// Started, owns nothing.
    pub fn unloaded(change: impl FnOnce(&mut GroupConfig)) -> Self {
        let mut bench = Self::stopped(change);
        bench.event(Event::Started);
        bench
    }

    pub fn stopped(change: impl FnOnce(&mut GroupConfig)) -> Self {
        let mut config = GroupConfig::default();
        change(&mut config);
        let mut count = 0;
        Bench {
            coordinator: GroupCoordinator::new(config, move || {
                count += 1;
                format!("id{count}")
            }),
            now: 1_000_000,
            next_token: 0,
            replies: HashMap::new(),
            log: BTreeMap::new(),
            next_offset: 0,
            hold: false,
            held: VecDeque::new(),
            log_error: None,
            loads: Vec::new(),
        }
    }

    pub fn event(&mut self, event: Event) {
        let actions = self.coordinator.step(event, self.now);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply { token, response } => {
                    let before = self.replies.insert(token, response);
                    assert!(before.is_none(), "{token:?} answered twice");
                }
                Action::Append {
                    partition,
                    batch,
                    token,
                } => match token {
                    None => {
                        self.write(partition, batch);
                    }
                    Some(token) if self.hold || !self.held.is_empty() => {
                        self.held.push_back((partition, batch, token))
                    }
                    Some(token) => self.finish(partition, batch, token),
                },
                Action::Load {
                    partition,
                    leader_epoch,
                } => self.loads.push((partition, leader_epoch)),
            }
        }
    }

    fn write(&mut self, partition: i32, batch: AppendBatch) -> i64 {
        let offset = self.next_offset;
        self.next_offset += batch.records.len() as i64;
        self.log.entry(partition).or_default().push((offset, batch));
        offset
    }

    fn finish(&mut self, partition: i32, batch: AppendBatch, token: AppendToken) {
        let result = match self.log_error {
            Some(error) => Err(error),
            None => Ok(self.write(partition, batch)),
        };
        self.event(Event::AppendDone { token, result });
    }

    /// Ends the oldest append held back.
    pub fn release(&mut self) {
        let (partition, batch, token) = self.held.pop_front().expect("an append is held back");
        self.finish(partition, batch, token);
    }

    pub fn finish_load(&mut self, partition: i32, leader_epoch: i32, contents: LoadedPartition) {
        self.event(Event::Loaded {
            partition,
            leader_epoch,
            contents,
        });
    }

    /// Time passes, deadline by deadline.
    pub fn pass(&mut self, ms: i64) {
        let until = self.now + ms;
        while let Some(at) = self
            .coordinator
            .next_deadline_ms()
            .filter(|at| *at <= until)
        {
            self.now = self.now.max(at);
            self.event(Event::Timer);
        }
        self.now = until;
    }

    /// Time passes until a request is answered, deadline by deadline.
    pub fn await_reply(&mut self, token: ReplyToken) {
        while self.waits(token) {
            let at = self
                .coordinator
                .next_deadline_ms()
                .expect("something is due");
            self.now = self.now.max(at);
            self.event(Event::Timer);
        }
    }

    pub fn send(&mut self, request: Request) -> ReplyToken {
        let token = ReplyToken(self.next_token);
        self.next_token += 1;
        self.event(Event::Request { token, request });
        token
    }

    pub fn reply(&mut self, token: ReplyToken) -> Response {
        self.replies.remove(&token).expect("not answered yet")
    }

    pub fn waits(&self, token: ReplyToken) -> bool {
        !self.replies.contains_key(&token)
    }

    pub fn call(&mut self, request: Request) -> Response {
        let token = self.send(request);
        self.reply(token)
    }

    pub fn state(&self, group: &str) -> State {
        self.coordinator
            .group(group)
            .expect("the group exists")
            .state()
    }

    pub fn generation(&self, group: &str) -> i32 {
        self.coordinator
            .group(group)
            .expect("the group exists")
            .generation
    }

    pub fn join_reply(&mut self, token: ReplyToken) -> JoinGroupResult {
        match self.reply(token) {
            Response::JoinGroup(result) => result,
            other => panic!("not a JoinGroup answer: {other:?}"),
        }
    }

    pub fn sync_reply(&mut self, token: ReplyToken) -> SyncGroupResult {
        match self.reply(token) {
            Response::SyncGroup(result) => result,
            other => panic!("not a SyncGroup answer: {other:?}"),
        }
    }

    pub fn join(&mut self, request: JoinGroup) -> JoinGroupResult {
        let token = self.send(Request::JoinGroup(request));
        self.join_reply(token)
    }

    pub fn send_join(&mut self, request: JoinGroup) -> ReplyToken {
        self.send(Request::JoinGroup(request))
    }

    /// A SyncGroup of the current generation, without the leader's assignment.
    pub fn send_sync(&mut self, member_id: &str) -> ReplyToken {
        let request = self.sync_request(member_id, &[]);
        self.send(Request::SyncGroup(request))
    }

    pub fn sync_request(
        &self,
        member_id: &str,
        assignments: &[(&str, &'static [u8])],
    ) -> SyncGroup {
        SyncGroup {
            group_id: G.into(),
            generation_id: self.generation(G),
            member_id: member_id.into(),
            assignments: assignments
                .iter()
                .map(|(id, bytes)| ((*id).to_owned(), Bytes::from_static(bytes)))
                .collect(),
            ..Default::default()
        }
    }

    pub fn heartbeat(&mut self, member_id: &str) -> ErrorCode {
        let generation_id = self.generation(G);
        self.heartbeat_of(member_id, generation_id, None)
    }

    pub fn heartbeat_of(
        &mut self,
        member_id: &str,
        generation_id: i32,
        group_instance_id: Option<&str>,
    ) -> ErrorCode {
        let request = Heartbeat {
            group_id: G.into(),
            generation_id,
            member_id: member_id.into(),
            group_instance_id: group_instance_id.map(str::to_owned),
        };
        match self.call(Request::Heartbeat(request)) {
            Response::Heartbeat(error) => error,
            other => panic!("not a Heartbeat answer: {other:?}"),
        }
    }

    pub fn leave(&mut self, members: Vec<LeavingMember>) -> LeaveGroupResult {
        let request = LeaveGroup {
            group_id: G.into(),
            members,
        };
        match self.call(Request::LeaveGroup(request)) {
            Response::LeaveGroup(result) => result,
            other => panic!("not a LeaveGroup answer: {other:?}"),
        }
    }

    pub fn leave_id(&mut self, member_id: &str) -> ErrorCode {
        let result = self.leave(vec![LeavingMember {
            member_id: member_id.into(),
            ..Default::default()
        }]);
        match result.error {
            ErrorCode::None => result.members[0].error,
            error => error,
        }
    }

    pub fn commit(&mut self, request: OffsetCommit) -> Vec<(TopicPartition, ErrorCode)> {
        match self.call(Request::OffsetCommit(request)) {
            Response::OffsetCommit(result) => result,
            other => panic!("not an OffsetCommit answer: {other:?}"),
        }
    }

    /// A simple consumer's commit.
    pub fn commit_simple(&mut self, group: &str, topic: &str, offset: i64) -> ErrorCode {
        self.commit(simple(group, topic, offset))[0].1
    }

    pub fn fetch(&mut self, request: OffsetFetch) -> OffsetFetchResult {
        match self.call(Request::OffsetFetch(request)) {
            Response::OffsetFetch(result) => result,
            other => panic!("not an OffsetFetch answer: {other:?}"),
        }
    }

    pub fn offset(&mut self, group: &str, topic: &str) -> i64 {
        let request = OffsetFetch {
            group_id: group.into(),
            require_stable: false,
            partitions: Some(vec![TopicPartition::new(topic, 0)]),
        };
        let result = self.fetch(request);
        assert_eq!(result.error, ErrorCode::None);
        result.offsets[0].offset
    }

    pub fn describe(&mut self, group: &str) -> DescribedGroup {
        let request = DescribeGroup {
            group_id: group.into(),
        };
        match self.call(Request::DescribeGroup(request)) {
            Response::DescribeGroup(result) => result,
            other => panic!("not a DescribeGroups answer: {other:?}"),
        }
    }

    pub fn delete_group(&mut self, group: &str) -> ErrorCode {
        let request = DeleteGroups {
            group_ids: vec![group.into()],
        };
        match self.call(Request::DeleteGroups(request)) {
            Response::DeleteGroups(result) => result[0].1,
            other => panic!("not a DeleteGroups answer: {other:?}"),
        }
    }

    pub fn delete_offsets(&mut self, group: &str, topics: &[&str]) -> OffsetDeleteResult {
        let request = OffsetDelete {
            group_id: group.into(),
            partitions: topics.iter().map(|t| TopicPartition::new(*t, 0)).collect(),
        };
        match self.call(Request::OffsetDelete(request)) {
            Response::OffsetDelete(result) => result,
            other => panic!("not an OffsetDelete answer: {other:?}"),
        }
    }

    pub fn list(&mut self, states: &[&str], types: &[&str]) -> ListGroupsResult {
        let request = ListGroups {
            states: states.iter().map(|s| (*s).to_owned()).collect(),
            types: types.iter().map(|s| (*s).to_owned()).collect(),
        };
        match self.call(Request::ListGroups(request)) {
            Response::ListGroups(result) => result,
            other => panic!("not a ListGroups answer: {other:?}"),
        }
    }

    /// Brings group G to CompletingRebalance with so many dynamic members; returns their ids, the leader first.
    pub fn completing(&mut self, members: usize) -> Vec<String> {
        let tokens: Vec<_> = (0..members).map(|_| self.send_join(newcomer())).collect();
        self.await_reply(tokens[0]);
        let results: Vec<_> = tokens.into_iter().map(|t| self.join_reply(t)).collect();
        for result in &results {
            assert_eq!(result.error, ErrorCode::None);
            assert_eq!(result.leader_id, results[0].member_id);
        }
        results.into_iter().map(|result| result.member_id).collect()
    }

    /// Brings group G to Stable; member i has the assignment "ai".
    pub fn stable(&mut self, members: usize) -> Vec<String> {
        let ids = self.completing(members);
        self.settle(&ids);
        ids
    }

    /// All send their SyncGroup, the leader (first) with an assignment.
    pub fn settle(&mut self, ids: &[String]) {
        let followers: Vec<_> = ids[1..].iter().map(|id| self.send_sync(id)).collect();
        let mut request = self.sync_request(&ids[0], &[]);
        request.assignments = ids
            .iter()
            .enumerate()
            .map(|(i, id)| (id.clone(), Bytes::from(format!("a{i}"))))
            .collect();
        let leader = self.send(Request::SyncGroup(request));
        assert_eq!(self.sync_reply(leader).assignment, "a0");
        for (i, token) in followers.into_iter().enumerate() {
            let result = self.sync_reply(token);
            assert_eq!(result.error, ErrorCode::None);
            assert_eq!(result.assignment, format!("a{}", i + 1));
        }
        assert_eq!(self.state(G), State::Stable);
    }

    /// What the log holds of a partition, as a new leader would load it.
    pub fn load_from_log(&self, partition: i32) -> LoadedPartition {
        let mut loader = PartitionLoader::new(partition);
        for (offset, batch) in self.log.get(&partition).into_iter().flatten() {
            for (key, value) in &batch.records {
                let producer = batch.transactional.map(|(id, _)| id);
                loader.record(*offset, Some(key.clone()), value.clone(), producer);
            }
        }
        loader.finish()
    }
}

/// A version 3 dynamic consumer without id: it is added at once.
pub fn newcomer() -> JoinGroup {
    JoinGroup {
        group_id: G.into(),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout_ms: REBALANCE,
        session_timeout_ms: SESSION,
        protocol_type: "consumer".into(),
        protocols: protocols(&["range", "roundrobin"]),
        ..Default::default()
    }
}

pub fn rejoin(member_id: &str) -> JoinGroup {
    JoinGroup {
        member_id: member_id.into(),
        ..newcomer()
    }
}

pub fn static_join(instance: &str, member_id: &str) -> JoinGroup {
    JoinGroup {
        group_instance_id: Some(instance.into()),
        ..rejoin(member_id)
    }
}

/// Each with a subscription to topic "t".
pub fn protocols(names: &[&str]) -> Vec<(String, Bytes)> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), subscription(&["t"])))
        .collect()
}

/// Version 0 of the consumer protocol.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend((topic.len() as i16).to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend((-1i32).to_be_bytes());
    bytes.into()
}

pub fn offset_of(topic: &str, offset: i64) -> CommittedOffset {
    CommittedOffset {
        partition: TopicPartition::new(topic, 0),
        offset,
        leader_epoch: -1,
        metadata: None,
        timestamp: -1,
    }
}

pub fn simple(group: &str, topic: &str, offset: i64) -> OffsetCommit {
    member_commit(group, "", -1, topic, offset)
}

pub fn member_commit(
    group: &str,
    member_id: &str,
    generation_id: i32,
    topic: &str,
    offset: i64,
) -> OffsetCommit {
    OffsetCommit {
        group_id: group.into(),
        generation_id,
        member_id: member_id.into(),
        group_instance_id: None,
        retention_ms: None,
        offsets: vec![offset_of(topic, offset)],
    }
}
