//! The replicas of this broker.
