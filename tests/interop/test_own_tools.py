"""The binary's own tools, `gracchus topics`, `groups`, `configs`, `produce`, `consume`: against the server under test, and
side by side with Apache Kafka 3.9.2's where those are on this machine."""

import json
import signal
import subprocess

import pytest
from confluent_kafka.admin import AdminClient

from servers import BINARY, free_port, kafka_tool, wait_for


@pytest.fixture
def own(cluster):
    def call(tool, *args, input=None, check=True):
        done = subprocess.run([BINARY, tool, "--bootstrap-server", cluster.bootstrap, *args], input=input,
                              capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done
    return call


@pytest.fixture
def both(cluster, own):
    """Runs a tool of each kind with the same arguments and compares what they print, as sets of lines."""
    java = {"topics": "kafka-topics", "groups": "kafka-consumer-groups", "configs": "kafka-configs"}

    def call(tool, *args, same=True):
        ours = own(tool, *args, check=False)
        theirs = kafka_tool(java[tool], "--bootstrap-server", cluster.bootstrap, *args, check=False)
        if same:
            lines = [sorted(filter(None, text.splitlines())) for text in (ours.stdout, theirs.stdout)]
            assert lines[0] == lines[1], (ours.stdout, theirs.stdout)
            assert ours.returncode == theirs.returncode
        return ours.stdout
    return call


def test_topics_as_kafkas_tool_prints_them(own, both, topic):
    assert own("topics", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=3600000").stdout \
        == f"Created topic {topic}.\n"
    wait_for(lambda: "PartitionCount: 3" in own("topics", "--describe", "--topic", topic, check=False).stdout, "the topic")
    described = both("topics", "--describe", "--topic", topic)
    assert described.count("\tLeader: 0\tReplicas: 0\tIsr: 0\t") == 3
    both("topics", "--list")
    both("topics", "--list", "--exclude-internal")
    both("topics", "--describe", "--topic", topic, "--at-min-isr-partitions")
    both("topics", "--create", "--topic", topic)
    both("topics", "--create", "--topic", topic, "--if-not-exists")
    both("topics", "--create", "--topic", "a b")
    both("topics", "--create", "--topic", topic + "-2", "--replication-factor", "3")
    both("topics", "--create", "--topic", topic + "-2", "--config", "no.such=1")
    both("topics", "--alter", "--topic", topic, "--partitions", "1")
    own("topics", "--alter", "--topic", topic, "--partitions", "6")
    wait_for(lambda: "PartitionCount: 6" in own("topics", "--describe", "--topic", topic).stdout, "six partitions")
    own("topics", "--delete", "--topic", topic)
    wait_for(lambda: topic not in own("topics", "--list").stdout.split(), "the topic to go")
    gone = own("topics", "--describe", "--topic", topic, check=False)
    assert gone.returncode == 1 and "does not exist as expected" in gone.stdout


def test_configs_as_kafkas_tool_prints_them(own, both, topic):
    own("topics", "--create", "--topic", topic)
    changed = own("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=12345,cleanup.policy=[compact,delete]")
    assert changed.stdout == f"Completed updating config for topic {topic}.\n"
    own_lines = both("configs", "--describe", "--topic", topic)
    assert "  retention.ms=12345 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=12345" in own_lines
    both("configs", "--describe", "--topic", topic, "--all")
    both("configs", "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")
    both("configs", "--alter", "--topic", topic, "--delete-config", "no.such")
    unknown = own("configs", "--alter", "--topic", topic + "-none", "--add-config", "retention.ms=1", check=False)
    assert unknown.returncode == 1 and f"Topic '{topic}-none' does not exist" in unknown.stderr
    own("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms")
    wait_for(lambda: "retention.ms" not in both("configs", "--describe", "--topic", topic), "the key to go")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_with_keys_and_headers_come_back(own, topic, codec):
    lines = [f"h:{i}\tk{i}\tline {i}" for i in range(200)]
    own("produce", "--topic", topic, "--compression-codec", codec, "--property", "parse.key=true",
        "--property", "parse.headers=true", input="\n".join(lines) + "\n")
    got = own("consume", "--topic", topic, "--from-beginning", "--max-messages", "200", "--timeout-ms", "60000",
              "--property", "print.key=true", "--property", "print.headers=true")
    assert got.stdout.splitlines() == lines
    assert "Processed a total of 200 messages" in got.stderr


def test_java_reads_what_is_produced_and_the_other_way(cluster, own, topic):
    lines = [f"line {i}" for i in range(50)]
    own("produce", "--topic", topic, input="\n".join(lines) + "\n")
    java = kafka_tool("kafka-console-consumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning",
                      "--max-messages", "50", "--timeout-ms", "60000").stdout
    assert java.splitlines() == lines
    kafka_tool("kafka-console-producer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, input="from Java\n")
    got = own("consume", "--topic", topic, "--partition", "0", "--offset", "50", "--max-messages", "1", "--timeout-ms", "60000")
    assert got.stdout == "from Java\n"


def test_groups_as_kafkas_tool_prints_them(own, both, topic):
    group = topic + "-g"
    own("produce", "--topic", topic, input="".join(f"{i}\n" for i in range(20)))
    read = own("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "12", "--timeout-ms", "60000")
    assert read.stdout.split() == [str(i) for i in range(12)]
    assert group in both("groups", "--list").split()
    both("groups", "--list", "--state")
    row = both("groups", "--describe", "--group", group).splitlines()[-1].split()
    assert row == [group, topic, "0", "12", "20", "8", "-", "-", "-"]
    both("groups", "--describe", "--group", group, "--state")
    both("groups", "--describe", "--group", group, "--members")
    both("groups", "--describe", "--group", group + "-none")
    own("groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    rest = own("consume", "--topic", topic, "--group", group, "--max-messages", "20", "--timeout-ms", "60000")
    assert len(rest.stdout.split()) == 20
    exported = own("groups", "--reset-offsets", "--group", group, "--all-topics", "--shift-by", "-5", "--export", "--dry-run")
    assert exported.stdout.split() == [f"{topic},0,15"]
    assert own("groups", "--delete", "--group", group).stdout == \
        f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in own("groups", "--list").stdout.split()
    own("groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    deleted = own("groups", "--delete-offsets", "--group", group, "--topic", topic + ":0")
    assert deleted.stdout.split()[-3:] == [topic, "0", "Successful"]


def test_committed_offsets_shown_from_the_internal_topic(own, topic):
    group = topic + "-g"
    own("produce", "--topic", topic, input="1\n2\n3\n")
    own("consume", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000")
    shown = own("consume", "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "3000",
                "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter").stdout
    commits = [json.loads(line) for line in shown.splitlines()]
    mine = [c for c in commits if c["key"]["data"]["group"] == group]
    assert mine and mine[-1]["value"]["data"]["offset"] == 3


def test_a_closed_port_is_told(own):
    done = subprocess.run([BINARY, "topics", "--bootstrap-server", "nonsense", "--list"], capture_output=True, text=True)
    assert done.returncode == 1 and "host:port" in done.stderr


# far more than any test waits: only the tool's own limit can end it
PATIENT = ["--consumer-property", "default.api.timeout.ms=3600000", "--consumer-property", "request.timeout.ms=3600000"]


def test_a_dead_server_is_told_and_given_up_in_the_time_given(tmp_path):
    at = f"127.0.0.1:{free_port()}"
    consume = [BINARY, "consume", "--bootstrap-server", at, "--topic", "t", "--timeout-ms", "500", *PATIENT]
    done = subprocess.run(consume, capture_output=True, text=True, timeout=120)
    refused, *rest = done.stderr.splitlines()
    assert at in refused and "refused" in refused and "500 ms" in refused
    assert rest == ["ERROR Error processing message, terminating consumer process: TimeoutException", "Processed a total of 0 messages"]
    assert done.returncode == 0     # as Kafka's tool
    properties = tmp_path / "client.properties"
    properties.write_text("default.api.timeout.ms=500\n")
    limits = {"topics": ["--list", "--command-config", properties], "configs": ["--describe", "--topic", "t", "--command-config", properties],
              "groups": ["--list", "--timeout", "500"]}
    for tool, limit in limits.items():
        done = subprocess.run([BINARY, tool, "--bootstrap-server", at, *limit], capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and at in done.stdout + done.stderr and "refused" in done.stdout + done.stderr, done


@pytest.mark.parametrize("group", [[], ["--group", "frozen"]])
def test_a_silent_server_is_given_up_in_the_time_given(own_cluster, group):
    server = own_cluster().start()
    AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60)
    for p in server.processes:
        p.send(signal.SIGSTOP)
    consume = [BINARY, "consume", "--bootstrap-server", server.bootstrap, "--topic", "t", "--timeout-ms", "500", *PATIENT, *group]
    done = subprocess.run(consume, capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines() == ["ERROR Error processing message, terminating consumer process: TimeoutException",
                                        "Processed a total of 0 messages"]
