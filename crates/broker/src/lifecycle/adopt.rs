//! A ZooKeeper that was lost and replaced by an empty one learns from the log directories whose cluster it serves
//! (`--adopt-cluster-id`), and in a cluster of one broker also what topics there were (`--adopt-topics`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gracchus_log::identity::read_topic_id;
use gracchus_log::naming::{DirKind, parse_dir_name};
use gracchus_log::{LogError, Uuid};
use gracchus_registry::json::{ClusterId, ConfigZnode, TopicAssignment};
use gracchus_registry::registry::NewTopic;
use gracchus_registry::{Registry, RegistryError, paths};
use gracchus_zk_client::ZkError;

use super::error::LifecycleError;
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::topic_creation;

/// A cluster id younger than this, over an empty tree, was made by a ZooKeeper that lost its data.
const NEW_MS: i64 = 60 * 60 * 1000;

/// The directories say `stored`, ZooKeeper `found`. Gives back `stored` after having made it ZooKeeper's, if that is
/// wanted and no topic is there; an error that says so if ZooKeeper is new; else `found`, for the check that follows.
pub async fn over_another(
    registry: &Registry,
    found: String,
    stored: &str,
    adopt: bool,
    (connect, dirs): (&str, &str),
) -> Result<String, LifecycleError> {
    let (topics, brokers) = (
        registry.topic_names(false).await?,
        registry.broker_ids(false).await?,
    );
    if !topics.is_empty() {
        return Ok(found);
    }
    let zk = registry.zk();
    let (_, stat) = zk
        .get_data(paths::CLUSTER_ID, false)
        .await
        .map_err(refused)?;
    let age_ms = now_ms().saturating_sub(stat.ctime);
    if adopt && brokers.is_empty() {
        let id = ClusterId(stored.to_owned()).to_bytes();
        zk.set_data(paths::CLUSTER_ID, Some(id), stat.version)
            .await
            .map_err(refused)?;
        tracing::warn!(
            "/cluster/id was {found} and is {stored} now: this ZooKeeper held no topics, the log directories do"
        );
        return Ok(stored.to_owned());
    }
    if age_ms > NEW_MS {
        return Ok(found);
    }
    Err(LifecycleError::NewerZooKeeper {
        connect: connect.to_owned(),
        found,
        age_s: age_ms / 1000,
        stored: stored.to_owned(),
        dirs: dirs.to_owned(),
        brokers: brokers.len(),
    })
}

fn refused(error: ZkError) -> LifecycleError {
    let path = paths::CLUSTER_ID.to_owned();
    RegistryError::Zk { path, error }.into()
}

/// What the directories hold of one topic.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    id: Option<Uuid>,
    partitions: BTreeSet<i32>,
    /// Directories disagree about its id, or one cannot be read.
    trouble: Option<String>,
}

/// Every topic with a live partition in the directories.
fn look(dirs: &[PathBuf]) -> Result<BTreeMap<String, Held>, std::io::Error> {
    let mut topics: BTreeMap<String, Held> = BTreeMap::new();
    for dir in dirs {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((partition, DirKind::Live)) = name.to_str().and_then(parse_dir_name) else {
                continue;
            };
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let held = topics.entry(partition.topic.to_string()).or_default();
            held.partitions.insert(partition.partition);
            held.learn_id(read_topic_id(&entry.path()), &entry.path());
        }
    }
    Ok(topics)
}

impl Held {
    fn learn_id(&mut self, read: Result<Option<Uuid>, LogError>, at: &Path) {
        match (read, self.id) {
            (Ok(Some(id)), Some(known)) if id != known => {
                self.trouble = Some(format!(
                    "{} says topic id {id}, another partition {known}",
                    at.display()
                ));
            }
            (Ok(Some(id)), None) => self.id = Some(id),
            (Ok(_), _) => {}
            (Err(error), _) => self.trouble = Some(error.to_string()),
        }
    }

