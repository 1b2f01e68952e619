//! Every broker and topic key that Kafka 3.9 defines: type, default, importance, who may change it, allowed values.
//! The table is `keys.tsv`, dumped from Kafka 3.9.2's own definitions.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Whose key it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `server.properties`, `/config/brokers`.
    Broker,
    /// `/config/topics`.
    Topic,
}

/// A value's type; `as i8` is the number that DescribeConfigs v3+ carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ValueType {
    /// true, false.
    Boolean = 1,
    /// Text.
    String = 2,
    /// 32 bits.
    Int = 3,
    /// 16 bits.
    Short = 4,
    /// 64 bits.
    Long = 5,
    /// A float of 64 bits.
    Double = 6,
    /// Comma separated.
    List = 7,
    /// A Java class name.
    Class = 8,
    /// A secret: never shown.
    Password = 9,
}

impl ValueType {
    /// Kafka's name of the type, as in its error texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

/// When a broker key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// By a restart only.
    ReadOnly,
    /// In `/config/brokers/N` only.
    PerBroker,
    /// There and in `/config/brokers/<default>`.
    ClusterWide,
}

/// One key.
#[derive(Debug, Clone)]
pub struct KeyDef {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub value_type: ValueType,
    /// Its default as text; None = null.
    pub default: Option<String>,
    /// HIGH, MEDIUM or LOW.
    pub importance: &'static str,
    /// Broker keys: when it may change.
    pub update_mode: UpdateMode,
    /// Topic keys: the broker key that gives the default.
    pub broker_key: Option<&'static str>,
    /// Not shown to users.
    pub internal: bool,
    /// Kafka's own text of the allowed values, e.g. `[1,...]`.
    pub validator: &'static str,
}

struct Catalogue {
    broker: BTreeMap<&'static str, KeyDef>,
    topic: BTreeMap<&'static str, KeyDef>,
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| parse(include_str!("keys.tsv")));

fn parse(table: &'static str) -> Catalogue {
    let mut catalogue = Catalogue {
        broker: BTreeMap::new(),
        topic: BTreeMap::new(),
    };
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or("");
        let (kind, name, value_type, default, importance, mode, flags, validator) = (
            next(),
            next(),
            next(),
            next(),
            next(),
            next(),
            next(),
            next(),
        );
        let value_type = match value_type {
            "BOOLEAN" => ValueType::Boolean,
            "INT" => ValueType::Int,
            "SHORT" => ValueType::Short,
            "LONG" => ValueType::Long,
            "DOUBLE" => ValueType::Double,
            "LIST" => ValueType::List,
            "CLASS" => ValueType::Class,
            "PASSWORD" => ValueType::Password,
            _ => ValueType::String,
        };
        let is_topic = kind == "T";
        let def = KeyDef {
            name,
            value_type,
            default: (default != "null").then(|| default.to_owned()),
            importance,
            update_mode: match mode {
                "per-broker" => UpdateMode::PerBroker,
                "cluster-wide" => UpdateMode::ClusterWide,
                _ => UpdateMode::ReadOnly,
            },
            broker_key: (is_topic && !mode.is_empty()).then_some(mode),
            internal: flags.contains("internal"),
            validator,
        };
        if is_topic {
            catalogue.topic.insert(name, def)
        } else {
            catalogue.broker.insert(name, def)
        };
    }
    catalogue
}

/// The key's definition, None if Kafka has no such key.
pub fn find(kind: Kind, name: &str) -> Option<&'static KeyDef> {
    match kind {
        Kind::Broker => CATALOGUE.broker.get(name),
        Kind::Topic => CATALOGUE.topic.get(name),
    }
}

/// All keys of a kind, by name.
pub fn all(kind: Kind) -> impl Iterator<Item = &'static KeyDef> {
    match kind {
        Kind::Broker => CATALOGUE.broker.values(),
        Kind::Topic => CATALOGUE.topic.values(),
    }
}
