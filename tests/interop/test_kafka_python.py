"""kafka-python: a client without librdkafka or Java under it."""

import threading

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from servers import wait_for


@pytest.fixture
def admin(cluster):
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def for_old_records(admin, topic):
    """A topic whose records may be older than a week: the retention's next look would take them away under the test."""
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs={"retention.ms": "-1"})])


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_round_trip_with_keys_headers_and_timestamps(cluster, admin, topic, codec):
    for_old_records(admin, topic)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type=codec, acks="all", linger_ms=5)
    for i in range(200):
        producer.send(topic, key=b"k%d" % i, value=b"v" * i, headers=[("h", b"%d" % i)], timestamp_ms=1_700_000_000_000 + i)
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    got = []
    for m in consumer:
        got.append((m.offset, m.key, m.value, m.headers, m.timestamp))
        if len(got) == 200:
            break
    consumer.close()
    assert got == [(i, b"k%d" % i, b"v" * i, [("h", b"%d" % i)], 1_700_000_000_000 + i) for i in range(200)]


def test_admin_creates_grows_and_deletes_a_topic(cluster, admin, topic):
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    admin.create_partitions({topic: NewPartitions(total_count=5)})
    wait_for(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, "five partitions")
    admin.delete_topics([topic])
    wait_for(lambda: topic not in admin.list_topics(), "the topic to go")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_two_members_share_the_partitions(cluster, admin, topic):
    admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])
    wait_for(lambda: topic in admin.list_topics(), "the topic")
    consumers = [KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, group_id=topic + "-g",
                               auto_offset_reset="earliest", heartbeat_interval_ms=300) for _ in range(2)]
    # one that led the group before it knew of the partitions assigned none, and never any, once on a busy machine
    for c in consumers:
        wait_for(lambda: len(c.partitions_for_topic(topic) or ()) == 4, "the partitions")
    stop = threading.Event()
    seen = []

    def poll(c):
        while not stop.is_set():
            for records in c.poll(timeout_ms=100).values():
                seen.extend(r.value for r in records)

    threads = [threading.Thread(target=poll, args=(c,)) for c in consumers]
    try:
        # one after the other: kafka-python 3.0.12 may block for ever when a second rebalance meets the first (with Apache's
        # broker too)
        for t, c, size in zip(threads, consumers, [4, 2]):
            t.start()
            wait_for(lambda: len(c.assignment()) == size, f"{size} partitions")
        wait_for(lambda: sorted(len(c.assignment()) for c in consumers) == [2, 2], "two partitions each")
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
        for i in range(100):
            producer.send(topic, value=b"%d" % i, partition=i % 4)
        producer.close()
        wait_for(lambda: len(seen) >= 100, "every record")
    finally:
        stop.set()
        for t in threads:
            if t.ident:     # it was started
                t.join()
    assert sorted(seen) == sorted(b"%d" % i for i in range(100))
    for c in consumers:
        c.close()
    offsets = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=topic + "-g")
    assert [offsets.committed(TopicPartition(topic, p)) for p in range(4)] == [25] * 4
    offsets.close()


def test_offsets_for_times_beginning_and_end(cluster, admin, topic):
    for_old_records(admin, topic)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    for i in range(10):
        producer.send(topic, value=b"x", timestamp_ms=1000 + i * 10).get(timeout=60)
    producer.close()
    tp = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 10}
    found = consumer.offsets_for_times({tp: 1035})[tp]
    assert (found.offset, found.timestamp) == (4, 1040)
    assert consumer.offsets_for_times({tp: 5000})[tp] is None
    consumer.close()
