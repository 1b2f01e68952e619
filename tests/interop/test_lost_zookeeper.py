"""ZooKeeper's data is lost, the brokers' is not: said with both values, and mended without deleting anything."""

import re
import shutil
import signal
import subprocess

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from servers import BINARY, Process, free_port, listens, wait_for
from wire import Connection

RECORDS = [b"record %d" % n for n in range(100)]
GROUP = "survivors"


def fill(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for f in admin.create_topics([NewTopic("kept", 2, 1)]).values():
        f.result(60)
    p = Producer({"bootstrap.servers": bootstrap})
    for n, value in enumerate(RECORDS):
        p.produce("kept", value, partition=n % 2)
    assert p.flush(60) == 0
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    c.commit(offsets=[TopicPartition("kept", 0, 17)], asynchronous=False)
    c.close()


def check(bootstrap):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    assert c.committed([TopicPartition("kept", 0)], timeout=60)[0].offset == 17
    c.assign([TopicPartition("kept", p, 0) for p in (0, 1)])
    found = set()
    while len(found) < len(RECORDS):
        for m in c.consume(len(RECORDS), 60):
            assert m.error() is None, m.error()
            found.add(m.value())
    assert found == set(RECORDS)
    c.close()


def test_one_process_gets_its_topics_back(own_cluster):
    server = own_cluster(target="gracchus").start()
    fill(server.bootstrap)
    cluster_id = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60).cluster_id
    assert server.stop() == 0
    shutil.rmtree(server.directory / "data" / "zookeeper")
    args = [BINARY, "start", "--data", server.directory / "data", "--kafka-port", str(server.kafka_port),
            "--zookeeper-port", str(server.zookeeper_port), "--console-port", str(server.console_port)]
    refused = subprocess.run(args, capture_output=True, text=True, timeout=60)
    said = refused.stderr.strip().splitlines()[-1]
    assert refused.returncode == 1 and cluster_id in said and "--adopt-cluster-id" in said and "--adopt-topics" in said, said
    for key, value in server.config.items():
        args += ["--config", f"{key}={value}"]
    p = Process([*map(str, args), "--adopt-cluster-id", "--adopt-topics"], server.directory / "again.log")
    server.processes = [p]
    wait_for(lambda: "is ready" in p.text() or not p.alive(), "the server")
    assert AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60).cluster_id == cluster_id
    check(server.bootstrap)
    # nothing may be deleted for want of the lost configuration
    zk = KazooClient(hosts=server.zookeeper)
    zk.start(timeout=60)
    assert b'"retention.ms":"-1"' in zk.get("/config/topics/kept")[0]
    assert b'"cleanup.policy":"compact"' in zk.get("/config/topics/__consumer_offsets")[0]
    zk.stop()
    zk.close()
    assert p.stop() == 0
    # and from now on as ever
    server.start()
    check(server.bootstrap)


@pytest.fixture
def coordination_server(tmp_path):
    """A coordination server alone: its address and its process."""
    port = free_port()
    zoo = tmp_path / "zoo.cfg"
    zoo.write_text(f"dataDir={tmp_path}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\n")
    p = Process([BINARY, "zookeeper", str(zoo)], tmp_path / "zookeeper.log")
    wait_for(lambda: listens(port), "the coordination server")
    yield f"127.0.0.1:{port}", p
    p.stop()


@pytest.fixture
def coordination(coordination_server):
    """The address alone."""
    return coordination_server[0]


def broker(tmp_path, zookeeper, *flags, **keys):
    port = free_port()
    file = tmp_path / f"server-{port}.properties"
    keys = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "zookeeper.connect": zookeeper, **keys}
    file.write_text("".join(f"{k}={v}\n" for k, v in keys.items()))
    return Process([BINARY, "broker", str(file), *flags], tmp_path / f"broker-{port}.log")


def ended(process):
    """Waits for the end of a start that must fail; its paragraph."""
    assert process.popen.wait(60) == 1, process.text()
    return process.text().strip().splitlines()[-1]


def test_a_new_zookeeper_with_a_cluster_id_of_its_own(tmp_path, coordination):
    """An empty ZooKeeper to which another broker came first: its id is minutes old and no topic is there."""
    first = broker(tmp_path, coordination, **{"log.dirs": tmp_path / "first"})
    wait_for(lambda: "is ready" in first.text(), "the first broker")
    new_id = re.search(r"of cluster (\S+)", first.text()).group(1)
    old = tmp_path / "old"
    old.mkdir()
    (old / "meta.properties").write_text("#\nbroker.id=7\nversion=0\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    said = ended(broker(tmp_path, coordination, **{"log.dirs": old}))
    assert "is new" in said and new_id in said and "AAAAAAAAAAAAAAAAAAAAAA" in said and "1 live brokers" in said, said
    # not while somebody lives there
    said = ended(broker(tmp_path, coordination, "--adopt-cluster-id", **{"log.dirs": old}))
    assert "is new" in said, said
    assert first.stop() == 0
    adopted = broker(tmp_path, coordination, "--adopt-cluster-id", **{"log.dirs": old})
    wait_for(lambda: "is ready" in adopted.text() or not adopted.alive(), "the broker of the old cluster")
    assert "broker 7 of cluster AAAAAAAAAAAAAAAAAAAAAA" in adopted.text()
    # with topics there, the other cluster is not new, and its id stays
    admin = AdminClient({"bootstrap.servers": re.search(r"told (\S+)", adopted.text()).group(1)})
    for f in admin.create_topics([NewTopic("t", 1, 1)]).values():
        f.result(60)
    assert adopted.stop() == 0
    said = ended(broker(tmp_path, coordination, "--adopt-cluster-id", **{"log.dirs": tmp_path / "first"}))
    assert "is new" not in said and new_id in said and "AAAAAAAAAAAAAAAAAAAAAA" in said and "meta.properties" in said, said


def test_a_controller_that_waits_for_zookeeper_says_so(tmp_path, coordination_server):
    """The server stands still with its connections open: what the controller works on, and what waits behind it, is told."""
    address, zookeeper = coordination_server
    p = broker(tmp_path, address, **{"log.dirs": tmp_path / "logs"})
    wait_for(lambda: "is ready" in p.text(), "the broker")
    port = int(re.search(r"127\.0\.0\.1:(\d+)", next(tmp_path.glob("server-*.properties")).read_text()).group(1))
    number, epoch = re.search(r"registered as broker (\d+), broker epoch (\d+)", p.text()).groups()
    with Connection(port) as client:
        zookeeper.send(signal.SIGSTOP)
        try:
            client.send("AllocateProducerIds", 0, BrokerId=int(number), BrokerEpoch=int(epoch))
            told = r"the controller has waited \d+ s for ZooKeeper with a block of producer ids; \d+ more events wait behind it"
            wait_for(lambda: re.search(told, p.text()), "the line")
        finally:
            zookeeper.send(signal.SIGCONT)
        assert client.receive("AllocateProducerIds", 0)["ErrorCode"] == 0
    assert p.stop() == 0
