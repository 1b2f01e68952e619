//! Sockets: accepting, one task a connection, four-letter words.

mod authenticate;
pub(crate) mod conn;
pub(crate) mod connection;
pub(crate) mod decode;
pub(crate) mod fourletter;
pub(crate) mod listener;
mod secure;
