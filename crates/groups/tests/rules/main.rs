//! The tables of docs/groups.md, row by row: `a1_3` is table A1, row 3.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admin;
mod harness;
mod heartbeat_leave;
mod join;
mod loading;
mod offsets;
mod record_bytes;
mod simulation;
mod sync;
mod time;
