//! Dynamic configuration.

use super::{Entry, NOBODY, folder};

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

pub(super) const ENTRIES: &[Entry] = &[
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
];
