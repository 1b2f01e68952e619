//! Counters and gauges, as text for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Room for all of Kafka 3.9's keys.
const KEYS: usize = 96;

/// Requests by api key.
#[derive(Debug)]
pub struct RequestMetrics {
    counts: [AtomicU64; KEYS],
    micros: [AtomicU64; KEYS],
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; KEYS],
            micros: [const { AtomicU64::new(0) }; KEYS],
        }
    }
}

impl RequestMetrics {
    /// One answered request.
    pub fn record(&self, api_key: i16, took: Duration) {
        let Ok(at) = usize::try_from(api_key) else {
            return;
        };
        if let (Some(count), Some(micros)) = (self.counts.get(at), self.micros.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
            micros.fetch_add(
                u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                Ordering::Relaxed,
            );
        }
    }

    /// (key, requests, microseconds in all) of keys that were asked for.
    pub fn snapshot(&self) -> Vec<(i16, u64, u64)> {
        let pairs = self.counts.iter().zip(&self.micros).enumerate();
        pairs
            .map(|(key, (count, micros))| {
                (
                    i16::try_from(key).unwrap_or(-1),
                    count.load(Ordering::Relaxed),
                    micros.load(Ordering::Relaxed),
                )
            })
            .filter(|(_, count, _)| *count > 0)
            .collect()
    }
}

/// All counters of a broker.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests.
    pub requests: RequestMetrics,
}

/// The figures of a broker that may not be up yet.
#[derive(Clone, Default)]
pub struct Exposition {
    broker: std::sync::Arc<std::sync::OnceLock<std::sync::Weak<crate::Broker>>>,
}

impl Exposition {
    /// The broker is up.
    pub fn set(&self, broker: &std::sync::Arc<crate::Broker>) {
        let _ = self.broker.set(std::sync::Arc::downgrade(broker));
    }

    /// Prometheus' text format, with the names that the common JMX exporter rules give Kafka's beans.
    pub fn render(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let Some(broker) = self.broker.get().and_then(std::sync::Weak::upgrade) else {
            return text;
        };
        let mut gauge = |name: &str, value: i64| {
            let _ = writeln!(text, "# TYPE {name} gauge\n{name} {value}");
        };
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let snapshot = broker.metadata.snapshot();
        let own = broker.identity.broker_id;
        gauge("kafka_server_kafkaserver_brokerstate", 3);
        gauge(
            "kafka_controller_kafkacontroller_activecontrollercount",
            i64::from(snapshot.controller_id == Some(own)),
        );
        gauge(
            "kafka_server_kafkaserver_broker_epoch",
            broker.identity.broker_epoch(),
        );
        gauge(
            "kafka_server_socket_server_connection_count",
            count(broker.connections.open()),
        );
        gauge(
            "kafka_controller_kafkacontroller_globaltopiccount",
            count(snapshot.topics.len()),
        );
        let (mut partitions, mut leaders, mut hosted, mut under, mut offline) = (0, 0, 0, 0, 0);
        for p in snapshot.topics.values().flat_map(|t| t.partitions.values()) {
            partitions += 1;
            offline += i64::from(p.leader < 0);
            hosted += i64::from(p.replicas.contains(&own));
            if p.leader == own {
                leaders += 1;
                under += i64::from(p.isr.len() < p.replicas.len());
            }
        }
        gauge(
            "kafka_controller_kafkacontroller_globalpartitioncount",
            partitions,
        );
        gauge(
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            offline,
        );
        gauge("kafka_server_replicamanager_partitioncount", hosted);
        gauge("kafka_server_replicamanager_leadercount", leaders);
        gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            under,
        );
        let groups = broker.groups.inspect(|coordinator| coordinator.counts());
        for (what, n) in [
            ("numgroups", groups.groups),
            ("numoffsets", groups.offsets),
            ("numgroupsempty", groups.empty),
            ("numgroupspreparingrebalance", groups.preparing_rebalance),
            ("numgroupscompletingrebalance", groups.completing_rebalance),
            ("numgroupsstable", groups.stable),
        ] {
            gauge(
                &format!("kafka_coordinator_group_groupmetadatamanager_{what}"),
                count(n),
            );
        }
        let requests = broker.metrics.requests.snapshot();
        let name = |key: i16| {
            gracchus_kafka_proto::ApiKey::from_i16(key)
                .map_or("Unknown".into(), |k| format!("{k:?}"))
        };
        text.push_str("# TYPE kafka_network_requestmetrics_requests_total counter\n");
        for (key, count, _) in &requests {
            let _ = writeln!(
                text,
                "kafka_network_requestmetrics_requests_total{{request=\"{}\"}} {count}",
                name(*key)
            );
        }
        text.push_str("# TYPE kafka_network_requestmetrics_totaltimems_sum counter\n");
        for (key, _, micros) in &requests {
            let ms = *micros as f64 / 1000.0;
            let _ = writeln!(
                text,
                "kafka_network_requestmetrics_totaltimems_sum{{request=\"{}\"}} {ms}",
                name(*key)
            );
        }
        text
    }
}
