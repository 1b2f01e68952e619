//! A ZooKeeper session: pipelining, watches in one ordered queue, re-attachment.
