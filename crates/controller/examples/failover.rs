//! What a controller's fail-over costs: `failover ADDRESS [--rounds N] [PARTITIONS...]`, ADDRESS a running ZooKeeper server
//! of either kind.
//!
//! Five brokers, one of them controller and leader of a fifth of the partitions. It goes; the time until the next
//! controller has read everything, written every new leader and sent the requests about it stands beside the time that a
//! bare client takes for the same reads and conditional writes, made beforehand and all sent at once over one socket. The
//! brokers are simulated: they are registered, and take every request. A first fail-over, which is not counted, gives the
//! operations; then each round times the controller and the bare client, one after the other, each on a tree of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use gracchus_controller::{Action, Controller, ControllerConfig, Event};
use gracchus_kafka_proto::Uuid;
use gracchus_registry::op::{CreateMode, MultiStep, ZkOp};
use gracchus_registry::paths;
use gracchus_registry::registry::Registry;
use gracchus_zk_client::{Acl, EventReceiver, ZkClient, ZkConfig, ZkEvent};
use gracchus_zk_proto::multi::{MultiOp, MultiRequest};
use gracchus_zk_proto::request::{
    CheckVersionRequest, CreateRequest, DeleteRequest, PathWatchRequest, SetDataRequest,
};
use gracchus_zk_proto::{ConnectRequest, Jute, OpCode, RequestHeader};
use tokio::sync::mpsc;

const BROKERS: i32 = 5;
const TOPIC_SIZE: i32 = 500;
/// Operations of the set-up handed over at a time.
const CHUNK: usize = 20_000;

// the session works beside the controller, as in a broker
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("failover ADDRESS [PARTITIONS...]");
    let mut sizes: Vec<i32> = Vec::new();
    let mut rounds = 3;
    while let Some(arg) = args.next() {
        if arg == "--rounds" {
            rounds = args.next().and_then(|n| n.parse().ok()).expect("a number");
        } else {
            sizes.push(arg.parse().expect("a number"));
        }
    }
    if sizes.is_empty() {
        sizes = vec![12_500, 25_000, 50_000, 100_000];
    }
    let trees = Trees {
        address,
        made: AtomicUsize::new(0),
    };
    for partitions in sizes {
        let tree = trees.make(partitions).await;
        let mut log = Log::default();
        fail_over(&trees.address, &tree, partitions, Some(&mut log)).await;
        trees.remove(&tree, partitions).await;
        for round in 1..=rounds {
            let tree = trees.make(partitions).await;
            let ours = fail_over(&trees.address, &tree, partitions, None).await;
            trees.remove(&tree, partitions).await;
            let tree = trees.make(partitions).await;
            let bare = replay(&trees.address, &tree, &log.ops);
            trees.remove(&tree, partitions).await;
            println!(
                "{{\"partitions\":{partitions},\"round\":{round},\"reads\":{},\"writes\":{},\"requests\":{},\"controller_ms\":{:.0},\"of_it_steps_ms\":{:.0},\"cpu_ms\":{:.0},\"bare_ms\":{:.0},\"ratio\":{:.2}}}",
                log.ops.iter().filter(|op| !is_write(op)).count(),
                log.ops.iter().filter(|op| is_write(op)).count(),
                log.requests,
                ours.took * 1e3,
                ours.steps * 1e3,
                ours.cpu * 1e3,
                bare * 1e3,
                ours.took / bare
            );
        }
    }
}

fn connect(address: &str, chroot: &str) -> (ZkClient, EventReceiver) {
    let mut config = ZkConfig::new(format!("{address}{chroot}").parse().expect("an address"));
    config.session_timeout = std::time::Duration::from_secs(30);
    ZkClient::start(config)
}

fn node(path: impl Into<String>, data: Option<String>) -> ZkOp {
    ZkOp::create(path, data.map(Bytes::from))
}

/// The scratch clusters on the server.
struct Trees {
    address: String,
    made: AtomicUsize,
}

