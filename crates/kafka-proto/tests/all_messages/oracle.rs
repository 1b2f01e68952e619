//! kafka-protocol 0.15.1 as the judge: it has Kafka 3.9's requests and responses, share groups aside,
//! and of the others all but the stored records; in
//! VotersRecord and LeaderChangeMessage it takes the field `Version` for the message's version.

use crate::schema::{Kind, Message};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};

/// Fewer messages or versions compared than these: the test no longer tests what it says.
pub const MESSAGES: usize = 166;
pub const VERSIONS: usize = 640;

/// Their bytes for what they read; `None` where they lack the message or the version.
pub fn recode(message: &Message, bytes: &[u8], version: i16) -> Option<Vec<u8>> {
    let mut out = BytesMut::new();
    let mut input = Bytes::copy_from_slice(bytes);
    match message.kind {
        Kind::Request => {
            let key = theirs::ApiKey::try_from(message.api_key?).ok()?;
            let value = theirs::RequestKind::decode(key, &mut input, version).ok()?;
            value.encode(&mut out, version).unwrap();
        }
        Kind::Response => {
            let key = theirs::ApiKey::try_from(message.api_key?).ok()?;
            let value = theirs::ResponseKind::decode(key, &mut input, version).ok()?;
            value.encode(&mut out, version).unwrap();
        }
        Kind::Header | Kind::Data => {
            let pass = match message.name.as_str() {
                "RequestHeader" => pass::<theirs::RequestHeader>,
                "ResponseHeader" => pass::<theirs::ResponseHeader>,
                "ConsumerProtocolAssignment" => pass::<theirs::ConsumerProtocolAssignment>,
                "ConsumerProtocolSubscription" => pass::<theirs::ConsumerProtocolSubscription>,
                "DefaultPrincipalData" => pass::<theirs::DefaultPrincipalData>,
                "KRaftVersionRecord" => pass::<theirs::KRaftVersionRecord>,
                "LeaderChangeMessage" => pass::<theirs::LeaderChangeMessage>,
                "SnapshotFooterRecord" => pass::<theirs::SnapshotFooterRecord>,
                "SnapshotHeaderRecord" => pass::<theirs::SnapshotHeaderRecord>,
                _ => return None,
            };
            pass(&mut input, &mut out, version)?;
        }
    }
    Some(out.to_vec())
}

fn pass<M: Decodable + Encodable>(
    input: &mut Bytes,
    out: &mut BytesMut,
    version: i16,
) -> Option<()> {
    let value = M::decode(input, version).ok()?;
    value.encode(out, version).unwrap();
    Some(())
}
