//! One value against its key's definition: type and allowed values, with the texts of Kafka's `ConfigDef`.

use super::catalogue::{KeyDef, ValueType};
use super::error::ConfigError;
use super::value::{FromConfig, split_list};

/// Checks the form and the range of a value. The text is the trimmed one.
pub fn check_value(def: &KeyDef, text: &str) -> Result<(), ConfigError> {
    let text = text.trim();
    let number = match def.value_type {
        ValueType::Boolean => {
            bool::from_config(def.name, Some(text))?;
            None
        }
        ValueType::Int => Some(f64::from(i32::from_config(def.name, Some(text))?)),
        ValueType::Short => Some(f64::from(i16::from_config(def.name, Some(text))?)),
        // ranges of 64-bit keys begin at small numbers, which a float holds exactly
        ValueType::Long => Some(i64::from_config(def.name, Some(text))? as f64),
        ValueType::Double => Some(f64::from_config(def.name, Some(text))?),
        ValueType::List | ValueType::String | ValueType::Class | ValueType::Password => None,
    };
    let invalid = |reason: String| Err(ConfigError::invalid(def.name, text, reason));
    let rule = def.validator;
    if let Some(number) = number {
        return match out_of_range(rule, number) {
            Some(reason) => invalid(reason),
            None => Ok(()),
        };
    }
    if rule == "kafka-version" {
        return match super::version::MetadataVersion::parse(text) {
            Some(_) => Ok(()),
            None => invalid(format!("Version `{text}` is not a valid version")),
        };
    }
    if rule == "throttled-replicas" {
        return check_throttled_replicas(def, text);
    }
    if rule == "non-empty string" && text.is_empty() {
        return invalid("String must be non-empty".into());
    }
    if rule == "non-empty list" && split_list(text).is_empty() {
        return invalid("List must be non-empty".into());
    }
    let (rule, ignore_case) = match rule.strip_prefix("(i) ") {
        Some(rest) => (rest, true),
        None => (rule, false),
    };
    if let Some(names) = rule.strip_prefix('[').and_then(|r| r.strip_suffix(']')) {
        let names: Vec<&str> = names.split(", ").collect();
        let elements = if def.value_type == ValueType::List {
            split_list(text)
        } else {
            vec![text.to_owned()]
        };
        for element in &elements {
            let known = names
                .iter()
                .any(|n| n == element || (ignore_case && n.eq_ignore_ascii_case(element)));
            if !known {
                let how = if ignore_case {
                    "String must be one of (case insensitive)"
                } else {
                    "String must be one of"
                };
                return Err(ConfigError::invalid(
                    def.name,
                    element.as_str(),
                    format!("{how}: {}", names.join(", ")),
                ));
            }
        }
    }
    Ok(())
}

/// Rules of the forms `[1,...]`, `[1,...,9]`, `[0,...,0.5]`, `... or -1`.
fn out_of_range(rule: &str, number: f64) -> Option<String> {
    let (range, or_minus_one) = match rule.strip_suffix(" or -1") {
        Some(range) => (range, true),
        None => match rule.strip_prefix("-1 or ") {
            Some(range) => (range, true),
            None => (rule, false),
        },
    };
    if or_minus_one && number == -1.0 {
        return None;
    }
    let range = range.strip_prefix('[')?.strip_suffix(']')?;
    let (low, high) = range.split_once(",...")?;
    if let Ok(min) = low.parse::<f64>()
        && number < min
    {
        return Some(format!("Value must be at least {low}"));
    }
    if let Some(high) = high.strip_prefix(',')
        && let Ok(max) = high.parse::<f64>()
        && number > max
    {
        return Some(format!("Value must be no more than {high}"));
    }
    None
}

fn check_throttled_replicas(def: &KeyDef, text: &str) -> Result<(), ConfigError> {
    let entries = split_list(text);
    let fine = |entry: &String| {
        entry
            .split_once(':')
            .is_some_and(|(p, b)| p.parse::<u32>().is_ok() && b.parse::<u32>().is_ok())
    };
    if matches!(entries.as_slice(), [star] if star == "*") || entries.iter().all(fine) {
        return Ok(());
    }
    Err(ConfigError::invalid(
        def.name,
        format!("[{}]", entries.join(", ")),
        format!(
            "{} must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            def.name
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::catalogue::{self, Kind};

    fn check(kind: Kind, key: &str, value: &str) -> Result<(), String> {
        check_value(catalogue::find(kind, key).unwrap(), value).map_err(|e| e.to_string())
    }

    #[test]
    fn ranges_and_names() {
        assert!(check(Kind::Broker, "num.partitions", "1").is_ok());
        assert_eq!(
            check(Kind::Broker, "num.partitions", "0").unwrap_err(),
            "Invalid value 0 for configuration num.partitions: Value must be at least 1"
        );
        assert_eq!(
            check(Kind::Broker, "num.partitions", "x").unwrap_err(),
            "Invalid value x for configuration num.partitions: Not a number of type INT"
        );
        assert!(check(Kind::Topic, "compression.gzip.level", "-1").is_ok());
        assert!(check(Kind::Topic, "compression.gzip.level", "0").is_err());
        assert!(check(Kind::Topic, "cleanup.policy", "compact,delete").is_ok());
        assert_eq!(
            check(Kind::Topic, "cleanup.policy", "shred").unwrap_err(),
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert!(check(Kind::Broker, "inter.broker.protocol.version", "2.8").is_ok());
        assert!(check(Kind::Broker, "inter.broker.protocol.version", "5.0").is_err());
        assert!(
            check(
                Kind::Topic,
                "leader.replication.throttled.replicas",
                "0:1,1:2"
            )
            .is_ok()
        );
        assert!(check(Kind::Topic, "leader.replication.throttled.replicas", "*").is_ok());
        assert!(check(Kind::Topic, "leader.replication.throttled.replicas", "0-1").is_err());
        assert!(check(Kind::Topic, "min.cleanable.dirty.ratio", "1.5").is_err());
    }

    #[test]
    fn every_default_satisfies_its_own_rule() {
        for kind in [Kind::Broker, Kind::Topic] {
            for def in catalogue::all(kind) {
                // Kafka does not check the empty defaults of keys that only KRaft needs.
                if let Some(default) = def.default.as_ref().filter(|d| !d.is_empty()) {
                    check_value(def, default).unwrap_or_else(|e| panic!("{}: {e}", def.name));
                }
            }
        }
    }
}
