"""gracchus and Apache Kafka 3.9.2 brokers in one cluster: leader, follower and controller of either kind."""

import json

import pytest

from brokers import Brokers
from replicated import Load, check, create, kill_leaders
from servers import TARGET, kafka_tool, wait_for

pytestmark = pytest.mark.skipif(TARGET == "apache", reason="both kinds are here already")


@pytest.mark.parametrize("protocol", ["3.9", "2.6"])
def test_beside_apache_kafka(brokers, protocol):
    """One Apache broker among three, whoever dies."""
    cluster = brokers(("gracchus", "apache", "gracchus"), config={"inter.broker.protocol.version": protocol}).start()
    kill_leaders(cluster, 3)


def reassign(cluster, topic, partitions, tmp_path):
    """Moves partitions by Kafka's own tool, until it says that they are there."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": topic, "partition": p, "replicas": replicas} for p, replicas in partitions.items()]}))
    arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", plan)
    kafka_tool("kafka-reassign-partitions", *arguments, "--execute", "--throttle", "50000000")

    def done():
        text = kafka_tool("kafka-reassign-partitions", *arguments, "--verify", check=False).stdout
        return all(f"Reassignment of partition {topic}-{p} is completed." in text for p in partitions) and text
    wait_for(done, "the reassignment")
    for p, replicas in partitions.items():
        node = cluster.json(f"/brokers/topics/{topic}")
        assert node["partitions"][str(p)] == replicas
        assert node["adding_replicas"] == node["removing_replicas"] == {}
        cluster.wait_isr(topic, replicas, p)
    # the tool takes its throttles back when all is done
    assert "throttled" not in str(cluster.json(f"/config/topics/{topic}"))


@pytest.mark.parametrize("controller", ["gracchus", "apache"])
def test_partitions_move_between_the_kinds_and_back(brokers, controller, tmp_path):
    cluster = brokers((controller, "gracchus", "apache", "gracchus", "apache"),
                      config={"offsets.topic.replication.factor": 1}).start(one_by_one=True)
    assert cluster.controller() == 1
    topic = "moved"
    create(cluster, topic, 2)
    load = Load(cluster.bootstrap, topic, 2)
    load.wait_for_more()
    for pair in ({0: [2, 4], 1: [4, 2]}, {0: [3, 5], 1: [5, 3]}, {0: [5, 2, 1], 1: [4, 3, 1]}):
        reassign(cluster, topic, pair, tmp_path)
        load.wait_for_more()
    check(cluster, topic, load.stop(), 2)
    # what left a broker is gone from its disk
    for number in (2, 3, 4, 5):
        for p, replicas in pair.items():
            if number not in replicas:
                wait_for(lambda: not list((cluster[number].directory / "logs").glob(f"{topic}-{p}")), "the old log to go")

    # leaders away from where they are preferred, and back by Kafka's tool
    assert cluster.state(topic, 0)["leader"] == 5
    cluster[5].stop()
    wait_for(lambda: cluster.state(topic, 0)["leader"] != 5, "another leader")
    cluster[5].start()
    cluster.wait_isr(topic, [5, 2, 1], 0)
    election = ("--bootstrap-server", cluster.bootstrap, "--election-type", "preferred")
    kafka_tool("kafka-leader-election", *election, "--topic", topic, "--partition", "0")
    assert cluster.state(topic, 0)["leader"] == 5
    kafka_tool("kafka-leader-election", *election, "--all-topic-partitions")
