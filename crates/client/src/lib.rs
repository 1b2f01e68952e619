//! Clients of a Kafka cluster: connection, admin, producer, consumer.
