//! The dispatch table and one file a request.
//!
//! A handler is `pub async fn handle(broker: &Arc<Broker>, ctx: &RequestContext, request: XRequest) -> XResponse` in
//! `api/<snake_case_name>.rs`; one that may answer nothing (Produce with acks=0) returns `Option<XResponse>`.
//! It is entered in the table below with one line `X => module`: decoding, the versions served, the encoding and what
//! ApiVersions advertises all follow from that line. A handler never panics and never blocks its thread on the network;
//! short file work (append, read of cached pages) is done in place.
