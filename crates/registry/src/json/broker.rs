//! `/brokers/ids/N`: a live broker's registration.

use super::fields::Fields;
use super::{ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum SecurityProtocol {
    #[serde(rename = "PLAINTEXT")]
    Plaintext,
    #[serde(rename = "SSL")]
    Ssl,
    #[serde(rename = "SASL_PLAINTEXT")]
    SaslPlaintext,
    #[serde(rename = "SASL_SSL")]
    SaslSsl,
}

impl SecurityProtocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// The number in UpdateMetadata.
    pub fn id(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SecurityProtocol {
    type Err = ZnodeError;

    fn from_str(name: &str) -> Result<Self, ZnodeError> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Self::Plaintext,
            "SSL" => Self::Ssl,
            "SASL_PLAINTEXT" => Self::SaslPlaintext,
            "SASL_SSL" => Self::SaslSsl,
            _ => {
                return Err(ZnodeError::Value {
                    what: "a listener's security protocol",
                    found: name.to_owned(),
                });
            }
        })
    }
}

/// Where clients of one listener reach the broker. An IPv6 host stands without brackets here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub listener: String,
    pub security_protocol: SecurityProtocol,
    pub host: String,
    pub port: i32,
}

impl fmt::Display for Endpoint {
    /// `NAME://host:port`, an IPv6 host in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.listener, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.listener, self.host, self.port)
        }
    }
}

/// Levels of one feature that a broker supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SupportedRange {
    pub min_version: i32,
    pub max_version: i32,
}

/// A registration of version 1 to 5. `host` and `port` of the JSON repeat the first PLAINTEXT endpoint, so they are no fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerRegistration {
    /// Decides which keys are written: see [`version_for`](Self::version_for).
    pub version: i32,
    pub endpoints: Vec<Endpoint>,
    /// Not written below version 3.
    pub rack: Option<String>,
    /// -1: JMX is off.
    pub jmx_port: i32,
    pub timestamp_ms: i64,
    pub features: BTreeMap<String, SupportedRange>,
}

impl BrokerRegistration {
    /// The version that a broker writes; `at_least` tells whether its inter.broker.protocol.version is at or above one.
    pub fn version_for(at_least: impl Fn(&str) -> bool) -> i32 {
        if at_least("2.7-IV0") {
            5
        } else if at_least("0.10.0-IV1") {
            4
        } else {
            2
        }
    }

    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| endpoint.listener == listener)
    }

    /// The endpoint that clients older than 0.9 use.
    pub fn plaintext(&self) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| endpoint.security_protocol == SecurityProtocol::Plaintext)
    }

    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            features: Option<&'a BTreeMap<String, SupportedRange>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            listener_security_protocol_map: Option<Protocols<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            endpoints: Option<Vec<String>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            rack: Option<&'a str>,
            jmx_port: i32,
            port: i32,
            host: Option<&'a str>,
            version: i32,
            timestamp: String,
        }
        let plaintext = self.plaintext();
        to_json(&Json {
            features: (self.version >= 5).then_some(&self.features),
            listener_security_protocol_map: (self.version >= 4)
                .then_some(Protocols(&self.endpoints)),
            endpoints: (self.version >= 2)
                .then(|| self.endpoints.iter().map(Endpoint::to_string).collect()),
            rack: self.rack.as_deref().filter(|_| self.version >= 3),
            jmx_port: self.jmx_port,
            port: plaintext.map_or(-1, |e| e.port),
            host: plaintext.map(|e| e.host.as_str()),
            version: self.version,
            timestamp: self.timestamp_ms.to_string(),
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let version = fields.int("version")?;
        if version < 1 {
            return Err(ZnodeError::Version {
                found: version,
                known: "1 and above",
            });
        }
        let endpoints = if version < 2 {
            vec![Endpoint {
                listener: "PLAINTEXT".to_owned(),
                security_protocol: SecurityProtocol::Plaintext,
                host: fields.text("host")?,
                port: fields.int("port")?,
            }]
        } else {
            let protocols = fields.map_opt("listener_security_protocol_map")?;
            let protocol_of = |listener: &str| match protocols {
                Some(map) => map
                    .get(listener)
                    .and_then(|value| value.as_str())
                    .unwrap_or(listener)
                    .parse(),
                None => listener.parse(),
            };
            fields
                .texts("endpoints")?
                .iter()
                .map(|text| parse_endpoint(text, protocol_of))
                .collect::<Result<_, _>>()?
        };
        let features = match fields.map_opt("features")? {
            Some(map) if version >= 5 => map
                .iter()
                .map(|(name, range)| {
                    let range = Fields::of(range)?;
                    Ok((
                        name.clone(),
                        SupportedRange {
                            min_version: range.int("min_version")?,
                            max_version: range.int("max_version")?,
                        },
                    ))
                })
                .collect::<Result<_, ZnodeError>>()?,
            _ => BTreeMap::new(),
        };
        Ok(BrokerRegistration {
            version,
            endpoints,
            rack: fields.text_opt("rack")?,
            jmx_port: fields.int_or("jmx_port", -1)?,
            timestamp_ms: fields.long_or("timestamp", -1)?,
            features,
        })
    }
}

