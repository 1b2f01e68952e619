"""The znodes that Apache Kafka 3.9.2 and gracchus leave behind after the same calls, path by path and key by key."""

import json
import re

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from servers import TARGET, Cluster, wait_for


def tree(zookeeper):
    """path -> (data, is ephemeral, version, acl) of every znode but ZooKeeper's own."""
    zk = KazooClient(hosts=zookeeper)
    zk.start(timeout=60)
    found = {}

    def walk(path):
        try:
            data, stat = zk.get(path)
            acls, _ = zk.get_acls(path)
            children = zk.get_children(path)
            data = null_or(zk, path, data)
        except NoNodeError:
            return      # deleted meanwhile
        found[path] = (data, stat.ephemeralOwner != 0, stat.version, [(a.perms, a.id.scheme, a.id.id) for a in acls])
        for child in children:
            if (path, child) != ("/", "zookeeper"):
                walk(path.rstrip("/") + "/" + child)
    walk("/")
    zk.stop()
    zk.close()
    return found


def null_or(zk, path, data):
    """kazoo shows no data and empty data alike; the server's dataLength is 0 for both, so ask for the raw answer."""
    from kazoo.protocol.serialization import GetData
    if data:
        return data.decode()

    class Raw(GetData):
        @classmethod
        def deserialize(cls, bytes, offset):
            length = int.from_bytes(bytes[offset:offset + 4], "big", signed=True)
            return "null" if length < 0 else "empty"
    result = zk.handler.async_result()
    zk._call(Raw(path, None), result)
    return result.get(timeout=60)


def drive(cluster):
    """The same calls to either system; yields a name and the tree after each step."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def done(futures):
        for f in futures.values():
            f.result(60)
    yield "started", tree(cluster.zookeeper)
    done(admin.create_topics([NewTopic("orders", 3, 1, config={"cleanup.policy": "compact", "retention.ms": "1000"}),
                              NewTopic("plain", 1, 1)]))
    yield "topics created", tree(cluster.zookeeper)
    done(admin.incremental_alter_configs([
        ConfigResource(ResourceType.TOPIC, "plain", incremental_configs=[
            ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)]),
        ConfigResource(ResourceType.BROKER, "0", incremental_configs=[
            ConfigEntry("log.cleaner.backoff.ms", "14000", incremental_operation=AlterConfigOpType.SET)])]))
    wait_for(lambda: notified(cluster, 2), "both notifications")
    yield "configs changed", tree(cluster.zookeeper)
    p = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    p.produce("plain", b"x")
    assert p.flush(60) == 0
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    c.subscribe(["plain"])
    assert c.poll(60).value() == b"x"
    c.commit(asynchronous=False)
    c.close()
    yield "group used", tree(cluster.zookeeper)
    done(admin.delete_topics(["orders"]))
    wait_for(lambda: "/brokers/topics/orders" not in tree(cluster.zookeeper), "the topic to go")
    wait_for(lambda: "/admin/delete_topics/orders" not in tree(cluster.zookeeper), "the deletion to end")
    yield "topic deleted", tree(cluster.zookeeper)


def notified(cluster, count):
    return sum(p.startswith("/config/changes/") for p in tree(cluster.zookeeper)) == count


IDS = re.compile(r'"(id|topic_id)":"[\w-]{22}"')


def canonical(path, data):
    """The data with what must differ (ids, times, ports) blanked; key order is kept, hash-ordered maps are sorted."""
    if not data.startswith("{"):
        return data
    def pairs(items):
        keys = [k for k, _ in items]
        if all(k.isdigit() for k in keys) or in_config(items):
            return sorted(items)
        return items

    def in_config(items):
        return bool(items) and all("." in k for k, _ in items)
    value = json.loads(data, object_pairs_hook=pairs)
    text = json.dumps(value)
    text = re.sub(r'(\["(?:id|topic_id)", )"[\w-]{22}"', r"\1ID", text)
    text = re.sub(r'(\["timestamp", )"\d+"', r"\1TIME", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)
    return re.sub(r'(\["port", )\d+', r"\1PORT", text)


@pytest.mark.skipif(TARGET != "gracchus", reason="compares gracchus with Apache")
def test_same_calls_leave_the_same_znodes(tmp_path):
    clusters = {name: Cluster(tmp_path / name, target=name).start() for name in ("apache", "gracchus")}
    try:
        # both systems settle before the first look: the controller's own writes come after the port opens
        for c in clusters.values():
            wait_for(lambda: "/feature" in tree(c.zookeeper), "the controller")
        for (step, theirs), (_, ours) in zip(drive(clusters["apache"]), drive(clusters["gracchus"])):
            assert sorted(ours) == sorted(theirs), step
            for path, (data, ephemeral, version, acl) in theirs.items():
                mine = ours[path]
                assert canonical(path, mine[0]) == canonical(path, data), f"{step}: {path}"
                assert mine[1] == ephemeral and mine[3] == acl, f"{step}: {path}"
                if path not in ("/", ):
                    assert mine[2] == version, f"{step}: version of {path}"
    finally:
        for c in clusters.values():
            c.remove()
