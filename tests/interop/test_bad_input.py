"""Bytes that no client should send, to both ports: the protocol's error or a closed connection, a line in the log, bounded
memory, and nobody else notices."""

import random
import re
import socket
import struct
import zlib

import pytest
import zstandard
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient

from batches import batch, bomb, record
from servers import Cluster, wait_for
from wire import Connection

MEMORY_LIMIT_KB = 768 << 10
BOMB = 1 << 30
CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_VERSION, INVALID_RECORD = 2, 10, 35, 87


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    c = Cluster(tmp_path_factory.mktemp("bad")).start()
    yield c
    c.remove()


@pytest.fixture(autouse=True)
def others_unharmed(server, topic):
    """A producer that was there before, one that comes after, and a ZooKeeper session live through each test."""
    zk = KazooClient(hosts=server.zookeeper)
    zk.start(timeout=60)
    session = zk.client_id
    early = Producer({"bootstrap.servers": server.bootstrap})
    produce(early, topic + "-others", b"before")
    yield
    assert server.broker.alive(), server.log_text()[-3000:]
    produce(early, topic + "-others", b"after")
    reader = Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    reader.subscribe([topic + "-others"])
    values = []
    wait_for(lambda: (m := reader.poll(1)) and not m.error() and values.append(m.value()) or len(values) == 2, "both records")
    reader.close()
    assert values == [b"before", b"after"]
    assert zk.exists("/brokers/ids/0") and zk.client_id == session
    zk.stop()
    zk.close()
    assert peak_memory_kb(server) < MEMORY_LIMIT_KB
    assert "panicked" not in server.log_text()


def produce(producer, topic, value):
    errors = []
    producer.produce(topic, value=value, on_delivery=lambda e, _: e and errors.append(e))
    assert producer.flush(60) == 0 and not errors


def peak_memory_kb(server):
    with open(f"/proc/{server.broker.pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))


def closed_after(server, port, data, half_close=False):
    """Sends the bytes; the server must close. Returns what it answered and its log line about this client."""
    before = len(server.log_text())  # an earlier client may have had the same port
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        me = "%s:%d" % s.getsockname()
        answer = b""
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            while part := s.recv(65536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    line = wait_for(lambda: next((x for x in server.log_text()[before:].splitlines() if re.search(re.escape(me) + r"\b", x)), None),
                    f"a log line about {me}")
    return answer, line


def frame(body):
    return struct.pack(">i", len(body)) + body


def header(key, version, client="bad"):
    return struct.pack(">hhih", key, version, 7, len(client)) + client.encode()


@pytest.mark.parametrize("data, reason", [
    (struct.pack(">i", 0x7FFFFFFF), r"2147483647.*socket\.request\.max\.bytes"),
    (struct.pack(">i", -5), r"size = -5"),
    (b"GET / HTTP/1.1\r\n\r\n", r"size = 1195725856"),
    (frame(b"\x01"), r"."),
    (frame(b""), r"."),
    (frame(header(999, 0)), r"999"),
    (frame(header(3, 99) + b"\0"), r"99"),
    (frame(header(0, 3) + b"\xff\xff"), r"(?i)produce|api key 0"),
    (frame(header(3, 1) + struct.pack(">i", 0x7FFFFFFF)), r"(?i)metadata|api key 3"),
    (frame(struct.pack(">hhih", 3, 1, 7, 32000)), r"."),
], ids=["too-large", "negative", "http", "one-byte", "empty", "unknown-key", "unknown-version", "cut-produce", "huge-array",
        "cut-header"])
def test_the_kafka_port_closes_and_says_why(server, data, reason):
    answer, line = closed_after(server, server.kafka_port, data)
    assert answer == b""
    assert "closing the connection" in line and re.search(reason, line), line


def test_a_request_cut_off_by_its_client(server):
    _, line = closed_after(server, server.kafka_port, struct.pack(">i", 500) + b"half", half_close=True)
    assert "in the middle of a request" in line


def test_an_unknown_version_of_api_versions_is_answered(server):
    with socket.create_connection(("127.0.0.1", server.kafka_port), 60) as s:
        s.sendall(frame(header(18, 99) + b"\0"))
        size = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))[0]
        answer = s.recv(size, socket.MSG_WAITALL)
        assert struct.unpack(">ih", answer[:6]) == (7, UNSUPPORTED_VERSION)
        s.sendall(frame(header(18, 0)))
        size = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))[0]
        assert struct.unpack(">ih", s.recv(size, socket.MSG_WAITALL)[:6]) == (7, 0)


@pytest.mark.parametrize("port", ["kafka_port", "zookeeper_port"])
def test_random_bytes(server, port):
    rng = random.Random(20260101)
    for _ in range(60):
        data = rng.randbytes(rng.randrange(1, 300))
        if rng.random() < 0.7:
            data = frame(data)
        with socket.create_connection(("127.0.0.1", getattr(server, port)), 60) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass


def test_mutated_requests_to_the_kafka_port(server, topic):
    """A right Produce request with single bytes changed: an answer or a closed connection each time."""
    rng = random.Random(7)
    sent = []
    with Connection(server.kafka_port) as c:
        make_topic(c, topic)
        c.socket, real = type("Tap", (), {"sendall": lambda _, d: sent.append(bytes(d)), "close": lambda _: None})(), c.socket
        c.send("Produce", 7, **produce_request(topic, batch(record(b"x"), 1)))
        real.close()
    for _ in range(150):
        data = bytearray(sent[0])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", server.kafka_port), 60) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass


