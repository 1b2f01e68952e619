"""`gracchus start --brokers 3`: a cluster in one process."""

import json
import pathlib
import re
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from servers import BINARY, Process, free_port, gracchus, run, wait_for
from wire import Connection

QUIET = {"log_level": 0}


class Brokers:
    """Three ports in a row, which `free_port` gives one by one."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        ports = [free_port()]
        while ports[-3:] != list(range(ports[-1] - 2, ports[-1] + 1)):
            ports.append(free_port())
        self.ports = ports[-3:]
        self.zookeeper_port, self.console_port = free_port(), free_port()
        self.starts, self.process = 0, None

    def start(self, brokers=3, *options):
        self.starts += 1
        self.process = Process(
            [str(arg) for arg in (BINARY, "start", "--brokers", brokers, "--data", self.directory / "data", "--kafka-port", self.ports[0],
             "--zookeeper-port", self.zookeeper_port, "--console-port", self.console_port, *options)],
            self.directory / f"gracchus-{self.starts}.log")
        wait_for(lambda: "gracchus is ready." in self.process.text() or not self.process.alive(), "the brokers")
        assert self.process.alive(), self.process.text()[-3000:]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports[:brokers])
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def console(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.console_port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def isr(self, topic):
        partitions = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
        return [sorted(p.isrs) for p in partitions.values()]

    def write(self, topic, values):
        errors = []
        p = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **QUIET})
        for value in values:
            p.produce(topic, value, partition=0, on_delivery=lambda e, _: e and errors.append(e))
        assert p.flush(60) == 0 and not errors, errors

    def read(self, topic, count):
        c = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "g", "enable.auto.commit": False, **QUIET})
        c.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < count:
            found += [m.value() for m in c.consume(count - len(found), 60)]
        c.close()
        return found


@pytest.fixture
def brokers(tmp_path):
    b = Brokers(tmp_path)
    yield b
    if b.process and b.process.alive():
        b.process.kill()


def test_three_brokers_are_a_cluster(brokers):
    brokers.start()
    assert brokers.bootstrap in brokers.process.text()
    parts = json.loads(brokers.console("/health"))["parts"]
    assert [(p["part"], p["ready"]) for p in parts] == [("zookeeper", True)] + [(f"broker {n}", True) for n in range(3)]
    # three replicas without being asked for
    brokers.admin.create_topics([NewTopic("t", 1, -1)])["t"].result(60)
    wait_for(lambda: brokers.isr("t") == [[0, 1, 2]], "all replicas in sync")
    values = [b"%d" % n for n in range(100)]
    brokers.write("t", values)
    figures = brokers.console("/metrics")
    active = re.findall(r'^kafka_controller_kafkacontroller_activecontrollercount\{broker="(\d)"\} (\d)$', figures, re.M)
    assert sorted(broker for broker, _ in active) == ["0", "1", "2"] and sorted(n for _, n in active) == ["0", "0", "1"]
    heads = re.findall(r"^# TYPE (\S+)", figures, re.M)
    assert len(heads) == len(set(heads)), "each figure stands in one place"

    assert brokers.process.stop() == 0
    brokers.start()
    wait_for(lambda: brokers.isr("t") == [[0, 1, 2]], "all replicas in sync after a stop")
    brokers.process.kill()
    brokers.start()
    wait_for(lambda: brokers.isr("t") == [[0, 1, 2]], "all replicas in sync after a kill")
    assert brokers.read("t", 100) == values


def test_one_broker_becomes_three(brokers):
    brokers.start(1)
    brokers.admin.create_topics([NewTopic("t", 1, -1)])["t"].result(60)
    brokers.write("t", [b"first"])
    assert brokers.process.stop() == 0
    brokers.start(3)
    assert brokers.read("t", 1) == [b"first"]
    brokers.admin.create_topics([NewTopic("u", 1, 3)])["u"].result(60)
    brokers.write("u", [b"second"])
    assert brokers.read("u", 1) == [b"second"]


def test_leaders_are_elected_by_command(brokers):
    brokers.start(3, "--config", "auto.leader.rebalance.enable=false")
    brokers.admin.create_topics([NewTopic("t", 2, 3)])["t"].result(60)
    wait_for(lambda: brokers.isr("t") == [[0, 1, 2]] * 2, "all replicas in sync")

    def led():
        """Whichever broker answers, it may not have heard of the topic yet."""
        leaders = {n: p.leader for n, p in brokers.admin.list_topics("t", timeout=60).topics["t"].partitions.items()}
        return len(leaders) == 2 and min(leaders.values()) >= 0 and leaders
    leaders = wait_for(led, "both leaders")
    # the same replicas in another order: the leader stays where it is, and is preferred no longer
    wanted = {n: [r for r in range(3) if r != leader] + [leader] for n, leader in leaders.items()}

    def reordered(port):
        with Connection(port) as c:
            answer = c.call("AlterPartitionReassignments", 0, TimeoutMs=60000, Topics=[{"Name": "t", "Partitions": [
                {"PartitionIndex": n, "Replicas": replicas} for n, replicas in wanted.items()]}])
            errors = [p["ErrorCode"] for t in answer["Responses"] for p in t["Partitions"]]
            return answer["ErrorCode"] == 0 and errors == [0, 0]
    wait_for(lambda: any(reordered(port) for port in brokers.ports), "the controller")

    def elect(*args):
        return gracchus("elect", "--bootstrap-server", brokers.bootstrap, "--election-type", "preferred", *args).stdout
    assert elect("--topic", "t", "--partition", "1") == "Successfully completed leader election (PREFERRED) for partitions t-1\n"
    assert elect("--all-topic-partitions") == "Successfully completed leader election (PREFERRED) for partitions t-0\n"
    assert elect("--topic", "t", "--partition", "0") == "Valid replica already elected for partitions t-0\n"

    def moved():
        partitions = brokers.admin.list_topics("t", timeout=60).topics["t"].partitions
        return len(partitions) == 2 and all(p.leader == wanted[n][0] for n, p in partitions.items())
    wait_for(moved, "the new leaders in the metadata")


@pytest.mark.parametrize("args, said", [
    (["--brokers", "0"], "from 1 to 9"), (["--brokers", "10"], "from 1 to 9"),
    (["--brokers", "2", "--config", "broker.id=7"], "each broker has its own"),
    (["--brokers", "2", "--config", "log.dirs=/nowhere"], "each broker has its own"),
    (["--brokers", "2", "--adopt-cluster-id", "--adopt-topics"], "one broker alone"),
    (["--brokers", "9", "--kafka-port", "65530"], "65535")])
def test_what_several_brokers_exclude(tmp_path, args, said):
    done = run([BINARY, "start", "--data", tmp_path / "data", *args], check=False)
    assert done.returncode == 1 and said in done.stderr
    assert not (tmp_path / "data").exists()


def test_replicas_are_moved_by_command(brokers, tmp_path):
    brokers.start(3)
    brokers.admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    # larger than what a throttled fetch may take at once
    values = [b"%07d" % n * 20000 for n in range(40)]
    brokers.write("t", values)

    def replicas():
        partitions = brokers.admin.list_topics("t", timeout=60).topics["t"].partitions
        return partitions[0].replicas if partitions else None
    first = wait_for(replicas, "the topic")
    others = [id for id in range(3) if id not in first]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": others}]}))

    def reassign(*args, of_plan=True):
        file = ("--reassignment-json-file", plan) if of_plan else ()
        return gracchus("reassign", "--bootstrap-server", brokers.bootstrap, *file, *args).stdout

    def throttles():
        kinds = ("--entity-type", "topics", "--entity-name", "t"), ("--entity-type", "brokers", "--entity-name", others[0])
        return ["throttled" in gracchus("configs", "--bootstrap-server", brokers.bootstrap, "--describe", *kind).stdout for kind in kinds]
    started = "Successfully started partition reassignment for t-0\n"
    # slow enough to be seen on its way, and ended by the next order, not by time
    said = reassign("--execute", "--throttle", 1000)
    assert "The inter-broker throttle limit was set to 1000 B/s\n" in said and said.endswith(started)
    assert throttles() == [True, True]
    said = reassign("--verify")
    assert "Reassignment of partition t-0 is still in progress.\n" in said
    assert re.search(rf"  broker {others[0]} has \d+ of 56\d{{5}} bytes \(\d+ %\)\n", said), said
    listed = reassign("--list", of_plan=False)
    assert re.search(rf"t-0: replicas: [\d,]+\. adding: {others[0]},{others[1]}\. removing: {first[0]}\.\n", listed), listed
    [entry] = json.loads(reassign("--list", "--format", "json", of_plan=False))
    assert entry["adding"] == others and {c["broker"] for c in entry["copies"]} == set(others)
    said = reassign("--cancel")
    assert said.startswith("Successfully cancelled partition reassignment for: t-0\n")
    wait_for(lambda: replicas() == first, "the replicas as they were")
    assert throttles() == [False, False]
    said = reassign("--verify")
    assert f"There is no active reassignment of partition t-0, but replica set is {first[0]} rather than {others[0]},{others[1]}." in said

    reassign("--execute", "--throttle", 1000)
    assert reassign("--execute", "--additional", "--throttle", 1000000000).endswith(started)
    wait_for(lambda: "Reassignment of partition t-0 is completed.\n" in reassign("--verify"), "the move")
    assert throttles() == [False, False]
    wait_for(lambda: replicas() == others, "the new replicas")
    assert brokers.read("t", len(values)) == values
    assert reassign("--list", of_plan=False) == "No partition reassignments found.\n"


def test_who_is_controller_is_told(brokers):
    brokers.start(2)
    zookeeper, console = f"127.0.0.1:{brokers.zookeeper_port}", f"127.0.0.1:{brokers.console_port}"

    def told(*args):
        return gracchus("controller", "--zookeeper", zookeeper, "--console", console, *args).stdout

    def heard(epochs):
        seen = json.loads(told("--format", "json"))
        return all([e["controller_epoch"] for e in b["elections"]] == epochs for b in seen["elections_seen"]) and seen
    seen = wait_for(lambda: heard([1]), "the first election")
    assert [b["broker"] for b in seen["elections_seen"]] == [0, 1] and seen["epoch"] == 1
    run([BINARY, "zk", "-server", zookeeper, "delete", "/controller"])
    seen = wait_for(lambda: heard([1, 2]), "the second election")
    winner = seen["controller"]["broker"]
    assert seen["epoch"] == 2 and seen["elections_seen"][0]["elections"][1]["broker_id"] == winner
    text = told()
    assert text.startswith(f"Controller:  broker {winner} at PLAINTEXT://127.0.0.1:{brokers.ports[winner]}\nSince:       ")
    assert re.search(rf"Epoch:       2\n(.*\n)+  epoch 1: broker \d, .*\n  epoch 2: broker {winner}, ", text), text
    elsewhere = gracchus("controller", "--zookeeper", zookeeper, "--console", f"127.0.0.1:{free_port()}").stdout
    assert "no gracchus console at" in elsewhere and elsewhere.startswith(f"Controller:  broker {winner} ")
