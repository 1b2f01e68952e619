//! InitProducerId (22): an id for an idempotent producer, by any broker.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::group::topic::transaction_coordinator;
use crate::net::limits::LineLimiter;

/// Some clients try again twice a second.
static LINES: LazyLock<LineLimiter> =
    LazyLock::new(|| LineLimiter::new(3, Duration::from_secs(60)));

/// Neither an id nor an epoch.
const NONE: i64 = -1;

/// Answers a new id with epoch 0.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let checked = check(&request, broker.config.current().transaction_max_timeout_ms);
    let outcome = match (checked, request.transactional_id.as_deref()) {
        (Ok(()), None) => broker.producer_ids.next(broker).await,
        (Ok(()), Some(id)) => Err(refused(broker, ctx, id)),
        (Err(error), _) => Err(error),
    };
    match outcome {
        Ok(producer_id) => InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..Default::default()
        },
        Err(error) => InitProducerIdResponse {
            error_code: error.code(),
            producer_id: NONE,
            producer_epoch: -1,
            ..Default::default()
        },
    }
}

/// What an id cannot be given for. A producer without a transactional id gets a new one whatever it had before.
fn check(request: &InitProducerIdRequest, max_timeout_ms: i32) -> Result<(), ErrorCode> {
    let half_known = (request.producer_id == NONE) != (i64::from(request.producer_epoch) == NONE);
    if half_known {
        return Err(ErrorCode::InvalidRequest);
    }
    match request.transactional_id.as_deref() {
        None => Ok(()),
        Some("") => Err(ErrorCode::InvalidRequest),
        Some(_)
            if request.transaction_timeout_ms <= 0
                || request.transaction_timeout_ms > max_timeout_ms =>
        {
            Err(ErrorCode::InvalidTransactionTimeout)
        }
        Some(_) => Ok(()),
    }
}

/// This broker coordinates no transactions yet. A cluster's other brokers may: NOT_COORDINATOR sends the producer there;
/// otherwise it is told something that it does not try again.
fn refused(broker: &Broker, ctx: &RequestContext, transactional_id: &str) -> ErrorCode {
    match transaction_coordinator(broker, ctx.listener_name(), transactional_id) {
        Ok(node) if node.id == broker.identity.broker_id => {
            if LINES.admit(Instant::now()).is_some() {
                tracing::warn!(
                    client = %ctx.connection.peer,
                    "refused the transactional producer {transactional_id:?}: this broker does not serve transactions yet"
                );
            }
            ErrorCode::UnsupportedVersion
        }
        _ => ErrorCode::NotCoordinator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(
        id: Option<&str>,
        timeout: i32,
        producer_id: i64,
        epoch: i16,
    ) -> Result<(), ErrorCode> {
        let request = InitProducerIdRequest {
            transactional_id: id.map(str::to_owned),
            transaction_timeout_ms: timeout,
            producer_id,
            producer_epoch: epoch,
            ..Default::default()
        };
        check(&request, 900_000)
    }

    #[test]
    fn who_gets_no_id() {
        assert_eq!(asked(None, 0, -1, -1), Ok(()));
        assert_eq!(asked(None, 0, 5, 1), Ok(()));
        assert_eq!(asked(None, 0, 5, -1), Err(ErrorCode::InvalidRequest));
        assert_eq!(asked(None, 0, -1, 3), Err(ErrorCode::InvalidRequest));
        assert_eq!(asked(Some(""), 1, -1, -1), Err(ErrorCode::InvalidRequest));
        for timeout in [0, -1, 900_001] {
            assert_eq!(
                asked(Some("x"), timeout, -1, -1),
                Err(ErrorCode::InvalidTransactionTimeout)
            );
        }
        assert_eq!(asked(Some("x"), 1, -1, -1), Ok(()));
    }
}
