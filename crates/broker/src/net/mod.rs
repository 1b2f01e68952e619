//! Listeners, connections, frames.
