//! Committing what was consumed.

use super::Consumer;
use crate::admin::Committed;
use crate::{ClientError, TopicPartition};
use tokio::time::Instant;

impl Consumer {
    /// What poll has given, to be committed.
    pub(super) fn consumed(&self) -> Vec<(TopicPartition, Committed)> {
        self.positions
            .iter()
            .filter_map(|(tp, p)| {
                let offset = p.consumed.filter(|o| *o >= 0)?;
                let committed = Committed {
                    offset,
                    leader_epoch: p.leader_epoch,
                    metadata: String::new(),
                };
                Some((tp.clone(), committed))
            })
            .collect()
    }

    /// Commits what poll has given.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let offsets = self.consumed();
        if offsets.is_empty() {
            return Ok(());
        }
        match &self.member {
            Some(member) => member.commit(&offsets).await,
            None => {
                let group = self.group()?;
                for (_, result) in self.admin.alter_offsets(&group, &offsets).await? {
                    result?;
                }
                Ok(())
            }
        }
    }

    pub(super) async fn commit_when_due(&mut self) -> Result<(), ClientError> {
        let (Some(every), Some(_)) = (self.config.auto_commit, &self.config.group) else {
            return Ok(());
        };
        let now = Instant::now();
        let due = *self.next_commit.get_or_insert(now + every);
        if now < due {
            return Ok(());
        }
        self.next_commit = Some(now + every);
        if let Err(e) = self.commit().await {
            // the group is rebalancing, or its coordinator moves: the next one will do
            tracing::warn!(error = %e, "offsets could not be committed");
        }
        Ok(())
    }

    /// Commits (if it does so by itself) and leaves the group.
    pub async fn close(mut self) -> Result<(), ClientError> {
        let mut result = Ok(());
        if self.config.auto_commit.is_some() && self.config.group.is_some() {
            result = self.commit().await;
        }
        if let Some(member) = &mut self.member {
            member.leave().await;
        }
        result
    }
}
