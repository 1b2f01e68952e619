//! AlterReplicaLogDirs: the order to move replicas to other log directories.

use std::path::PathBuf;

use gracchus_kafka_proto::ErrorCode;
use gracchus_log::TopicPartition;
use gracchus_log::naming::future_dir_name;

use crate::replica::ReplicaManager;
use crate::replica::log_config::log_config;
use crate::replica::manager::Hosted;

impl ReplicaManager {
    /// Moves each partition to its directory; one error a partition, in order. Does file work: call it where a thread may
    /// block.
    pub fn alter_log_dirs(
        &self,
        wanted: Vec<(TopicPartition, PathBuf)>,
        now_ms: i64,
    ) -> Vec<(TopicPartition, ErrorCode)> {
        // No role may change meanwhile.
        let _seen = self.controller_epoch.lock();
        let altered = wanted.into_iter().map(|(id, dir)| {
            let code = self.alter_log_dir(&id, &dir, now_ms);
            if let Err(code) = code {
                tracing::warn!(partition = %id, dir = %dir.display(), "AlterReplicaLogDirs refused: {}", code.name());
            }
            (id, code.err().unwrap_or(ErrorCode::None))
        });
        altered.collect()
    }

    /// The order of the checks is Kafka's.
    fn alter_log_dir(
        &self,
        id: &TopicPartition,
        dir: &std::path::Path,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        // the length of every unique part
        if future_dir_name(id, &"0".repeat(32)).is_none() {
            return Err(ErrorCode::InvalidTopicException);
        }
        match self.logs.is_dir_online(dir) {
            None => return Err(ErrorCode::LogDirNotFound),
            Some(false) => return Err(ErrorCode::KafkaStorageError),
            Some(true) => {}
        }
        let failed = |error| self.log_failed(id, "altering the log directory", &error);
        let hosted = self.hosted(&id.topic, id.partition);
        match hosted {
            Some(Hosted::Offline | Hosted::Unopened(_)) => {
                return Err(ErrorCode::KafkaStorageError);
            }
            Some(Hosted::Online(_)) => {
                // On its way to somewhere else.
                if let Some(future) = self.logs.future(id)
                    && !self.logs.is_in(&future, dir)
                {
                    self.logs.delete_future(id, now_ms).map_err(failed)?;
                }
            }
            None => {}
        }
        let current = self.logs.get(id);
        let is_there = |log: &_| self.logs.is_in(log, dir);
        if !current.as_ref().is_some_and(is_there)
            && !self.logs.future(id).as_ref().is_some_and(is_there)
            && !self.logs.prefer_dir(id, dir)
        {
            tracing::warn!(partition = %id, dir = %dir.display(), "not remembered where the log is to be made: too many are remembered already");
        }
        let partition = match self.partition(&id.topic, id.partition) {
            Ok(partition) => partition,
            // what clients know for a replica that is to come
            Err(ErrorCode::NotLeaderOrFollower) => return Err(ErrorCode::ReplicaNotAvailable),
            Err(code) => return Err(code),
        };
        let Some(current) = partition.log() else {
            return Err(ErrorCode::ReplicaNotAvailable);
        };
        if self.logs.is_in(&current, dir) {
            return Ok(());
        }
        let config = log_config(&self.config.topic(&id.topic));
        self.logs
            .create_future(id, dir, &config, now_ms)
            .map_err(failed)?;
        tracing::info!(partition = %id, dir = %dir.display(), "the log is being moved");
        self.want_move(id);
        Ok(())
    }
}
