//! Jute and the ZooKeeper client protocol's records, transaction records included. No I/O.
