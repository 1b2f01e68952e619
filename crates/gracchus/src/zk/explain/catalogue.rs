//! Every znode that Kafka 3.9 and its older clients use, in words.

/// The key of a node whose content is plain text.
pub(super) const KIND: &str = "(text)";

/// One kind of znode. `{name}` in the path stands for one part of it, or the rest of a part.
pub(super) struct Entry {
    pub(super) path: &'static str,
    pub(super) what: &'static str,
    pub(super) kind: &'static str,
    pub(super) written: &'static str,
    pub(super) watched: &'static str,
    /// What its stat means to Kafka.
    pub(super) stat: &'static str,
    /// What goes wrong with it.
    pub(super) warning: &'static str,
    pub(super) fields: &'static [(&'static str, &'static str)],
}

const fn folder(path: &'static str, what: &'static str, watched: &'static str) -> Entry {
    Entry {
        path,
        what,
        kind: "persistent, null data",
        written: "created by any broker at its start, or by whoever needs it first",
        watched,
        stat: "",
        warning: "",
        fields: &[],
    }
}

const NOBODY: &str = "by nobody";

const CONFIG_FIELDS: &[(&str, &str)] = &[
    ("version", "of this format: 1"),
    (
        "config",
        "all overrides of the entity, each value a string; a change rewrites the whole map",
    ),
];
const CONFIG_WRITTEN: &str = "by the broker that serves the config request, or the config tool, in a multi that first checks the version of /controller; then a notice in /config/changes";
const CONFIG_WATCHED: &str =
    "by nobody: brokers reread it when a notice in /config/changes names it";
const CONFIG_WARNING: &str = "content that is no JSON counts as no overrides";

const fn config(path: &'static str, what: &'static str) -> Entry {
    Entry {
        path,
        what,
        kind: "persistent, JSON",
        written: CONFIG_WRITTEN,
        watched: CONFIG_WATCHED,
        stat: "",
        warning: CONFIG_WARNING,
        fields: CONFIG_FIELDS,
    }
}

