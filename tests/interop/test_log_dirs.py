"""A log directory fails: the controller is told, its partitions are led by others or lose their leaders; the last one ends the
broker."""

import json

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from servers import wait_for

TOPIC = "two-dirs"
PARTITIONS = 4


def send(bootstrap, partition, timeout_ms=60000):
    """The error of one record, None if it was acknowledged."""
    errors = []
    p = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": timeout_ms})
    p.produce(TOPIC, b"value", partition=partition, on_delivery=lambda e, m: errors.append(e))
    p.flush(60)
    return errors[0]


def test_a_failed_directory_is_told_to_the_controller(own_cluster, tmp_path):
    dirs = [tmp_path / "one", tmp_path / "two"]
    cluster = own_cluster({"log.dirs": ",".join(map(str, dirs)),
                           "replica.high.watermark.checkpoint.interval.ms": "200"}).start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    for partition in range(PARTITIONS):
        assert send(cluster.bootstrap, partition) is None
    lost = [p for p in range(PARTITIONS) if (dirs[0] / f"{TOPIC}-{p}").exists()]
    kept = [p for p in range(PARTITIONS) if p not in lost]
    assert lost and kept

    zk = KazooClient(cluster.zookeeper)
    zk.start(60)
    try:
        def leader(partition):
            return json.loads(zk.get(f"/brokers/topics/{TOPIC}/partitions/{partition}/state")[0])["leader"]

        # the next checkpoint with something new finds no directory; it may come before this record is appended
        dirs[0].rename(tmp_path / "gone")
        send(cluster.bootstrap, lost[0], 3000)
        wait_for(lambda: all(leader(p) == -1 for p in lost), "the partitions of the failed directory to lose their leaders")
        assert [leader(p) for p in kept] == [0] * len(kept)
        wait_for(lambda: zk.get_children("/log_dir_event_notification") == [], "the controller to have taken the notice")
        assert send(cluster.bootstrap, lost[0], 3000) is not None
        assert send(cluster.bootstrap, kept[0]) is None
        assert cluster.broker.alive()
    finally:
        zk.stop()

    dirs[1].rename(tmp_path / "gone too")
    send(cluster.bootstrap, kept[0], 3000)
    wait_for(lambda: not cluster.broker.alive(), "the broker to end without a directory")
    assert cluster.broker.popen.returncode == 1


def test_another_replica_leads_when_the_leaders_directory_fails(brokers, tmp_path):
    cluster = brokers(["gracchus", "gracchus"], zookeeper="gracchus", log_dirs=2, config={
        "min.insync.replicas": 1, "offsets.topic.replication.factor": 1,
        "replica.high.watermark.checkpoint.interval.ms": 200}).start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(60)
    leader = cluster.wait_isr(TOPIC, [1, 2])["leader"]
    other = 3 - leader
    failing = next(d for d in cluster[leader].log_dirs if (d / f"{TOPIC}-0").exists())

    errors = []
    p = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120000, "log_level": 0})

    def write(first, last):
        for n in range(first, last):
            p.produce(TOPIC, b"%d" % n, partition=0, on_delivery=lambda e, _: e and errors.append(e))
        assert p.flush(120) == 0 and not errors, errors

    write(0, 100)
    # the next checkpoint with something new finds no directory
    failing.rename(tmp_path / "gone")
    write(100, 200)
    wait_for(lambda: cluster.state(TOPIC)["leader"] == other, "the other replica to lead")
    write(200, 300)
    assert cluster[leader].alive()

    # back after a restart, with what it had
    (tmp_path / "gone").rename(failing)
    assert cluster[leader].stop() == 0
    cluster[leader].start()
    cluster.wait_isr(TOPIC, [1, 2])
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "log_level": 0})
    c.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while len(found) < 300:
        for m in c.consume(300 - len(found), 60):
            assert m.error() is None, m.error()
            found.append((m.offset(), m.value()))
    assert found == [(n, b"%d" % n) for n in range(300)]
    c.close()
