"""Znodes with content that no broker wrote: the broker goes on, names the node, and never runs from election to election
(Apache Kafka 3.9 elects itself hundreds of times over a broken broker, topic or feature node)."""

import json

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from servers import wait_for

QUIET = {"log_level": 0}


class Cluster:
    def __init__(self, server):
        self.server = server
        self.zk = KazooClient(hosts=server.zookeeper)
        self.zk.start(timeout=60)
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap, **QUIET})
        self.made = 0

    def close(self):
        self.zk.stop()
        self.zk.close()

    def epoch(self):
        return int(self.zk.get("/controller_epoch")[0])

    def put(self, path, data):
        if self.zk.exists(path):
            self.zk.set(path, data)
        else:
            self.zk.create(path, data, makepath=True)

    def works(self):
        """The controller takes its next event, and records are taken and given."""
        self.made += 1
        topic = f"after-{self.made}"
        wait_for(lambda: self.create(topic), "a controller")
        self.write(topic)

    def create(self, topic):
        """False in between two terms."""
        try:
            self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
        except KafkaException as e:
            assert e.args[0].code() == KafkaError.NOT_CONTROLLER, e
            return False
        return True

    def write(self, topic):
        errors = []
        producer = Producer({"bootstrap.servers": self.server.bootstrap, "message.timeout.ms": 60000, **QUIET})
        producer.produce(topic, b"x", on_delivery=lambda e, _: e and errors.append(e))
        assert producer.flush(60) == 0 and not errors, errors
        assert self.server.broker.alive()

    def said(self, *words):
        wait_for(lambda: any(all(w in line for w in words) for line in self.server.log_text().splitlines()), f"a line with {words}")

    def elect(self):
        """Another term: one election, and the next event is taken in it."""
        before = self.epoch()
        self.zk.delete("/controller")
        self.works()
        assert self.epoch() == before + 1


@pytest.fixture
def cluster(own_cluster):
    c = Cluster(own_cluster(target="gracchus").start())
    c.create("good")
    c.write("good")
    yield c
    c.close()


def test_topics(cluster):
    cluster.put("/brokers/topics/bad1", b"{oops")
    cluster.said("/brokers/topics/bad1")
    cluster.put("/brokers/topics/bad2", b"")
    cluster.said("/brokers/topics/bad2")
    cluster.works()
    cluster.put("/brokers/topics/old", b'{"version":1,"partitions":{"0":[0]}}')
    wait_for(lambda: cluster.zk.exists("/brokers/topics/old/partitions/0/state"), "the leader of a topic without an id")
    cluster.put("/brokers/topics/good/partitions/0/state", b"junk")
    cluster.elect()
    cluster.said("/brokers/topics/good/partitions/0/state")
    cluster.write("old")
    assert cluster.epoch() == 2


def test_notifications(cluster):
    for prefix, data in (("/config/changes/config_change_", b"junk"), ("/config/changes/config_change_", b'{"version":9}'),
                         ("/config/changes/config_change_", b'{"version":2,"entity_path":"planets/mars"}'),
                         ("/isr_change_notification/isr_change_", b"junk"),
                         ("/log_dir_event_notification/log_dir_event_", b"junk")):
        cluster.said(cluster.zk.create(prefix, data, sequence=True))
        cluster.works()
    for parent in ("/isr_change_notification", "/log_dir_event_notification"):
        wait_for(lambda: not cluster.zk.get_children(parent), f"{parent} to be empty")
    # a broken configuration; then a good one, by the oldest form of notification
    cluster.put("/config/topics/good", b"junk")
    change = b'{"version":1,"entity_type":"topics","entity_name":"good"}'
    cluster.zk.create("/config/changes/config_change_", change, sequence=True)
    cluster.said("/config/topics/good")
    cluster.write("good")
    cluster.zk.set("/config/topics/good", b'{"version":1,"config":{"max.message.bytes":"10"}}')
    cluster.zk.create("/config/changes/config_change_", change, sequence=True)

    def too_large():
        errors = []
        producer = Producer({"bootstrap.servers": cluster.server.bootstrap, **QUIET})
        producer.produce("good", b"x" * 100, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(60) == 0
        return errors[0] is not None
    wait_for(too_large, "the topic's new limit")
    assert cluster.epoch() == 1


def test_orders(cluster):
    orders = [("/admin/delete_topics/ghost", b"", "ghost"), ("/admin/preferred_replica_election", b"junk", None),
              ("/admin/reassign_partitions", b"junk", None),
              ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"good","partition":0}]}', None),
              ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"good","partition":0,"replicas":[]}]}', "good-0"),
              ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"ghost","partition":0,"replicas":[0]}]}', "ghost")]
    for path, data, named in orders:
        lines = len(cluster.server.log_text().splitlines())
        cluster.put(path, data)
        wait_for(lambda: not cluster.zk.exists(path), f"{path} with {data} to be taken away")

        def said():
            return any((named or path) in line for line in cluster.server.log_text().splitlines()[lines:])
        wait_for(said, f"a line about {path} with {data}")
        cluster.works()
    assert cluster.epoch() == 1


def test_brokers_and_the_controllers_own(cluster):
    cluster.put("/brokers/ids/77", b"junk")
    cluster.said("/brokers/ids/77")
    cluster.works()
    cluster.elect()
    cluster.zk.delete("/brokers/ids/77")
    feature = cluster.zk.get("/feature")[0]
    cluster.zk.set("/feature", b"junk")
    cluster.elect()
    cluster.said("/feature")
    cluster.zk.set("/feature", feature)
    cluster.works()

    # another holds the post, and leaves it
    session = cluster.zk.exists("/controller").ephemeralOwner
    cluster.zk.set("/controller", b'{"version":1,"brokerid":55,"timestamp":"1"}')
    cluster.zk.delete("/controller")
    cluster.works()
    assert cluster.zk.exists("/controller").ephemeralOwner == session
    assert json.loads(cluster.zk.get("/controller")[0])["brokerid"] == 0
    # the next term is above whatever stands there
    cluster.zk.set("/controller_epoch", b"1000")
    cluster.works()
    assert cluster.epoch() == 1001
    # a registration that somebody deletes comes back
    cluster.zk.delete("/brokers/ids/0")
    wait_for(lambda: cluster.zk.exists("/brokers/ids/0"), "the registration")
    cluster.works()
