"""A replicated topic under load, and what has to be true of it whoever dies."""

import threading

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from servers import wait_for


def create(cluster, topic, partitions=1, config=None):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def made():
        try:
            admin.create_topics([NewTopic(topic, partitions, 3, config=config or {})],
                                request_timeout=20)[topic].result(60)
        except Exception as error:  # a controller that is just being elected
            return "TOPIC_ALREADY_EXISTS" in str(error)
        return True
    wait_for(made, f"{topic} to be created")


class Load:
    """Writes numbered records with acks=all until told to stop, and notes which were acknowledged."""

    def __init__(self, bootstrap, topic, partitions=1):
        self.topic, self.partitions = topic, partitions
        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
                                  "linger.ms": 2, "message.timeout.ms": 120000, "retry.backoff.ms": 50,
                                  "topic.metadata.refresh.interval.ms": 2000, "queue.buffering.max.messages": 2000})
        # librdkafka knows no offset of a record that a later one's acknowledgement vouches for
        self.acknowledged, self.without_offset, self.errors = {}, [], []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        number = 0
        while not self.stopping.is_set():
            value = b"record %d" % number
            partition = number % self.partitions

            def told(error, message):
                if error:
                    self.errors.append(error)
                elif message.offset() is None:
                    self.without_offset.append(message.value())
                else:
                    self.acknowledged[(message.partition(), message.offset())] = message.value()
            try:
                self.producer.produce(self.topic, value, partition=partition, on_delivery=told)
                number += 1
            except BufferError:
                pass
            self.producer.poll(0.001)

    def wait_for_more(self, count=300):
        before = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) >= before + count or self.errors, "more acknowledged records")
        assert not self.errors, self.errors[0]

    def stop(self):
        self.stopping.set()
        self.thread.join()
        assert self.producer.flush(120) == 0
        assert not self.errors, self.errors[0]
        return self


def everything(bootstrap, topic, partitions=1):
    """Every record of the topic, by partition and offset."""
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                  "auto.offset.reset": "earliest"})
    found = {}
    def end_of(partition):
        try:
            return c.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        except KafkaException:
            return None  # the leader has just moved: soon after an election leaders are balanced

    try:
        for partition in range(partitions):
            _, end = wait_for(lambda: end_of(partition), "the end of the log")
            c.assign([TopicPartition(topic, partition, 0)])
            at = 0
            while at < end:
                for m in c.consume(1000, 10):
                    assert m.error() is None, m.error()
                    found[(partition, m.offset())] = m.value()
                    at = m.offset() + 1
        return found
    finally:
        c.close()


def check(cluster, topic, load, partitions=1):
    """Every acknowledged record is where it was, once; an idempotent producer has nothing twice."""
    found = everything(cluster.bootstrap, topic, partitions)
    missing = {at: value for at, value in load.acknowledged.items() if found.get(at) != value}
    assert not missing, f"{len(missing)} of {len(load.acknowledged)} are lost: {sorted(missing.items())[:5]}"
    values = set(found.values())
    assert len(values) == len(found), "some are there twice"
    assert set(load.without_offset) <= values


def kill_leaders(cluster, rounds, kill=lambda broker: broker.kill()):
    topic = "replicated"
    create(cluster, topic)
    cluster.wait_isr(topic, [1, 2, 3])
    load = Load(cluster.bootstrap, topic)
    load.wait_for_more()
    for _ in range(rounds):
        leader = cluster.state(topic)["leader"]
        kill(cluster[leader])
        others = [n for n in cluster.brokers if n != leader]
        state = cluster.wait_isr(topic, others)
        assert state["leader"] in others
        load.wait_for_more()
        cluster[leader].start()
        cluster.wait_isr(topic, [1, 2, 3])
        load.wait_for_more()
    check(cluster, topic, load.stop())
