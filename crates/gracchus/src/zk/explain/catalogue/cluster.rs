//! The cluster itself: its id, its brokers, topics and their partitions, the controller, producer ids, features, migration.

use super::{Entry, KIND, NOBODY, folder};

pub(super) const ENTRIES: &[Entry] = &[
    folder("/cluster", "parent of the cluster's id", NOBODY),
    Entry {
        path: "/cluster/id",
        what: "the cluster's id, for ever",
        kind: "persistent, JSON",
        written: "by the first broker that ever started, once",
        watched: NOBODY,
        stat: "",
        warning: "a broker whose log directories (meta.properties) belong to another id refuses to start",
        fields: &[
            ("version", "of this format: \"1\", a string here"),
            ("id", "16 random bytes as base64url"),
        ],
    },
    folder(
        "/brokers",
        "parent of what concerns brokers and topics",
        NOBODY,
    ),
    folder(
        "/brokers/ids",
        "the live brokers: a child for each",
        "by the controller (children)",
    ),
    Entry {
        path: "/brokers/ids/{id}",
        what: "the registration of a live broker: where it listens",
        kind: "ephemeral, JSON",
        written: "by the broker itself at its start and after a session expiry (create and set in one multi); rewritten in place when its listeners change",
        watched: "by the controller (data, of each live broker)",
        stat: "czxid is the broker epoch, which fences requests of an earlier life; ephemeralOwner is the broker's session; dataVersion is 1 after the registration",
        warning: "deleted by hand, it does not come back while the session lives, and the controller takes the broker for dead; content that cannot be read stops Kafka's controller",
        fields: &[
            (
                "version",
                "of this format: 5 (2 and 4 below inter.broker.protocol.version 2.7, 1 from Kafka 0.8)",
            ),
            (
                "listener_security_protocol_map",
                "how each listener speaks: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            ),
            (
                "endpoints",
                "what clients are told: LISTENER://host:port for each listener",
            ),
            ("rack", "broker.rack; absent when unset"),
            (
                "features",
                "levels of cluster features that it supports; empty in ZooKeeper mode",
            ),
            (
                "host",
                "of the first PLAINTEXT endpoint, for clients older than 0.9; null when there is none",
            ),
            ("port", "of the same endpoint; -1 when there is none"),
            ("jmx_port", "-1 when JMX is off"),
            (
                "timestamp",
                "when it registered, ms since 1970, as a string",
            ),
        ],
    },
    Entry {
        path: "/brokers/seqid",
        what: "counter for generated broker ids",
        kind: "persistent, null or empty data",
        written: "by a broker that starts without broker.id: an empty set, whose version it takes",
        watched: NOBODY,
        stat: "dataVersion is the counter: the next id is reserved.broker.max.id (1000) + dataVersion + 1",
        warning: "",
        fields: &[],
    },
    folder(
        "/brokers/topics",
        "all topics: a child for each",
        "by the controller (children)",
    ),
    Entry {
        path: "/brokers/topics/{topic}",
        what: "the replicas of every partition of a topic",
        kind: "persistent, JSON",
        written: "created by the controller's broker when it serves CreateTopics (or by old tools directly); set by the controller during reassignments, fenced by /controller_epoch; deleted by the controller",
        watched: "by the controller (data, of each topic): added partitions get leaders; other changes by hand are ignored",
        stat: "",
        warning: "Kafka's controller overwrites content that is no JSON with an empty assignment",
        fields: &[
            (
                "version",
                "of this format: 3 (1 from Kafka 0.8, 2 from 2.4)",
            ),
            (
                "topic_id",
                "the topic's id, 16 bytes as base64url; absent below inter.broker.protocol.version 2.8",
            ),
            (
                "partitions",
                "partition to its replicas' broker ids, the first is the preferred leader; during a reassignment the target, then those to be removed",
            ),
            (
                "adding_replicas",
                "replicas that a reassignment under way adds, for each partition; else empty",
            ),
            ("removing_replicas", "replicas that it removes"),
        ],
    },
    folder(
        "/brokers/topics/{topic}/partitions",
        "parent of the topic's partitions",
        NOBODY,
    ),
    folder(
        "/brokers/topics/{topic}/partitions/{partition}",
        "parent of a partition's state",
        NOBODY,
    ),
    Entry {
        path: "/brokers/topics/{topic}/partitions/{partition}/state",
        what: "who leads a partition, and which replicas are in sync",
        kind: "persistent, JSON",
        written: "by the controller, expecting the version it knows and fenced by /controller_epoch; below inter.broker.protocol.version 2.7 also by the leader itself (ISR changes)",
        watched: "by nobody (by the controller during reassignments, below 2.7)",
        stat: "dataVersion is the partition epoch; every write expects it",
        warning: "written by hand it is not noticed: brokers learn of leaders from the controller only",
        fields: &[
            (
                "controller_epoch",
                "of the controller that wrote it, or gave the leader its orders",
            ),
            (
                "leader",
                "broker id of the leader; -1: none, the partition is offline",
            ),
            ("version", "of this format: 1"),
            (
                "leader_epoch",
                "rises at every election; fences earlier leaders and their followers",
            ),
            ("isr", "the replicas in sync; the leader is one of them"),
            (
                "leader_recovery_state",
                "1 after an unclean election until the leader has recovered; absent: 0",
            ),
        ],
    },
    Entry {
        path: "/controller",
        what: "who is controller",
        kind: "ephemeral, JSON (persistent while a KRaft controller migrates the cluster)",
        written: "by the broker that wins the election: created in one multi with the raise of /controller_epoch",
        watched: "by every broker: when it goes, all stand for election",
        stat: "ephemeralOwner is the controller's session; dataVersion fences config writes",
        warning: "deleting it by hand re-elects and is harmless; naming another broker in it leaves the cluster without a controller",
        fields: &[
            ("version", "of this format: 2 (1 before Kafka 3.4)"),
            ("brokerid", "the controller's broker id"),
            (
                "timestamp",
                "when it was elected, ms since 1970, as a string",
            ),
            (
                "kraftControllerEpoch",
                "above 0 when a KRaft controller holds it for a migration; else -1",
            ),
        ],
    },
    Entry {
        path: "/controller_epoch",
        what: "how many controllers there have been",
        kind: "persistent, decimal text",
        written: "by the winner of each election, one more than before; never deleted",
        watched: NOBODY,
        stat: "dataVersion is the fence: each write of the controller checks it, so that a replaced controller cannot write",
        warning: "a change by hand locks the present controller out until /controller is deleted",
        fields: &[(
            KIND,
            "the epoch, a decimal number; it is in every request of the controller",
        )],
    },
    Entry {
        path: "/latest_producer_id_block",
        what: "the block of producer ids given out last",
        kind: "persistent, JSON (null before the first)",
        written: "by the controller for a broker that asks (by that broker itself below inter.broker.protocol.version 3.0), expecting the version read",
        watched: NOBODY,
        stat: "",
        warning: "content that cannot be read keeps idempotent producers from starting; set back by hand it gives ids out twice",
        fields: &[
            ("version", "of this format: 1"),
            ("broker", "who got the block"),
            ("block_start", "its first id, as a string"),
            (
                "block_end",
                "its last id, inclusive, as a string; blocks have 1000",
            ),
        ],
    },
    Entry {
        path: "/feature",
        what: "the cluster features that are finalized",
        kind: "persistent, JSON",
        written: "by the controller at its election when its version or status differs",
        watched: "by every broker (inter.broker.protocol.version 2.7 and above)",
        stat: "dataVersion is the features epoch in ApiVersions",
        warning: "content that is no JSON stops Kafka's election",
        fields: &[
            ("features", "name to levels; empty in ZooKeeper mode"),
            (
                "version",
                "of this format: 2 (1 below inter.broker.protocol.version 3.3)",
            ),
            ("status", "1: feature versioning is on, 0: off"),
        ],
    },
    Entry {
        path: "/migration",
        what: "how far a migration to KRaft is",
        kind: "persistent, JSON",
        written: "by the KRaft controller only",
        watched: NOBODY,
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 0"),
            ("kraft_controller_id", "the KRaft controller's id"),
            ("kraft_controller_epoch", "its epoch"),
            (
                "kraft_metadata_offset",
                "of the metadata log, up to which the znodes are written",
            ),
            ("kraft_metadata_epoch", "of that record"),
        ],
    },
];
