//! Produce, Fetch, ListOffsets and the controller's requests against replicas with real logs in a temporary directory:
//! one test a rule or error code, without network and ZooKeeper.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod fetching;
mod following;
mod formats;
mod groups;
mod moving;
mod nearest;
mod offsets;
mod producing;
mod recovering;
mod rig;
mod roles;
mod trio;
