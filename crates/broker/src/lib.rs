//! A Kafka broker: listeners, a handler a request, replicas, and the shells around the state machines.
