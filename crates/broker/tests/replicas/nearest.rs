//! Consumers that read from a replica in their rack (KIP-392).

use std::sync::Arc;

use gracchus_broker::metadata::LiveBroker;

use crate::rig::{ME, Rig, batch, fetch_request, values};

/// Brokers in racks `a`, `b`, `b`; this one leads, the others are in sync.
async fn racks(props: &[(&str, &str)]) -> Rig {
    let rig = Rig::with(props);
    rig.lead("t", 1, &[ME, 2, 3], &[ME, 2, 3]);
    rig.metadata.update(|snapshot| {
        for (id, rack) in [(ME, "a"), (2, "b"), (3, "b")] {
            let live = LiveBroker {
                id,
                rack: Some(rack.into()),
                endpoints: Vec::new(),
            };
            snapshot.brokers.insert(id, Arc::new(live));
        }
    });
    rig.produce("t", batch(&["a"])).await;
    rig.produce("t", batch(&["b"])).await;
    for (follower, offset) in [(2, 2), (3, 1)] {
        let mut request = fetch_request("t", offset);
        request.replica_id = follower;
        request.topics[0].partitions[0].log_start_offset = 0;
        rig.fetch_request(12, request).await;
    }
    rig
}

const BY_RACK: (&str, &str) = (
    "replica.selector.class",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
);

#[tokio::test]
async fn a_consumer_is_sent_to_a_replica_in_its_rack() {
    let ask = async |rig: &Rig, version: i16, rack: &str, offset: i64| {
        let mut request = fetch_request("t", offset);
        request.rack_id = rack.into();
        let mut answer = rig.fetch_request(version, request).await;
        let part = answer.responses.remove(0).partitions.remove(0);
        assert_eq!(part.error_code, 0);
        (part.preferred_read_replica, values(&part).len())
    };
    let rig = racks(&[BY_RACK]).await;
    assert_eq!(ask(&rig, 11, "b", 0).await, (2, 0), "2 is further than 3");
    assert_eq!(ask(&rig, 11, "a", 0).await, (-1, 1), "the leader is near");
    assert_eq!(ask(&rig, 11, "c", 0).await, (-1, 1));
    assert_eq!(ask(&rig, 11, "", 0).await, (-1, 1));
    // who is out of sync is no choice
    rig.lead("t", 2, &[ME, 2, 3], &[ME]);
    assert_eq!(ask(&rig, 11, "b", 0).await.0, -1);
    let rig = racks(&[]).await;
    assert_eq!(ask(&rig, 11, "b", 0).await, (-1, 1), "not configured");
}

/// With consumers reading from followers, these hear of a risen high watermark without waiting for records.
#[tokio::test(start_paused = true)]
async fn a_risen_high_watermark_is_told_at_once_where_followers_serve() {
    for (props, hurried) in [(vec![BY_RACK], true), (vec![], false)] {
        let rig = racks(&props).await;
        assert_eq!(rig.high_watermark("t"), 1);
        let mut parked = fetch_request("t", 2);
        parked.replica_id = 2;
        parked.max_wait_ms = 30_000;
        let began = tokio::time::Instant::now();
        let (answer, _) = tokio::join!(rig.fetch_request(12, parked), async {
            tokio::task::yield_now().await;
            rig.follower_fetch(3, "t", 2).await
        });
        let part = &answer.responses[0].partitions[0];
        assert_eq!(part.high_watermark, 2);
        assert_eq!(began.elapsed().is_zero(), hurried);
    }
}
