//! A partition's log on disk, in Apache Kafka's own formats.
