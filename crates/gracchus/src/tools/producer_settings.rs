//! A producer's properties by Kafka's names.

use super::Failure;
use super::arguments::{Properties, is_true, number};
use gracchus_client::ProducerConfig;
use gracchus_record::Codec;
use std::time::Duration;

/// What the properties say, Kafka's defaults for the rest.
pub(super) fn producer_settings(p: &Properties) -> Result<ProducerConfig, Failure> {
    let codec = p.get("compression.type").map_or("none", String::as_str);
    let compression = Codec::from_name(codec)
        .ok_or_else(|| Failure::usage(format!("Unknown compression name: {codec}")))?;
    let acks = match p.get("acks").map(String::as_str) {
        None | Some("-1" | "all") => -1,
        Some("0") => 0,
        Some("1") => 1,
        Some(other) => {
            return Err(Failure::usage(format!(
                "Invalid value {other} for configuration acks: String must be one of: all, -1, 0, 1"
            )));
        }
    };
    if p.get("transactional.id").is_some_and(|id| !id.is_empty()) {
        return Err(Failure::usage(
            "transactional.id: transactions are not supported by this tool yet",
        ));
    }
    let defaults = ProducerConfig::default();
    let millis = |key, default| -> Result<Duration, Failure> {
        Ok(number(p, key)?.map_or(default, Duration::from_millis))
    };
    Ok(ProducerConfig {
        acks,
        linger: millis("linger.ms", defaults.linger)?,
        batch_size: number(p, "batch.size")?.unwrap_or(defaults.batch_size),
        compression,
        idempotence: acks == -1 && is_true(p, "enable.idempotence") != Some(false),
        delivery_timeout: millis("delivery.timeout.ms", defaults.delivery_timeout)?,
        request_timeout: millis("request.timeout.ms", defaults.request_timeout)?,
        max_request_size: number(p, "max.request.size")?.unwrap_or(defaults.max_request_size),
        buffer_memory: number(p, "buffer.memory")?.unwrap_or(defaults.buffer_memory),
        ..defaults
    })
}
