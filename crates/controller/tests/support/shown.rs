//! Requests to brokers as short texts.

use gracchus_controller::ControlRequest;

pub fn shown(request: &ControlRequest) -> String {
    let mut text;
    match request {
        ControlRequest::LeaderAndIsr(r, _) => {
            text = "LeaderAndIsr".to_owned();
            for t in &r.topic_states {
                for p in &t.partition_states {
                    let new = if p.is_new { " new" } else { "" };
                    text += &format!(
                        " {}-{}:{}/{}{:?}{new}",
                        t.topic_name, p.partition_index, p.leader, p.leader_epoch, p.isr
                    );
                }
            }
        }
        ControlRequest::UpdateMetadata { content: r, .. } => {
            let live: Vec<i32> = r.live_brokers.iter().map(|b| b.id).collect();
            text = format!("UpdateMetadata {live:?}");
            for t in &r.topic_states {
                for p in &t.partition_states {
                    text += &format!(
                        " {}-{}:{}/{}{:?}",
                        t.topic_name, p.partition_index, p.leader, p.leader_epoch, p.isr
                    );
                }
            }
        }
        ControlRequest::StopReplica(r, _) => {
            text = "StopReplica".to_owned();
            for t in &r.topic_states {
                for p in &t.partition_states {
                    let delete = if p.delete_partition { " delete" } else { "" };
                    text += &format!(
                        " {}-{}/{}{delete}",
                        t.topic_name, p.partition_index, p.leader_epoch
                    );
                }
            }
        }
    }
    text
}
