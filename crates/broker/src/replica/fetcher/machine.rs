//! One fetcher: the partitions that it follows on one source broker. No I/O; the time is passed in.
//!
//! [`Fetcher::next`] says what to ask, the shell asks, [`Fetcher::fetched`] and its like take the answer and give
//! [`Step`]s for the logs, and [`Fetcher::done`] takes what came of each. Nothing is told of a log that its role would not
//! bear: the shell does a step only under the leader epoch that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gracchus_kafka_proto::messages::{
    FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse,
};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::{EpochEnd, TopicPartition};
use hashbrown::HashMap;

use super::session::Session;
use super::settings::Settings;
use super::steps::{LogView, Outcome, Step, What, Work};
use crate::replica::offsets::{EARLIEST, LATEST};

/// The first pause for a leader that is not ready; each is twice as long as the one before, up to
/// `replica.fetch.backoff.ms`.
const FIRST_WAIT_MS: i64 = 20;

/// A partition whose throttle is exceeded waits so long.
const THROTTLED_MS: i64 = 500;

/// What is done about a partition next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Where the leader's log parts from this one is to be found out first.
    Truncating,
    /// Records are asked for.
    Fetching,
    /// The leader has not what was asked for: its end, or else its start, decides.
    OutOfRange {
        /// LATEST or EARLIEST.
        ask: i64,
    },
}

/// One partition.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) topic_id: Uuid,
    pub(super) leader_epoch: i32,
    pub(super) log: LogView,
    pub(super) phase: Phase,
    /// Not before this time.
    pub(super) not_before_ms: i64,
    /// How often in a row the leader was not ready.
    waits: u32,
    /// The leader's session has it.
    pub(super) in_session: bool,
}

impl Followed {
    pub(super) fn is_ready(&self, now_ms: i64) -> bool {
        self.not_before_ms <= now_ms
    }
}

/// One fetcher.
#[derive(Debug)]
pub struct Fetcher {
    pub(super) settings: Settings,
    pub(super) followed: HashMap<TopicPartition, Followed>,
    /// Names by id, for answers that name topics by id.
    pub(super) names: HashMap<Uuid, (Arc<str>, usize)>,
    pub(super) session: Session,
    /// The session names topics by id.
    pub(super) by_id: bool,
    /// The next request has to say something of these.
    pub(super) changed: BTreeSet<TopicPartition>,
    /// Left, but in the leader's session.
    pub(super) forgotten: BTreeMap<TopicPartition, Uuid>,
    /// By the time from which they are ready again.
    delayed: BTreeSet<(i64, TopicPartition)>,
    /// Those not in phase Fetching.
    pub(super) unsettled: BTreeSet<TopicPartition>,
    /// Partitions of the leader's session.
    pub(super) in_session: usize,
}

