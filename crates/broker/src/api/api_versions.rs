//! ApiVersions (18): what this broker serves.

use std::sync::Arc;

use gracchus_kafka_proto::messages::api_versions_response::ApiVersion;
use gracchus_kafka_proto::messages::{ApiVersionsRequest, ApiVersionsResponse};
use gracchus_kafka_proto::{ApiKey, ErrorCode, Request, encode_response};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::net::Outcome;

/// Answers with the table, ascending by key as Kafka does.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    if ctx.api_version >= 3 {
        let (name, version) = (
            request.client_software_name,
            request.client_software_version,
        );
        if !is_software_name(&name) || !is_software_name(&version) {
            return ApiVersionsResponse {
                error_code: ErrorCode::InvalidRequest.code(),
                ..Default::default()
            };
        }
        *ctx.connection.client_software.lock() = Some((name, version));
    }
    ApiVersionsResponse {
        api_keys: table(),
        finalized_features_epoch: broker.finalized_features_epoch(),
        ..Default::default()
    }
}

/// The answer to a version that is not known here: version 0, with the range that is (KIP-511).
pub fn unsupported_version(correlation_id: i32) -> Outcome {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: table()
            .into_iter()
            .filter(|k| k.api_key == ApiKey::ApiVersions.as_i16())
            .collect(),
        ..Default::default()
    };
    match encode_response(correlation_id, ApiVersionsRequest::KEY, 0, &response) {
        Ok(frame) => Outcome::Reply(frame),
        Err(error) => Outcome::Close(error.to_string()),
    }
}

/// All served keys with their versions.
pub fn table() -> Vec<ApiVersion> {
    let mut keys: Vec<ApiVersion> = super::SERVED
        .iter()
        .map(|(key, first, last)| ApiVersion {
            api_key: key.as_i16(),
            min_version: *first,
            max_version: *last,
            ..Default::default()
        })
        .collect();
    keys.sort_by_key(|k| k.api_key);
    keys
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?` of KIP-511.
fn is_software_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names() {
        assert!(
            is_software_name("apache-kafka-java")
                && is_software_name("3.9.2")
                && is_software_name("a")
        );
        assert!(
            !is_software_name("")
                && !is_software_name("-a")
                && !is_software_name("a b")
                && !is_software_name("a.")
        );
    }

    /// `api-versions.json` was captured from Apache Kafka 3.9.2 in ZooKeeper mode.
    #[test]
    fn nothing_is_advertised_that_kafka_would_not() {
        let captured: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/golden/api-versions.json")).unwrap();
        let kafka: Vec<(i64, i64, i64)> = captured["response"]["apiKeys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|k| {
                (
                    k["apiKey"].as_i64().unwrap(),
                    k["minVersion"].as_i64().unwrap(),
                    k["maxVersion"].as_i64().unwrap(),
                )
            })
            .collect();
        let mut missing: Vec<i64> = kafka.iter().map(|(key, _, _)| *key).collect();
        for key in table() {
            let ours = (
                i64::from(key.api_key),
                i64::from(key.min_version),
                i64::from(key.max_version),
            );
            assert!(
                kafka.contains(&ours),
                "{ours:?} is not as Kafka advertises it"
            );
            missing.retain(|key| *key != ours.0);
        }
        assert_eq!(missing, NOT_SERVED_YET);
    }

    /// SASL, transactions, ACLs, tokens, quotas, SCRAM credentials, features, transactions listed. The README's table names
    /// them.
    const NOT_SERVED_YET: &[i64] = &[
        17, 24, 25, 26, 27, 28, 29, 30, 31, 36, 38, 39, 40, 41, 48, 49, 50, 51, 57, 65, 66,
    ];
}
