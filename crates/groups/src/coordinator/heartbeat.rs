//! Heartbeat.

use super::{Desk, Step, check_member_of};
use crate::group::State;
use crate::request::Heartbeat;
use gracchus_kafka_proto::ErrorCode;

impl Desk<'_> {
    pub(super) fn heartbeat(&mut self, step: &mut Step<'_>, request: &Heartbeat) -> ErrorCode {
        match self.check(step, &request.group_id, false) {
            // nobody can have failed yet
            Err(ErrorCode::CoordinatorLoadInProgress) => return ErrorCode::None,
            Err(error) => return error,
            Ok(()) => {}
        }
        let Some(group) = self.groups.get_mut(request.group_id.as_str()) else {
            return ErrorCode::UnknownMemberId;
        };
        let instance_id = request.group_instance_id.as_deref();
        if let Err(error) = check_member_of(
            group,
            &request.member_id,
            instance_id,
            request.generation_id,
        ) {
            return error;
        }
        match group.state() {
            State::Empty => ErrorCode::UnknownMemberId,
            State::PreparingRebalance => {
                step.heard_from(group, &request.member_id);
                ErrorCode::RebalanceInProgress
            }
            // a member may heartbeat as soon as its JoinGroup is answered
            State::CompletingRebalance | State::Stable => {
                step.heard_from(group, &request.member_id);
                ErrorCode::None
            }
        }
    }
}
