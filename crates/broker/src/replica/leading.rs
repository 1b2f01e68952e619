//! The ISR of a partition led here: who may join, who falls out, and what came of it.

use gracchus_log::TopicPartition;

use super::in_sync::InSync;
use super::isr_changes::{Answer, Proposal};
use super::manager::{Hosted, ReplicaManager};
use super::partition::{Partition, Role};

impl Partition {
    /// A replica may join once it has all that is committed, and something of this leader's epoch.
    pub(crate) fn may_join(
        &self,
        role: &Role,
        high_watermark: i64,
        follower: i32,
        end: i64,
    ) -> bool {
        role.is_leader
            && !role.isr.is_changing()
            && !role.isr.counts(follower)
            && role.replicas.contains(&follower)
            && end >= high_watermark
            && end >= role.epoch_start
            && self.is_alive(follower)
    }

    /// Proposes it, unless that came to nothing meanwhile.
    pub(crate) fn propose_joining(&self, follower: i32) -> Option<Proposal> {
        self.change_role(|role| {
            let end = role.followers.lock().get(&follower)?.log_end_offset;
            let high_watermark = role.log.as_ref()?.lock().high_watermark();
            let joins = self.may_join(role, high_watermark, follower, end)
                && role.isr.propose_joining(follower);
            joins.then(|| proposal(role))
        })
    }

    /// Proposes that the followers leave which had not all that the leader has for longer than
    /// `replica.lag.time.max.ms`.
    fn propose_leaving(&self, now_ms: i64, max_lag_ms: i64) -> Option<Proposal> {
        let behind = |role: &Role| -> Vec<i32> {
            let Some(log) = role.log.as_ref().filter(|_| role.is_leader) else {
                return Vec::new();
            };
            if role.isr.is_changing() {
                return Vec::new();
            }
            let end = log.lock().log_end_offset();
            let followers = role.followers.lock();
            let behind = followers.iter().filter(|(id, follower)| {
                role.isr.counts(**id) && !follower.is_caught_up(end, now_ms, max_lag_ms)
            });
            behind.map(|(id, _)| *id).collect()
        };
        if behind(&self.role()).is_empty() {
            return None;
        }
        self.change_role(|role| {
            let behind = behind(role);
            tracing::info!(partition = %self.id, ?behind, "followers have fallen out of the ISR");
            role.isr.propose_leaving(behind).then(|| proposal(role))
        })
    }

    /// The proposal is still what this leader wants, in the state that it was made in.
    fn is_proposed(role: &Role, proposal: &Proposal) -> bool {
        role.is_leader
            && role.leader_epoch == proposal.leader_epoch
            && role.partition_epoch == proposal.partition_epoch
            && role.isr.is_changing()
            && role.isr.proposed() == proposal.isr
    }

    fn isr_answered(&self, proposal: &Proposal, answer: Answer, now_ms: i64) {
        self.change_role(|role| {
            if !Self::is_proposed(role, proposal) {
                return; // a LeaderAndIsr came first
            }
            match answer {
                Answer::Confirmed {
                    leader_epoch,
                    partition_epoch,
                    isr,
                } => {
                    if leader_epoch != role.leader_epoch || partition_epoch < role.partition_epoch {
                        return;
                    }
                    tracing::info!(partition = %self.id, ?isr, partition_epoch, "the ISR has changed");
                    match isr.len().cmp(&role.isr.confirmed().len()) {
                        std::cmp::Ordering::Less => self.metrics.add(|c| &c.isr_shrinks, 1),
                        std::cmp::Ordering::Greater => self.metrics.add(|c| &c.isr_expands, 1),
                        std::cmp::Ordering::Equal => {}
                    }
                    role.isr = InSync::new(isr);
                    role.partition_epoch = partition_epoch;
                    if let Some(log) = role.log.clone() {
                        self.raise_high_watermark(role, &mut log.lock(), now_ms);
                    }
                }
                Answer::TakenBack => role.isr.take_back(),
                Answer::Open | Answer::Again => {}
            }
        });
    }
}

fn proposal(role: &Role) -> Proposal {
    Proposal {
        topic_id: role.topic_id.unwrap_or_default(),
        leader_epoch: role.leader_epoch,
        controller_epoch: role.controller_epoch,
        partition_epoch: role.partition_epoch,
        isr: role.isr.proposed(),
    }
}

impl ReplicaManager {
    /// One pass over the partitions led here.
    pub fn shrink_isrs(&self, now_ms: i64) {
        let max_lag = self.config.current().replica_lag_time_max_ms;
        for partition in self.online_partitions() {
            if let Some(proposal) = partition.propose_leaving(now_ms, max_lag) {
                self.isr_changes.propose(partition.id.clone(), proposal);
            }
        }
    }

    /// ISR changes that wait to be sent.
    pub fn isr_changes(&self) -> &super::isr_changes::IsrChanges {
        &self.isr_changes
    }

    pub(crate) fn is_proposed(&self, id: &TopicPartition, proposal: &Proposal) -> bool {
        match self.hosted(&id.topic, id.partition) {
            Some(Hosted::Online(partition)) => Partition::is_proposed(&partition.role(), proposal),
            _ => false,
        }
    }

    /// Takes in what came of a proposal.
    pub fn isr_answered(
        &self,
        id: &TopicPartition,
        proposal: &Proposal,
        answer: Answer,
        now_ms: i64,
    ) {
        if let Some(Hosted::Online(partition)) = self.hosted(&id.topic, id.partition) {
            partition.isr_answered(proposal, answer, now_ms);
        }
    }
}
