"""kill -9 at random moments while a real producer, a real group and a ZooKeeper client write: what was acknowledged stays."""

import os
import random
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from servers import wait_for

LONG = os.environ.get("GRACCHUS_TEST_LONG") == "1"
ROUNDS = 60 if LONG else 20
SEED = int(os.environ.get("GRACCHUS_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PRODUCERS = {
    "one": {"acks": "1"},
    "all": {"acks": "all", "enable.idempotence": True},
}


class Writer(threading.Thread):
    """Numbered records to one partition without a pause; remembers at which offset each was acknowledged."""

    def __init__(self, bootstrap, topic, first, config):
        super().__init__(daemon=True)
        self.topic, self.next, self.acked, self.stopping = topic, first, {}, threading.Event()
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "message.timeout.ms": 120000,
                                  "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, **config})

    def run(self):
        while not self.stopping.is_set():
            number = self.next
            try:
                self.producer.produce(self.topic, b"%d" % number, partition=0, on_delivery=self.delivered)
            except BufferError:
                self.producer.poll(0.05)
                continue
            self.next += 1
            self.producer.poll(0 if number % 50 else 0.005)

    def delivered(self, error, message):
        if error is None:
            self.acked[int(message.value())] = message.offset()

    def stop(self):
        self.stopping.set()
        self.join()


class Znodes(threading.Thread):
    """Creates znodes one after the other; remembers those the server said yes to."""

    def __init__(self, zookeeper, prefix):
        super().__init__(daemon=True)
        self.zk = KazooClient(hosts=zookeeper)
        self.zk.start(timeout=60)
        self.zk.ensure_path("/kill9")
        self.prefix, self.made, self.stopping = prefix, [], threading.Event()

    def run(self):
        try:
            # a kill between two creates is not noticed: kazoo connects again and would go on for ever
            while not self.stopping.is_set():
                path = f"/kill9/{self.prefix}-{len(self.made)}"
                self.zk.create(path, path.encode())
                self.made.append(path)
        except Exception:
            pass                # the server was killed under a create
        self.zk.stop()
        self.zk.close()


class Committer(threading.Thread):
    """Commits the offsets 1, 2, 3, ... of a group; remembers the last that was acknowledged."""

    def __init__(self, bootstrap, topic, first):
        super().__init__(daemon=True)
        self.last, self.next, self.topic, self.stopping = None, first, topic, threading.Event()
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})

    def run(self):
        while not self.stopping.is_set():
            try:
                self.consumer.commit(offsets=[TopicPartition(self.topic, 0, self.next)], asynchronous=False)
            except Exception:
                self.stopping.wait(0.05)
                continue
            self.last = self.next
            self.next += 1


def read_all(bootstrap, topic):
    """(offset, number) of every record up to the end of the partition."""
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": topic + "-reader", "enable.auto.commit": False,
                  "auto.offset.reset": "earliest"})
    _, end = c.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    c.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not found or found[-1][0] < end - 1:
        for m in c.consume(min(5000, end - len(found)), 10):
            assert m.error() is None, m.error()
            found.append((m.offset(), int(m.value())))
        if end == 0:
            break
    c.close()
    return found


def committed(bootstrap, topic):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    try:
        return c.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
    finally:
        c.close()


def test_nothing_acknowledged_is_lost(own_cluster):
    print(f"GRACCHUS_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    server = own_cluster().start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for f in admin.create_topics([NewTopic(t, 1, 1) for t in PRODUCERS]).values():
        f.result(60)
    acked = {t: {} for t in PRODUCERS}
    last_commit, made, first = {t: 0 for t in PRODUCERS}, [], {t: 0 for t in PRODUCERS}
    for turn in range(ROUNDS):
        writers = {t: Writer(server.bootstrap, t, first[t], config) for t, config in PRODUCERS.items()}
        committers = {t: Committer(server.bootstrap, t, last_commit[t] + 1) for t in PRODUCERS}
        znodes = Znodes(server.zookeeper, turn)
        for thread in [*writers.values(), *committers.values(), znodes]:
            thread.start()
        wait_for(lambda: all(w.acked for w in writers.values()) and all(c.last for c in committers.values()) and znodes.made,
                 "something of each kind acknowledged")
        time.sleep(rng.uniform(0, 0.7))     # the moment of the kill: what is tested, not a wait for anything
        server.kill()
        for w in writers.values():
            w.stop()
        server.start()
        # the producers go on through the restart: what they had in flight is sent again
        for t, w in writers.items():
            assert w.producer.flush(120) == 0
            acked[t].update(w.acked)
            first[t] = w.next
        for t, c in committers.items():
            c.stopping.set()
            c.join()
            stored = committed(server.bootstrap, t)
            assert stored in (c.last, c.next), f"round {turn}: {stored} is committed, {c.last} was acknowledged"
            last_commit[t] = stored
            c.consumer.close()
        znodes.stopping.set()
        znodes.join()
        made += znodes.made
        zk = KazooClient(hosts=server.zookeeper)
        zk.start(timeout=60)
        there = set(zk.get_children("/kill9"))
        zk.stop()
        zk.close()
        missing = [p for p in made if p.rsplit("/", 1)[1] not in there]
        assert not missing, f"round {turn}: {len(missing)} znodes lost, {missing[:3]}"
        for t in PRODUCERS:
            found = read_all(server.bootstrap, t)
            assert [o for o, _ in found] == list(range(len(found))), f"round {turn}: offsets of {t} have gaps"
            at = dict(found)
            lost = [(n, o) for n, o in acked[t].items() if at.get(o) != n]
            assert not lost, f"round {turn}, seed {SEED}: {len(lost)} acknowledged records of {t} are not at their offset: {lost[:5]}"
    numbers = [n for _, n in read_all(server.bootstrap, "all")]
    assert len(numbers) == len(set(numbers)), "an idempotent producer's record is there twice"
    assert numbers == sorted(numbers)
