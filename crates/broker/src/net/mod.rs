//! Listeners, connections, frames, limits.
//!
//! [`server`] binds and accepts; each connection is one task of [`connection`], which reads a frame ([`frame`]), has it
//! answered by a [`Service`], and writes the answer ([`write`]) before it reads the next. So answers keep their order and
//! a client that does not read its answers stops only itself.

/// Requests to other brokers.
pub mod client;
/// One connection.
pub mod connection;
/// Frames in.
pub mod frame;
/// Bounds on what clients can take.
pub mod limits;
/// Binding and accepting.
pub mod server;
/// Frames out.
pub mod write;

use std::sync::Arc;

use bytes::Bytes;
use gracchus_kafka_proto::Frame;

use crate::context::ConnectionInfo;

/// What is done about one frame.
#[derive(Debug)]
pub enum Outcome {
    /// This goes back (length prefix included).
    Reply(Frame),
    /// Nothing goes back.
    Nothing,
    /// The connection is closed, for this reason.
    Close(String),
}

/// Answers frames.
pub trait Service: Send + Sync + 'static {
    /// The answer to one frame.
    fn answer(
        &self,
        connection: &Arc<ConnectionInfo>,
        frame: Bytes,
    ) -> impl Future<Output = Outcome> + Send;
}
