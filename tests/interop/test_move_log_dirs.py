"""A replica moves from one log directory to another while it is written to, ordered with Kafka's own tools; and a move that a
broker of one kind has begun is finished by one of the other."""

import json
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType)
from kazoo.client import KazooClient

from servers import BINARY, LOG4J, Process, java, kafka_tool, knows_controller, wait_for
from wire import Connection

TOPIC = "moving"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def value(n):
    return b"%09d" % n * 1000


class Writer:
    """Numbered records, one after the other, until it is ended; each is acknowledged once."""

    def __init__(self, bootstrap, first=0):
        self.next, self.errors, self.ending = first, [], threading.Event()
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0})
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.ending.is_set():
            try:
                self.producer.produce(TOPIC, value(self.next), partition=0, on_delivery=lambda e, _: e and self.errors.append(e))
                self.next += 1
            except BufferError:
                pass
            self.producer.poll(0)
            self.ending.wait(0.005)

    def end(self):
        """How many records there are now."""
        self.ending.set()
        self.thread.join()
        assert self.producer.flush(60) == 0 and not self.errors, self.errors
        return self.next


def fill(bootstrap, count=2500):
    """Twenty megabytes, of which a throttled move copies one every eleven seconds at least, so long as its windows are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={"segment.bytes": "1000000"})])[TOPIC].result(60)
    p = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    errors = []
    for n in range(count):
        p.produce(TOPIC, value(n), partition=0, on_delivery=lambda e, _: e and errors.append(e))
        p.poll(0)
    assert p.flush(60) == 0 and not errors, errors
    return count


def check(bootstrap, count):
    """All records, each once, in their order."""
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True})
    c.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while len(found) < count:
        for m in c.consume(count - len(found), 60):
            assert m.error() is None, m.error()
            found.append((m.offset(), m.value()))
    assert found == [(n, value(n)) for n in range(count)]
    assert c.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60) == (0, count)
    c.close()


def throttle(bootstrap, rate):
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[
        ConfigEntry(THROTTLE, str(rate), incremental_operation=AlterConfigOpType.SET)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def order(port, directory):
    with Connection(port) as connection:
        answer = connection.call("AlterReplicaLogDirs", 2, Dirs=[
            {"Path": str(directory), "Topics": [{"Name": TOPIC, "Partitions": [0]}]}])
    return answer["Results"][0]["Partitions"][0]["ErrorCode"]


def copies(directory):
    return sorted(p.name for p in directory.glob(f"{TOPIC}-0.*-future"))


def copied(directory):
    return sum(p.stat().st_size for copy in copies(directory) for p in (directory / copy).glob("*.log"))


def source_and_target(dirs):
    source = next(d for d in dirs if (d / f"{TOPIC}-0").exists())
    return source, next(d for d in dirs if d != source)


def test_a_replica_moves_under_load(own_cluster, tmp_path):
    dirs = [tmp_path / "one", tmp_path / "two"]
    cluster = own_cluster({"log.dirs": ",".join(map(str, dirs)), "file.delete.delay.ms": "600000"}).start()
    bootstrap = cluster.bootstrap
    count = fill(bootstrap)
    source, target = source_and_target(dirs)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": TOPIC, "partition": 0, "replicas": [0], "log_dirs": [str(target)]}]}))
    writer = Writer(bootstrap, count)

    def reassign(*args):
        return kafka_tool("kafka-reassign-partitions", "--bootstrap-server", bootstrap, "--reassignment-json-file", plan, *args).stdout

    out = reassign("--execute", "--replica-alter-log-dirs-throttle", "1000")
    assert f"Successfully started moving log directory to {target} for replica {TOPIC}-0 with broker 0" in out, out
    assert f"Reassignment of replica {TOPIC}-0-0 is still in progress." in reassign("--verify", "--preserve-throttles")
    described = kafka_tool("kafka-log-dirs", "--bootstrap-server", bootstrap, "--describe", "--topic-list", TOPIC).stdout
    found = {d["logDir"]: d["partitions"] for d in json.loads(described.splitlines()[-1])["brokers"][0]["logDirs"]}
    assert [(p["partition"], p["isFuture"]) for p in found[str(source)]] == [(f"{TOPIC}-0", False)]
    [copy] = found[str(target)]
    assert copy["isFuture"] and copy["offsetLag"] > 0 and copy["size"] < found[str(source)][0]["size"], copy

    throttle(bootstrap, 1 << 40)
    wait_for(lambda: (target / f"{TOPIC}-0").exists() and not (source / f"{TOPIC}-0").exists(), "the replica to have moved")
    assert f"Reassignment of replica {TOPIC}-0-0 completed successfully." in reassign("--verify")
    count = writer.end()
    check(bootstrap, count)
    assert not copies(target)

    # and back, after a kill (of which a JVM broker would find its session left)
    cluster.kill() if cluster.target == "gracchus" else cluster.stop()
    cluster.start()
    check(bootstrap, count)
    wait_for(lambda: order(cluster.kafka_port, source) == 0, "the order to be taken")
    wait_for(lambda: (source / f"{TOPIC}-0").exists() and not (target / f"{TOPIC}-0").exists(), "the replica to be back")
    check(bootstrap, count)


@pytest.fixture
def processes():
    """Started by the test itself; ended with it, the last first."""
    started = []
    yield started
    for p in reversed(started):
        if p.alive():
            p.kill()


def test_a_move_is_finished_by_a_broker_of_the_other_kind(own_cluster, processes, tmp_path):
    dirs = [tmp_path / "one", tmp_path / "two"]
    config = {"log.dirs": ",".join(map(str, dirs)), "zookeeper.session.timeout.ms": "4000"}
    cluster = own_cluster(config, target="apache").start()
    bootstrap = cluster.bootstrap
    count = fill(bootstrap)
    source, target = source_and_target(dirs)
    throttle(bootstrap, 1)
    assert order(cluster.kafka_port, target) == 0
    wait_for(lambda: copied(target), "the JVM broker to have copied something")
    cluster.broker.kill()
    begun, [copy] = copied(target), copies(target)

    # It goes on where the JVM broker was, and is throttled after as much again.
    ours = Process([BINARY, "broker", str(cluster.directory / "server.properties")], tmp_path / "broker.log")
    processes.append(ours)
    wait_for(lambda: "broker 0 is ready" in ours.text() or not ours.alive(), "the broker")
    assert ours.alive(), ours.text()[-3000:]
    wait_for(lambda: copied(target) > begun, "the move to go on")
    ours.kill()
    further = copied(target)
    assert copies(target) == [copy]

    # which does not wait itself
    zk = KazooClient(hosts=cluster.zookeeper)
    zk.start(timeout=60)
    wait_for(lambda: not zk.exists("/brokers/ids/0"), "the end of the killed broker's session")
    zk.stop()
    zk.close()

    log4j = tmp_path / "log4j.properties"
    log4j.write_text(LOG4J % ("INFO", "System.out"))
    jvm = Process(java("kafka39", "kafka.Kafka", cluster.directory / "server.properties", heap="1g",
                       properties=[f"log4j.configuration=file:{log4j}"]), tmp_path / "kafka.log")
    processes.append(jvm)
    wait_for(lambda: knows_controller(cluster.kafka_port) or not jvm.alive(), "the JVM broker")
    assert jvm.alive(), jvm.text()[-3000:]
    wait_for(lambda: copied(target) > further, "the JVM broker to go on with what gracchus copied")
    throttle(bootstrap, 1 << 40)
    wait_for(lambda: (target / f"{TOPIC}-0").exists() and not (source / f"{TOPIC}-0").exists(), "the replica to have moved")
    check(bootstrap, count)
