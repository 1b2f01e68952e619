//! Unclean election allowed while the cluster runs: partitions without a leader are looked at again.

use std::sync::Arc;

use gracchus_controller::Event;
use tokio::sync::broadcast::error::RecvError;

use super::ControllerShell;
use crate::broker::Broker;
use crate::config::Change;

pub(super) fn start(broker: &Arc<Broker>, shell: &Arc<ControllerShell>) {
    let (broker, shell) = (broker.clone(), shell.clone());
    broker.tasks.clone().spawn(async move {
        let mut changes = broker.config.changes();
        let mut was_allowed = broker.config.current().unclean_leader_election_enable;
        loop {
            let change = tokio::select! {
                () = broker.shutdown.cancelled() => return,
                change = changes.recv() => change,
            };
            let topic = match change {
                Ok(Change::Topic(topic)) => {
                    if !broker.config.topic(&topic).unclean_leader_election_enable {
                        continue;
                    }
                    Some(topic.to_string())
                }
                Ok(Change::Broker) => {
                    let allowed = broker.config.current().unclean_leader_election_enable;
                    if std::mem::replace(&mut was_allowed, allowed) || !allowed {
                        continue;
                    }
                    None
                }
                // some change was missed: each topic's own configuration decides
                Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => return,
            };
            if shell.is_active() {
                shell.tell(Event::UncleanElectionEnabled { topic }).await;
            }
        }
    });
}
