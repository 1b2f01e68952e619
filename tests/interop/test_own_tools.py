"""The binary's own tools, `gracchus topics`, `groups`, `configs`, `produce`, `consume`: against the server under test, and
side by side with Apache Kafka 3.9.2's where those are on this machine."""

import json
import re
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
    java = {"topics": "kafka-topics", "groups": "kafka-consumer-groups", "configs": "kafka-configs", "offsets": "kafka-get-offsets",
            "log-dirs": "kafka-log-dirs", "api-versions": "kafka-broker-api-versions", "delete-records": "kafka-delete-records",
            "elect": "kafka-leader-election", "reassign": "kafka-reassign-partitions"}

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
    shown = own("consume", "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "10000",
                "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter").stdout
    commits = [json.loads(line) for line in shown.splitlines()]
    mine = [c for c in commits if c["key"]["data"]["group"] == group]
    assert mine and mine[-1]["value"]["data"]["offset"] == 3


def test_a_closed_port_is_told(own):
    done = subprocess.run([BINARY, "topics", "--bootstrap-server", "nonsense", "--list"], capture_output=True, text=True)
    assert done.returncode == 1 and "host:port" in done.stderr


def test_offsets_as_kafkas_tool_prints_them(own, both, topic):
    for name, partitions in ((topic, 12), (topic + "-2", 1)):
        own("topics", "--create", "--topic", name, "--partitions", str(partitions))
        own("produce", "--topic", name, input="".join(f"{i}\n" for i in range(20)))
    shown = both("offsets", "--topic", topic)
    assert [line.split(":")[1] for line in shown.splitlines()] == sorted(map(str, range(12)))
    assert sum(int(line.rsplit(":", 1)[1]) for line in shown.splitlines()) == 20
    both("offsets", "--topic-partitions", f"{topic}:3-5,{topic}-2,:11-", "--time", "earliest")
    both("offsets", "--topic", topic + ".*", "--partitions", "0,7", "--time", "-3")
    both("offsets", "--topic", topic, "--time", "99999999999999")
    both("offsets", "--topic", topic + "-none")
    both("offsets", "--topic", topic, "--time", "soon")


