//! The process's loggers, whose levels kafka-configs (`--entity-type broker-loggers`, KIP-412) shows and changes while it
//! runs. A logger is the beginning of the module paths in log lines, with dots for `::`, which that tool does not take.
//! What is changed here lasts until the process ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::config::alter::{Operation, Refusal};

/// The logger above all others.
pub const ROOT: &str = "root";

/// Loggers that are shown although nobody set them: the parts of the server that write lines of their own.
const SHOWN: &[&str] = &[
    "gracchus",
    "gracchus_broker",
    "gracchus_broker.api",
    "gracchus_broker.config",
    "gracchus_broker.controller",
    "gracchus_broker.controller_link",
    "gracchus_broker.group",
    "gracchus_broker.lifecycle",
    "gracchus_broker.metadata",
    "gracchus_broker.net",
    "gracchus_broker.replica",
    "gracchus_client",
    "gracchus_console",
    "gracchus_controller",
    "gracchus_groups",
    "gracchus_log",
    "gracchus_registry",
    "gracchus_zk_client",
    "gracchus_zk_server",
];

/// Kafka's names, most lines first; nothing here is FATAL, so that silences a logger.
const LEVELS: [(&str, &str); 6] = [
    ("TRACE", "trace"),
    ("DEBUG", "debug"),
    ("INFO", "info"),
    ("WARN", "warn"),
    ("ERROR", "error"),
    ("FATAL", "off"),
];

/// Takes the levels in force, as directives of an env filter (`info,gracchus_log=debug`).
type Apply = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What was set for which logger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Levels {
    /// Kafka's name of a level by logger; the root has one always.
    set: BTreeMap<String, &'static str>,
    /// Directives of spans and fields, which stay as they were given.
    others: Vec<String>,
}

struct Loggers {
    levels: Mutex<Levels>,
    apply: Apply,
}

static LOGGERS: OnceLock<Loggers> = OnceLock::new();

/// Tells how the process filters its lines: the directives it started with (those with spans or fields are kept, but
/// not shown), and how others come into force. The first call counts.
pub fn install(
    directives: &str,
    apply: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
) {
    let levels = Mutex::new(Levels::parse(directives));
    let apply = Box::new(apply);
    let _ = LOGGERS.set(Loggers { levels, apply });
}

/// All loggers with the levels in force, by name; none if the process did not [`install`] any.
pub fn levels() -> Vec<(String, &'static str)> {
    LOGGERS.get().map_or_else(Vec::new, |loggers| {
        let levels = loggers
            .levels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        levels.shown()
    })
}

/// Changes levels, all or none.
pub fn change(
    changes: &[(String, Operation, Option<String>)],
    validate_only: bool,
) -> Result<(), Refusal> {
    let Some(loggers) = LOGGERS.get() else {
        return Err(Refusal::request("This process has no loggers."));
    };
    let mut levels = loggers
        .levels
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let wanted = levels.after(changes)?;
    if validate_only || *levels == wanted {
        return Ok(());
    }
    (loggers.apply)(&wanted.directives()).map_err(Refusal::request)?;
    for (name, _, _) in changes {
        tracing::info!("logger {name} is {} now", wanted.in_force(name));
    }
    *levels = wanted;
    Ok(())
}

impl Levels {
    fn parse(directives: &str) -> Self {
        let mut others = Vec::new();
        let mut set = BTreeMap::from([(ROOT.to_owned(), "ERROR")]); // an env filter's own
        for directive in directives.split(',').map(str::trim) {
            let (name, level) = directive.split_once('=').unwrap_or((ROOT, directive));
            let level = LEVELS.iter().find(|(kafkas, ours)| {
                level.eq_ignore_ascii_case(kafkas) || level.eq_ignore_ascii_case(ours)
            });
            match level {
                Some((level, _)) if !name.contains('[') => {
                    set.insert(name.replace("::", "."), level);
                }
                _ if directive.is_empty() => {}
                _ => others.push(directive.to_owned()),
            }
        }
        Self { set, others }
    }

    fn directives(&self) -> String {
        let set = self.set.iter().map(|(name, level)| {
            let level = LEVELS.iter().find(|(kafkas, _)| kafkas == level);
            let level = level.map_or("info", |(_, ours)| ours);
            match name.as_str() {
                ROOT => level.to_owned(),
                name => format!("{}={level}", name.replace('.', "::")),
            }
        });
        let all: Vec<String> = set.chain(self.others.iter().cloned()).collect();
        all.join(",")
    }

