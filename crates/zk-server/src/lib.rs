//! The coordination server: znode tree, sessions, watches, transaction log, snapshots, listeners.