def test_records_deleted_and_log_dirs_as_kafkas_tools_print_them(own, both, cluster, topic, tmp_path):
    own("topics", "--create", "--topic", topic, "--partitions", "2")
    own("topics", "--create", "--topic", topic + "-2")
    own("produce", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:",
        input="".join(f"{i}:\n" for i in range(40)))
    file = tmp_path / "offsets.json"
    parts = [{"topic": topic, "partition": 0, "offset": 1}, {"topic": topic, "partition": 1, "offset": -1},
             {"topic": topic + "-2", "partition": 0, "offset": 1}]
    file.write_text(json.dumps({"partitions": parts, "version": 1}))
    shown = both("delete-records", "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 1" in shown and "OffsetOutOfRangeException" in shown
    # one unknown topic keeps nobody else's records; Kafka's tool waits a minute for it
    file.write_text(json.dumps({"partitions": [{"topic": topic + "-none", "partition": 0, "offset": 1}, parts[0]]}))
    shown = own("delete-records", "--offset-json-file", str(file)).stdout
    assert f"partition: {topic}-0\tlow_watermark: 1" in shown and f"partition: {topic}-none-0\terror: " in shown
    file.write_text(json.dumps({"partitions": [parts[0], parts[0]]}))
    both("delete-records", "--offset-json-file", str(file))

    def dirs(text):
        first, second, document = text.splitlines()
        document = json.loads(document)
        for d in document["brokers"][0]["logDirs"]:
            d["partitions"].sort(key=lambda p: p["partition"])
        return first, second, document
    described = "--bootstrap-server", cluster.bootstrap, "--describe", "--topic-list", topic
    ours = dirs(own("log-dirs", *described[2:]).stdout)
    assert ours == dirs(kafka_tool("kafka-log-dirs", *described).stdout)
    assert [p["partition"] for p in ours[2]["brokers"][0]["logDirs"][0]["partitions"]] == [f"{topic}-0", f"{topic}-1"]
    both("log-dirs", "--describe", "--topic-list", topic + "-none")
    both("log-dirs", "--describe", "--broker-list", "0,7")


def test_api_versions_as_kafkas_tool_prints_them(both):
    assert "\tProduce(0): 0 to 11 [usable: 11],\n" in both("api-versions")


def test_perf_tools_print_as_kafkas(own, cluster, topic):
    sent = subprocess.run([BINARY, "producer-perf", "--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1",
                           "--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=1"], capture_output=True, text=True, timeout=120)
    line = (r"2000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency"
            r", \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n")
    assert re.fullmatch(line, sent.stdout), sent
    theirs = kafka_tool("kafka-producer-perf-test", "--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1",
                        "--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=1").stdout
    assert re.fullmatch(line, theirs), theirs
    # the rest differs by the time it took
    columns = lambda text: (text.splitlines()[0], re.sub(r"\d", "9", text.splitlines()[1].split(", ")[0]), text.splitlines()[1].split(", ")[2::2][:2])
    ours = own("consumer-perf", "--topic", topic, "--messages", "4000").stdout
    theirs = kafka_tool("kafka-consumer-perf-test", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--messages", "4000").stdout
    assert columns(ours) == columns(theirs) and "0.3815, " in ours and ", 4000, " in ours
    short = own("consumer-perf", "--topic", topic, "--group", "past", "--messages", "4001", "--timeout", "4000", "--hide-header").stdout
    assert short.startswith("WARNING: Exiting before consuming the expected number of messages: timeout (4000 ms) exceeded. You can use ")


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


def test_elections_as_kafkas_tool_prints_them(own, both, topic, tmp_path):
    own("topics", "--create", "--topic", topic, "--partitions", "2")
    wait_for(lambda: "PartitionCount: 2" in own("topics", "--describe", "--topic", topic, check=False).stdout, "the topic")
    one = ("--topic", topic, "--partition", "0")
    for kind in ("preferred", "UNCLEAN"):
        said = both("elect", "--election-type", kind, *one)
        assert said == f"Valid replica already elected for partitions {topic}-0\n"
    both("elect", "--election-type", "preferred", "--all-topic-partitions")
    both("elect", "--election-type", "preferred", "--topic", topic, "--partition", "9")
    both("elect", "--election-type", "preferred", "--topic", topic + "-none", "--partition", "0")
    file = tmp_path / "partitions.json"
    for partitions in ([(topic, 1)], [(topic, 1), (topic + "-none", 0)], [(topic, 1), (topic, 1)]):
        file.write_text(json.dumps({"partitions": [{"topic": t, "partition": p} for t, p in partitions]}))
        both("elect", "--election-type", "preferred", "--path-to-json-file", file)
    file.write_text("{}")
    both("elect", "--election-type", "preferred", "--path-to-json-file", file)
    for wrong in (["--topic", topic], one + ("--all-topic-partitions",), ["--partition", "0"], []):
        both("elect", "--election-type", "preferred", *wrong)
    both("elect", *one)
    both("elect", "--election-type", "best", *one)


def test_reassignments_as_kafkas_tool_prints_them(cluster, own, both, topic, tmp_path):
    """Without a move, which needs more brokers (test_start_brokers.py)."""
    own("topics", "--create", "--topic", topic, "--partitions", "2")
    wait_for(lambda: "PartitionCount: 2" in own("topics", "--describe", "--topic", topic, check=False).stdout, "the topic")
    plan, topics = tmp_path / "plan.json", tmp_path / "topics.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    both("reassign", "--list")
    said = both("reassign", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "0")
    proposed = said.splitlines()[-1]
    assert json.loads(proposed)["partitions"][1] == {"topic": topic, "partition": 1, "replicas": [0], "log_dirs": ["any"]}
    plan.write_text(proposed)
    said = both("reassign", "--execute", "--reassignment-json-file", plan)
    assert said.endswith(f"Successfully started partition reassignments for {topic}-0,{topic}-1\n")
    said = both("reassign", "--verify", "--reassignment-json-file", plan)
    assert said == (f"Status of partition reassignment:\nReassignment of partition {topic}-0 is completed.\n"
                    f"Reassignment of partition {topic}-1 is completed.\n\nClearing broker-level throttles on broker 0\n"
                    f"Clearing topic-level throttles on topic {topic}\n")
    # what cannot be: the first line is the reason, after which Java's has its stack
    for partitions in ([(topic, 0, [77])], [(topic, 9, [0])], [(topic, 0, [0, 0])]):
        plan.write_text(json.dumps({"partitions": [{"topic": t, "partition": p, "replicas": r} for t, p, r in partitions]}))
        arguments = ("--execute", "--reassignment-json-file", plan)
        ours = own("reassign", *arguments, check=False)
        theirs = kafka_tool("kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap, *arguments, check=False)
        assert ours.returncode == 1 and ours.stdout.splitlines()[0] == theirs.stdout.splitlines()[0]
