//! News of the log directories: the controller is told by `/log_dir_event_notification`, and a broker without a directory
//! that works ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::manager::StorageNews;
use crate::broker::Broker;
use crate::config::version::MetadataVersion;

/// Pause before a notice is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Wires the news up. What comes while a notice is being written makes one more notice, however much it is.
pub fn start(broker: &Arc<Broker>) {
    let protocol = &broker.config.current().inter_broker_protocol_version;
    // older controllers do not know of directories
    let ends_with_one =
        MetadataVersion::parse(protocol).is_some_and(|version| !version.at_least("1.0-IV0"));
    let wanted = Arc::new(Notify::new());
    let want = wanted.clone();
    broker.replicas.on_storage_news(move |news| match news {
        StorageNews::AllDirsFailed => {
            tracing::error!("no log directory works any more: the process ends. Mend the disks and restart the broker");
            std::process::exit(1);
        }
        StorageNews::DirFailed if ends_with_one => {
            tracing::error!(
                "a log directory failed, which a cluster with inter.broker.protocol.version below 1.0 cannot be told: the process ends"
            );
            std::process::exit(1);
        }
        StorageNews::DirFailed | StorageNews::LogsOpened => want.notify_one(),
    });
    let owner = broker.clone();
    broker.tasks.spawn(async move {
        let shutdown = owner.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = notify_controller(&owner, &wanted) => {}
        }
    });
}

async fn notify_controller(broker: &Broker, wanted: &Notify) {
    let id = broker.identity.broker_id;
    loop {
        wanted.notified().await;
        while let Err(error) = broker.registry.notify_log_dir_event(id).await {
            tracing::warn!(%error, "the controller cannot be told of the log directories now; trying again");
            tokio::time::sleep(RETRY).await;
        }
    }
}
