//! One question of a fetcher, its answer, and what is done with it.

use std::sync::Arc;

use gracchus_kafka_proto::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use super::machine::Fetcher;
use super::steps::{Step, Work};
use crate::replica::manager::ReplicaManager;

/// The broker that is asked.
pub trait Source {
    /// Fetch.
    fn fetch(
        &mut self,
        version: i16,
        request: FetchRequest,
    ) -> impl Future<Output = Result<FetchResponse, String>> + Send;

    /// OffsetForLeaderEpoch.
    fn epochs(
        &mut self,
        version: i16,
        request: OffsetForLeaderEpochRequest,
    ) -> impl Future<Output = Result<OffsetForLeaderEpochResponse, String>> + Send;

    /// ListOffsets.
    fn offsets(
        &mut self,
        version: i16,
        request: ListOffsetsRequest,
    ) -> impl Future<Output = Result<ListOffsetsResponse, String>> + Send;
}

/// What a round was.
#[derive(Debug, PartialEq, Eq)]
pub enum Round {
    /// Something was asked, or done.
    Done,
    /// There is nothing to do before this time.
    Idle(i64),
    /// The source did not answer.
    Failed(String),
}

/// Does what is next.
pub async fn round(
    fetcher: &mut Fetcher,
    source: &mut impl Source,
    replicas: &Arc<ReplicaManager>,
    clock: impl Fn() -> i64,
) -> Round {
    let settings = fetcher.settings();
    let (epochs_version, offsets_version) = (settings.epochs_version, settings.offsets_version);
    let steps = match fetcher.next(clock()) {
        Work::Wait(until) => return Round::Idle(until),
        Work::Steps(steps) => Ok(steps),
        Work::Epochs(request) => source
            .epochs(epochs_version, request)
            .await
            .map(|answer| fetcher.epochs_answered(answer, clock())),
        Work::Offsets(request) => source
            .offsets(offsets_version, request)
            .await
            .map(|answer| fetcher.offsets_answered(answer, clock())),
        Work::Fetch(request, version) => source
            .fetch(version, request)
            .await
            .map(|answer| fetcher.fetched(answer, clock())),
    };
    match steps {
        Ok(steps) => {
            take(fetcher, replicas, &steps, clock());
            for step in &steps {
                replicas.flush_followed(step, clock()).await;
            }
            Round::Done
        }
        Err(reason) => {
            fetcher.failed();
            Round::Failed(reason)
        }
    }
}

fn take(fetcher: &mut Fetcher, replicas: &ReplicaManager, steps: &[Step], now_ms: i64) {
    for step in steps {
        let outcome = replicas.follow_step(step, now_ms);
        fetcher.done(step, outcome, now_ms);
    }
}
