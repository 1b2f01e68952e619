//! The coordination server's process.

use std::path::PathBuf;

use gracchus_registry::json::PartitionState;
use gracchus_registry::paths;
use gracchus_zk_server::ZkConfig;
use gracchus_zk_server::stepped::SteppedServer;

use crate::cluster::TOPIC;
use crate::world::{Event, World, ZOOKEEPER};

/// Sessions are looked at so often.
const TICK_US: u64 = 250_000;

pub struct ZooKeeper {
    dir: PathBuf,
    /// None while it is down.
    server: Option<SteppedServer>,
    incarnation: u64,
}

impl ZooKeeper {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            server: None,
            incarnation: 0,
        }
    }

    pub fn is_up(&self) -> bool {
        self.server.is_some()
    }

    pub fn start(&mut self, world: &mut World) {
        if self.is_up() {
            return;
        }
        let mut config = ZkConfig::new(&self.dir);
        config.pre_alloc_size = 1 << 16;
        // what is on disk here survives as it is
        config.force_sync = false;
        self.server = Some(SteppedServer::open(config).expect("ZooKeeper starts"));
        world.log(|| "ZooKeeper is up".into());
        world.after(TICK_US, Event::Tick(ZOOKEEPER, self.incarnation));
    }

    pub fn crash(&mut self, world: &mut World) {
        if self.server.take().is_none() {
            return;
        }
        self.incarnation += 1;
        world.log(|| "ZooKeeper dies".into());
        let open: Vec<u64> = world.links.keys().copied().collect();
        for link in open {
            world.cut_by_server(link);
        }
    }

    pub fn tick(&mut self, world: &mut World, incarnation: u64) {
        if incarnation == self.incarnation && self.is_up() {
            self.step(world);
            world.after(TICK_US, Event::Tick(ZOOKEEPER, incarnation));
        }
    }

    pub fn receive(&mut self, world: &mut World, link: u64) {
        let Some(bytes) = world.next_at_server(link) else {
            return;
        };
        let Some(server) = &mut self.server else {
            world.cut_by_server(link);
            return;
        };
        let Some(found) = world.links.get_mut(&link) else {
            return;
        };
        let is_new = found.server_conns == 0;
        let conn = match found.conn {
            Some(conn) => conn,
            None if is_new => {
                found.server_conns = 1;
                *found.conn.insert(server.connect())
            }
            // closed by the server
            None => return,
        };
        server.receive(conn, &bytes);
        self.step(world);
    }

    pub fn cut(&mut self, world: &mut World, link: u64) {
        let Some(found) = world.links.get(&link) else {
            return;
        };
        if !world.reach(found.broker, ZOOKEEPER) {
            world.after(500_000, Event::CutAtServer(link));
            return;
        }
        if let (Some(server), Some(conn)) = (&mut self.server, found.conn) {
            server.cut(conn);
        }
        world.links.remove(&link);
        self.step(world);
    }

    fn step(&mut self, world: &mut World) {
        let Some(server) = &mut self.server else {
            return;
        };
        for sent in server.step() {
            let link = world
                .links
                .iter()
                .find(|(_, link)| link.conn == Some(sent.conn))
                .map(|(id, _)| *id);
            let Some(link) = link else { continue };
            if !sent.bytes.is_empty() {
                world.send_to_client(link, sent.bytes);
            }
            if sent.closes {
                world.cut_by_server(link);
            }
        }
    }

    /// The partition's state node, with its version.
    pub fn state(&self) -> Option<(PartitionState, i32)> {
        let path = paths::partition_state(TOPIC, 0);
        let (data, version) = self.server.as_ref()?.node(&path)?;
        Some((PartitionState::parse(&data).ok()?, version))
    }
}
