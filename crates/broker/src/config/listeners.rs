//! `listeners`, `advertised.listeners` and what they must agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::broker_config::BrokerConfig;
use super::error::ConfigError;
use super::value::split_list;

/// How a listener is secured; `as i16` is the number in UpdateMetadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i16)]
pub enum SecurityProtocol {
    /// Neither encryption nor authentication.
    Plaintext = 0,
    /// TLS.
    Ssl = 1,
    /// SASL without encryption.
    SaslPlaintext = 2,
    /// SASL over TLS.
    SaslSsl = 3,
}

impl SecurityProtocol {
    /// By its name in the configuration.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "PLAINTEXT" => Self::Plaintext,
            "SSL" => Self::Ssl,
            "SASL_PLAINTEXT" => Self::SaslPlaintext,
            "SASL_SSL" => Self::SaslSsl,
            _ => return None,
        })
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }
}

/// `NAME://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Upper case.
    pub name: Arc<str>,
    /// By the protocol map.
    pub protocol: SecurityProtocol,
    /// Without brackets; empty = all addresses.
    pub host: String,
    /// 0 = any free port (tests).
    pub port: u16,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

/// All of a broker's listeners, checked against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    /// Where it binds.
    pub bound: Vec<Listener>,
    /// What it tells clients, brokers and ZooKeeper.
    pub advertised: Vec<Listener>,
    /// Name of the listener that brokers use.
    pub inter_broker: Arc<str>,
    /// Name of the listener for controller requests, if it has its own.
    pub control_plane: Option<Arc<str>>,
}

impl Listeners {
    /// Whether the limits of what clients may take do not hold on this listener: it is for brokers, and clients have
    /// another one.
    pub fn is_privileged(&self, name: &str) -> bool {
        self.bound.len() > 1
            && (*self.inter_broker == *name || self.control_plane.as_deref() == Some(name))
    }

    /// Reads and checks.
    pub fn from_config(config: &BrokerConfig) -> Result<Self, ConfigError> {
        let protocols = protocol_map(&config.listener_security_protocol_map)?;
        let bound = parse(&config.listeners, &protocols)?;
        unique(&config.listeners, &bound, true)?;
        let advertised = match &config.advertised_listeners {
            Some(text) => parse(text, &protocols)?,
            None => bound.clone(),
        };
        if let Some(text) = &config.advertised_listeners {
            unique(text, &advertised, false)?;
        }
        let refuse = |text: String| Err(ConfigError::Refused(text));
        for listener in &advertised {
            if listener.host == "0.0.0.0" {
                return refuse(
                    "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address: \
                     the one by which clients reach this machine (set advertised.listeners)."
                        .into(),
                );
            }
            if !bound.iter().any(|b| b.name == listener.name) {
                return refuse(format!(
                    "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. \
                     Found {}. The valid options based on the current configuration are {}",
                    names(&advertised),
                    names(&bound)
                ));
            }
        }
        let inter_broker = inter_broker_name(config, &advertised, &protocols)?;
        if !advertised.iter().any(|l| l.name == inter_broker) {
            return refuse(format!(
                "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options \
                 based on currently configured listeners are {}",
                names(&advertised)
            ));
        }
        let control_plane: Option<Arc<str>> = config
            .control_plane_listener_name
            .as_deref()
            .map(|n| n.to_ascii_uppercase().into());
        if let Some(name) = &control_plane {
            if *name == inter_broker {
                return refuse(format!(
                    "control.plane.listener.name, when defined, should have a different value from the inter broker \
                     listener name. Currently they both have the value {name}"
                ));
            }
            if !advertised.iter().any(|l| l.name == *name) {
                return refuse(format!(
                    "control.plane.listener.name must be a listener name defined in advertised.listeners. The valid \
                     options based on currently configured listeners are {}",
                    names(&advertised)
                ));
            }
        }
        Ok(Self {
            bound,
            advertised,
            inter_broker,
            control_plane,
        })
    }

    /// The advertised form of a listener.
    pub fn advertised(&self, name: &str) -> Option<&Listener> {
        self.advertised.iter().find(|l| &*l.name == name)
    }
}

fn names(listeners: &[Listener]) -> String {
    listeners
        .iter()
        .map(|l| &*l.name)
        .collect::<Vec<_>>()
        .join(",")
}

