"""One broker's directories under a JVM and under gracchus, one after the other: what was written by one is served by the
other, after a clean stop and after kill -9."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient

from servers import BINARY, LOG4J, Process, java, knows_controller, listens, wait_for

RECORDS = 500
# one topic a codec; several segments each
TOPICS = ["none", "gzip", "snappy", "lz4", "zstd"]
CONFIG = {"segment.bytes": "20000", "index.interval.bytes": "512"}
# short, for after a kill the session of the dead broker has to end
SESSION = {"zookeeper.session.timeout.ms": "4000"}
GROUP, COMMITTED = "swap", 123


def value(topic, n):
    return b"%s record %d " % (topic.encode(), n) * 5


def write(bootstrap, first, count):
    """`count` records from number `first` on to each topic, each acknowledged."""
    errors = []
    for topic in TOPICS:
        p = Producer({"bootstrap.servers": bootstrap, "compression.type": topic, "linger.ms": 5, "batch.num.messages": 50,
                      "enable.idempotence": topic in ("none", "zstd")})
        for n in range(first, first + count):
            p.produce(topic, value(topic, n), b"k%d" % n, headers=[("n", b"%d" % n)],
                      on_delivery=lambda e, _: e and errors.append(e))
        assert p.flush(60) == 0 and not errors, errors


def fill(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for f in admin.create_topics([NewTopic(t, 1, 1, config=CONFIG) for t in TOPICS]).values():
        f.result(60)
    write(bootstrap, 0, RECORDS)
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    c.commit(offsets=[TopicPartition(t, 0, COMMITTED) for t in TOPICS], asynchronous=False)
    c.close()


def check(bootstrap, records):
    """Every record at its offset, the group's offsets, the topics' configurations."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_for(lambda: set(TOPICS) <= set(t for t, m in admin.list_topics(timeout=60).topics.items()
                                        if m.error is None and m.partitions[0].leader == 0), "leaders")
    asked = [ConfigResource(ResourceType.TOPIC, t) for t in TOPICS]
    for resource, f in admin.describe_configs(asked).items():
        assert f.result(60)["segment.bytes"].value == CONFIG["segment.bytes"], resource
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "check.crcs": True})
    for topic in TOPICS:
        assert c.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, records)
        c.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < records:
            for m in c.consume(records - len(found), 60):
                assert m.error() is None, m.error()
                found.append((m.offset(), m.key(), m.value(), m.headers()))
        assert found == [(n, b"k%d" % n, value(topic, n), [("n", b"%d" % n)]) for n in range(records)], topic
    committed = c.committed([TopicPartition(t, 0) for t in TOPICS], timeout=60)
    assert [p.offset for p in committed] == [COMMITTED] * len(TOPICS)
    c.close()


@pytest.fixture
def processes():
    """Started by the test itself; ended with it, the last first."""
    started = []
    yield started
    for p in reversed(started):
        if p.alive():
            p.kill()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_jvm_broker_serves_what_gracchus_wrote(own_cluster, processes, tmp_path, how):
    ours = own_cluster(SESSION, target="gracchus").start()
    fill(ours.bootstrap)
    log_dir = ours.log_dir
    if how == "stop":
        assert ours.stop() == 0
    else:
        ours.kill()

    zoo = tmp_path / "zoo.cfg"
    zoo.write_text(f"dataDir={ours.directory}/data/zookeeper\nclientPort={ours.zookeeper_port}\nclientPortAddress=127.0.0.1\n")
    processes.append(Process([BINARY, "zookeeper", str(zoo)], tmp_path / "zookeeper.log"))
    wait_for(lambda: listens(ours.zookeeper_port), "the coordination server")
    zk = KazooClient(hosts=ours.zookeeper)
    zk.start(timeout=60)
    # the JVM broker does not wait for it itself, it ends
    wait_for(lambda: not zk.exists("/brokers/ids/0"), "the end of the killed broker's session")
    zk.stop()
    zk.close()

    log4j = tmp_path / "log4j.properties"
    log4j.write_text(LOG4J % ("INFO", "System.out"))
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in {
        "broker.id": "0", "listeners": f"PLAINTEXT://{ours.bootstrap}", "zookeeper.connect": ours.zookeeper, "log.dirs": log_dir,
        "offsets.topic.replication.factor": "1", **ours.config}.items()))
    jvm = Process(java("kafka39", "kafka.Kafka", file, heap="1g", properties=[f"log4j.configuration=file:{log4j}"]),
                  tmp_path / "kafka.log")
    processes.append(jvm)
    wait_for(lambda: knows_controller(ours.kafka_port) or not jvm.alive(), "the JVM broker")
    assert jvm.alive(), jvm.text()[-3000:]
    check(ours.bootstrap, RECORDS)
    write(ours.bootstrap, RECORDS, 10)
    check(ours.bootstrap, RECORDS + 10)
    recovered = jvm.text().count("Recovering unflushed segment")
    assert (recovered == 0) == (how == "stop"), "a clean stop leaves nothing to recover, a kill does"
    assert "ERROR" not in jvm.text(), [line for line in jvm.text().splitlines() if "ERROR" in line]


def test_gracchus_takes_over_from_a_killed_jvm_at_once(own_cluster, processes, tmp_path):
    """Same files, same ports, right after kill -9 of broker and ZooKeeper: the dead broker's session is waited out."""
    apache = own_cluster(SESSION, target="apache").start()
    fill(apache.bootstrap)
    apache.kill()

    processes.append(Process([BINARY, "zookeeper", str(apache.directory / "zoo.cfg")], tmp_path / "zookeeper.log"))
    broker = Process([BINARY, "broker", str(apache.directory / "server.properties")], tmp_path / "broker.log")
    processes.append(broker)
    wait_for(lambda: "broker 0 is ready" in broker.text() or not broker.alive(), "the broker")
    assert broker.alive(), broker.text()[-3000:]
    assert "waiting for that session to expire" in broker.text()
    check(apache.bootstrap, RECORDS)
    write(apache.bootstrap, RECORDS, 10)
    check(apache.bootstrap, RECORDS + 10)
    assert broker.stop() == 0
