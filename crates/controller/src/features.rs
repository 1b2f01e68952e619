//! `/feature` at a takeover (KIP-584). There is no feature to finalize in ZooKeeper mode; the node only says whether
//! versioning is in use.

use std::collections::BTreeMap;

use gracchus_registry::json::FeatureZnode;
use gracchus_registry::op::ZkError;
use gracchus_registry::{ANY_VERSION, ZkOp, paths};

use crate::core::{Core, Failure, failed};

impl Core {
    /// Writes the node when it is missing, or when its version or status does not fit the protocol version. Unfenced.
    pub async fn settle_features(&mut self) -> Result<(), Failure> {
        let versions = self.config.versions;
        let stored = match self.read(paths::FEATURE, false).await? {
            None => None,
            Some((data, _)) => match FeatureZnode::parse(&data) {
                Ok(stored) => Some(stored),
                Err(error) => {
                    tracing::error!(
                        "{} cannot be read: {error}. Delete it, and the next controller writes it anew",
                        paths::FEATURE
                    );
                    return Ok(());
                }
            },
        };
        let wanted = FeatureZnode {
            version: versions.feature_node,
            enabled: versions.features_enabled,
            features: match &stored {
                Some(stored) if versions.features_enabled && stored.enabled => {
                    stored.features.clone()
                }
                _ => BTreeMap::new(),
            },
        };
        let op = match stored {
            None => ZkOp::create(paths::FEATURE, Some(wanted.to_bytes())),
            Some(stored) if stored != wanted => ZkOp::SetData {
                path: paths::FEATURE.to_owned(),
                data: Some(wanted.to_bytes()),
                version: ANY_VERSION,
            },
            Some(_) => return Ok(()),
        };
        match self.one(op).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.error == ZkError::NodeExists => Ok(()),
            Err(failure) => Err(failed(paths::FEATURE, failure.error)),
        }
    }
}
