"""The console port: what Prometheus reads there is what clients did."""

import re
import urllib.request

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import MessageSizeTooLargeError

from servers import TARGET

pytestmark = pytest.mark.skipif(TARGET == "apache", reason="Apache Kafka has no console port")


def figures(cluster):
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.console_port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.M)}


def test_what_a_topic_took_and_gave(cluster, topic):
    before = figures(cluster)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", max_request_size=5_000_000)
    for i in range(100):
        producer.send(topic, value=b"v" * 1000, partition=0)
    producer.flush()
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, value=b"v" * 2_000_000, partition=0).get(60)
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    got = 0
    while got < 100:
        got += sum(map(len, consumer.poll(1000).values()))
    consumer.close()
    after = figures(cluster)

    def of(what):
        return after[f'kafka_server_brokertopicmetrics_{what}_total{{topic="{topic}"}}']

    assert of("messagesin") == 100
    assert 100_000 < of("bytesin") == after[f'kafka_log_log_size{{topic="{topic}",partition="0"}}'] <= of("bytesout")
    assert of("bytesrejected") > 2_000_000
    assert of("totalproducerequests") > 1 and of("failedproducerequests") == 0
    assert of("totalfetchrequests") >= 1 and of("failedfetchrequests") == 0
    assert after[f'kafka_log_log_logendoffset{{topic="{topic}",partition="0"}}'] == 100
    assert after[f'kafka_log_log_logstartoffset{{topic="{topic}",partition="0"}}'] == 0
    assert after[f'kafka_log_log_numlogsegments{{topic="{topic}",partition="0"}}'] == 1
    for what in ("messagesin", "bytesin", "bytesout", "bytesrejected"):
        name = f"kafka_server_brokertopicmetrics_{what}_total"
        assert after[name] - before[name] >= of(what), what
    assert after["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert after["kafka_server_replicamanager_partitioncount"] > before["kafka_server_replicamanager_partitioncount"]
    assert after['kafka_network_requestmetrics_requests_total{request="Produce"}'] > 1


def test_the_coordination_server_under_its_own_names(cluster):
    names = {name.partition("{")[0] for name in figures(cluster)}
    assert {"znode_count", "watch_count", "ephemerals_count", "num_alive_connections", "outstanding_requests",
            "approximate_data_size", "avg_latency", "packets_received", "fsynctime_count"} <= names
