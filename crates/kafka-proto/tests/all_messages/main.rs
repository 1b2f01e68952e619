//! Every message in every version: values made from the schema table are encoded by a small interpreter of that table,
//! and the generated code has to read and write the same bytes; so has kafka-protocol 0.15.1 where it has the message.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod generated;
mod oracle;
#[path = "../../../../xtask/src/codegen/schema.rs"]
mod schema;
mod support;
mod values;

use bytes::Bytes;
use generated::MESSAGES;
use proptest::prelude::*;
use schema::Message;
use std::sync::LazyLock;
use support::{Entry, Outcome};
use values::{Random, Unencodable};

static SCHEMA: LazyLock<Vec<Message>> =
    LazyLock::new(|| schema::parse(include_str!("../../../../xtask/kafka-messages.txt")).unwrap());

const SEEDS_PER_VERSION: u64 = 12;

fn entry_of(message: &Message) -> &'static Entry {
    MESSAGES
        .iter()
        .find(|entry| entry.name == message.name)
        .unwrap()
}

fn seed(message: usize, version: i16, round: u64) -> Random {
    Random::new(message as u64 * 1_000_003 + version as u64 * 10_007 + round)
}

/// decode(bytes) written again is the same bytes, and reads as the same value.
#[test]
fn the_bytes_of_the_schema_come_back() {
    assert_eq!(SCHEMA.len(), 210);
    for (index, message) in SCHEMA.iter().enumerate() {
        for version in message.versions.min..=message.versions.max {
            for round in 0..SEEDS_PER_VERSION {
                let value = values::random(message, version, &mut seed(index, version, round));
                let bytes = values::encode(message, &value, version).unwrap();
                let outcome =
                    (entry_of(message).recode)(Bytes::from(bytes.clone()), version, version);
                assert_eq!(
                    outcome,
                    Outcome::Encoded(bytes),
                    "{} v{version} round {round}: {value:?}",
                    message.name
                );
            }
        }
    }
}

/// A value of one version written in another: its bytes, or an error where a field that matters would be lost.
#[test]
fn other_versions_drop_or_refuse_what_they_lack() {
    let (mut encoded, mut refused) = (0, 0);
    for (index, message) in SCHEMA.iter().enumerate() {
        for from in message.versions.min..=message.versions.max {
            for to in message.versions.min..=message.versions.max {
                for round in 0..3 {
                    // Later rounds are sparse: mostly defaults, so that lower versions can carry them.
                    let mut random = seed(index, from, 1_000 + round);
                    let value = match round {
                        0 => values::random(message, from, &mut random),
                        _ => values::sparse(message, from, &mut random),
                    };
                    let bytes = Bytes::from(values::encode(message, &value, from).unwrap());
                    let outcome = (entry_of(message).recode)(bytes, from, to);
                    match values::encode(message, &value, to) {
                        Ok(expected) => {
                            encoded += 1;
                            let name = &message.name;
                            assert_eq!(
                                outcome,
                                Outcome::Encoded(expected),
                                "{name} v{from} as v{to}: {value:?}"
                            );
                        }
                        Err(Unencodable) => {
                            refused += 1;
                            let Outcome::Refused(_) = outcome else {
                                panic!(
                                    "{} v{from} as v{to} must be refused: {value:?}",
                                    message.name
                                )
                            };
                        }
                    }
                }
            }
        }
    }
    assert!(
        encoded > 2_000 && refused > 500,
        "{encoded} encoded, {refused} refused"
    );
}

/// What Rust's `Default` gives is what the schema says.
#[test]
fn defaults_are_the_schemas() {
    for message in SCHEMA.iter() {
        let value = values::default(message);
        for version in message.versions.min..=message.versions.max {
            let outcome = (entry_of(message).encode_default)(version);
            match values::encode(message, &value, version) {
                Ok(bytes) => assert_eq!(
                    outcome,
                    Outcome::Encoded(bytes),
                    "{} v{version}",
                    message.name
                ),
                Err(Unencodable) => {
                    assert!(
                        matches!(outcome, Outcome::Refused(_)),
                        "{} v{version}: {outcome:?}",
                        message.name
                    );
                }
            }
        }
    }
}

#[test]
fn versions_outside_of_the_schema_are_refused() {
    for message in SCHEMA.iter() {
        for version in [
            message.versions.min - 1,
            message.versions.max + 1,
            i16::MIN,
            i16::MAX,
        ] {
            let outcome = (entry_of(message).recode)(Bytes::from(vec![0; 64]), version, version);
            assert!(
                matches!(outcome, Outcome::Undecodable(_)),
                "{} v{version}: {outcome:?}",
                message.name
            );
            assert!(matches!(
                (entry_of(message).encode_default)(version),
                Outcome::Refused(_)
            ));
        }
    }
}

#[test]
fn kafka_protocol_writes_the_same_bytes() {
    let (mut messages, mut versions) = (0, 0);
    for (index, message) in SCHEMA.iter().enumerate() {
        let mut any = false;
        for version in message.versions.min..=message.versions.max {
            let mut compared = 0;
            for round in 0..SEEDS_PER_VERSION {
                let value =
                    values::random(message, version, &mut seed(index, version, 2_000 + round));
                let bytes = values::encode(message, &value, version).unwrap();
                let Some(theirs) = oracle::recode(message, &bytes, version) else {
                    continue;
                };
                let ours = (entry_of(message).recode)(Bytes::from(bytes), version, version);
                assert_eq!(
                    ours,
                    Outcome::Encoded(theirs),
                    "{} v{version}: {value:?}",
                    message.name
                );
                compared += 1;
            }
            // They have the version or not: no single value of it is skipped.
            assert!(
                [0, SEEDS_PER_VERSION].contains(&compared),
                "{} v{version}: {compared}",
                message.name
            );
            versions += usize::from(compared > 0);
            any |= compared > 0;
        }
        messages += usize::from(any);
        if !any {
            println!("not compared: {}", message.name);
        }
    }
    println!("{messages} messages, {versions} versions compared");
    assert!(
        messages >= oracle::MESSAGES && versions >= oracle::VERSIONS,
        "{messages} messages, {versions} versions"
    );
}

/// Cutting valid bytes anywhere is an error or, at an optional end, never a panic.
#[test]
fn truncated_messages_are_errors() {
    for (index, message) in SCHEMA.iter().enumerate() {
        let version = message.versions.max;
        let value = values::random(message, version, &mut seed(index, version, 5_000));
        let bytes = Bytes::from(values::encode(message, &value, version).unwrap());
        for end in 0..bytes.len().min(300) {
            let outcome = (entry_of(message).recode)(bytes.slice(..end), version, version);
            assert!(
                matches!(outcome, Outcome::Undecodable(_)),
                "{} cut at {end}: {outcome:?}",
                message.name
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), which in 0..210usize, version in 0..18i16) {
        let entry = &MESSAGES[which];
        let _ = (entry.recode)(Bytes::from(bytes), version, version);
    }

    /// Bytes of a valid message with one changed: closer to what gets deep into a decoder.
    #[test]
    fn mutated_messages_never_panic(which in 0..210usize, round in 0..1_000u64, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let message = &SCHEMA[which];
        let span = (message.versions.max - message.versions.min + 1) as u64;
        let version = message.versions.min + (round % span) as i16;
        let value = values::random(message, version, &mut seed(which, version, round));
        let mut bytes = values::encode(message, &value, version).unwrap();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = (entry_of(message).recode)(Bytes::from(bytes), version, version);
    }
}
