//! DescribeCluster (60): the brokers and the controller.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::describe_cluster_response::DescribeClusterBroker;
use gracchus_kafka_proto::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::metadata::CLUSTER_OPERATIONS;
use crate::broker::Broker;
use crate::context::RequestContext;
use crate::metadata::view;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let refuse = |error: ErrorCode, text: String| DescribeClusterResponse {
        error_code: error.code(),
        error_message: Some(text),
        ..Default::default()
    };
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refuse(
                ErrorCode::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER".into(),
            );
        }
        other => {
            return refuse(
                ErrorCode::UnsupportedEndpointType,
                format!("Unsupported endpoint type {other}"),
            );
        }
    }
    let snapshot = broker.metadata.snapshot();
    let brokers = view::brokers(&snapshot, ctx.listener_name())
        .into_iter()
        .map(|b| DescribeClusterBroker {
            broker_id: b.node_id,
            host: b.host,
            port: b.port,
            rack: b.rack,
            ..Default::default()
        })
        .collect();
    let mut response = DescribeClusterResponse {
        cluster_id: broker.identity.cluster_id.clone(),
        controller_id: snapshot.controller_id.unwrap_or(-1),
        brokers,
        ..Default::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}
