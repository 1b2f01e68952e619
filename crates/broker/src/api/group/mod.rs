//! The requests of groups: each evens out its versions, asks [`crate::group::GroupShell`], and writes the answer. Rules in
//! `docs/groups.md`.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;

use crate::broker::Broker;

/// DeleteGroups (42).
pub mod delete_groups;
/// DescribeGroups (15).
pub mod describe_groups;
/// FindCoordinator (10).
pub mod find_coordinator;
/// Heartbeat (12).
pub mod heartbeat;
/// JoinGroup (11).
pub mod join_group;
/// LeaveGroup (13).
pub mod leave_group;
/// ListGroups (16).
pub mod list_groups;
/// OffsetCommit (8).
pub mod offset_commit;
/// OffsetDelete (47).
pub mod offset_delete;
/// OffsetFetch (9).
pub mod offset_fetch;
/// SyncGroup (14).
pub mod sync_group;

/// Static members need inter.broker.protocol.version 2.3: an older coordinator would forget the instance id.
fn check_instance_id(broker: &Arc<Broker>, instance_id: Option<&String>) -> Result<(), ErrorCode> {
    if instance_id.is_some() && !broker.groups.settings().static_members {
        return Err(ErrorCode::UnsupportedVersion);
    }
    Ok(())
}
