//! Orders for the controller, and notices to it.

use super::{Entry, NOBODY, folder};

const PARTITIONS: &[(&str, &str)] = &[
    ("version", "of this format: 1"),
    ("partitions", "a list of {topic, partition}"),
];

pub(super) const ENTRIES: &[Entry] = &[
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
];
