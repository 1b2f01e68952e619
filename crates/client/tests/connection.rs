//! A connection against a broker that misbehaves: every wait ends, every bad answer is an error.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use gracchus_client::{ClientError, Cluster, ClusterConfig, Connection, ConnectionConfig};
use gracchus_kafka_proto::messages::api_versions_response::ApiVersion;
use gracchus_kafka_proto::messages::{
    ApiVersionsResponse, DescribeClusterRequest, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse,
};
use gracchus_kafka_proto::{ApiKey, ErrorCode, decode_request_header, encode_response};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A broker's side of a connection.
struct Broker(TcpStream);

impl Broker {
    async fn accept(listener: &TcpListener) -> Self {
        Broker(listener.accept().await.unwrap().0)
    }

    /// API key, version and correlation id of the next request.
    async fn request(&mut self) -> (i16, i16, i32) {
        let length = self.0.read_i32().await.unwrap();
        let mut frame = vec![0; length as usize];
        self.0.read_exact(&mut frame).await.unwrap();
        let (header, _) = decode_request_header(frame.into()).unwrap();
        (
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
        )
    }

    async fn answer(
        &mut self,
        id: i32,
        api: ApiKey,
        version: i16,
        body: &impl gracchus_kafka_proto::Message,
    ) {
        let frame = encode_response(id, api, version, body).unwrap();
        self.0
            .write_all(&frame.into_bytes().unwrap())
            .await
            .unwrap();
    }

    /// Answers ApiVersions as a broker that has heartbeats and coordinators.
    async fn agree(&mut self) {
        let (key, version, id) = self.request().await;
        assert_eq!(key, ApiKey::ApiVersions.as_i16());
        self.answer(id, ApiKey::ApiVersions, version, &versions())
            .await;
    }
}