/// Listener to protocol, in the listeners' order.
struct Protocols<'a>(&'a [Endpoint]);

impl Serialize for Protocols<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|e| (&e.listener, e.security_protocol)))
    }
}

fn parse_endpoint(
    text: &str,
    protocol_of: impl Fn(&str) -> Result<SecurityProtocol, ZnodeError>,
) -> Result<Endpoint, ZnodeError> {
    let bad = || ZnodeError::Value {
        what: "an endpoint",
        found: text.to_owned(),
    };
    let (listener, address) = text.split_once("://").ok_or_else(bad)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Ok(Endpoint {
        security_protocol: protocol_of(listener)?,
        listener: listener.to_owned(),
        host: host.to_owned(),
        port: port.parse().map_err(|_| bad())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_plaintext_host_is_null_and_port_minus_one() {
        let registration = BrokerRegistration {
            version: 5,
            endpoints: vec![Endpoint {
                listener: "EXT".into(),
                security_protocol: SecurityProtocol::SaslSsl,
                host: "::1".into(),
                port: 9094,
            }],
            rack: None,
            jmx_port: -1,
            timestamp_ms: 7,
            features: BTreeMap::new(),
        };
        let text = registration.to_bytes();
        assert_eq!(
            text.as_ref(),
            br#"{"features":{},"listener_security_protocol_map":{"EXT":"SASL_SSL"},"endpoints":["EXT://[::1]:9094"],"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"7"}"#
        );
        assert_eq!(BrokerRegistration::parse(&text), Ok(registration));
    }

    #[test]
    fn oldest_version_is_one_plaintext_endpoint() {
        let v1 = BrokerRegistration::parse(
            br#"{"jmx_port":9999,"timestamp":"5","host":"h","version":1,"port":9092,"new":[]}"#,
        )
        .unwrap();
        assert_eq!(v1.endpoints[0].to_string(), "PLAINTEXT://h:9092");
        assert_eq!((v1.jmx_port, v1.timestamp_ms), (9999, 5));
    }

    #[test]
    fn broken_registrations_are_errors() {
        for (text, error) in [
            ("", ZnodeError::Empty),
            ("[]", ZnodeError::NotAnObject),
            (
                r#"{"version":0}"#,
                ZnodeError::Version {
                    found: 0,
                    known: "1 and above",
                },
            ),
            (r#"{"version":5}"#, ZnodeError::Missing("endpoints")),
            (
                r#"{"version":4,"endpoints":["x"]}"#,
                ZnodeError::Value {
                    what: "an endpoint",
                    found: "x".into(),
                },
            ),
            (
                r#"{"version":4,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"B"}}"#,
                ZnodeError::Value {
                    what: "a listener's security protocol",
                    found: "B".into(),
                },
            ),
        ] {
            assert_eq!(
                BrokerRegistration::parse(text.as_bytes()),
                Err(error),
                "{text}"
            );
        }
        assert!(matches!(
            BrokerRegistration::parse(b"{oops"),
            Err(ZnodeError::NotJson(_))
        ));
    }
}
