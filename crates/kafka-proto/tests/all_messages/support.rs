//! One message behind function pointers, so that a test can run over all of them.

use bytes::Bytes;
use gracchus_kafka_proto::{DecodeError, EncodeError, Message, Reader, Writer};
use std::fmt::Debug;

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Encoded(Vec<u8>),
    Refused(EncodeError),
    Undecodable(Problem),
}

#[derive(Debug, PartialEq)]
pub enum Problem {
    Error(DecodeError),
    BytesLeft(usize),
}

pub struct Entry {
    pub name: &'static str,
    /// Decodes in one version, encodes in another.
    pub recode: fn(Bytes, i16, i16) -> Outcome,
    pub encode_default: fn(i16) -> Outcome,
}

pub const fn entry<M: Message + Default + Debug + PartialEq>(name: &'static str) -> Entry {
    Entry {
        name,
        recode: recode::<M>,
        encode_default: |version| encode(&M::default(), version),
    }
}

fn encode<M: Message>(message: &M, version: i16) -> Outcome {
    let mut writer = Writer::new();
    match message.encode(&mut writer, version) {
        Ok(()) => Outcome::Encoded(writer.finish().into_bytes().unwrap().to_vec()),
        Err(error) => Outcome::Refused(error),
    }
}

fn recode<M: Message + PartialEq + Debug>(bytes: Bytes, from: i16, to: i16) -> Outcome {
    let mut reader = Reader::new(bytes);
    let message = match M::decode(&mut reader, from) {
        Ok(message) => message,
        Err(error) => return Outcome::Undecodable(Problem::Error(error)),
    };
    let outcome = encode(&message, to);
    if let (Outcome::Encoded(again), true) = (&outcome, from == to) {
        let decoded = M::decode(&mut Reader::new(Bytes::from(again.clone())), from).unwrap();
        assert_eq!(encode(&decoded, to), outcome);
    }
    match reader.remaining() {
        0 => outcome,
        left => Outcome::Undecodable(Problem::BytesLeft(left)),
    }
}