fn versions() -> ApiVersionsResponse {
    let has = |api: ApiKey, max_version| ApiVersion {
        api_key: api.as_i16(),
        min_version: 0,
        max_version,
        ..Default::default()
    };
    ApiVersionsResponse {
        api_keys: vec![
            has(ApiKey::ApiVersions, 3),
            has(ApiKey::Heartbeat, 2),
            has(ApiKey::FindCoordinator, 1),
        ],
        ..Default::default()
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn config() -> ConnectionConfig {
    ConnectionConfig {
        max_answer: 10_000,
        ..Default::default()
    }
}

async fn connected() -> (Connection, Broker) {
    connected_with(config()).await
}

async fn connected_with(config: ConnectionConfig) -> (Connection, Broker) {
    let (listener, address) = listen().await;
    let (connection, broker) = tokio::join!(Connection::connect(&address, &config), async {
        let mut broker = Broker::accept(&listener).await;
        broker.agree().await;
        broker
    });
    (connection.unwrap(), broker)
}

#[tokio::test]
async fn the_newest_version_of_both_sides_is_spoken() {
    let (connection, mut broker) = connected().await;
    assert_eq!(connection.version::<HeartbeatRequest>(i16::MAX).unwrap(), 2);
    assert_eq!(connection.version::<HeartbeatRequest>(1).unwrap(), 1);
    let unknown = connection.send(&DescribeClusterRequest::default()).await;
    assert!(matches!(unknown, Err(ClientError::Unsupported { .. })));
    let request = HeartbeatRequest::default();
    let (answer, ()) = tokio::join!(connection.send(&request), async {
        let (key, version, id) = broker.request().await;
        assert_eq!((key, version), (ApiKey::Heartbeat.as_i16(), 2));
        let body = HeartbeatResponse {
            error_code: 27,
            ..Default::default()
        };
        broker.answer(id, ApiKey::Heartbeat, 2, &body).await;
    });
    assert_eq!(answer.unwrap().error_code, 27);
}

#[tokio::test]
async fn an_old_broker_is_asked_again_in_version_0() {
    let (listener, address) = listen().await;
    let config = config();
    let (connection, ()) = tokio::join!(Connection::connect(&address, &config), async {
        let mut broker = Broker::accept(&listener).await;
        let (_, version, id) = broker.request().await;
        assert!(version > 0);
        let refusal = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            ..Default::default()
        };
        broker.answer(id, ApiKey::ApiVersions, 0, &refusal).await;
        let (_, version, id) = broker.request().await;
        assert_eq!(version, 0);
        broker.answer(id, ApiKey::ApiVersions, 0, &versions()).await;
    });
    assert_eq!(
        connection.unwrap().broker_versions(ApiKey::Heartbeat),
        Some((0, 2))
    );
}

#[tokio::test]
async fn answers_find_their_requests_in_any_order() {
    let (connection, mut broker) = connected().await;
    let (heartbeat, find) = (
        HeartbeatRequest::default(),
        FindCoordinatorRequest::default(),
    );
    let (a, b, ()) = tokio::join!(connection.send(&heartbeat), connection.send(&find), async {
        let first = broker.request().await;
        let second = broker.request().await;
        for (key, _, id) in [second, first] {
            if key == ApiKey::Heartbeat.as_i16() {
                let body = HeartbeatResponse {
                    error_code: 1,
                    ..Default::default()
                };
                broker.answer(id, ApiKey::Heartbeat, 2, &body).await;
            } else {
                let body = FindCoordinatorResponse {
                    node_id: 7,
                    ..Default::default()
                };
                broker.answer(id, ApiKey::FindCoordinator, 1, &body).await;
            }
        }
    });
    assert_eq!((a.unwrap().error_code, b.unwrap().node_id), (1, 7));
}

#[tokio::test]
async fn silence_is_a_timeout_and_a_late_answer_hurts_nobody() {
    let patience = Duration::from_secs(3);
    let (connection, mut broker) = connected_with(ConnectionConfig {
        request_timeout: patience,
        ..config()
    })
    .await;
    let request = HeartbeatRequest::default();
    let silent = connection.send(&request).await;
    assert!(
        matches!(silent, Err(ClientError::Timeout { .. })),
        "{silent:?}"
    );
    let (_, _, late) = broker.request().await;
    let (answer, ()) = tokio::join!(connection.send(&request), async {
        let (_, _, id) = broker.request().await;
        let body = HeartbeatResponse {
            error_code: 5,
            ..Default::default()
        };
        broker.answer(late, ApiKey::Heartbeat, 2, &body).await;
        broker
            .answer(id, ApiKey::Heartbeat, 2, &HeartbeatResponse::default())
            .await;
    });
    assert_eq!(answer.unwrap().error_code, 0);
}

#[tokio::test]
async fn answers_that_are_none_close_the_connection() {
    // too long, too short, negative, cut short
    for bytes in [
        &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0][..],
        &[0, 0, 0, 3, 1, 2, 3],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 9, 0, 0, 0],
    ] {
        let (connection, mut broker) = connected().await;
        let request = HeartbeatRequest::default();
        let (answer, ()) = tokio::join!(connection.send(&request), async {
            broker.request().await;
            broker.0.write_all(bytes).await.unwrap();
            broker.0.shutdown().await.unwrap();
        });
        assert!(
            matches!(answer, Err(ClientError::Closed { .. })),
            "{answer:?}"
        );
        assert!(connection.is_closed());
        let later = connection.send(&request).await;
        assert!(
            matches!(later, Err(ClientError::Closed { .. })),
            "{later:?}"
        );
    }
}

#[tokio::test]
async fn a_body_that_does_not_parse_is_an_error_of_that_request_alone() {
    let (connection, mut broker) = connected().await;
    let request = HeartbeatRequest::default();
    let (bad, good, ()) = tokio::join!(
        connection.send(&request),
        connection.send(&request),
        async {
            let (_, _, id) = broker.request().await;
            let mut frame = vec![0, 0, 0, 5];
            frame.extend_from_slice(&id.to_be_bytes());
            frame.push(0xff);
            broker.0.write_all(&frame).await.unwrap();
            let (_, _, id) = broker.request().await;
            broker
                .answer(id, ApiKey::Heartbeat, 2, &HeartbeatResponse::default())
                .await;
        }
    );
    assert!(matches!(bad, Err(ClientError::BadAnswer { .. })), "{bad:?}");
    good.unwrap();
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_told_with_its_addresses() {
    // bound and dropped: nothing listens there
    let (listener, address) = listen().await;
    drop(listener);
    let mut config = ClusterConfig::new(&address);
    config.api_timeout = Duration::from_millis(200);
    let told = std::cell::RefCell::new(Vec::new());
    let error = Cluster::connect(config, |e| told.borrow_mut().push(e.to_string()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
    assert!(told.borrow().iter().all(|e| e.contains(&address)));
    assert!(!told.borrow().is_empty());
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let (_listener, address) = listen().await;
    let mut config = ClusterConfig::new(&address);
    config.api_timeout = Duration::from_millis(100);
    // far longer, as its default is
    config.connection.request_timeout = Duration::from_secs(3600);
    let error = Cluster::connect(config, |_| ()).await.unwrap_err();
    assert!(
        error.to_string().contains("no answer within 100 ms"),
        "{error}"
    );
}
