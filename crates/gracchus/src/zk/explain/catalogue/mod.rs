//! Every znode that Kafka 3.9 and its older clients use, in words: a file a subject.

mod cluster;
mod configs;
mod consumers;
mod orders;
mod security;

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

/// All of them.
pub(super) fn entries() -> impl Iterator<Item = &'static Entry> {
    [
        cluster::ENTRIES,
        orders::ENTRIES,
        configs::ENTRIES,
        security::ENTRIES,
        consumers::ENTRIES,
    ]
    .into_iter()
    .flatten()
}