impl Trees {
    async fn make(&self, partitions: i32) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let chroot = format!("/failover-{}-{number}", std::process::id());
        let (zk, _events) = connect(&self.address, "");
        Registry::new(zk.clone(), false)
            .execute_one(node(&chroot, None))
            .await
            .expect("the chroot");
        zk.close().await;
        let (zk, _events) = connect(&self.address, &chroot);
        let registry = Registry::new(zk.clone(), false);
        registry
            .create_paths_at_start()
            .await
            .expect("Kafka's paths");
        for chunk in cluster(partitions).chunks(CHUNK) {
            for result in registry.execute(chunk.to_vec()).await {
                result.expect("a node of the set-up");
            }
        }
        zk.close().await;
        chroot
    }

    async fn remove(&self, chroot: &str, partitions: i32) {
        let (zk, _events) = connect(&self.address, chroot);
        let registry = Registry::new(zk.clone(), false);
        let delete = |op: &ZkOp| ZkOp::Delete {
            path: op.path().to_owned(),
            version: -1,
        };
        for chunk in cluster(partitions).rchunks(CHUNK) {
            let ops = chunk.iter().rev().map(delete).collect();
            registry.execute(ops).await;
        }
        zk.close().await;
    }
}

/// The nodes of a cluster at rest: topics, states, broker 0 its leader of a fifth; nobody registered.
fn cluster(partitions: i32) -> Vec<ZkOp> {
    let mut ops = vec![node(paths::CONTROLLER_EPOCH, Some("1".into()))];
    let mut left = partitions;
    for topic in 0.. {
        let size = left.min(TOPIC_SIZE);
        if size == 0 {
            break;
        }
        left -= size;
        let name = format!("topic-{topic:04}");
        let replicas = |p: i32| [p % BROKERS, (p + 1) % BROKERS, (p + 2) % BROKERS];
        let assignment: Vec<String> = (0..size)
            .map(|p| format!("\"{p}\":{:?}", replicas(p)))
            .collect();
        let id = Uuid::from_bytes(u128::from(topic as u32 + 1).to_be_bytes());
        let root = format!("/brokers/topics/{name}");
        ops.push(node(
            &root,
            Some(format!(
                "{{\"removing_replicas\":{{}},\"partitions\":{{{}}},\"topic_id\":\"{id}\",\"adding_replicas\":{{}},\"version\":3}}",
                assignment.join(",")
            )),
        ));
        ops.push(node(format!("{root}/partitions"), None));
        for p in 0..size {
            let isr = replicas(p);
            ops.push(node(format!("{root}/partitions/{p}"), None));
            ops.push(node(
                format!("{root}/partitions/{p}/state"),
                Some(format!(
                    "{{\"controller_epoch\":1,\"leader\":{},\"version\":1,\"leader_epoch\":0,\"isr\":{isr:?}}}",
                    isr[0]
                )),
            ));
        }
    }
    ops
}

#[derive(Default)]
struct Log {
    ops: Vec<ZkOp>,
    requests: usize,
}

/// Seconds: all of it, what the controller's steps took of it, and the process's CPU.
struct Took {
    took: f64,
    steps: f64,
    cpu: f64,
}

/// CPU seconds of this process, of any kind, so far.
fn cpu() -> f64 {
    let of_task = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    tasks.flatten().filter_map(of_task).sum()
}