    /// Why it cannot be restored.
    fn obstacle(&self) -> Option<String> {
        if self.trouble.is_some() {
            return self.trouble.clone();
        }
        let missing = (0..)
            .zip(&self.partitions)
            .find(|(wanted, found)| wanted != *found);
        missing.map(|(wanted, _)| {
            format!("its partition {wanted} is in no log directory of this broker")
        })
    }
}

/// Writes the topics of the log directories to a ZooKeeper that has none, led by this broker alone. Their
/// configurations are lost; until they are set again no record is deleted by retention.
pub async fn topics(
    registry: &Registry,
    broker_id: i32,
    config: &BrokerConfig,
    dirs: &[PathBuf],
) -> Result<(), LifecycleError> {
    if !registry.topic_names(false).await?.is_empty() {
        tracing::warn!("--adopt-topics: this ZooKeeper knows topics already, so none was restored");
        return Ok(());
    }
    let mut new = Vec::new();
    for (name, held) in look(dirs)? {
        match held.obstacle() {
            Some(why) => tracing::error!(
                "topic {name} is not restored: {why}. Its data stays where it is; to have it served, write \
                 /brokers/topics/{name} with gracchus zk"
            ),
            None => new.push(NewTopic {
                config: kept(config, &name),
                name,
                assignment: TopicAssignment {
                    topic_id: held.id,
                    partitions: held
                        .partitions
                        .iter()
                        .map(|p| (*p, vec![broker_id]))
                        .collect(),
                    ..Default::default()
                },
            }),
        }
    }
    for (topic, result) in new.iter().zip(registry.create_topics(&new).await) {
        result?;
        tracing::info!(
            "topic {} restored: {} partitions",
            topic.name,
            topic.assignment.partitions.len()
        );
    }
    if !new.is_empty() {
        tracing::warn!(
            "{} topics restored from the log directories. Their configurations were in the lost ZooKeeper: each keeps all its records \
             (retention.ms=-1, retention.bytes=-1) until you set them again with gracchus configs --alter",
            new.len()
        );
    }
    Ok(())
}

/// The internal topics' own configuration; all records kept for the others.
fn kept(config: &BrokerConfig, topic: &str) -> ConfigZnode {
    let own = topic_creation::wanted(config, topic).configs;
    let mut all = ConfigZnode::default();
    all.config
        .extend(own.into_iter().filter_map(|c| Some((c.name, c.value?))));
    if all.config.is_empty() {
        for key in ["retention.ms", "retention.bytes"] {
            all.config.insert(key.to_owned(), "-1".to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use gracchus_log::identity::write_topic_id;

    #[test]
    fn finds_what_can_be_restored() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let id = Uuid::from_bytes([7; 16]);
        let make = |root: &Path, name: &str, id: Option<Uuid>| {
            let path = root.join(name);
            std::fs::create_dir(&path).unwrap();
            if let Some(id) = id {
                write_topic_id(&path, id).unwrap();
            }
        };
        make(dir.path(), "whole-0", Some(id));
        make(other.path(), "whole-1", Some(id));
        make(dir.path(), "old-topic-0", None);
        make(dir.path(), "gap-1", Some(id));
        make(dir.path(), "mixed-0", Some(id));
        make(dir.path(), "mixed-1", Some(Uuid::from_bytes([8; 16])));
        make(
            dir.path(),
            "gone-0.0123456789abcdef0123456789abcdef-delete",
            Some(id),
        );
        std::fs::write(dir.path().join("file-0"), "").unwrap();
        let found = look(&[dir.path().into(), other.path().into()]).unwrap();
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["gap", "mixed", "old-topic", "whole"]);
        assert_eq!(
            (found["whole"].id, found["whole"].obstacle()),
            (Some(id), None)
        );
        assert_eq!(
            (found["old-topic"].id, found["old-topic"].obstacle()),
            (None, None)
        );
        assert!(found["gap"].obstacle().unwrap().contains("partition 0"));
        assert!(found["mixed"].obstacle().unwrap().contains("topic id"));
    }
}
