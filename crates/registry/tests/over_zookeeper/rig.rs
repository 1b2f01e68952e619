//! A server, and a tree of its own for each test.

use gracchus_registry::Registry;
use gracchus_registry::json::*;
use gracchus_registry::registry::*;
use gracchus_zk_client::{EventReceiver, ZkClient, ZkConfig};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// The server that all tests share; it lives as long as the test process.
pub fn server() -> String {
    static SERVER: OnceLock<String> = OnceLock::new();
    let start = || {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap()
            .keep();
        let mut config = gracchus_zk_server::ZkConfig::new(dir);
        config.client_address = "127.0.0.1:0".parse().unwrap();
        config.tick_time_ms = 500;
        let (told, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let server = gracchus_zk_server::ZkServer::start(config).await.unwrap();
                told.send(server.local_addr().to_string()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        address.recv().unwrap()
    };
    std::env::var("ZOOKEEPER").unwrap_or_else(|_| SERVER.get_or_init(start).clone())
}

/// A chroot of its own for each test, made anew.
pub async fn fresh(name: &str) -> (Registry, EventReceiver, ZkConfig) {
    let mut config = ZkConfig::new(
        format!("{}/registry-test/{name}", server())
            .parse()
            .unwrap(),
    );
    config.session_timeout = Duration::from_secs(6);
    let mut root = config.clone();
    root.connect.chroot = String::new();
    let (zk, _events) = ZkClient::start(root);
    Registry::new(zk.clone(), false)
        .delete_recursive(&format!("/registry-test/{name}"))
        .await
        .unwrap();
    zk.close().await;
    create_chroot(&config, false).await.unwrap();
    let (zk, events) = ZkClient::start(config.clone());
    (Registry::new(zk, false), events, config)
}

pub fn registration(port: i32) -> BrokerRegistration {
    BrokerRegistration {
        version: 5,
        endpoints: vec![Endpoint {
            listener: "PLAINTEXT".into(),
            security_protocol: SecurityProtocol::Plaintext,
            host: "localhost".into(),
            port,
        }],
        rack: None,
        jmx_port: -1,
        timestamp_ms: 1,
        features: BTreeMap::new(),
    }
}
