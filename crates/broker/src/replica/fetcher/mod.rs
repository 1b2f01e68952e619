//! Following: what this broker fetches from the leaders of its other replicas.
//!
//! [`machine`] is one fetcher without I/O: which partitions it follows on one source broker, how far each is, what to ask
//! next and what an answer means; [`truncation`] is the rule where a log that went another way is cut (KIP-101, KIP-279,
//! KIP-595), [`session`] the client's side of fetch sessions. [`following`] is what is done to a log, under its role.
//! [`round`] does one question after the other; [`pool`] has a task for each source broker (`num.replica.fetchers` of them).

/// What fetched records do to a log.
pub mod following;
/// One fetcher.
pub mod machine;
/// All fetchers of this broker.
pub mod pool;
/// Questions and answers as requests and responses.
mod requests;
/// One question, its answer, and what is done with it.
pub mod round;
/// The client's side of a fetch session.
pub mod session;
/// Versions and limits.
pub mod settings;
/// Questions and steps.
pub mod steps;
/// Where logs part.
pub mod truncation;

#[cfg(test)]
mod tests;

pub use machine::Fetcher;
pub use pool::{Follow, Order, start};
pub use round::{Source, round};
pub use settings::Settings;
pub use steps::Work;