async fn fail_over(address: &str, chroot: &str, partitions: i32, log: Option<&mut Log>) -> Took {
    let (old, _) = connect(address, chroot);
    let (zk, mut events) = connect(address, chroot);
    let (old_registry, registry) = (
        Registry::new(old.clone(), false),
        Registry::new(zk.clone(), false),
    );
    let register = |id: i32| ephemeral(format!("/brokers/ids/{id}"), registration(id));
    let first = vec![
        register(0),
        ephemeral(
            paths::CONTROLLER.into(),
            "{\"version\":2,\"brokerid\":0,\"timestamp\":\"1\",\"kraftControllerEpoch\":-1}".into(),
        ),
    ];
    for result in old_registry.execute(first).await {
        result.expect("the first controller");
    }
    for result in registry.execute((1..BROKERS).map(register).collect()).await {
        result.expect("a registration");
    }
    let mut controller = Controller::new(config(1), || Uuid::from_bytes([1; 16]));
    // it finds another in office and waits
    run(
        &mut controller,
        &registry,
        &mut events,
        None,
        Event::Registered,
        |c| !c.is_waiting(),
    )
    .await;
    let (begun, cpu_before) = (Instant::now(), cpu());
    old.close().await;
    let led = |c: &Controller| {
        let topics = c.context().topics.values();
        let leaders = topics
            .flat_map(|t| t.partitions.values())
            .filter(|p| p.leader_isr.as_ref().is_some_and(|l| l.state.leader > 0));
        c.is_active() && leaders.count() == partitions as usize
    };
    let event = watch(&mut events).await;
    let steps = run(&mut controller, &registry, &mut events, log, event, |c| {
        !c.is_waiting() && led(c)
    })
    .await;
    let took = begun.elapsed().as_secs_f64();
    let cpu = cpu() - cpu_before;
    zk.close().await;
    Took { took, steps, cpu }
}

async fn watch(events: &mut EventReceiver) -> Event {
    loop {
        match events.recv().await.expect("a session") {
            ZkEvent::Watch(watch) => {
                if let Some(event) = Event::of_watch(&watch.path) {
                    return event;
                }
            }
            ZkEvent::Session(_) => {}
        }
    }
}

/// Steps the controller until `done`; seconds that the steps took.
async fn run(
    controller: &mut Controller,
    registry: &Registry,
    events: &mut EventReceiver,
    mut log: Option<&mut Log>,
    first: Event,
    done: impl Fn(&Controller) -> bool,
) -> f64 {
    let (inputs, mut input) = mpsc::channel(1000);
    let mut next = Some(first);
    let mut steps = 0.0;
    loop {
        let event = match next.take() {
            Some(event) => event,
            None if controller.is_waiting() => input.recv().await.expect("results"),
            None if done(controller) => return steps,
            None => watch(events).await,
        };
        let begun = Instant::now();
        let actions = controller.step(event, 0);
        steps += begun.elapsed().as_secs_f64();
        for action in actions {
            match action {
                Action::Zk { token, ops } => {
                    if let Some(log) = &mut log {
                        log.ops.extend(ops.iter().cloned());
                    }
                    let (registry, inputs) = (registry.clone(), inputs.clone());
                    tokio::spawn(async move {
                        let deliver = |results| {
                            let inputs = inputs.clone();
                            async move {
                                let _ = inputs.send(Event::ZkResult { token, results }).await;
                            }
                        };
                        registry.execute_in_parts(ops, deliver).await;
                    });
                }
                Action::Send { .. } => {
                    if let Some(log) = &mut log {
                        log.requests += 1;
                    }
                }
                _ => {}
            }
        }
    }
}

fn ephemeral(path: String, data: String) -> ZkOp {
    ZkOp::Create {
        path,
        data: Some(data.into()),
        mode: CreateMode::Ephemeral,
    }
}

fn registration(id: i32) -> String {
    let port = 9092 + id;
    format!(
        "{{\"features\":{{}},\"listener_security_protocol_map\":{{\"PLAINTEXT\":\"PLAINTEXT\"}},\"endpoints\":[\"PLAINTEXT://b{id}:{port}\"],\"jmx_port\":-1,\"port\":{port},\"host\":\"b{id}\",\"version\":5,\"timestamp\":\"1\"}}"
    )
}

fn config(broker_id: i32) -> ControllerConfig {
    ControllerConfig {
        broker_id,
        delete_topic_enable: true,
        unclean_leader_election: false,
        leader_and_isr_version: 7,
        update_metadata_version: 8,
        stop_replica_version: 4,
        has_features: true,
        feature_version: 2,
        has_topic_ids: true,
        has_recovery_state: true,
        balance_every_ms: None,
        balance_percentage: 10,
        inter_broker_listener: "PLAINTEXT".into(),
    }
}

fn is_write(op: &ZkOp) -> bool {
    !matches!(
        op,
        ZkOp::Get { .. } | ZkOp::Exists { .. } | ZkOp::GetChildren { .. }
    )
}

