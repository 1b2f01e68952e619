"""A cluster of Apache Kafka 3.9.2 brokers is replaced by gracchus, one broker at a time, in place on its own log
directories, under load and with a consumer group, and rolled back again: nothing is lost, nothing is there twice."""

import threading

import pytest
from confluent_kafka import Consumer

from replicated import Load, check, create
from servers import TARGET, wait_for

pytestmark = pytest.mark.skipif(TARGET == "apache", reason="both kinds are here already")

TOPIC = "taken-over"
PARTITIONS = 4


class Reader:
    """A member of a group that reads all the time and commits; what it has seen, by partition and offset."""

    def __init__(self, bootstrap):
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
                                  "auto.commit.interval.ms": 200, "session.timeout.ms": 10000,
                                  "topic.metadata.refresh.interval.ms": 2000})
        self.consumer.subscribe([TOPIC])
        self.seen, self.changed = {}, []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.stopping.is_set():
            for m in self.consumer.consume(500, 0.2):
                if m.error() is None:
                    at = (m.partition(), m.offset())
                    if self.seen.setdefault(at, m.value()) != m.value():
                        self.changed.append(at)

    def stop(self):
        self.stopping.set()
        self.thread.join()
        self.consumer.close()


def swap(cluster, number, kind, load):
    load.wait_for_more()
    broker = cluster[number]
    broker.stop()
    broker.kind = kind
    broker.start()
    cluster.wait_registered(cluster.brokers)
    for p in range(PARTITIONS):
        cluster.wait_isr(TOPIC, list(cluster.brokers), p)
    load.wait_for_more()


def test_there_and_back_again(brokers):
    cluster = brokers(("apache",) * 3, zookeeper="apache").start()
    create(cluster, TOPIC, PARTITIONS)
    for p in range(PARTITIONS):
        cluster.wait_isr(TOPIC, [1, 2, 3], p)
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    reader = Reader(cluster.bootstrap)
    try:
        for kind in ("gracchus", "apache"):
            for number in (1, 2, 3):
                swap(cluster, number, kind, load)
        acknowledged = load.stop().acknowledged
        wait_for(lambda: acknowledged.keys() <= reader.seen.keys(), "the reader to see every record")
    finally:
        load.stopping.set()
        reader.stop()
    assert not reader.changed
    assert all(reader.seen[at] == value for at, value in acknowledged.items())
    check(cluster, TOPIC, load, PARTITIONS)
