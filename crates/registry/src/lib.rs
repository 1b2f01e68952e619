//! Kafka's znodes: paths, JSON, typed reads, conditional writes, watches.
