"""A log directory fails: the controller is told and its partitions lose their leaders; the last one ends the broker."""

import json

from confluent_kafka import Producer
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
