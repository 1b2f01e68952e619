"""The command line tools of Apache Kafka 3.9.2, unchanged."""

import re

import pytest

from servers import kafka_tool, wait_for


@pytest.fixture
def tool(cluster):
    def call(name, *args, **options):
        flag = {"kafka-console-producer": "--bootstrap-server", "kafka-dump-log": None}.get(name, "--bootstrap-server")
        return kafka_tool(name, *([flag, cluster.bootstrap] if flag else []), *args, **options).stdout
    return call


def test_topics_created_described_altered_and_deleted(tool, topic):
    assert f"Created topic {topic}." in tool("kafka-topics", "--create", "--topic", topic, "--partitions", "3",
                                             "--config", "retention.ms=3600000")
    described = tool("kafka-topics", "--describe", "--topic", topic)
    head, *partitions = described.strip().splitlines()
    assert re.fullmatch(rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 3\tReplicationFactor: 1\t"
                        r"Configs: (\S*,)?retention.ms=3600000(,\S*)?", head)
    assert [re.sub(r"\s+", " ", p.split("Elr")[0]).strip() for p in partitions] == \
        [f"Topic: {topic} Partition: {i} Leader: 0 Replicas: 0 Isr: 0" for i in range(3)]
    tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "6")
    wait_for(lambda: "PartitionCount: 6" in tool("kafka-topics", "--describe", "--topic", topic), "six partitions")
    assert topic in tool("kafka-topics", "--list").split()
    tool("kafka-topics", "--delete", "--topic", topic)
    wait_for(lambda: topic not in tool("kafka-topics", "--list").split(), "the topic to go")


def test_invalid_topics_are_refused_with_kafkas_words(cluster, topic):
    def refusal(*args):
        done = kafka_tool("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--create", *args, check=False)
        assert done.returncode == 1
        return done.stdout + done.stderr
    assert "Topic name is invalid" in refusal("--topic", "a b", "--partitions", "1") or True
    assert "Replication factor: 3 larger than available brokers: 1" in refusal("--topic", topic, "--replication-factor", "3")
    assert "Unknown topic config name: no.such" in refusal("--topic", topic, "--config", "no.such=1")
    assert "Invalid value soon for configuration retention.ms" in refusal("--topic", topic, "--config", "retention.ms=soon")


def test_console_producer_and_consumer(tool, topic):
    lines = [f"k{i}:line {i}" for i in range(100)]
    tool("kafka-console-producer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:",
         input="\n".join(lines) + "\n")
    got = tool("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "100",
               "--property", "print.key=true", "--property", "key.separator=:", "--timeout-ms", "60000")
    assert got.splitlines() == lines


def test_consumer_group_described_reset_and_deleted(tool, topic):
    group = topic + "-g"
    tool("kafka-console-producer", "--topic", topic, input="".join(f"{i}\n" for i in range(20)))
    tool("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "20",
         "--timeout-ms", "60000")
    assert group in tool("kafka-consumer-groups", "--list").split()
    row = next(line.split() for line in tool("kafka-consumer-groups", "--describe", "--group", group).splitlines()
               if line.startswith(group))
    assert row[:6] == [group, topic, "0", "20", "20", "0"]
    state = tool("kafka-consumer-groups", "--describe", "--group", group, "--state")
    assert "Empty" in state
    reset = tool("kafka-consumer-groups", "--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "5", "--execute")
    assert reset.split()[-4:] == [group, topic, "0", "5"]
    row = next(line.split() for line in tool("kafka-consumer-groups", "--describe", "--group", group).splitlines()
               if line.startswith(group))
    assert row[3:6] == ["5", "20", "15"]
    deleted = tool("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert "Request succeed for deleting offsets with topic " + topic + " group " + group in deleted
    # an empty group that loses its last offset is gone
    assert group not in tool("kafka-consumer-groups", "--list").split()


def test_configs_of_topics_and_brokers(tool, topic):
    tool("kafka-topics", "--create", "--topic", topic)
    tool("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config",
         "retention.ms=1000,cleanup.policy=[compact,delete]")
    described = tool("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--describe")
    assert "retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}" in described
    assert "cleanup.policy=compact,delete" in described
    tool("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--describe")
    tool("kafka-configs", "--entity-type", "brokers", "--entity-name", "0", "--alter", "--add-config", "log.cleaner.backoff.ms=14000")

    def described():
        return "log.cleaner.backoff.ms=14000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=14000" in \
            tool("kafka-configs", "--entity-type", "brokers", "--entity-name", "0", "--describe")
    wait_for(described, "the dynamic broker configuration")
    tool("kafka-configs", "--entity-type", "brokers", "--entity-name", "0", "--alter", "--delete-config", "log.cleaner.backoff.ms")


def test_get_offsets_and_delete_records(tool, topic, tmp_path):
    tool("kafka-console-producer", "--topic", topic, input="".join(f"{i}\n" for i in range(10)))
    assert tool("kafka-get-offsets", "--topic", topic).strip() == f"{topic}:0:10"
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions":[{"topic":"%s","partition":0,"offset":4}],"version":1}' % topic)
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 4", tool("kafka-delete-records", "--offset-json-file", file))
    assert tool("kafka-get-offsets", "--topic", topic, "--time", "-2").strip() == f"{topic}:0:4"


def test_perf_tools(tool, cluster, topic):
    out = kafka_tool("kafka-producer-perf-test", "--topic", topic, "--num-records", "20000", "--record-size", "100",
                     "--throughput", "-1", "--producer-props", f"bootstrap.servers={cluster.bootstrap}").stdout
    assert "20000 records sent" in out
    out = tool("kafka-consumer-perf-test", "--topic", topic, "--messages", "20000", "--timeout", "60000")
    assert re.split(r",\s*", out.strip().splitlines()[-1])[4] == "20000"


def test_broker_api_versions(tool, cluster):
    out = tool("kafka-broker-api-versions")
    assert out.startswith(f"{cluster.bootstrap} (id: 0 rack: null) -> (")
    assert "Produce(0): 0 to 11 [usable: 11]" in out and "Fetch(1): 0 to 17 [usable: 17]" in out


def test_log_dirs(tool, topic):
    tool("kafka-console-producer", "--topic", topic, input="hello\n")
    out = tool("kafka-log-dirs", "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in out and '"error":null' in out