const PARTITIONS: &[(&str, &str)] = &[
    ("version", "of this format: 1"),
    ("partitions", "a list of {topic, partition}"),
];
const ACL_FIELDS: &[(&str, &str)] = &[
    ("version", "of this format: 1"),
    (
        "acls",
        "a list of {principal, permissionType (Allow, Deny), host, operation}",
    ),
];

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
    folder("/admin", "orders for the controller", NOBODY),
    folder(
        "/admin/delete_topics",
        "topics to be deleted: a child for each",
        "by the controller (children)",
    ),
    Entry {
        path: "/admin/delete_topics/{topic}",
        what: "marks a topic for deletion",
        kind: "persistent, null data",
        written: "created by the broker that serves DeleteTopics, or by old tools; deleted by the controller when the topic is gone",
        watched: "through its parent",
        stat: "",
        warning: "it stays while a replica's broker is down or the topic is being reassigned; the topic cannot be created meanwhile",
        fields: &[],
    },
    Entry {
        path: "/admin/reassign_partitions",
        what: "a reassignment ordered by an old tool",
        kind: "persistent, JSON, gone when all is taken over",
        written: "created by kafka-reassign-partitions --zookeeper and other old tools; shrunk and deleted by the controller, fenced",
        watched: "by the controller (creation only)",
        stat: "",
        warning: "overwriting it has no effect; content that cannot be read blocks the next order until it is deleted",
        fields: &[
            ("version", "of this format: 1"),
            (
                "partitions",
                "a list of {topic, partition, replicas}: the replicas wanted, preferred first",
            ),
        ],
    },
    Entry {
        path: "/admin/preferred_replica_election",
        what: "an order to let the preferred replicas lead",
        kind: "persistent, JSON, deleted at once",
        written: "created by old tools; deleted by the controller whatever comes of it",
        watched: "by the controller (creation)",
        stat: "",
        warning: "",
        fields: PARTITIONS,
    },
    folder(
        "/isr_change_notification",
        "parent of notices of ISR changes",
        "by the controller (children)",
    ),
    Entry {
        path: "/isr_change_notification/isr_change_{number}",
        what: "a leader's notice that it changed the ISR of partitions itself",
        kind: "persistent sequential, JSON",
        written: "by leaders with inter.broker.protocol.version below 2.7; deleted by the controller",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: PARTITIONS,
    },
    folder(
        "/log_dir_event_notification",
        "parent of notices of failed log directories",
        "by the controller (children)",
    ),
    Entry {
        path: "/log_dir_event_notification/log_dir_event_{number}",
        what: "a broker's notice that one of its log directories failed",
        kind: "persistent sequential, JSON",
        written: "by that broker; deleted by the controller, which then asks the broker which replicas are offline",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 1"),
            ("broker", "the broker's id"),
            ("event", "1: a directory failed"),
        ],
    },
    folder("/config", "dynamic configuration", NOBODY),
    folder(
        "/config/topics",
        "configs of topics: a child for each topic that ever had one",
        NOBODY,
    ),
    config(
        "/config/topics/{topic}",
        "the overrides of a topic (retention.ms, cleanup.policy, ...); made empty at its creation",
    ),
    folder("/config/brokers", "dynamic configs of brokers", NOBODY),
    config(
        "/config/brokers/{broker}",
        "dynamic configs of a broker (id), or of all (<default>)",
    ),
    folder(
        "/config/users",
        "quotas and SCRAM credentials of users",
        NOBODY,
    ),
    config(
        "/config/users/{user}",
        "quotas and SCRAM credentials of a user (name URL-encoded), or of all (<default>)",
    ),
    folder(
        "/config/users/{user}/clients",
        "parent of quotas of client ids of this user",
        NOBODY,
    ),
    config(
        "/config/users/{user}/clients/{client}",
        "quotas of a client id of a user; either may be <default>",
    ),
    folder("/config/clients", "quotas of client ids", NOBODY),
    config(
        "/config/clients/{client}",
        "quotas of a client id, or of all (<default>)",
    ),
    folder("/config/ips", "connection rates of addresses", NOBODY),
    config(
        "/config/ips/{ip}",
        "connection_creation_rate of an address, or of all (<default>)",
    ),
    folder(
        "/config/changes",
        "parent of notices that a config changed",
        "by every broker (children)",
    ),
    Entry {
        path: "/config/changes/config_change_{number}",
        what: "a notice that a config changed",
        kind: "persistent sequential, JSON",
        written: "by whoever wrote the config; deleted by any broker once it is 15 minutes old",
        watched: "through its parent: every broker rereads what it names",
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 2 (1 from Kafka 0.9)"),
            ("entity_path", "what changed, below /config"),
            ("entity_type", "version 1: topics or clients"),
            ("entity_name", "version 1: its name"),
        ],
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
    folder("/kafka-acl", "access rules on literal names", NOBODY),
    folder(
        "/kafka-acl/{type}",
        "access rules on one type of resource",
        NOBODY,
    ),
    Entry {
        path: "/kafka-acl/{type}/{name}",
        what: "the access rules on one resource; the name * means all of the type",
        kind: "persistent, JSON",
        written: "by the authorizer of the broker that serves the request, or the ACL tool, expecting the version read; deleted with its last rule",
        watched: "by nobody: brokers reread it when a notice in /kafka-acl-changes names it",
        stat: "",
        warning: "a broker with AclAuthorizer does not start over content that it cannot read",
        fields: ACL_FIELDS,
    },
    folder(
        "/kafka-acl-changes",
        "parent of notices that rules on literal names changed",
        "by every broker with AclAuthorizer (children)",
    ),
    Entry {
        path: "/kafka-acl-changes/acl_changes_{number}",
        what: "a notice that the rules on a resource changed",
        kind: "persistent sequential, text",
        written: "by whoever changed the rules; deleted by any broker once it is 15 minutes old",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[(KIND, "TYPE:name, as TOPIC:orders")],
    },
    folder("/kafka-acl-extended", "access rules on patterns", NOBODY),
    folder(
        "/kafka-acl-extended/{pattern}",
        "access rules on one kind of pattern (prefixed)",
        NOBODY,
    ),
    folder(
        "/kafka-acl-extended/{pattern}/{type}",
        "access rules on one type of resource by pattern",
        NOBODY,
    ),
    Entry {
        path: "/kafka-acl-extended/{pattern}/{type}/{name}",
        what: "the access rules on all resources whose name starts so",
        kind: "persistent, JSON",
        written: "as /kafka-acl/{type}/{name}",
        watched: "by nobody: brokers reread it when a notice in /kafka-acl-extended-changes names it",
        stat: "",
        warning: "a broker with AclAuthorizer does not start over content that it cannot read",
        fields: ACL_FIELDS,
    },
    folder(
        "/kafka-acl-extended-changes",
        "parent of notices that rules on patterns changed",
        "by every broker with AclAuthorizer (children)",
    ),
    Entry {
        path: "/kafka-acl-extended-changes/acl_changes_{number}",
        what: "a notice that the rules on a pattern changed",
        kind: "persistent sequential, JSON",
        written: "by whoever changed the rules; deleted by any broker once it is 15 minutes old",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 1"),
            (
                "resourceType",
                "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER",
            ),
            ("name", "the pattern"),
            ("patternType", "PREFIXED"),
        ],
    },
    folder("/delegation_token", "delegation tokens", NOBODY),
    folder("/delegation_token/tokens", "a child for each token", NOBODY),
    Entry {
        path: "/delegation_token/tokens/{id}",
        what: "a delegation token; its HMAC is not stored, brokers compute it from delegation.token.secret.key",
        kind: "persistent, JSON",
        written: "by the broker that serves the request; deleted by the controller when it has expired",
        watched: "by nobody: brokers reread it when a notice in /delegation_token/token_changes names it",
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 3 (1 and 2 lack tokenRequester)"),
            ("owner", "the principal, URL-encoded"),
            ("tokenRequester", "who asked for it"),
            ("renewers", "principals who may renew it"),
            ("issueTimestamp", "ms since 1970"),
            ("expiryTimestamp", "when it expires unless renewed, ms"),
            ("maxTimestamp", "when it expires for good, ms"),
            ("tokenId", "the id in the path"),
        ],
    },
    folder(
        "/delegation_token/token_changes",
        "parent of notices that a token changed",
        "by every broker with delegation tokens (children)",
    ),
    Entry {
        path: "/delegation_token/token_changes/token_change_{number}",
        what: "a notice that a token changed",
        kind: "persistent sequential, text",
        written: "by the broker that changed it; deleted by any broker once it is 15 minutes old",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[(KIND, "the token's id")],
    },
    folder(
        "/consumers",
        "groups of ZooKeeper consumers (Kafka 1.x and older)",
        NOBODY,
    ),
    folder("/consumers/{group}", "one such group", NOBODY),
    folder(
        "/consumers/{group}/ids",
        "the group's members: a child for each",
        "by every member (children)",
    ),
    Entry {
        path: "/consumers/{group}/ids/{consumer}",
        what: "a member of the group and what it subscribes to",
        kind: "ephemeral, JSON",
        written: "by the consumer at its start",
        watched: "through its parent",
        stat: "ephemeralOwner is the consumer's session",
        warning: "",
        fields: &[
            ("version", "of this format: 1"),
            (
                "subscription",
                "topic or regular expression to number of threads",
            ),
            ("pattern", "static, white_list or black_list"),
            (
                "timestamp",
                "when it registered, ms since 1970, as a string",
            ),
        ],
    },
    folder("/consumers/{group}/owners", "who consumes what", NOBODY),
    folder(
        "/consumers/{group}/owners/{topic}",
        "who consumes which partition of the topic",
        NOBODY,
    ),
    Entry {
        path: "/consumers/{group}/owners/{topic}/{partition}",
        what: "the claim of a member on a partition",
        kind: "ephemeral, text",
        written: "by the member that claims it in a rebalance",
        watched: NOBODY,
        stat: "ephemeralOwner is the consumer's session",
        warning: "a claim left by another member makes a rebalance wait and try again",
        fields: &[(KIND, "the consumer's id and -thread")],
    },
    folder(
        "/consumers/{group}/offsets",
        "offsets that the group has committed to ZooKeeper",
        NOBODY,
    ),
    folder(
        "/consumers/{group}/offsets/{topic}",
        "offsets of a topic",
        NOBODY,
    ),
    Entry {
        path: "/consumers/{group}/offsets/{topic}/{partition}",
        what: "the next offset that the group will read",
        kind: "persistent, decimal text",
        written: "by the member that owns the partition",
        watched: NOBODY,
        stat: "",
        warning: "",
        fields: &[(KIND, "the offset, a decimal number")],
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