fn inter_broker_name(
    config: &BrokerConfig,
    advertised: &[Listener],
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> Result<Arc<str>, ConfigError> {
    if let Some(name) = &config.inter_broker_listener_name {
        if !protocols.contains_key(&name.to_ascii_uppercase()) {
            return Err(ConfigError::Refused(format!(
                "Listener with name {name} defined in inter.broker.listener.name not found in listener.security.protocol.map."
            )));
        }
        return Ok(name.to_ascii_uppercase().into());
    }
    let protocol =
        SecurityProtocol::parse(&config.security_inter_broker_protocol).ok_or_else(|| {
            ConfigError::invalid(
                "security.inter.broker.protocol",
                config.security_inter_broker_protocol.as_str(),
                "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            )
        })?;
    // As in Kafka the listener of that very name; never another one that happens to have the protocol.
    let _ = advertised;
    Ok(protocol.name().into())
}

fn protocol_map(text: &str) -> Result<BTreeMap<String, SecurityProtocol>, ConfigError> {
    let mut map = BTreeMap::new();
    for entry in split_list(text) {
        let invalid =
            |reason: String| ConfigError::invalid("listener.security.protocol.map", text, reason);
        let (name, protocol) = entry
            .split_once(':')
            .ok_or_else(|| invalid(format!("`{entry}` is not of the form LISTENER:PROTOCOL")))?;
        let protocol = SecurityProtocol::parse(&protocol.trim().to_ascii_uppercase())
            .ok_or_else(|| invalid(format!("`{protocol}` is not a security protocol")))?;
        map.insert(name.trim().to_ascii_uppercase(), protocol);
    }
    Ok(map)
}

fn parse(
    text: &str,
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> Result<Vec<Listener>, ConfigError> {
    let wrong = |entry: &str| {
        ConfigError::Refused(format!(
            "Unable to parse {entry} to a broker endpoint: expected NAME://host:port"
        ))
    };
    let mut listeners = Vec::new();
    for entry in split_list(text) {
        let (name, address) = entry.split_once("://").ok_or_else(|| wrong(&entry))?;
        let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong(&entry))?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(|| wrong(&entry))?,
            None => host,
        };
        let port: u16 = port.parse().map_err(|_| wrong(&entry))?;
        let name = name.trim().to_ascii_uppercase();
        if name.is_empty() {
            return Err(wrong(&entry));
        }
        let protocol = *protocols.get(&name).ok_or_else(|| {
            ConfigError::Refused(format!(
                "Error creating broker listeners from '{text}': No security protocol defined for listener {name}. Add \
                 {name}:PLAINTEXT (or its protocol) to listener.security.protocol.map."
            ))
        })?;
        listeners.push(Listener {
            name: name.into(),
            protocol,
            host: host.to_owned(),
            port,
        });
    }
    if listeners.is_empty() {
        return Err(ConfigError::Refused(
            "At least one listener must be defined (listeners=NAME://host:port)".into(),
        ));
    }
    Ok(listeners)
}

fn unique(text: &str, listeners: &[Listener], ports: bool) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for listener in listeners {
        if !seen.insert(&listener.name) {
            return Err(ConfigError::Refused(format!(
                "Each listener must have a different name, listeners: {text}"
            )));
        }
    }
    let mut by_port: BTreeMap<u16, Vec<&Listener>> = BTreeMap::new();
    for listener in listeners.iter().filter(|l| ports && l.port != 0) {
        by_port.entry(listener.port).or_default().push(listener);
    }
    for sharing in by_port.values() {
        // two may share a port only as a dual stack: one IPv4 and one IPv6 literal
        let v4 = sharing
            .iter()
            .filter(|l| l.host.parse::<std::net::Ipv4Addr>().is_ok())
            .count();
        let v6 = sharing
            .iter()
            .filter(|l| l.host.parse::<std::net::Ipv6Addr>().is_ok())
            .count();
        if sharing.len() > 1 && !(sharing.len() == 2 && v4 == 1 && v6 == 1) {
            return Err(ConfigError::Refused(format!(
                "Each listener must have a different port, listeners: {text}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Listeners, String> {
        let values = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Listeners::from_config(&BrokerConfig::from_values(&values).unwrap())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn where_clients_come_in_nobody_is_privileged() {
        assert!(!read(&[]).unwrap().is_privileged("PLAINTEXT"));
        let two = read(&[
            ("listeners", "INSIDE://:9092,OUTSIDE://:9093"),
            (
                "listener.security.protocol.map",
                "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            ),
            ("inter.broker.listener.name", "INSIDE"),
        ])
        .unwrap();
        assert!(two.is_privileged("INSIDE") && !two.is_privileged("OUTSIDE"));
    }

    #[test]
    fn defaults_and_own_names() {
        let default = read(&[]).unwrap();
        assert_eq!(default.bound[0].to_string(), "PLAINTEXT://:9092");
        assert_eq!(&*default.inter_broker, "PLAINTEXT");
        let own = read(&[
            ("listeners", "inside://:9092,OUTSIDE://[::1]:9093"),
            (
                "advertised.listeners",
                "INSIDE://k1:9092,OUTSIDE://example.org:19093",
            ),
            (
                "listener.security.protocol.map",
                "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            ),
            ("inter.broker.listener.name", "INSIDE"),
        ])
        .unwrap();
        assert_eq!(own.bound[1].to_string(), "OUTSIDE://[::1]:9093");
        assert_eq!(own.advertised("OUTSIDE").unwrap().host, "example.org");
    }

    #[test]
    fn what_kafka_refuses() {
        let refused = |pairs: &[(&str, &str)], text: &str| {
            let error = read(pairs).unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        refused(
            &[("listeners", "PLAINTEXT://0.0.0.0:9092")],
            "nonroutable meta-address 0.0.0.0",
        );
        refused(
            &[("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2")],
            "different name",
        );
        refused(
            &[("listeners", "PLAINTEXT://a:1,SSL://b:1")],
            "different port",
        );
        refused(
            &[("listeners", "FOO://a:1")],
            "No security protocol defined for listener FOO",
        );
        refused(&[("listeners", "PLAINTEXT:a:1")], "Unable to parse");
        refused(
            &[("listeners", "SSL://a:1")],
            "inter.broker.listener.name must be a listener name",
        );
        refused(
            &[("advertised.listeners", "SSL://a:1")],
            "must be equal to or a subset",
        );
        assert!(read(&[("listeners", "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1")]).is_ok());
    }
}
