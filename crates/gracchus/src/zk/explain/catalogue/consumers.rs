//! Consumers that keep their offsets in ZooKeeper (0.7 to 1.1).

use super::{Entry, KIND, NOBODY, folder};

pub(super) const ENTRIES: &[Entry] = &[
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
];
