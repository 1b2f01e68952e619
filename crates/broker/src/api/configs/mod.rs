//! DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44).

/// AlterConfigs.
pub mod alter;
/// DescribeConfigs.
pub mod describe;
/// IncrementalAlterConfigs.
pub mod incremental;

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::RegistryError;
use gracchus_registry::entity::ConfigEntity;
use gracchus_registry::json::ConfigZnode;

use crate::broker::Broker;
use crate::config::alter::{self as rules, Refusal};
use crate::config::store::Props;
use crate::metadata::view;

/// `ConfigResource.Type` on the wire.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;

/// Whose configuration a request means.
enum Resource {
    Topic(String),
    /// None = the cluster-wide default.
    Broker(Option<i32>),
}

fn resource(broker: &Broker, kind: i8, name: &str) -> Result<Resource, Refusal> {
    match kind {
        TOPIC if name.is_empty() => {
            Err(Refusal::request("Default topic resources are not allowed."))
        }
        TOPIC => Ok(Resource::Topic(name.to_owned())),
        BROKER if name.is_empty() => Ok(Resource::Broker(None)),
        BROKER => own_id(broker, name).map(|id| Resource::Broker(Some(id))),
        other => Err(Refusal::request(format!("Unknown resource type {other}"))),
    }
}

fn own_id(broker: &Broker, name: &str) -> Result<i32, Refusal> {
    let own = broker.identity.broker_id;
    match name.parse::<i32>() {
        Ok(id) if id == own => Ok(id),
        Ok(_) => Err(Refusal::request(format!(
            "Unexpected broker id, expected {own}, but received {name}"
        ))),
        Err(_) => Err(Refusal::request(format!(
            "Broker id must be an integer, but it is: {name}"
        ))),
    }
}

impl Resource {
    fn entity(&self) -> ConfigEntity {
        match self {
            Self::Topic(topic) => ConfigEntity::Topic(topic.clone()),
            Self::Broker(id) => ConfigEntity::Broker(*id),
        }
    }

    /// What ZooKeeper has, as the basis of a change.
    async fn stored(&self, broker: &Broker) -> Result<Props, Refusal> {
        let znode = broker
            .registry
            .config(&self.entity())
            .await
            .map_err(from_registry)?;
        Ok(znode.config.into_iter().collect())
    }

    /// Kafka's checks of what is wanted.
    fn check(&self, broker: &Broker, wanted: &Props) -> Result<(), Refusal> {
        match self {
            Self::Topic(topic) => rules::check_topic(&broker.config.current(), wanted)
                .map_err(|refusal| refusal.for_alter(topic)),
            Self::Broker(id) => {
                rules::check_broker(&broker.config.effective(), wanted, id.is_some())
            }
        }
    }

    /// Topics must exist.
    fn exists(&self, broker: &Broker) -> Result<(), Refusal> {
        let Self::Topic(topic) = self else {
            return Ok(());
        };
        if let Some(message) = view::invalid_name(topic) {
            return Err(Refusal {
                error: ErrorCode::InvalidTopicException,
                message,
            });
        }
        if broker
            .metadata
            .snapshot()
            .topics
            .contains_key(topic.as_str())
        {
            return Ok(());
        }
        let message = format!("The topic '{topic}' does not exist.");
        Err(Refusal {
            error: ErrorCode::UnknownTopicOrPartition,
            message,
        })
    }

    /// Writes the new texts, fenced on `/controller`, and tells all brokers.
    async fn write(&self, broker: &Broker, wanted: Props) -> Result<(), Refusal> {
        let znode = ConfigZnode {
            config: wanted.into_iter().collect(),
        };
        broker
            .registry
            .set_config(&self.entity(), &znode)
            .await
            .map_err(from_registry)
    }
}

fn from_registry(error: RegistryError) -> Refusal {
    let code = match &error {
        RegistryError::NoController | RegistryError::KraftController => ErrorCode::NotController,
        _ => ErrorCode::UnknownServerError,
    };
    Refusal {
        error: code,
        message: error.to_string(),
    }
}

/// One change from request to answer: (code, message).
async fn change(
    broker: &Arc<Broker>,
    kind: i8,
    name: &str,
    validate_only: bool,
    wanted: impl FnOnce(&Resource, Props) -> Result<Props, Refusal>,
) -> (i16, Option<String>) {
    let outcome = async {
        let resource = resource(broker, kind, name)?;
        resource.exists(broker)?;
        let stored = resource.stored(broker).await?;
        let wanted = wanted(&resource, stored)?;
        resource.check(broker, &wanted)?;
        if validate_only {
            return Ok(());
        }
        resource.write(broker, wanted).await
    };
    answered(kind, name, outcome.await)
}

/// (code, message)
fn answered(kind: i8, name: &str, outcome: Result<(), Refusal>) -> (i16, Option<String>) {
    match outcome {
        Ok(()) => (0, None),
        Err(Refusal { error, message }) => {
            tracing::info!("configuration of {kind}/{name} not changed: {message}");
            (error.code(), Some(message))
        }
    }
}
