//! The session with ZooKeeper, and the registration under it.

use std::collections::BTreeMap;

use gracchus_controller::Event as ControllerEvent;
use gracchus_registry::json::{
    BrokerRegistration, ConfigZnode, Endpoint, SecurityProtocol, TopicAssignment,
};
use gracchus_registry::registry::NewTopic;
use gracchus_zk_client::{SessionState, ZkEvent};

use super::{Done, Process};
use crate::cluster::{BROKERS, TOPIC};
use crate::world::{World, ZOOKEEPER};

fn registration(id: i32, timestamp_ms: i64) -> BrokerRegistration {
    BrokerRegistration {
        version: BrokerRegistration::version_for(|_| true),
        endpoints: vec![Endpoint {
            listener: "PLAINTEXT".into(),
            security_protocol: SecurityProtocol::Plaintext,
            host: format!("b{id}"),
            port: 9092,
        }],
        rack: None,
        jmx_port: -1,
        timestamp_ms,
        features: BTreeMap::new(),
    }
}

impl Process {
    pub(super) fn keep_session(&mut self, world: &mut World) {
        let now = Self::zk_now(world);
        let timeout = self.session.timeout().as_micros() as u64;
        match self.link {
            None if self.session.wants_connection(now) && world.reach(self.id, ZOOKEEPER) => {
                self.link = Some(world.open_link(self.id, self.incarnation));
                self.session.connected();
                (self.heard_us, self.sent_us) = (world.now_us, world.now_us);
            }
            Some(_) if world.now_us - self.heard_us >= timeout * 2 / 3 => {
                self.lose_link(world, "nothing heard");
            }
            Some(_)
                if self.session.is_established() && world.now_us - self.sent_us >= timeout / 3 =>
            {
                self.session.ping();
            }
            _ => {}
        }
        self.session.time_out(now);
    }

    fn lose_link(&mut self, world: &mut World, why: &str) {
        if let Some(link) = self.link.take() {
            let id = self.id;
            world.log(|| format!("{id} loses its connection to ZooKeeper: {why}"));
            world.cut_by_client(link);
            self.session.disconnected(Self::zk_now(world));
        }
    }

    pub fn from_zookeeper(&mut self, world: &mut World, link: u64) {
        if self.link != Some(link) {
            return;
        }
        let Some(bytes) = world.next_at_client(link) else {
            return;
        };
        self.heard_us = world.now_us;
        match self.session.receive(&bytes) {
            Ok(true) => {}
            Ok(false) => self.lose_link(world, "the session is over"),
            Err(error) => self.lose_link(world, &error),
        }
    }

    pub fn zookeeper_closed(&mut self, world: &mut World, link: u64) {
        if self.link == Some(link) {
            self.lose_link(world, "closed by the server");
        }
    }

    pub(super) fn session_event(&mut self, world: &mut World, event: ZkEvent) {
        let id = self.id;
        match event {
            ZkEvent::Watch(watch) => {
                world.log(|| format!("{id} is told of {}", watch.path));
                self.inbox.extend(ControllerEvent::of_watch(&watch.path));
            }
            ZkEvent::Session(state) => {
                world.log(|| format!("{id} session: {state:?}"));
                match state {
                    SessionState::Connected { new: true, .. } => {
                        self.register_at = Some(world.now_us);
                    }
                    SessionState::Expired => {
                        self.inbox.push_back(ControllerEvent::SessionExpired);
                        let zk = self.registry.zk().clone();
                        self.run(async move {
                            zk.reopen().await;
                            Done::Nothing
                        });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Makes the nodes of a start, then registers; again after a while when somebody stands there already.
    pub(super) fn register(&mut self, world: &mut World) {
        if self.registering || self.register_at.is_none_or(|at| at > world.now_us) {
            return;
        }
        self.registering = true;
        self.register_at = None;
        let (registry, id) = (self.registry.clone(), self.id);
        if self.is_prepared {
            let own = registration(id, world.now_ms());
            self.run(async move { Done::Registered(registry.register_broker(id, &own).await) });
            return;
        }
        self.run(async move {
            if let Err(error) = registry.create_paths_at_start().await {
                return Done::Prepared(Err(error));
            }
            let topic = NewTopic {
                name: TOPIC.into(),
                assignment: TopicAssignment {
                    partitions: BTreeMap::from([(0, BROKERS.to_vec())]),
                    ..TopicAssignment::default()
                },
                config: ConfigZnode::default(),
            };
            // one of the three makes it
            let _ = registry.create_topics(&[topic]).await;
            Done::Prepared(Ok(()))
        });
    }

    pub(super) fn register_later(&mut self, world: &mut World, pause_us: u64) {
        let at = world.now_us + pause_us;
        self.register_at = Some(at);
        self.wake_at(world, at);
    }
}