impl Fetcher {
    /// Follows nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            followed: HashMap::new(),
            names: HashMap::new(),
            session: Session::default(),
            by_id: false,
            changed: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            delayed: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            in_session: 0,
        }
    }

    /// True if it follows nothing.
    pub fn is_empty(&self) -> bool {
        self.followed.is_empty()
    }

    /// What it goes by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Follows a partition from now on. The same leader epoch again changes nothing.
    pub fn follow(&mut self, id: TopicPartition, topic_id: Uuid, leader_epoch: i32, log: LogView) {
        if self
            .followed
            .get(&id)
            .is_some_and(|known| known.leader_epoch == leader_epoch && known.topic_id == topic_id)
        {
            return;
        }
        self.leave(&id);
        // Without an epoch in the log, only what is committed is sure to be the leader's too.
        let settled = self.settings.truncates_on_fetch && log.latest_epoch.is_some();
        let phase = if settled {
            Phase::Fetching
        } else {
            Phase::Truncating
        };
        if !settled {
            self.unsettled.insert(id.clone());
        }
        if !topic_id.is_zero() {
            let named = self.names.entry(topic_id).or_insert((id.topic.clone(), 0));
            named.1 += 1;
        }
        self.changed.insert(id.clone());
        self.followed.insert(
            id,
            Followed {
                topic_id,
                leader_epoch,
                log,
                phase,
                not_before_ms: 0,
                waits: 0,
                in_session: false,
            },
        );
    }

    /// Follows it no more.
    pub fn leave(&mut self, id: &TopicPartition) {
        let Some(left) = self.followed.remove(id) else {
            return;
        };
        self.unsettled.remove(id);
        self.changed.remove(id);
        self.delayed.remove(&(left.not_before_ms, id.clone()));
        if left.in_session {
            self.in_session -= 1;
            self.forgotten.insert(id.clone(), left.topic_id);
        }
        if let Some(named) = self.names.get_mut(&left.topic_id) {
            named.1 -= 1;
            if named.1 == 0 {
                self.names.remove(&left.topic_id);
            }
        }
    }

    /// What to do now.
    pub fn next(&mut self, now_ms: i64) -> Work {
        while let Some((at, id)) = self.delayed.first().cloned()
            && at <= now_ms
        {
            self.delayed.remove(&(at, id.clone()));
            self.changed.insert(id);
        }
        let steps = self.cuts_without_question(now_ms);
        if !steps.is_empty() {
            return Work::Steps(steps);
        }
        if let Some(request) = super::requests::epochs(self, now_ms) {
            return Work::Epochs(request);
        }
        if let Some(request) = super::requests::offsets(self, now_ms) {
            return Work::Offsets(request);
        }
        match super::requests::fetch(self, now_ms) {
            Some((request, version)) => Work::Fetch(request, version),
            None => Work::Wait(self.delayed.first().map_or(i64::MAX, |(at, _)| *at)),
        }
    }

    /// Logs without epochs, or a leader that can't be asked for them: cut to what is committed.
    fn cuts_without_question(&self, now_ms: i64) -> Vec<Step> {
        let mut steps = Vec::new();
        for id in &self.unsettled {
            if let Some(followed) = self.followed.get(id)
                && followed.phase == Phase::Truncating
                && followed.is_ready(now_ms)
                && (followed.log.latest_epoch.is_none() || !self.settings.knows_epochs)
            {
                steps.push(Step {
                    partition: id.clone(),
                    leader_epoch: followed.leader_epoch,
                    what: What::Truncate(followed.log.high_watermark),
                });
            }
        }
        steps
    }

    /// The answer to [`Work::Epochs`].
    pub fn epochs_answered(
        &mut self,
        response: OffsetForLeaderEpochResponse,
        now_ms: i64,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        for topic in response.topics {
            let name: Arc<str> = topic.topic.into();
            for end in topic.partitions {
                let id = TopicPartition {
                    topic: name.clone(),
                    partition: end.partition,
                };
                let Some(followed) = self.followed.get(&id) else {
                    continue;
                };
                if followed.phase != Phase::Truncating {
                    continue;
                }
                match ErrorCode::from_code(end.error_code) {
                    ErrorCode::None => steps.push(Step {
                        partition: id,
                        leader_epoch: followed.leader_epoch,
                        what: What::Diverged {
                            leader: EpochEnd {
                                epoch: end.leader_epoch,
                                end_offset: end.end_offset,
                            },
                            high_watermark: -1,
                        },
                    }),
                    code => self.refused(&id, code, now_ms),
                }
            }
        }
        steps
    }

    /// The answer to [`Work::Offsets`].
    pub fn offsets_answered(&mut self, response: ListOffsetsResponse, now_ms: i64) -> Vec<Step> {
        let mut steps = Vec::new();
        for topic in response.topics {
            let name: Arc<str> = topic.name.into();
            for found in topic.partitions {
                let id = TopicPartition {
                    topic: name.clone(),
                    partition: found.partition_index,
                };
                let Some(followed) = self.followed.get_mut(&id) else {
                    continue;
                };
                let Phase::OutOfRange { ask } = followed.phase else {
                    continue;
                };
                let code = ErrorCode::from_code(found.error_code);
                if code != ErrorCode::None {
                    self.refused(&id, code, now_ms);
                    continue;
                }
                // Version 0 answers a list.
                let offset = found
                    .old_style_offsets
                    .first()
                    .copied()
                    .unwrap_or(found.offset);
                let what = match ask {
                    LATEST if offset < followed.log.end => {
                        tracing::warn!(partition = %id, "the leader's log ends at {offset}, ours at {}: it is cut", followed.log.end);
                        What::Truncate(offset)
                    }
                    LATEST => {
                        followed.phase = Phase::OutOfRange { ask: EARLIEST };
                        continue;
                    }
                    _ if offset > followed.log.end => {
                        tracing::warn!(partition = %id, "the leader's log starts at {offset}, ours ended at {}: it starts anew", followed.log.end);
                        What::Restart(offset)
                    }
                    // It lies within by now.
                    _ => What::Truncate(followed.log.end),
                };
                steps.push(Step {
                    partition: id,
                    leader_epoch: followed.leader_epoch,
                    what,
                });
            }
        }
        steps
    }

    /// The answer to [`Work::Fetch`].
    pub fn fetched(&mut self, response: FetchResponse, now_ms: i64) -> Vec<Step> {
        let error = ErrorCode::from_code(response.error_code);
        self.session.answered(response.session_id, error);
        if error != ErrorCode::None {
            self.forget_session();
            if !matches!(
                error,
                ErrorCode::FetchSessionIdNotFound
                    | ErrorCode::InvalidFetchSessionEpoch
                    | ErrorCode::FetchSessionTopicIdError
            ) {
                self.delay_all(now_ms);
            }
            return Vec::new();
        }
        if self.session.is_full() {
            self.forget_session();
        }
        let mut steps = Vec::new();
        for topic in response.responses {
            let name: Arc<str> = if self.by_id {
                match self.names.get(&topic.topic_id) {
                    Some((name, _)) => name.clone(),
                    None => continue,
                }
            } else {
                topic.topic.into()
            };
            for data in topic.partitions {
                let id = TopicPartition {
                    topic: name.clone(),
                    partition: data.partition_index,
                };
                let Some(followed) = self.followed.get_mut(&id) else {
                    continue;
                };
                if followed.phase != Phase::Fetching {
                    continue;
                }
                match ErrorCode::from_code(data.error_code) {
                    ErrorCode::None => {}
                    ErrorCode::OffsetOutOfRange => {
                        followed.phase = Phase::OutOfRange { ask: LATEST };
                        self.unsettled.insert(id.clone());
                        self.changed.insert(id);
                        continue;
                    }
                    code => {
                        self.refused(&id, code, now_ms);
                        continue;
                    }
                }
                let what = if data.diverging_epoch.epoch >= 0 {
                    What::Diverged {
                        leader: EpochEnd {
                            epoch: data.diverging_epoch.epoch,
                            end_offset: data.diverging_epoch.end_offset,
                        },
                        high_watermark: data.high_watermark,
                    }
                } else {
                    What::Append {
                        offset: followed.log.end,
                        records: data
                            .records
                            .map(super::requests::joined)
                            .unwrap_or_default(),
                        high_watermark: data.high_watermark,
                        log_start_offset: data.log_start_offset,
                    }
                };
                steps.push(Step {
                    partition: id,
                    leader_epoch: followed.leader_epoch,
                    what,
                });
            }
        }
        steps
    }

    /// What came of a step.
    pub fn done(&mut self, step: &Step, outcome: Outcome, now_ms: i64) {
        let id = &step.partition;
        let Some(followed) = self.followed.get_mut(id) else {
            return;
        };
        if followed.leader_epoch != step.leader_epoch {
            return;
        }
        match outcome {
            Outcome::Done(log) => {
                followed.waits = 0;
                if followed.log != log || followed.phase != Phase::Fetching {
                    followed.log = log;
                    followed.phase = Phase::Fetching;
                    self.unsettled.remove(id);
                    self.changed.insert(id.clone());
                }
            }
            Outcome::Throttled(log) => {
                followed.log = log;
                self.delay_by(id, now_ms, THROTTLED_MS);
            }
            Outcome::Undecided(log) => {
                followed.log = log;
                self.changed.insert(id.clone());
                if self.settings.truncates_on_fetch && log.latest_epoch.is_some() {
                    // The next fetch asks with the epoch that is the last now.
                    followed.phase = Phase::Fetching;
                    self.unsettled.remove(id);
                } else {
                    followed.phase = Phase::Truncating;
                    self.unsettled.insert(id.clone());
                }
            }
            Outcome::Left => self.leave(id),
            Outcome::Later => self.delay(id, now_ms),
        }
    }

    /// No answer came.
    pub fn failed(&mut self) {
        self.session.lost();
        self.forget_session();
    }

    /// An error of one partition.
    fn refused(&mut self, id: &TopicPartition, code: ErrorCode, now_ms: i64) {
        match code {
            ErrorCode::FencedLeaderEpoch => {
                // A newer leader is there; its LeaderAndIsr is under way.
                tracing::info!(partition = %id, "the leader is of a newer epoch; waiting for the controller's word");
                self.leave(id);
            }
            ErrorCode::UnknownLeaderEpoch
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::OffsetNotAvailable => {
                // Mostly the controller's word has not reached it yet: that takes milliseconds.
                tracing::debug!(partition = %id, "the leader is not ready: {}", code.name());
                let waits = self.followed.get_mut(id).map_or(0, |followed| {
                    followed.waits = followed.waits.saturating_add(1);
                    followed.waits - 1
                });
                let pause = FIRST_WAIT_MS << waits.min(10);
                self.delay_by(id, now_ms, pause.min(self.settings.backoff_ms));
            }
            code => {
                tracing::warn!(partition = %id, "the leader answered {}", code.name());
                self.delay(id, now_ms);
            }
        }
    }

    fn delay(&mut self, id: &TopicPartition, now_ms: i64) {
        self.delay_by(id, now_ms, self.settings.backoff_ms);
    }

    fn delay_by(&mut self, id: &TopicPartition, now_ms: i64, pause_ms: i64) {
        let until = now_ms.saturating_add(pause_ms);
        if let Some(followed) = self.followed.get_mut(id) {
            self.delayed.remove(&(followed.not_before_ms, id.clone()));
            followed.not_before_ms = until;
            self.delayed.insert((until, id.clone()));
            self.changed.insert(id.clone());
        }
    }

    fn delay_all(&mut self, now_ms: i64) {
        let all: Vec<TopicPartition> = self.followed.keys().cloned().collect();
        for id in all {
            self.delay(&id, now_ms);
        }
    }

    /// The leader has nothing of us.
    pub(super) fn forget_session(&mut self) {
        for followed in self.followed.values_mut() {
            followed.in_session = false;
        }
        self.in_session = 0;
        self.forgotten.clear();
    }
}
