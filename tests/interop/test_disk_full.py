"""A full disk, on a small tmpfs: writes are refused, reads go on, it recovers, and it starts on a full disk."""

import os
import subprocess

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from servers import Cluster, wait_for

VALUE = os.urandom(100_000)
TOPIC = "disk-full"


@pytest.fixture
def small_disk(tmp_path):
    at = tmp_path / "disk"
    at.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(at)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def produce(bootstrap, values, timeout_ms=60000):
    """Returns how many were acknowledged and the errors of the others."""
    errors, ok = [], []
    p = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": timeout_ms, "retries": 2,
                  "retry.backoff.ms": 50, "linger.ms": 0, "batch.num.messages": 1})
    for v in values:
        p.produce(TOPIC, v, partition=0, on_delivery=lambda e, m: errors.append(e) if e else ok.append(m.offset()))
        p.flush(60)
    return ok, errors


def values(bootstrap):
    """Every record that can be read now."""
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        _, end = c.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)
        c.assign([TopicPartition(TOPIC, 0, 0)])
        found = {}
        while not found or max(found) < end - 1:
            for m in c.consume(end - len(found), 10):
                assert m.error() is None, m.error()
                found[m.offset()] = m.value()
        return found
    finally:
        c.close()


def fill(at):
    """Takes every free byte."""
    filler = at / "filler"
    with open(filler, "ab", buffering=0) as f:
        for size in (1 << 20, 4096, 1):
            try:
                while f.write(bytes(size)) == size:
                    pass
            except OSError:
                pass
    return filler


def test_writes_are_refused_and_reads_go_on(small_disk):
    server = Cluster(small_disk / "c").start()
    try:
        acked, errors = produce(server.bootstrap, [b"first-%d" % i for i in range(20)])
        assert len(acked) == 20 and not errors
        filler = fill(small_disk)
        _, errors = produce(server.bootstrap, [VALUE] * 3, 4000)
        assert errors, "a full disk refuses records"
        assert server.broker.alive()
        found = values(server.bootstrap)
        assert [found[i] for i in range(20)] == [b"first-%d" % i for i in range(20)]

        filler.unlink()
        wait_for(lambda: produce(server.bootstrap, [b"after"], 4000)[0], "a write once there is space again")
        kept = values(server.bootstrap)

        filler = fill(small_disk)
        server.kill()
        server.start()
        assert values(server.bootstrap) == kept, "a server that starts on a full disk serves reads"
        filler.unlink()
        wait_for(lambda: produce(server.bootstrap, [b"end"], 4000)[0], "a write once there is space again")
        found = values(server.bootstrap)
        assert {o: found[o] for o in kept} == kept
    finally:
        server.remove()
