//! What is asked between brokers and by clients.

use gracchus_broker::replica::isr_changes::Question;
use gracchus_controller::ControlRequest;
use gracchus_kafka_proto::messages::{
    AlterPartitionRequest, AlterPartitionResponse, FetchRequest, FetchResponse,
    LeaderAndIsrResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse, StopReplicaResponse,
};

#[derive(Debug)]
pub enum Request {
    Control(ControlRequest),
    AlterPartition(AlterPartitionRequest, i16),
    Fetch(FetchRequest, i16),
    Epochs(OffsetForLeaderEpochRequest, i16),
    Offsets(ListOffsetsRequest, i16),
    Produce(ProduceRequest, String),
    /// Who leads: of Metadata the part that a client needs.
    Leader,
}

#[derive(Debug)]
pub enum Response {
    LeaderAndIsr(LeaderAndIsrResponse),
    StopReplica(StopReplicaResponse),
    UpdateMetadata,
    AlterPartition(AlterPartitionResponse),
    Fetch(FetchResponse),
    Epochs(OffsetForLeaderEpochResponse),
    Offsets(ListOffsetsResponse),
    Produce(ProduceResponse),
    Leader(Option<i32>),
}

/// Who waits for the answer.
pub enum Purpose {
    /// The fetcher of this source broker.
    Fetcher(i32),
    /// The send queue to this broker, the n-th that was opened.
    Control(i32, u64),
    IsrChange(Box<Question>),
    Client,
}

impl Request {
    pub fn shown(&self) -> String {
        match self {
            Self::Control(ControlRequest::LeaderAndIsr(r, _)) => {
                let mut text =
                    format!("LeaderAndIsr of {}/{}", r.controller_id, r.controller_epoch);
                for p in r.topic_states.iter().flat_map(|t| &t.partition_states) {
                    text += &format!(
                        " {}: leader {} epoch {} isr {:?} version {}",
                        p.partition_index, p.leader, p.leader_epoch, p.isr, p.partition_epoch
                    );
                }
                text
            }
            Self::Control(ControlRequest::UpdateMetadata { content: r, .. }) => {
                let live: Vec<i32> = r.live_brokers.iter().map(|b| b.id).collect();
                format!(
                    "UpdateMetadata of {}/{} live {live:?}",
                    r.controller_id, r.controller_epoch
                )
            }
            Self::Control(ControlRequest::StopReplica(r, _)) => {
                format!("StopReplica of {}/{}", r.controller_id, r.controller_epoch)
            }
            Self::AlterPartition(r, _) => {
                let mut text = "AlterPartition".to_owned();
                for p in r.topics.iter().flat_map(|t| &t.partitions) {
                    let isr: Vec<i32> = match p.new_isr.is_empty() {
                        true => p.new_isr_with_epochs.iter().map(|b| b.broker_id).collect(),
                        false => p.new_isr.clone(),
                    };
                    text += &format!(
                        " {}: epoch {} version {} isr {isr:?}",
                        p.partition_index, p.leader_epoch, p.partition_epoch
                    );
                }
                text
            }
            Self::Fetch(r, _) => {
                let mut text = format!("Fetch session {}/{}", r.session_id, r.session_epoch);
                for p in r.topics.iter().flat_map(|t| &t.partitions) {
                    text += &format!(
                        " {}: from {} last epoch {} leader epoch {}",
                        p.partition, p.fetch_offset, p.last_fetched_epoch, p.current_leader_epoch
                    );
                }
                text
            }
            Self::Epochs(..) => "OffsetForLeaderEpoch".into(),
            Self::Offsets(..) => "ListOffsets".into(),
            Self::Produce(_, value) => format!("Produce {value}"),
            Self::Leader => "Metadata".into(),
        }
    }
}
