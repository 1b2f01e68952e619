//! Who somebody is, and how that is shown: what the coordination server, its client and the broker share.
//!
//! [`jaas`] reads login configurations, [`jvm`] finds where they are, [`digest_md5`] is both sides of SASL DIGEST-MD5, [`tls`] has key stores, trust and
//! the names of certificates. Nothing here opens a socket.

pub mod digest_md5;
pub mod jaas;
pub mod jvm;
pub mod tls;
