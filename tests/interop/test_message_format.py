"""Message formats of before 0.11, which a broker below inter.broker.protocol.version 3.0 still stores when it is told to."""

import struct

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ["none", "gzip", "snappy", "lz4"]
RECORDS = 40


def magics(directory):
    """The format of every entry of a partition's log, read from its files."""
    found = set()
    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + 17 <= len(data):
            found.add(data[at + 16])
            at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        assert at == len(data), path
    return found


def produce(cluster, topic, config, count=RECORDS, headers=None):
    errors = []
    p = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "batch.num.messages": 8,
                  "message.send.max.retries": 0, **config})
    for n in range(count):
        p.produce(topic, b"value %d " % n * 20, b"k", headers=headers, on_delivery=lambda e, _: e and errors.append(e))
    assert p.flush(60) == 0
    return errors


def consume(cluster, topic):
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest",
                  "enable.auto.commit": False})
    c.subscribe([topic])
    got = []
    while len(got) < RECORDS:
        message = c.poll(60)
        assert message is not None, f"{len(got)} of {RECORDS} came"
        assert not message.error(), message.error()
        got.append(message)
    c.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    c.close()
    return got


def committed(cluster, topic):
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"g-{topic}"})
    try:
        return c.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
    finally:
        c.close()


def found_by_time(cluster, topic):
    """The first offset of a time long ago, or the code of the error."""
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "finder"})
    try:
        return c.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=60)[0].offset
    except KafkaException as e:
        return e.args[0].code()
    finally:
        c.close()


@pytest.mark.parametrize("version,magic", [("0.9.0", 0), ("0.10.2", 1), ("2.8", 2)])
def test_the_configured_format_is_stored(own_cluster, version, magic):
    c = own_cluster({"inter.broker.protocol.version": "2.8", "log.message.format.version": version}).start()
    admin = AdminClient({"bootstrap.servers": c.bootstrap})
    for f in admin.create_topics([NewTopic(t, 1, 1) for t in CODECS]).values():
        f.result(60)
    for codec in CODECS:
        assert produce(c, codec, {"compression.type": codec}) == []
        got = consume(c, codec)
        assert [m.offset() for m in got] == list(range(RECORDS))
        assert [m.value() for m in got] == [b"value %d " % n * 20 for n in range(RECORDS)]
        expected = TIMESTAMP_CREATE_TIME if magic else TIMESTAMP_NOT_AVAILABLE
        assert {m.timestamp()[0] for m in got} == {expected}
        assert magics(c.log_dir / f"{codec}-0") == {magic}
        assert (c.log_dir / f"{codec}-0" / "leader-epoch-checkpoint").exists() == (magic == 2)

    # what the old formats cannot hold
    errors = produce(c, "none", {}, 1, headers=[("h", b"1")])
    assert bool(errors) == (magic < 2), errors
    errors = produce(c, "none", {"compression.type": "zstd"}, 1)
    assert bool(errors) == (magic < 2), errors
    assert found_by_time(c, "none") == (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT if magic == 0 else 0)

    # the group's offsets are of that format too, and are read from it
    offsets = [d for d in c.log_dir.glob("__consumer_offsets-*") if any(p.stat().st_size for p in d.glob("*.log"))]
    assert offsets and set().union(*map(magics, offsets)) == {magic}
    c.stop()
    c.start()
    assert [committed(c, codec) for codec in CODECS] == [7] * len(CODECS)


def test_a_newer_protocol_stores_the_newest_format(own_cluster, topic):
    c = own_cluster({"log.message.format.version": "0.10.2"}).start()
    assert produce(c, topic, {}) == []
    assert len(consume(c, topic)) == RECORDS
    assert magics(c.log_dir / f"{topic}-0") == {2}
