import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * What Java programs do with a broker, one scenario a run: {@code ClientScenarios BOOTSTRAP SCENARIO TOPIC [ARG]}.
 * Compiled against the oldest and run with each kafka-clients under test. Exit code 0 and a last line "ok" are success.
 */
public class ClientScenarios {
    static String bootstrap, topic;

    public static void main(String[] a) throws Exception {
        bootstrap = a[0];
        topic = a[2];
        switch (a[1]) {
            case "idempotent" -> idempotent(a[3]);
            case "assignor" -> assignor(a[3]);
            case "static" -> staticMember();
            case "admin" -> admin();
            case "timestamps" -> timestamps();
            case "lookups" -> lookups();
            default -> throw new IllegalArgumentException(a[1]);
        }
        System.out.println("ok");
        System.exit(0);
    }

    static Properties props(Object... kv) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < kv.length; i += 2) p.put(kv[i], kv[i + 1].toString());
        return p;
    }

    static void check(boolean ok, Object what) {
        if (!ok) throw new AssertionError(String.valueOf(what));
    }

    static KafkaProducer<String, String> producer(Object... kv) {
        return new KafkaProducer<>(props(kv), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... kv) {
        Properties p = props("auto.offset.reset", "earliest", "group.id", topic + "-g", "heartbeat.interval.ms", 300);
        for (int i = 0; i < kv.length; i += 2) p.put(kv[i], kv[i + 1].toString());
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    static void create(int partitions) throws Exception {
        try (Admin admin = Admin.create(props())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    /** Records in small idempotent batches with headers and keys come back in order, once each. */
    static void idempotent(String codec) throws Exception {
        try (KafkaProducer<String, String> p = producer("acks", "all", "enable.idempotence", true, "batch.size", 512,
                "compression.type", codec, "linger.ms", 1)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 3000; i++) {
                ProducerRecord<String, String> r = new ProducerRecord<>(topic, 0, "k" + i, "value " + i);
                r.headers().add(new RecordHeader("n", ("" + i).getBytes())).add(new RecordHeader("none", null));
                sent.add(p.send(r));
            }
            for (int i = 0; i < sent.size(); i++) check(sent.get(i).get().offset() == i, "offset of record " + i);
        }
        try (KafkaConsumer<String, String> c = consumer()) {
            c.assign(List.of(new TopicPartition(topic, 0)));
            int next = 0;
            long end = System.nanoTime() + 60_000_000_000L;
            while (next < 3000 && System.nanoTime() < end)
                for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(200))) {
                    check(r.offset() == next && r.value().equals("value " + next) && r.key().equals("k" + next), r);
                    check(new String(r.headers().lastHeader("n").value()).equals("" + next), r);
                    check(r.headers().lastHeader("none").value() == null, r);
                    next++;
                }
            check(next == 3000, "records read: " + next);
        }
    }

    /** Three members of one group, one leaves, and every record is seen. */
    static void assignor(String which) throws Exception {
        create(6);
        String name = switch (which) {
            case "range" -> RangeAssignor.class.getName();
            case "roundrobin" -> RoundRobinAssignor.class.getName();
            case "sticky" -> StickyAssignor.class.getName();
            case "cooperative-sticky" -> CooperativeStickyAssignor.class.getName();
            default -> throw new IllegalArgumentException(which);
        };
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            KafkaConsumer<String, String> c = consumer("partition.assignment.strategy", name);
            c.subscribe(List.of(topic));
            members.add(c);
        }
        Set<String> seen = new HashSet<>();
        pollUntil(members, seen, () -> members.stream().allMatch(m -> m.assignment().size() == 2));
        try (KafkaProducer<String, String> p = producer()) {
            for (int i = 0; i < 600; i++) p.send(new ProducerRecord<>(topic, i % 6, null, "v" + i));
        }
        pollUntil(members, seen, () -> seen.size() >= 300);
        members.get(0).commitSync();
        members.remove(0).close();
        pollUntil(members, seen, () -> members.stream().allMatch(m -> m.assignment().size() == 3) && seen.size() == 600);
        for (KafkaConsumer<String, String> m : members) { m.commitSync(); m.close(); }
        try (Admin admin = Admin.create(props())) {
            long sum = admin.listConsumerGroupOffsets(topic + "-g").partitionsToOffsetAndMetadata().get().values().stream()
                    .mapToLong(OffsetAndMetadata::offset).sum();
            check(sum == 600, "committed " + sum);
        }
    }

    static void pollUntil(List<KafkaConsumer<String, String>> members, Set<String> seen, BooleanSupplier done) {
        long end = System.nanoTime() + 90_000_000_000L;
        while (!done.get()) {
            check(System.nanoTime() < end, "no progress; seen " + seen.size() + ", assignments " +
                    members.stream().map(m -> m.assignment().toString()).toList());
            for (KafkaConsumer<String, String> m : members)
                for (ConsumerRecord<String, String> r : m.poll(Duration.ofMillis(50))) seen.add(r.value());
        }
    }

    interface BooleanSupplier { boolean get(); }

    /** A static member that restarts gets its partitions back without a rebalance; a second owner fences the first. */
    static void staticMember() throws Exception {
        create(4);
        Object[] cfg = {"group.instance.id", "one", "session.timeout.ms", 30000};
        Object[] other = {"group.instance.id", "two", "session.timeout.ms", 30000};
        KafkaConsumer<String, String> a = consumer(cfg), b = consumer(other);
        a.subscribe(List.of(topic));
        b.subscribe(List.of(topic));
        List<KafkaConsumer<String, String>> both = new ArrayList<>(List.of(a, b));
        pollUntil(both, new HashSet<>(), () -> a.assignment().size() == 2 && b.assignment().size() == 2);
        int generation = b.groupMetadata().generationId();
        Set<TopicPartition> owned = a.assignment();
        a.close();
        KafkaConsumer<String, String> again = consumer(cfg);
        again.subscribe(List.of(topic));
        pollUntil(List.of(again, b), new HashSet<>(), () -> again.assignment().size() == 2);
        check(again.assignment().equals(owned), again.assignment() + " is not " + owned);
        check(b.groupMetadata().generationId() == generation, "the restart caused a rebalance");
        KafkaConsumer<String, String> usurper = consumer(cfg);
        usurper.subscribe(List.of(topic));
        pollUntil(List.of(usurper, b), new HashSet<>(), () -> usurper.assignment().size() == 2);
        try {
            again.commitSync(Map.of(owned.iterator().next(), new OffsetAndMetadata(0)));
            check(false, "the old member was not fenced");
        } catch (FencedInstanceIdException | CommitFailedException e) {
            // as it should be; the second where a heartbeat was told first
        }
        try (Admin admin = Admin.create(props())) {
            Set<String> instances = new TreeSet<>();
            admin.describeConsumerGroups(List.of(topic + "-g")).all().get().get(topic + "-g").members()
                    .forEach(m -> instances.add(m.groupInstanceId().orElse("none")));
            check(instances.equals(Set.of("one", "two")), instances);
            admin.removeMembersFromConsumerGroup(topic + "-g", new RemoveMembersFromConsumerGroupOptions(
                    List.of(new MemberToRemove("one")))).all().get();
        }
    }

    static <T extends Throwable> void refused(Class<T> kind, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (ExecutionException e) {
            check(kind.isInstance(e.getCause()), e.getCause());
            return;
        }
        check(false, "not refused with " + kind.getSimpleName());
    }

    static void admin() throws Exception {
        try (Admin admin = Admin.create(props())) {
            check(!admin.describeCluster().clusterId().get().isEmpty(), "cluster id");
            check(admin.describeCluster().controller().get().id() == admin.describeCluster().nodes().get().iterator().next().id(),
                    "controller");
            CreateTopicsResult made = admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1).configs(
                    Map.of("cleanup.policy", "compact"))));
            check(made.numPartitions(topic).get() == 3 && made.replicationFactor(topic).get() == 1, "answer of the creation");
            check(made.config(topic).get().get("cleanup.policy").value().equals("compact"), "configuration in the answer");
            refused(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get());
            refused(InvalidReplicationFactorException.class,
                    () -> admin.createTopics(List.of(new NewTopic(topic + "x", 1, (short) 9))).all().get());
            refused(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("no/slash", 1, (short) 1))).all().get());
            admin.createTopics(List.of(new NewTopic(topic + "-dry", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get();
            refused(UnknownTopicOrPartitionException.class, () -> admin.describeTopics(List.of(topic + "-dry")).allTopicNames().get());
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
            TopicDescription d = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            check(d.partitions().size() == 4 && !d.isInternal(), d);
            check(admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(d.topicId()))).allTopicIds().get()
                    .get(d.topicId()).name().equals(topic), "describe by id");
            // records of a compacted-only topic can't be deleted
            refused(PolicyViolationException.class, () -> admin.deleteRecords(
                    Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(0))).all().get());
            ConfigResource r = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            admin.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "5000"),
                    AlterConfigOp.OpType.SET), new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"),
                    AlterConfigOp.OpType.SET)))).all().get();
            String retention = null;
            for (int i = 0; i < 600 && !"5000".equals(retention); i++) {
                retention = admin.describeConfigs(List.of(r)).all().get().get(r).get("retention.ms").value();
                Thread.sleep(50);
            }
            check("5000".equals(retention), "retention.ms " + retention);
            try (KafkaProducer<String, String> p = producer()) {
                for (int i = 0; i < 10; i++) p.send(new ProducerRecord<>(topic, 0, "k", "v" + i)).get();
            }
            TopicPartition tp = new TopicPartition(topic, 0);
            for (int i = 0; ; i++) {
                try {
                    admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(3))).all().get();
                    break;
                } catch (ExecutionException e) {
                    // the description shows what ZooKeeper has; the log hears of its new policy a moment later
                    check(i < 600 && e.getCause() instanceof PolicyViolationException, e.getCause());
                    Thread.sleep(50);
                }
            }
            check(admin.listOffsets(Map.of(tp, OffsetSpec.earliest())).partitionResult(tp).get().offset() == 3, "earliest");
            check(admin.listOffsets(Map.of(tp, OffsetSpec.latest())).partitionResult(tp).get().offset() == 10, "latest");
            refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class,
                    () -> admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(99))).all().get());
            check(admin.describeLogDirs(List.of(d.partitions().get(0).leader().id())).allDescriptions().get().values().iterator().next()
                    .values().iterator().next().replicaInfos().get(tp).size() > 0, "log dir");
            check(admin.describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers().size() == 1, "active producers");
            check(admin.listTopics().names().get().contains(topic), "listed");
            admin.deleteTopics(List.of(topic)).all().get();
            refused(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(topic)).all().get());
            refused(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of("no-such-group")).all().get());
            check(admin.listConsumerGroups().valid().get() != null, "groups");
        }
    }

    /** LogAppendTime and refused timestamps. */
    static void timestamps() throws Exception {
        try (Admin admin = Admin.create(props())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("message.timestamp.type", "LogAppendTime")),
                    new NewTopic(topic + "-late", 1, (short) 1).configs(Map.of("message.timestamp.after.max.ms", "1000")))).all().get();
        }
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> p = producer()) {
            RecordMetadata m = p.send(new ProducerRecord<>(topic, 0, 5L, "k", "v")).get();
            check(m.timestamp() >= before, "append time " + m.timestamp());
            refused(InvalidTimestampException.class,
                    () -> p.send(new ProducerRecord<>(topic + "-late", 0, before + 3_600_000, "k", "v")).get());
        }
        try (KafkaConsumer<String, String> c = consumer()) {
            c.assign(List.of(new TopicPartition(topic, 0)));
            ConsumerRecords<String, String> got = ConsumerRecords.empty();
            for (int i = 0; i < 300 && got.isEmpty(); i++) got = c.poll(Duration.ofMillis(200));
            ConsumerRecord<String, String> r = got.iterator().next();
            check(r.timestampType().name.equals("LogAppendTime") && r.timestamp() >= before, r);
        }
    }

    /** Offsets by time, beginning, end, position after seek and out of range reset. */
    static void lookups() throws Exception {
        try (Admin admin = Admin.create(props())) {
            // the records are of 1970: the retention's next look would take them away
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "-1")))).all().get();
        }
        TopicPartition tp = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> p = producer()) {
            for (int i = 0; i < 100; i++) p.send(new ProducerRecord<>(topic, 0, 1000L + i * 10, "k", "v" + i)).get();
        }
        try (KafkaConsumer<String, String> c = consumer()) {
            c.assign(List.of(tp));
            check(c.beginningOffsets(List.of(tp)).get(tp) == 0 && c.endOffsets(List.of(tp)).get(tp) == 100, "ends");
            check(c.offsetsForTimes(Map.of(tp, 1455L)).get(tp).offset() == 46, "by time");
            check(c.offsetsForTimes(Map.of(tp, 99999L)).get(tp) == null, "after the last");
            c.seek(tp, 5000);       // out of range: back to the earliest
            ConsumerRecords<String, String> got = ConsumerRecords.empty();
            for (int i = 0; i < 300 && got.isEmpty(); i++) got = c.poll(Duration.ofMillis(200));
            check(got.iterator().next().offset() == 0, "reset");
        }
    }
}
