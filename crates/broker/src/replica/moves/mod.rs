//! Replicas on their way to another log directory of this broker (KIP-113).
//!
//! [`alter`] is the order: it makes the copy, in a `-future` directory, or gives one up. [`queue`] knows which copies are
//! to be worked on, [`tasks`] works on them, [`copy`] takes one step of one: it cuts the copy where the log was cut,
//! appends what it has not, and puts it in the log's place once it has all. [`rules`] says what the next step is.
//! [`queue`] and [`rules`] are plain rules without I/O.

/// AlterReplicaLogDirs.
pub mod alter;
/// One step of a move.
mod copy;
/// Which moves are to be worked on.
pub mod queue;
/// What a copy needs next.
pub mod rules;
/// Who works on the moves.
mod tasks;

pub use copy::{Job, Outcome};
