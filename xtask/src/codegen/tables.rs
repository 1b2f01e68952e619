//! Writes what is about all messages: the list of modules, the API keys, the tests' table.

use super::emit::HEADER;
use super::names::snake_case;
use super::schema::{Kind, Message};
use std::fmt::Write as _;

pub fn modules(messages: &[Message]) -> String {
    let mut out = format!(
        "//! All messages of Kafka 3.9: a module each, the message itself re-exported here.\n{HEADER}"
    );
    let mut names: Vec<&str> = messages
        .iter()
        .map(|message| message.name.as_str())
        .collect();
    names.sort_unstable();
    for name in &names {
        let _ = writeln!(out, "pub mod {};", snake_case(name));
    }
    out.push('\n');
    for name in names {
        let _ = writeln!(out, "pub use {}::{name};", snake_case(name));
    }
    out
}

struct Api<'a> {
    stem: &'a str,
    key: i16,
    request: &'a Message,
}

fn apis(messages: &[Message]) -> Vec<Api<'_>> {
    let mut apis: Vec<Api<'_>> = messages
        .iter()
        .filter(|message| message.kind == Kind::Request)
        .filter_map(|request| {
            Some(Api {
                stem: request.name.strip_suffix("Request")?,
                key: request.api_key?,
                request,
            })
        })
        .collect();
    apis.sort_by_key(|api| api.key);
    apis
}

fn arms(apis: &[Api<'_>], value: impl Fn(&Api<'_>) -> String) -> String {
    apis.iter().fold(String::new(), |mut out, api| {
        let _ = writeln!(out, "Self::{} => {},", api.stem, value(api));
        out
    })
}

pub fn api_keys(messages: &[Message]) -> String {
    let apis = apis(messages);
    let mut out =
        format!("//! The APIs of Kafka 3.9: keys, names, versions, header versions.\n{HEADER}");
    out.push_str("use std::ops::RangeInclusive;\n\n");
    out.push_str("/// An API, as its key on the wire names it.\n");
    out.push_str("#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\npub enum ApiKey {\n");
    for api in &apis {
        let _ = writeln!(out, "{} = {},", api.stem, api.key);
    }
    out.push_str("}\n\nimpl ApiKey {\n/// All, in the order of their keys.\n");
    let _ = writeln!(out, "pub const ALL: [Self; {}] = [", apis.len());
    for api in &apis {
        let _ = writeln!(out, "Self::{},", api.stem);
    }
    out.push_str("];\n\n/// `None` for a key that Kafka 3.9 does not have.\n#[must_use]\npub const fn from_i16(key: i16) -> Option<Self> {\nSome(match key {\n");
    for api in &apis {
        let _ = writeln!(out, "{} => Self::{},", api.key, api.stem);
    }
    out.push_str("_ => return None,\n})\n}\n");
    let _ = write!(
        out,
        "
        #[must_use]
        pub const fn as_i16(self) -> i16 {{ self as i16 }}

        /// Kafka's name, for instance `ListOffsets`.
        #[must_use]
        pub const fn name(self) -> &'static str {{ match self {{ {} }} }}

        /// The versions that the schema has, an unstable latest one included.
        #[must_use]
        pub const fn valid_versions(self) -> RangeInclusive<i16> {{ match self {{ {} }} }}

        /// The first version with compact lengths and tagged fields; `None` where there is none.
        #[must_use]
        pub const fn first_flexible_version(self) -> Option<i16> {{ match self {{ {} }} }}

        /// Whether the latest version is not advertised unless `unstable.api.versions.enable` asks for it.
        #[must_use]
        pub const fn latest_version_unstable(self) -> bool {{ {} }}

        /// Whether a broker in ZooKeeper mode serves it.
        #[must_use]
        pub const fn zk_broker(self) -> bool {{ {} }}
        ",
        arms(&apis, |api| format!("{:?}", api.stem)),
        arms(&apis, |api| format!("{}..={}", api.request.versions.min, api.request.versions.max)),
        arms(&apis, |api| api.request.flexible.map_or("None".into(), |first| format!("Some({first})"))),
        matches(&apis, |api| api.request.latest_unstable),
        matches(&apis, |api| api.request.listeners.iter().any(|listener| listener == "zkBroker")),
    );
    out.push_str("}\n");
    out
}

fn matches(apis: &[Api<'_>], is: impl Fn(&Api<'_>) -> bool) -> String {
    let names: Vec<String> = apis
        .iter()
        .filter(|api| is(api))
        .map(|api| format!("Self::{}", api.stem))
        .collect();
    format!("matches!(self, {})", names.join(" | "))
}

/// A table from a message's name to a function that decodes bytes and encodes the value again: what the tests run over.
pub fn test_table(messages: &[Message]) -> String {
    let mut out = format!(
        "//! Every message by name, for tests that run over all.\n{HEADER}use crate::support::{{Entry, entry}};\nuse gracchus_kafka_proto::messages::*;\n\n"
    );
    let _ = writeln!(out, "pub const MESSAGES: [Entry; {}] = [", messages.len());
    for message in messages {
        let _ = writeln!(out, "entry::<{}>({:?}),", message.name, message.name);
    }
    out.push_str("];\n");
    out
}