/// The same operations under another root, sent at once over one socket; seconds until the last answer.
fn replay(address: &str, chroot: &str, ops: &[ZkOp]) -> f64 {
    let mut socket = TcpStream::connect(address).expect("the server");
    socket.set_nodelay(true).expect("a socket");
    let mut out = BytesMut::new();
    let hello = ConnectRequest {
        timeout_ms: 30_000,
        password: Some(Bytes::from(vec![0; 16])),
        read_only: Some(false),
        ..ConnectRequest::default()
    };
    framed(&mut out, |out| hello.write(out));
    socket.write_all(&out).expect("the handshake");
    frame(&mut socket);

    let mut requests = BytesMut::new();
    for (xid, op) in ops.iter().enumerate() {
        framed(&mut requests, |out| {
            request(out, i32::try_from(xid).unwrap_or(0) + 1, chroot, op);
        });
    }
    let begun = Instant::now();
    let mut sending = socket.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || sending.write_all(&requests));
    let mut reader = std::io::BufReader::with_capacity(1 << 16, &socket);
    for _ in ops {
        frame(&mut reader);
    }
    let took = begun.elapsed().as_secs_f64();
    sender.join().expect("the sender").expect("the requests");
    took
}

fn framed(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let len = u32::try_from(out.len() - at - 4).expect("a small frame");
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

fn frame(from: &mut impl Read) {
    let mut len = [0; 4];
    from.read_exact(&mut len).expect("an answer");
    let mut body = vec![0; u32::from_be_bytes(len) as usize];
    from.read_exact(&mut body).expect("an answer");
}

fn request(out: &mut BytesMut, xid: i32, chroot: &str, op: &ZkOp) {
    let full = |path: &str| format!("{chroot}{path}");
    let mut head = |op: OpCode| RequestHeader { xid, op: op.code() }.write(out);
    match op {
        ZkOp::Get { path, watch } => {
            head(OpCode::GetData);
            PathWatchRequest {
                path: full(path),
                watch: *watch,
            }
            .write(out);
        }
        ZkOp::Exists { path, watch } => {
            head(OpCode::Exists);
            PathWatchRequest {
                path: full(path),
                watch: *watch,
            }
            .write(out);
        }
        ZkOp::GetChildren { path, watch } => {
            head(OpCode::GetChildren2);
            PathWatchRequest {
                path: full(path),
                watch: *watch,
            }
            .write(out);
        }
        ZkOp::Create { path, data, mode } => {
            head(OpCode::Create2);
            create(full(path), data, *mode).write(out);
        }
        ZkOp::SetData {
            path,
            data,
            version,
        } => {
            head(OpCode::SetData);
            set(full(path), data, *version).write(out);
        }
        ZkOp::Delete { path, version } => {
            head(OpCode::Delete);
            DeleteRequest {
                path: full(path),
                version: *version,
            }
            .write(out);
        }
        ZkOp::Multi(steps) => {
            head(OpCode::Multi);
            let ops = steps.iter().map(|step| match step {
                MultiStep::Create { path, data, mode } => {
                    MultiOp::Create(create(full(path), data, *mode))
                }
                MultiStep::SetData {
                    path,
                    data,
                    version,
                } => MultiOp::SetData(set(full(path), data, *version)),
                MultiStep::Delete { path, version } => MultiOp::Delete(DeleteRequest {
                    path: full(path),
                    version: *version,
                }),
                MultiStep::Check { path, version } => MultiOp::Check(CheckVersionRequest {
                    path: full(path),
                    version: *version,
                }),
            });
            MultiRequest { ops: ops.collect() }.write(out);
        }
    }
}

fn create(path: String, data: &Option<Bytes>, mode: CreateMode) -> CreateRequest {
    CreateRequest {
        path,
        data: data.clone(),
        acl: Some(Acl::open()),
        flags: mode.flags(),
    }
}

fn set(path: String, data: &Option<Bytes>, version: i32) -> SetDataRequest {
    SetDataRequest {
        path,
        data: data.clone(),
        version,
    }
}