    /// The level of the longest logger that the name begins with.
    fn in_force(&self, name: &str) -> &'static str {
        let above = self
            .set
            .iter()
            .filter(|(n, _)| name.starts_with(n.as_str()));
        let nearest = above.max_by_key(|(n, _)| n.len());
        nearest
            .or_else(|| self.set.get_key_value(ROOT))
            .map_or("ERROR", |(_, level)| level)
    }

    fn shown(&self) -> Vec<(String, &'static str)> {
        let mut names: Vec<&str> = self.set.keys().map(String::as_str).collect();
        names.extend(SHOWN);
        names.sort_unstable();
        names.dedup();
        let shown = names.into_iter();
        shown.map(|n| (n.to_owned(), self.in_force(n))).collect()
    }

    fn after(&self, changes: &[(String, Operation, Option<String>)]) -> Result<Self, Refusal> {
        let mut wanted = self.clone();
        for (name, operation, value) in changes {
            match operation {
                Operation::Set | Operation::Delete => {}
                Operation::Append | Operation::Subtract => {
                    let operation = format!("{operation:?}").to_uppercase();
                    return Err(Refusal::request(format!(
                        "{operation} operation is not allowed for the BROKER_LOGGER resource"
                    )));
                }
            }
            if !self.set.contains_key(name) && !SHOWN.contains(&name.as_str()) {
                return Err(Refusal::config(format!("Logger {name} does not exist!")));
            }
            if *operation == Operation::Delete {
                if name == ROOT {
                    return Err(Refusal::request(
                        "Removing the log level of the root logger is not allowed",
                    ));
                }
                wanted.set.remove(name);
                continue;
            }
            let Some(value) = value else {
                return Err(Refusal::request(format!(
                    "Null value not supported for : {name}"
                )));
            };
            let Some((level, _)) = LEVELS.iter().find(|(level, _)| level == value) else {
                return Err(Refusal::config(format!(
                    "Cannot set the log level of {name} to {value} as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
                )));
            };
            wanted.set.insert(name.clone(), level);
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, level: &str) -> (String, Operation, Option<String>) {
        (name.to_owned(), Operation::Set, Some(level.to_owned()))
    }

    fn delete(name: &str) -> (String, Operation, Option<String>) {
        (name.to_owned(), Operation::Delete, None)
    }

    #[test]
    fn a_logger_has_the_level_of_the_nearest_above() {
        let levels = Levels::parse("warn,gracchus_broker=debug,[request]=info");
        let levels = levels
            .after(&[set("gracchus_broker.net", "TRACE"), set("gracchus", "INFO")])
            .unwrap();
        let shown: BTreeMap<_, _> = levels.shown().into_iter().collect();
        assert_eq!(shown["root"], "WARN");
        assert_eq!(shown["gracchus_broker.net"], "TRACE");
        assert_eq!(shown["gracchus_broker.replica"], "DEBUG");
        assert_eq!(shown["gracchus_log"], "INFO");
        let levels = levels
            .after(&[delete("gracchus_broker"), delete("gracchus")])
            .unwrap();
        assert_eq!(
            levels.directives(),
            "gracchus_broker::net=trace,warn,[request]=info"
        );
        assert_eq!(levels.in_force("gracchus_broker.replica"), "WARN");
    }

    #[test]
    fn what_is_wrong_is_said_as_kafka_says_it() {
        let levels = Levels::parse("info");
        let refused = |changes: &[_]| levels.after(changes).unwrap_err().message;
        assert_eq!(refused(&[set("nix", "INFO")]), "Logger nix does not exist!");
        assert_eq!(refused(&[delete("nix")]), "Logger nix does not exist!");
        assert_eq!(
            refused(&[set("root", "info")]),
            "Cannot set the log level of root to info as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
        );
        assert_eq!(
            refused(&[delete("root")]),
            "Removing the log level of the root logger is not allowed"
        );
        assert_eq!(
            refused(&[("root".to_owned(), Operation::Append, None)]),
            "APPEND operation is not allowed for the BROKER_LOGGER resource"
        );
        assert_eq!(
            refused(&[("root".to_owned(), Operation::Set, None)]),
            "Null value not supported for : root"
        );
    }
}
