//! The registry over a coordination server in this process, or over another: `ZOOKEEPER=host:port cargo test -p gracchus-registry`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod configs;
mod lost_answers;
mod notices;
mod rig;
mod topics;