def produce_request(topic, records):
    return {"TransactionalId": None, "Acks": 1, "TimeoutMs": 30000,
            "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": records}]}]}


def make_topic(connection, topic):
    """By Kafka's auto-creation, which a Metadata request sets off."""
    connection.call("Metadata", 1, Topics=[{"Name": topic}])
    wait_for(lambda: append(connection, topic, batch(record(b"first"), 1)) == 0, "the topic")


def append(connection, topic, records):
    answer = connection.call("Produce", 7, **produce_request(topic, records))
    return answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]


def bad_batches():
    good = batch(record(b"good"), 1)
    flipped = bytearray(good)
    flipped[-3] ^= 0x40
    short = struct.pack(">i", len(good) - 12 + 1000)
    return {
        "wrong-crc": (batch(record(b"x"), 1, crc=1), {CORRUPT_MESSAGE}),
        "flipped-bit": (bytes(flipped), {CORRUPT_MESSAGE}),
        "unknown-magic": (batch(record(b"x"), 1, magic=7), {CORRUPT_MESSAGE, INVALID_RECORD}),
        "old-magic": (batch(record(b"x"), 1, magic=1), {CORRUPT_MESSAGE, INVALID_RECORD}),
        "length-beyond-the-request": (good[:8] + short + good[12:], {CORRUPT_MESSAGE, INVALID_RECORD}),
        "negative-length": (good[:8] + struct.pack(">i", -1) + good[12:], {CORRUPT_MESSAGE, INVALID_RECORD}),
        "same-offset-twice": (batch(record(b"x", 0) + record(b"y", 0), 2), {INVALID_RECORD}),
        "offsets-backwards": (batch(record(b"x", 1) + record(b"y", 0), 2), {INVALID_RECORD}),
        "count-too-high": (batch(record(b"x"), 5), {CORRUPT_MESSAGE, INVALID_RECORD}),
        "count-too-low": (batch(record(b"x") + record(b"y", 1), 1), {CORRUPT_MESSAGE, INVALID_RECORD}),
        "not-zstd": (batch(b"nonsense" * 4, 1, attributes=4), {CORRUPT_MESSAGE, INVALID_RECORD}),
        "not-gzip": (batch(b"nonsense" * 4, 1, attributes=1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    }


@pytest.mark.parametrize("name", list(bad_batches()))
def test_a_bad_batch_is_refused_with_kafkas_error(server, topic, name):
    records, codes = bad_batches()[name]
    with Connection(server.kafka_port) as c:
        make_topic(c, topic)
        before = c.call("ListOffsets", 1, **list_end(topic))["Topics"][0]["Partitions"][0]["Offset"]
        assert append(c, topic, records) in codes
        after = c.call("ListOffsets", 1, **list_end(topic))["Topics"][0]["Partitions"][0]["Offset"]
        assert after == before, "a refused batch is not in the log"
        assert append(c, topic, batch(record(b"next"), 1)) == 0


def list_end(topic):
    return {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_decompression_bomb(server, topic, codec):
    """A request of some hundred kilobytes that says 1 GiB: whatever the answer is, memory stays bounded."""
    if codec == "gzip":
        data, attributes = bomb(zlib.compressobj(6, zlib.DEFLATED, 31), BOMB), 1
    else:
        data, attributes = bomb(zstandard.ZstdCompressor(level=1).compressobj(), BOMB), 4
    with Connection(server.kafka_port) as c:
        make_topic(c, topic)
        code = append(c, topic, batch(data, 1, attributes=attributes))
        assert code in {0, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD}
        assert append(c, topic, batch(record(b"next"), 1)) == 0
    assert peak_memory_kb(server) < MEMORY_LIMIT_KB


def connect_request():
    return struct.pack(">iqiqi", 0, 0, 10000, 0, 16) + bytes(16) + b"\0"


@pytest.mark.parametrize("data", [
    struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">i", -5),
    frame(b"\x01"),
    b"GET / HTTP/1.1\r\n\r\n",
    frame(connect_request()) + struct.pack(">i", 64 << 20),
    frame(connect_request()) + struct.pack(">i", -1),
    frame(connect_request()) + frame(b"\0\0"),
], ids=["too-large", "negative", "one-byte", "http", "too-large-later", "negative-later", "cut-header-later"])
def test_the_zookeeper_port_closes_and_says_why(server, data):
    _, line = closed_after(server, server.zookeeper_port, data)
    assert "closed:" in line, line


@pytest.mark.parametrize("body", [
    struct.pack(">ii", 1, 4242),
    struct.pack(">ii", 1, 1) + struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">ii", 1, 4) + struct.pack(">i", 3) + b"\xff\xfe\xfd\0",
    struct.pack(">ii", 1, 14) + b"\0\0\0\x01",
], ids=["unknown-op", "huge-path", "not-utf8", "cut-multi"])
def test_a_bad_operation_is_an_error_or_the_end_of_the_connection(server, body):
    with socket.create_connection(("127.0.0.1", server.zookeeper_port), 60) as s:
        s.sendall(frame(connect_request()))
        size = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))[0]
        s.recv(size, socket.MSG_WAITALL)
        s.sendall(frame(body))
        head = s.recv(4, socket.MSG_WAITALL)
        if head:
            answer = s.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            xid, _, error = struct.unpack(">iqi", answer[:16])
            assert xid == 1 and error < 0
