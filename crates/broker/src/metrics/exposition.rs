//! All figures as text, with the names that the common JMX exporter rules give Kafka's beans.

use std::fmt::Write;

use super::{Counter, TopicCounters, TopicRegistry};
use crate::replica::ReplicaManager;

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

    /// `{"broker":0,"elections":[{"controller_epoch":1,"broker_id":0,"heard_ms":1796077936000}]}`: the controllers that it
    /// has heard of. None while it is not up.
    pub fn elections(&self) -> Option<serde_json::Value> {
        let broker = self.broker.get().and_then(std::sync::Weak::upgrade)?;
        let elections = broker.metadata.elections.all().into_iter().map(|e| {
            serde_json::json!({
                "controller_epoch": e.controller_epoch,
                "broker_id": e.broker_id,
                "heard_ms": e.heard_ms,
            })
        });
        Some(serde_json::json!({
            "broker": broker.identity.broker_id,
            "elections": elections.collect::<Vec<_>>(),
        }))
    }

    /// Prometheus' text format, with the names that the common JMX exporter rules give Kafka's beans.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let Some(broker) = self.broker.get().and_then(std::sync::Weak::upgrade) else {
            return text;
        };
        let mut gauge = |name: &str, value: i64| {
            let _ = writeln!(text, "# TYPE {name} gauge\n{name} {value}");
        };
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let snapshot = broker.metadata.snapshot();
        gauge("kafka_server_kafkaserver_brokerstate", 3);
        gauge(
            "kafka_controller_kafkacontroller_activecontrollercount",
            i64::from(broker.controller.is_active()),
        );
        gauge(
            "kafka_server_kafkaserver_broker_epoch",
            broker.identity.broker_epoch(),
        );
        gauge(
            "kafka_server_socket_server_connection_count",
            count(broker.connections.open()),
        );
        let (mut topics_in_all, mut partitions, mut offline) = (0, 0, 0);
        // as Kafka, so that a sum over all brokers is right
        if broker.controller.is_active() {
            topics_in_all = count(snapshot.topics.len());
            for p in snapshot.topics.values().flat_map(|t| t.partitions.values()) {
                partitions += 1;
                offline += i64::from(p.leader < 0);
            }
        }
        gauge(
            "kafka_controller_kafkacontroller_globaltopiccount",
            topics_in_all,
        );
        gauge(
            "kafka_controller_kafkacontroller_globalpartitioncount",
            partitions,
        );
        gauge(
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            offline,
        );
        let replicas = broker.replicas.counts();
        for (what, n) in [
            ("partitioncount", replicas.hosted),
            ("leadercount", replicas.led),
            ("underreplicatedpartitions", replicas.under_replicated),
            ("underminisrpartitioncount", replicas.under_min_isr),
            ("atminisrpartitioncount", replicas.at_min_isr),
            ("offlinereplicacount", replicas.offline),
        ] {
            gauge(&format!("kafka_server_replicamanager_{what}"), count(n));
        }
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
        topics(&mut text, &broker.replicas.topics);
        logs(&mut text, &broker.replicas);
        text
    }
}

type Read = fn(&TopicCounters) -> &Counter;

/// Kafka's names of the counters that are kept by topic.
const BY_TOPIC: &[(&str, Read)] = &[
    ("messagesin", |c| &c.messages_in),
    ("bytesin", |c| &c.bytes_in),
    ("bytesrejected", |c| &c.bytes_rejected),
    ("bytesout", |c| &c.bytes_out),
    ("replicationbytesin", |c| &c.replication_bytes_in),
    ("replicationbytesout", |c| &c.replication_bytes_out),
    ("totalproducerequests", |c| &c.produce_requests),
    ("failedproducerequests", |c| &c.failed_produce_requests),
    ("totalfetchrequests", |c| &c.fetch_requests),
    ("failedfetchrequests", |c| &c.failed_fetch_requests),
];

fn topics(text: &mut String, registry: &TopicRegistry) {
    let hosted = registry.hosted();
    for (what, read) in BY_TOPIC {
        let name = format!("kafka_server_brokertopicmetrics_{what}_total");
        let _ = writeln!(
            text,
            "# TYPE {name} counter\n{name} {}",
            read(registry.all()).get()
        );
        for (topic, metrics) in &hosted {
            let _ = writeln!(
                text,
                "{name}{{topic=\"{topic}\"}} {}",
                read(metrics.own()).get()
            );
        }
    }
    for (what, n) in [
        ("isrshrinks", registry.all().isr_shrinks.get()),
        ("isrexpands", registry.all().isr_expands.get()),
    ] {
        let name = format!("kafka_server_replicamanager_{what}_total");
        let _ = writeln!(text, "# TYPE {name} counter\n{name} {n}");
    }
}

fn logs(text: &mut String, replicas: &ReplicaManager) {
    let mut partitions = replicas.online_partitions();
    partitions.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let figures: Vec<_> = partitions
        .iter()
        .filter_map(|partition| {
            let log = partition.log()?;
            let log = log.lock();
            let segments = u64::try_from(log.segment_count()).unwrap_or(u64::MAX);
            let figures = [
                log.size().to_string(),
                log.log_start_offset().to_string(),
                log.log_end_offset().to_string(),
                segments.to_string(),
            ];
            Some((&partition.id, figures))
        })
        .collect();
    let names = ["size", "logstartoffset", "logendoffset", "numlogsegments"];
    for (at, what) in names.iter().enumerate() {
        let _ = writeln!(text, "# TYPE kafka_log_log_{what} gauge");
        for (id, figures) in &figures {
            if let Some(n) = figures.get(at) {
                let (topic, partition) = (&id.topic, id.partition);
                let _ = writeln!(
                    text,
                    "kafka_log_log_{what}{{topic=\"{topic}\",partition=\"{partition}\"}} {n}"
                );
            }
        }
    }
}
