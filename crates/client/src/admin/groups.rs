//! Consumer groups: list, describe, delete; their members.

use super::{Admin, Each};
use crate::{ClientError, TopicPartition};
use gracchus_kafka_proto::messages::leave_group_request::MemberIdentity;
use gracchus_kafka_proto::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use gracchus_kafka_proto::messages::{
    ConsumerProtocolAssignment, DeleteGroupsRequest, DescribeGroupsRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetDeleteRequest,
};
use gracchus_kafka_proto::{ErrorCode, decode_stored};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupListing {
    pub group: String,
    pub protocol_type: String,
    /// Empty from brokers older than 2.6.
    pub state: String,
    /// `classic` or `consumer`; empty from brokers older than 3.8.
    pub kind: String,
}

#[derive(Debug, Clone)]
pub struct GroupDescription {
    pub group: String,
    /// `Stable`, `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Dead`.
    pub state: String,
    pub protocol_type: String,
    /// The assignor in use.
    pub assignor: String,
    /// Id of the broker that coordinates it.
    pub coordinator: crate::Node,
    pub members: Vec<GroupMember>,
}

#[derive(Debug, Clone)]
pub struct GroupMember {
    pub id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    /// As Java prints an address: `/127.0.0.1`.
    pub host: String,
    pub assignment: Vec<TopicPartition>,
}

impl Admin {
    /// The groups of all brokers, by name; `states` filters (brokers since 2.6), an empty list does not.
    pub async fn list_groups(&self, states: &[String]) -> Result<Vec<GroupListing>, ClientError> {
        self.cluster
            .retry(|| async { self.cluster.metadata(Some(&[])).await })
            .await?;
        let request = ListGroupsRequest {
            states_filter: states.to_vec(),
            ..Default::default()
        };
        let mut out = BTreeMap::new();
        for node in self.cluster.nodes() {
            let answer = self
                .cluster
                .retry(|| async {
                    let answer = self.cluster.broker(node.id).await?.send(&request).await?;
                    ClientError::check(answer.error_code, None)?;
                    Ok(answer)
                })
                .await?;
            for g in answer.groups {
                let listing = GroupListing {
                    group: g.group_id.clone(),
                    protocol_type: g.protocol_type,
                    state: g.group_state,
                    kind: g.group_type,
                };
                out.insert(g.group_id, listing);
            }
        }
        Ok(out.into_values().collect())
    }

    pub async fn describe_groups(
        &self,
        groups: &[String],
    ) -> Result<Each<String, GroupDescription>, ClientError> {
        let mut out = Vec::new();
        for group in groups {
            out.push((group.clone(), self.describe_group(group).await));
        }
        Ok(out)
    }

    async fn describe_group(&self, group: &str) -> Result<GroupDescription, ClientError> {
        let request = DescribeGroupsRequest {
            groups: vec![group.to_owned()],
            ..Default::default()
        };
        // version 6 has an error message for unknown groups and a new error; 5 calls them Dead
        let answer = self
            .on_coordinator(group, &request, 5, |a| {
                a.groups.first().map_or(0, |g| g.error_code)
            })
            .await?;
        let address = self.cluster.group_coordinator(group).await?;
        let coordinator = self
            .cluster
            .nodes()
            .into_iter()
            .find(|n| n.address() == address.address())
            .ok_or_else(|| ClientError::api(ErrorCode::CoordinatorNotAvailable, None))?;
        let described = answer
            .groups
            .into_iter()
            .next()
            .ok_or_else(|| ClientError::api(ErrorCode::InvalidGroupId, None))?;
        ClientError::check(described.error_code, None)?;
        let consumers = described.protocol_type == "consumer" || described.protocol_type.is_empty();
        Ok(GroupDescription {
            group: described.group_id,
            state: described.group_state,
            protocol_type: described.protocol_type,
            assignor: described.protocol_data,
            coordinator,
            members: described
                .members
                .into_iter()
                .map(|m| GroupMember {
                    id: m.member_id,
                    instance_id: m.group_instance_id,
                    client_id: m.client_id,
                    host: m.client_host,
                    assignment: if consumers {
                        assigned(m.member_assignment)
                    } else {
                        Vec::new()
                    },
                })
                .collect(),
        })
    }

    pub async fn delete_groups(&self, groups: &[String]) -> Result<Each<String, ()>, ClientError> {
        let mut out = Vec::new();
        for group in groups {
            let request = DeleteGroupsRequest {
                groups_names: vec![group.clone()],
                ..Default::default()
            };
            let result = self
                .on_coordinator(group, &request, i16::MAX, |a| {
                    a.results.first().map_or(0, |g| g.error_code)
                })
                .await
                .and_then(|a| {
                    ClientError::check(a.results.first().map_or(0, |g| g.error_code), None)
                });
            out.push((group.clone(), result));
        }
        Ok(out)
    }

    /// Forgets the group's offsets of these partitions; fails for topics that it reads now.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Each<TopicPartition, ()>, ClientError> {
        let mut topics: BTreeMap<String, Vec<OffsetDeleteRequestPartition>> = BTreeMap::new();
        for tp in partitions {
            topics
                .entry(tp.topic.clone())
                .or_default()
                .push(OffsetDeleteRequestPartition {
                    partition_index: tp.partition,
                });
        }
        let request = OffsetDeleteRequest {
            group_id: group.to_owned(),
            topics: topics
                .into_iter()
                .map(|(name, partitions)| OffsetDeleteRequestTopic { name, partitions })
                .collect(),
        };
        let answer = self
            .on_coordinator(group, &request, i16::MAX, |a| a.error_code)
            .await?;
        ClientError::check(answer.error_code, None)?;
        let mut out = Vec::new();
        for topic in answer.topics {
            for p in topic.partitions {
                let tp = TopicPartition::new(&topic.name, p.partition_index);
                out.push((tp, ClientError::check(p.error_code, None)));
            }
        }
        Ok(out)
    }

    /// Makes a member leave.
    pub async fn remove_member(&self, group: &str, member: &str) -> Result<(), ClientError> {
        let request = LeaveGroupRequest {
            group_id: group.to_owned(),
            members: vec![MemberIdentity {
                member_id: member.to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = self
            .on_coordinator(group, &request, i16::MAX, |a| a.error_code)
            .await?;
        ClientError::check(answer.error_code, None)
    }
}

fn assigned(bytes: bytes::Bytes) -> Vec<TopicPartition> {
    if bytes.is_empty() {
        return Vec::new();
    }
    // another assignor's bytes are shown as no assignment
    let Ok((_, assignment)) = decode_stored::<ConsumerProtocolAssignment>(bytes) else {
        return Vec::new();
    };
    assignment
        .assigned_partitions
        .iter()
        .flat_map(|t| {
            t.partitions
                .iter()
                .map(|p| TopicPartition::new(&t.topic, *p))
        })
        .collect()
}
