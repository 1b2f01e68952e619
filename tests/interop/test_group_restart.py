"""What groups are promised over a restart: committed offsets and stable members, after a clean stop and after kill -9."""

import contextlib
import os
import random
import threading
import time

import pytest

from servers import TARGET, wait_for
from wire import Connection

NONE, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 27, 79
TOPIC = "restart"


def ready(cluster):
    """A broker that has the topic and coordinates all groups."""
    with Connection(cluster.kafka_port) as c:
        new = [{"Name": TOPIC, "NumPartitions": 1, "ReplicationFactor": 1}]
        wait_for(lambda: c.call("CreateTopics", 4, Topics=new)["Topics"][0]["ErrorCode"] in (0, 36), "the topic")
        wait_for(lambda: c.call("FindCoordinator", 1, Key="any")["ErrorCode"] == NONE, "a coordinator")
        known = lambda: c.call("Metadata", 4, Topics=[{"Name": TOPIC}], AllowAutoTopicCreation=False)["Topics"][0]["ErrorCode"]
        wait_for(lambda: known() == NONE, "the topic's metadata")


def commit(c, group, offset):
    answer = c.call("OffsetCommit", 6, GroupId=group, GenerationIdOrMemberEpoch=-1, Topics=[
        {"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}]}])
    return answer["Topics"][0]["Partitions"][0]["ErrorCode"]


def committed(c, group):
    named = [{"Name": TOPIC, "PartitionIndexes": [0]}]
    def once():
        answer = c.call("OffsetFetch", 6, GroupId=group, Topics=named)
        return answer if answer["ErrorCode"] == NONE else None
    return wait_for(once, "loaded groups")["Topics"][0]["Partitions"][0]["CommittedOffset"]


class Committer(threading.Thread):
    """Commits rising offsets for one group until the server is gone; knows the last that was acknowledged."""

    def __init__(self, port, group, last):
        super().__init__()
        self.port, self.group, self.acknowledged = port, group, last

    def run(self):
        try:
            with Connection(self.port, timeout_s=30) as c:
                while True:
                    if commit(c, self.group, self.acknowledged + 1) == NONE:
                        self.acknowledged += 1
        except (ConnectionError, OSError):
            pass


@pytest.mark.skipif(TARGET == "apache", reason="Kafka does not start while its own old registration is in ZooKeeper")
def test_no_acknowledged_offset_is_lost_by_kill_9(own_cluster):
    rounds = 60 if os.environ.get("GRACCHUS_TEST_LONG", "0") != "0" else 20
    dice = random.Random(7)
    cluster = own_cluster().start()
    last = {f"kill-{i}": 0 for i in range(4)}
    for _ in range(rounds):
        ready(cluster)
        committers = [Committer(cluster.kafka_port, group, offset) for group, offset in last.items()]
        for committer in committers:
            committer.start()
        before = sum(last.values())
        # some are acknowledged, then it ends at any moment
        wait_for(lambda: sum(c.acknowledged for c in committers) > before + 20, "commits")
        time.sleep(dice.random() * 0.5)
        cluster.kill()
        for committer in committers:
            committer.join()
        last = {c.group: c.acknowledged for c in committers}
        cluster.start()
        ready(cluster)
        with Connection(cluster.kafka_port) as c:
            for group, acknowledged in last.items():
                # the one under way when the server died may have got in
                assert committed(c, group) in (acknowledged, acknowledged + 1), group
    assert all(offset > 0 for offset in last.values())


def test_members_stay_over_a_clean_restart(own_cluster):
    cluster = own_cluster().start()
    ready(cluster)
    fields = {"GroupId": "stay", "SessionTimeoutMs": 60000, "RebalanceTimeoutMs": 60000, "ProtocolType": "consumer",
              "Protocols": [{"Name": "range", "Metadata": b"meta"}]}
    with Connection(cluster.kafka_port) as c:
        wait_for(lambda: c.call("Heartbeat", 0, GroupId="stay", GenerationId=1, MemberId="x")["ErrorCode"] == 25, "loaded groups")
        given = c.call("JoinGroup", 5, **fields)
        assert given["ErrorCode"] == MEMBER_ID_REQUIRED
        joined = c.call("JoinGroup", 5, **fields, MemberId=given["MemberId"])
        member, generation = joined["MemberId"], joined["GenerationId"]
        synced = c.call("SyncGroup", 3, GroupId="stay", GenerationId=generation, MemberId=member,
                        Assignments=[{"MemberId": member, "Assignment": b"mine"}])
        assert (joined["ErrorCode"], synced["ErrorCode"]) == (NONE, NONE)
    cluster.stop()
    cluster.start()
    ready(cluster)
    with Connection(cluster.kafka_port) as c:
        described = lambda: c.call("DescribeGroups", 4, Groups=["stay"])["Groups"][0]
        wait_for(lambda: described()["ErrorCode"] == NONE, "loaded groups")
        assert described()["GroupState"] == "Stable"
        assert [(m["MemberId"], m["MemberAssignment"]) for m in described()["Members"]] == [(member, b"mine")]
        beat = c.call("Heartbeat", 3, GroupId="stay", GenerationId=generation, MemberId=member)
        assert beat["ErrorCode"] == NONE


@pytest.mark.skipif(TARGET == "apache", reason="asks for gracchus' own log line")
def test_a_member_that_waits_for_the_others_does_not_hold_up_a_stop(own_cluster):
    cluster = own_cluster().start()
    ready(cluster)
    fields = {"GroupId": "wait", "SessionTimeoutMs": 60000, "RebalanceTimeoutMs": 300000, "ProtocolType": "consumer",
              "Protocols": [{"Name": "range", "Metadata": b"meta"}]}
    with Connection(cluster.kafka_port) as first, Connection(cluster.kafka_port) as second:
        wait_for(lambda: first.call("JoinGroup", 3, **fields)["ErrorCode"] == NONE, "loaded groups")
        # the first member does not join again, so this waits for it until the broker cuts it off
        def wait():
            with contextlib.suppress(ConnectionError):
                second.call("JoinGroup", 3, **fields)
        joins = threading.Thread(target=wait)
        joins.start()
        state = lambda: first.call("DescribeGroups", 4, Groups=["wait"])["Groups"][0]["GroupState"]
        wait_for(lambda: state() == "PreparingRebalance", "the rebalance")
        process = cluster.processes[0]
        assert cluster.stop() == 0
        joins.join()
    assert "did not end within" not in process.text()
