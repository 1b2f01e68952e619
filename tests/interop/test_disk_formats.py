"""What gracchus wrote, read by Apache Kafka 3.9.2's own DumpLogSegments, and the same text from `gracchus dump-log`."""

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from servers import Cluster, gracchus, kafka_tool, wait_for

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 300


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A broker's log directory after traffic of every kind and a clean stop; partition name -> records in it."""
    c = Cluster(tmp_path_factory.mktemp("formats")).start()
    try:
        wait_for(lambda: "is ready" in c.log_text(), "the server's own word")
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        small = {"segment.bytes": "16384", "index.interval.bytes": "512"}
        topics = [NewTopic(t, 1, 1, config=small) for t in CODECS]
        topics.append(NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact", **small}))
        for f in admin.create_topics(topics).values():
            f.result(60)
        for codec in CODECS:
            write(c, codec, {"compression.type": codec, "enable.idempotence": codec in ("none", "zstd")})
        write(c, "compacted", {})
        reader = Consumer({"bootstrap.servers": c.bootstrap, "group.id": "formats", "enable.auto.commit": False})
        for n in range(10):
            reader.commit(offsets=[TopicPartition("gzip", 0, n)], asynchronous=False)
        reader.close()
        log_dir = c.log_dir
        assert c.stop() == 0
        yield log_dir
    finally:
        c.remove()


def write(cluster, topic, config):
    errors = []
    p = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "batch.num.messages": 20, **config})
    for n in range(RECORDS):
        p.produce(topic, b"value %d " % n * 8, b"k%d" % (n % 10), headers=[("h", b"%d" % n)],
                  on_delivery=lambda e, _: e and errors.append(e))
        if n % 20 == 19:
            p.flush(60)
    assert p.flush(60) == 0 and not errors


def files(log_dir, ending):
    found = sorted(log_dir.glob("*-*/*" + ending))
    assert found, f"no {ending} file in {log_dir}"
    return [str(p) for p in found]


def test_kafka_reads_every_file(written):
    every = [f for ending in (".log", ".index", ".timeindex", ".snapshot") for f in files(written, ending)]
    done = kafka_tool("kafka-dump-log", "--files", ",".join(every), "--deep-iteration")
    text = done.stdout + done.stderr
    assert not re.search(r"(?i)mismatch|corrupt|exception|isvalid: false|invalid|could not|found timestamp", text), text[-3000:]
    assert text.count("Dumping ") == len(every)


@pytest.mark.parametrize("topic", CODECS)
def test_kafka_counts_every_record(written, topic):
    logs = [f for f in files(written, ".log") if f"/{topic}-0/" in f]
    assert len(logs) > 1 or topic != "none", sorted((p.name, p.stat().st_size) for p in (written / "none-0").iterdir())
    text = kafka_tool("kafka-dump-log", "--files", ",".join(logs), "--deep-iteration").stdout
    offsets = [int(o) for o in re.findall(r"^\| offset: (\d+)", text, re.M)]
    assert offsets == list(range(RECORDS))
    assert set(re.findall(r"compresscodec: (\w+)", text)) == {topic}


def test_kafka_decodes_the_commits(written):
    logs = [f for f in files(written, ".log") if "/__consumer_offsets-" in f]
    text = kafka_tool("kafka-dump-log", "--files", ",".join(logs), "--offsets-decoder").stdout
    assert len(re.findall(r'"group":"formats"', text)) == 10
    assert re.search(r'"offset":9\b', text)


@pytest.mark.parametrize("options", [
    (".log",), (".log", "--deep-iteration"), (".log", "--print-data-log"), (".index",), (".timeindex",), (".snapshot",),
    (".index", "--index-sanity-check"), (".timeindex", "--verify-index-only"),
], ids=lambda o: " ".join(o))
def test_the_same_text_from_our_dump_log(written, options):
    ending, *flags = options
    some = [f for f in files(written, ending) if not re.search(r"/__consumer_offsets-\d+/", f)]
    theirs = kafka_tool("kafka-dump-log", "--files", ",".join(some), *flags)
    ours = gracchus("dump-log", "--files", ",".join(some), *flags)
    assert ours.stdout == theirs.stdout
