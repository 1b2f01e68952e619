"""confluent-kafka: a current librdkafka with its admin API and its assignors."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec,
                                   ResourceType)
from confluent_kafka import ConsumerGroupTopicPartitions

from servers import TARGET, wait_for


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def done(futures):
    return {k: f.result(60) for k, f in futures.items()}


def produce(cluster, topic, values, **config):
    failures = []
    p = Producer({"bootstrap.servers": cluster.bootstrap, **config})
    for v in values:
        p.produce(topic, value=v, on_delivery=lambda err, _: err and failures.append(err))
    assert p.flush(60) == 0 and not failures
    return p


def consume(consumer, count):
    got = []
    while len(got) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(got)} of {count} records"
        assert message.error() is None, message.error()
        got.append(message)
    return got


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_with_each_assignor(cluster, admin, topic, strategy):
    done(admin.create_topics([NewTopic(topic, 4, 1)]))
    members = [Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
                         "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300}) for _ in range(2)]
    for m in members:
        m.subscribe([topic])
    seen = []

    def balanced():
        for m in members:
            message = m.poll(0.05)
            if message is not None and message.error() is None:
                seen.append(message.value())
        return sorted(len(m.assignment()) for m in members) == [2, 2]

    wait_for(balanced, "two partitions each")
    produce(cluster, topic, [b"%d" % i for i in range(100)], **{"sticky.partitioning.linger.ms": "0"})
    wait_for(lambda: balanced() and len(seen) >= 100, "every record")
    assert sorted(seen) == sorted(b"%d" % i for i in range(100))
    for m in members:
        m.close()


def test_static_member_keeps_its_partitions_over_a_restart(cluster, admin, topic):
    done(admin.create_topics([NewTopic(topic, 2, 1)]))

    def member():
        c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "group.instance.id": "static-1",
                      "auto.offset.reset": "earliest", "session.timeout.ms": 30000})
        c.subscribe([topic])
        wait_for(lambda: (c.poll(0.05), len(c.assignment()) == 2)[1], "the assignment")
        return c

    first = member()
    wait_for(lambda: describe(admin, topic).state.name == "STABLE", "a stable group")
    (before,) = describe(admin, topic).members
    first.close()          # a static member does not leave
    (between,) = describe(admin, topic).members
    assert between.group_instance_id == "static-1"
    second = member()
    (after,) = describe(admin, topic).members
    assert after.group_instance_id == "static-1" and after.member_id != before.member_id
    second.close()


def describe(admin, group):
    return admin.describe_consumer_groups([group])[group].result(60)


def test_idempotent_producer_with_every_codec(cluster, topic):
    expected = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec}-{i}".encode() * 10 for i in range(300)]
        produce(cluster, topic, values, **{"enable.idempotence": True, "compression.type": codec, "linger.ms": 2})
        expected += values
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    c.subscribe([topic])
    assert [m.value() for m in consume(c, len(expected))] == expected
    c.close()


def test_record_over_the_topic_limit_is_refused(cluster, admin, topic):
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "2000"})]))
    errors = []
    p = Producer({"bootstrap.servers": cluster.bootstrap})
    p.produce(topic, b"x" * 5000, on_delivery=lambda err, _: errors.append(err and err.code()))
    p.produce(topic, b"small", on_delivery=lambda err, _: errors.append(err and err.code()))
    p.flush(60)
    assert KafkaError.MSG_SIZE_TOO_LARGE in errors
    assert cluster_end(cluster, topic) <= 1


def cluster_end(cluster, topic, partition=0):
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends"})
    low, high = c.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
    c.close()
    return high


def test_topic_configs(cluster, admin, topic):
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1234567"})]))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = done(admin.describe_configs([resource]))[resource]
    assert entries["retention.ms"].value == "1234567" and entries["retention.ms"].source == 1
    assert entries["cleanup.policy"].value == "delete" and entries["cleanup.policy"].is_default
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)])
    done(admin.incremental_alter_configs([change]))

    def changed():
        e = done(admin.describe_configs([resource]))[resource]
        return e["cleanup.policy"].value == "delete,compact" and e["retention.ms"].value == "604800000"
    wait_for(changed, "the new configuration")
    bad = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[
        ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)])
    with pytest.raises(KafkaException) as refused:
        done(admin.incremental_alter_configs([bad]))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_broker_config(cluster, admin):
    (broker,) = admin.list_topics(timeout=60).brokers.values()
    resource = ConfigResource(ResourceType.BROKER, str(broker.id))
    entries = done(admin.describe_configs([resource]))[resource]
    assert entries["zookeeper.connect"].is_read_only and entries["log.cleaner.threads"].value == "1"


def test_delete_records_and_list_offsets(cluster, admin, topic):
    # the records are of 1970: the retention's next look would take them away
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})]))
    p = Producer({"bootstrap.servers": cluster.bootstrap})
    for i in range(10):
        p.produce(topic, b"x", timestamp=2_000 - i if i > 7 else 1_000 + i)
    assert p.flush(60) == 0
    tp = TopicPartition(topic, 0, 4)
    (low,) = done(admin.delete_records([tp])).values()
    assert low.low_watermark == 4
    at = {spec: list(done(admin.list_offsets({TopicPartition(topic, 0): getattr(OffsetSpec, spec)()})).values())[0].offset
          for spec in ("earliest", "latest", "max_timestamp")}
    assert at["earliest"] == 4 and at["latest"] == 10 and at["max_timestamp"] == 8


def test_group_offsets_altered_and_group_deleted(cluster, admin, topic):
    done(admin.create_topics([NewTopic(topic, 1, 1)]))
    produce(cluster, topic, [b"%d" % i for i in range(10)])
    c = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    c.subscribe([topic])
    consume(c, 10)
    c.commit(asynchronous=False)
    with pytest.raises(KafkaException) as refused:
        done(admin.delete_consumer_groups([topic]))
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    c.close()
    done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])]))
    (listed,) = done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])).values()
    assert [(p.topic, p.partition, p.offset) for p in listed.topic_partitions] == [(topic, 0, 3)]
    done(admin.delete_consumer_groups([topic]))
    with pytest.raises(KafkaException) as refused:
        done(admin.delete_consumer_groups([topic]))
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.skipif(TARGET == "apache", reason="Apache Kafka has transactions")
def test_a_transactional_producer_is_told_why_it_fails(cluster):
    """librdkafka tries again until its own timeout; the Java client fails at once."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as failed:
        producer.init_transactions(20)
    assert failed.value.args[0].code() == KafkaError.UNSUPPORTED_VERSION
    wait_for(lambda: "refused the transactional producer \"t\"" in cluster.log_text(), "a line in the log")
