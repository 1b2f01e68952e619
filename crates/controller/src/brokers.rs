//! Brokers that come, go, and change.

use std::collections::BTreeSet;

use gracchus_registry::json::BrokerRegistration;
use gracchus_registry::paths;

use crate::action::Action;
use crate::context::{LiveBroker, PartitionStage, Replica, ReplicaStage};
use crate::core::{Core, Failure};
use crate::leader_election::Strategy;

impl Core {
    /// `/brokers/ids` changed. A broker with a new epoch went away and came back: both are handled, in this order.
    pub async fn brokers_changed(&mut self) -> Result<(), Failure> {
        let found = self.read_brokers().await?;
        let known = &self.cx.brokers;
        let new: Vec<i32> = found
            .keys()
            .copied()
            .filter(|id| !known.contains_key(id))
            .collect();
        let dead: Vec<i32> = known
            .keys()
            .copied()
            .filter(|id| !found.contains_key(id))
            .collect();
        let bounced: Vec<i32> = known
            .iter()
            .filter(|(id, broker)| found.get(id).is_some_and(|now| now.epoch > broker.epoch))
            .map(|(id, _)| *id)
            .collect();
        if new.is_empty() && dead.is_empty() && bounced.is_empty() {
            return Ok(());
        }
        tracing::info!(?new, ?bounced, ?dead, "brokers changed");
        let mut add = |core: &mut Self, ids: &[i32]| {
            for id in ids {
                if let Some(broker) = found.get(id) {
                    core.add_broker(*id, broker.clone());
                }
            }
        };
        if !new.is_empty() {
            add(self, &new);
            self.broker_started(&new).await?;
        }
        if !bounced.is_empty() {
            self.remove_brokers(&bounced);
            self.broker_failed(&bounced).await?;
            add(self, &bounced);
            self.broker_started(&bounced).await?;
        }
        if !dead.is_empty() {
            self.remove_brokers(&dead);
            self.broker_failed(&dead).await?;
        }
        Ok(())
    }

    fn add_broker(&mut self, id: i32, broker: LiveBroker) {
        self.port.act(Action::AddBroker {
            broker_id: id,
            registration: broker.registration.clone(),
        });
        self.cx.brokers.insert(id, broker);
    }

    fn remove_brokers(&mut self, ids: &[i32]) {
        for id in ids {
            self.cx.brokers.remove(id);
            self.port.act(Action::RemoveBroker { broker_id: *id });
        }
    }

    async fn broker_started(&mut self, ids: &[i32]) -> Result<(), Failure> {
        for id in ids {
            self.cx.offline_dirs.remove(id);
        }
        let others: Vec<i32> = self
            .cx
            .brokers
            .keys()
            .copied()
            .filter(|id| !ids.contains(id))
            .collect();
        self.update_metadata(&others, &[]);
        let with_leaders: Vec<_> = self
            .cx
            .partitions()
            .filter(|(_, p)| p.leadership.is_some())
            .map(|(tp, _)| tp)
            .collect();
        self.update_metadata(ids, &with_leaders);
        let replicas = self.cx.replicas_on(ids);
        self.move_replicas(&replicas, ReplicaStage::Online).await?;
        self.bring_partitions_online(None).await?;
        self.resume_reassignments(Some(ids)).await?;
        let deleting: BTreeSet<_> = replicas
            .iter()
            .map(|r| r.partition.topic.clone())
            .filter(|topic| self.cx.is_deleting(topic))
            .collect();
        if !deleting.is_empty() {
            for topic in &deleting {
                self.cx.deletion_ineligible.remove(topic);
            }
            self.resume_deletions().await?;
        }
        Ok(())
    }

    async fn broker_failed(&mut self, ids: &[i32]) -> Result<(), Failure> {
        for id in ids {
            self.cx.offline_dirs.remove(id);
            self.cx.shutting_down.remove(id);
        }
        let replicas = self.cx.replicas_on(ids);
        self.replicas_went_offline(&replicas).await
    }

    /// Replicas whose broker or directory failed: new leaders for what they led, out of the ISRs, deletions wait.
    pub async fn replicas_went_offline(&mut self, replicas: &[Replica]) -> Result<(), Failure> {
        let (deleting, others): (Vec<Replica>, Vec<Replica>) = replicas
            .iter()
            .cloned()
            .partition(|r| self.cx.is_deleting(&r.partition.topic));
        let leaderless = self.cx.with_offline_leader();
        self.move_partitions(
            &leaderless,
            PartitionStage::Offline,
            Strategy::Offline { unclean: false },
        )
        .await?;
        self.bring_partitions_online(None).await?;
        self.move_replicas(&others, ReplicaStage::Offline).await?;
        if !deleting.is_empty() {
            self.deletion_failed(&deleting).await?;
        }
        if leaderless.is_empty() {
            let live = self.cx.live_or_shutting_down();
            self.update_metadata(&live, &[]);
        }
        Ok(())
    }

    /// A broker rewrote its registration: its addresses may have changed.
    pub async fn broker_modified(&mut self, id: i32) -> Result<(), Failure> {
        let path = paths::broker(id);
        let Some((data, _)) = self.read(&path, true).await? else {
            return Ok(());
        };
        let registration = match BrokerRegistration::parse(&data) {
            Ok(registration) => std::sync::Arc::new(registration),
            Err(error) => {
                tracing::error!("{path} cannot be read: {error}; going on with what it was before");
                return Ok(());
            }
        };
        let Some(broker) = self.cx.brokers.get_mut(&id) else {
            // it was unreadable before
            return self.brokers_changed().await;
        };
        let changed = broker.registration.endpoints != registration.endpoints
            || broker.registration.features != registration.features;
        broker.registration = registration.clone();
        if changed {
            tracing::info!("broker {id} has new endpoints or features");
            self.port.act(Action::UpdateBroker {
                broker_id: id,
                registration,
            });
            let live = self.cx.live_or_shutting_down();
            self.update_metadata(&live, &[]);
        }
        Ok(())
    }
}
