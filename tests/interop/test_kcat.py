"""kcat (librdkafka) as people use it from a shell."""

import json

import pytest

from servers import kafka_tool, run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume_with_each_codec(cluster, topic, codec):
    lines = [f"k{i}:value {i} " + "x" * 200 for i in range(500)]
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic, "-K:", "-z", codec], input="\n".join(lines) + "\n")
    got = run(["kcat", "-b", cluster.bootstrap, "-C", "-t", topic, "-e", "-q", "-K:"]).stdout
    assert got.splitlines() == lines


def test_metadata_lists_broker_and_topic(cluster, topic):
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic], input="x\n")
    meta = json.loads(run(["kcat", "-b", cluster.bootstrap, "-L", "-J", "-t", topic]).stdout)
    assert [b["name"] for b in meta["brokers"]] == [cluster.bootstrap]
    assert meta["controllerid"] == meta["brokers"][0]["id"]
    (t,) = meta["topics"]
    assert t["topic"] == topic and [p["partition"] for p in t["partitions"]] == [0]


def test_group_consume_then_resume(cluster, topic):
    group = topic + "-g"
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic], input="a\nb\nc\n")
    consume = ["kcat", "-b", cluster.bootstrap, "-G", group, "-c", "3", "-q",
               "-X", "auto.offset.reset=earliest", topic]
    assert run(consume).stdout.splitlines() == ["a", "b", "c"]
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic], input="d\ne\nf\n")
    assert run(consume).stdout.splitlines() == ["d", "e", "f"]


def test_offset_by_timestamp(cluster, topic):
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic], input="first\n")
    answer = run(["kcat", "-b", cluster.bootstrap, "-Q", "-t", f"{topic}:0:1"]).stdout
    assert answer.strip() == f"{topic} [0] offset 0"


def test_idempotent_producer(cluster, topic):
    lines = [f"{i}" for i in range(2000)]
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "linger.ms=1",
         "-X", "batch.num.messages=10"], input="\n".join(lines) + "\n")
    got = run(["kcat", "-b", cluster.bootstrap, "-C", "-t", topic, "-e", "-q"]).stdout
    assert got.splitlines() == lines


@pytest.mark.parametrize("fallback", ["0.8.2.2", "0.9.0.1", "0.10.0.0", "0.10.2.2"])
def test_old_protocol_versions(cluster, topic, fallback):
    """A client told not to ask for ApiVersions uses the request versions and message formats of that release."""
    topic = topic.replace(".", "-")
    kafka_tool("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", topic)
    old = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={fallback}"]
    lines = [f"line {i}" for i in range(100)]
    run(["kcat", "-b", cluster.bootstrap, "-P", "-t", topic, "-z", "gzip", *old], input="\n".join(lines) + "\n")
    for reader in (old, []):
        got = run(["kcat", "-b", cluster.bootstrap, "-C", "-t", topic, "-e", "-q", *reader]).stdout
        assert got.splitlines() == lines
