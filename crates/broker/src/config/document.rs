//! The table of keys in the documentation.

use super::broker_config::HONOURED;
use super::catalogue::{self, Kind, UpdateMode};
use super::refusals::refuse_harmful;
use super::store::Props;
use super::zookeeper_security::is_honoured;

/// `docs/server-properties.md` lists every key under what this broker does with it; this test makes the list.
fn table() -> String {
    let mut text = String::from(
        "# Broker keys\n\n\
         What this broker does with each of Kafka 3.9's keys in `server.properties`. Precedence: `/config/brokers/N` >\n\
         `/config/brokers/<default>` > `server.properties` > default. Made by a test of `crates/broker` (run it with\n\
         `UPDATE_DOCS=1` after a change).\n\n\
         ## Refused at start\n\n\
         A value other than the default stops the start, since ignoring it would lose data or open a door:\n\n",
    );
    let refused = |key: &str| {
        let value = match catalogue::find(Kind::Broker, key).map(|d| d.value_type) {
            Some(catalogue::ValueType::Boolean) => "true",
            Some(catalogue::ValueType::List) => "broker",
            _ => "org.example.Class",
        };
        refuse_harmful(&Props::from([(key.to_owned(), value.to_owned())])).is_err()
    };
    let list = |wanted: &dyn Fn(&str) -> bool| -> String {
        let mut lines = String::new();
        for def in catalogue::all(Kind::Broker).filter(|d| wanted(d.name)) {
            let default = def.default.as_deref().unwrap_or("null");
            let mode = match def.update_mode {
                UpdateMode::ReadOnly => "restart",
                UpdateMode::PerBroker => "per broker",
                UpdateMode::ClusterWide => "dynamic",
            };
            lines += &format!("| `{}` | `{default}` | {mode} |\n", def.name);
        }
        format!("| key | default | change |\n| --- | --- | --- |\n{lines}")
    };
    text += &list(&refused);
    text += "\nAlso refused: listeners of the protocols SSL, SASL_PLAINTEXT and SASL_SSL, `offsets.commit.required.acks` other than -1,\n\
             and values with `${...}` where `config.providers` is set.\n\n## Honoured\n\n";
    let honoured = |key: &str| {
        HONOURED.contains(&key) || key == "node.id" || is_honoured(key) && !refused(key)
    };
    text += &list(&honoured);
    text += "\n## Known, without effect\n\nA warning names them at start if they are set to anything but their default.\n\n";
    text += &list(&|key| !honoured(key) && !refused(key));
    text
}

#[test]
fn is_current() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/server-properties.md"
    );
    let wanted = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} is not current: run the test with UPDATE_DOCS=1"
    );
}
