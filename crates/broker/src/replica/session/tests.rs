use super::*;
use gracchus_kafka_proto::Uuid;

fn key(partition: i32) -> SessionKey {
    SessionKey {
        topic_id: Uuid::ZERO,
        topic: "t".into(),
        partition,
    }
}

fn wanted(offset: i64) -> Wanted {
    Wanted {
        offset,
        max_bytes: 100,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        log_start_offset: -1,
    }
}

fn told(high_watermark: i64, has_records: bool) -> Told {
    Told {
        high_watermark,
        log_start_offset: 0,
        has_records,
        special: false,
        error: false,
    }
}

fn request(session_id: i32, epoch: i32, partitions: &[(i32, i64)]) -> SessionRequest {
    SessionRequest {
        session_id,
        epoch,
        uses_topic_ids: false,
        wanted: partitions
            .iter()
            .map(|&(p, offset)| (key(p), wanted(offset)))
            .collect(),
        forgotten: Vec::new(),
    }
}

fn create(sessions: &FetchSessions, id: i32, partitions: i32, privileged: bool, now: i64) -> i32 {
    let parts: Vec<_> = (0..partitions)
        .map(|p| (key(p), wanted(0), told(5, false)))
        .collect();
    sessions.create(false, parts.into_iter(), privileged, now, || id)
}

fn partitions(context: &Context) -> Vec<(i32, i64)> {
    context
        .wanted()
        .iter()
        .map(|(key, wanted)| (key.partition, wanted.offset))
        .collect()
}

#[test]
fn an_incremental_session() {
    let sessions = FetchSessions::new(10);
    let context = sessions
        .begin(request(0, 0, &[(0, 0), (1, 0), (2, 0)]), 0)
        .unwrap();
    assert!(matches!(context, Context::Full { .. }));
    assert_eq!(create(&sessions, 7, 3, false, 0), 7);

    // Epoch 1, only partition 1 moved: all three are read, in order.
    let context = sessions.begin(request(7, 1, &[(1, 5)]), 1).unwrap();
    assert_eq!(partitions(&context), [(0, 0), (1, 5), (2, 0)]);
    let Context::Incremental {
        session_id: 7,
        epoch: 2,
        ..
    } = context
    else {
        panic!("{context:?}")
    };

    // Unchanged ones are left out; who has records goes to the end.
    let answer = [
        (key(0), told(6, true)),
        (key(1), told(5, false)),
        (key(2), told(6, false)),
    ];
    assert_eq!(
        sessions.changed(7, 2, &answer).unwrap(),
        [true, false, true]
    );
    let mut next = request(7, 2, &[]);
    next.forgotten.push(key(2));
    let context = sessions.begin(next, 2).unwrap();
    assert_eq!(partitions(&context), [(1, 5), (0, 0)]);
}

/// An error is told each time, and what comes after it too, though nothing else changed.
#[test]
fn errors_are_told_until_they_are_over() {
    let sessions = FetchSessions::new(10);
    create(&sessions, 7, 1, false, 0);
    let failed = Told {
        special: true,
        error: true,
        ..told(-1, false)
    };
    for (epoch, told, expected) in [
        (1, failed, true),
        (2, failed, true),
        (3, told(5, false), true),
        (4, told(5, false), false),
    ] {
        sessions.begin(request(7, epoch, &[]), 0).unwrap();
        assert_eq!(
            sessions.changed(7, epoch + 1, &[(key(0), told)]).unwrap(),
            [expected],
            "{epoch}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_session() {
    let sessions = FetchSessions::new(10);
    assert_eq!(
        sessions.begin(request(7, 1, &[]), 0).unwrap_err(),
        SessionError::NotFound
    );
    create(&sessions, 7, 1, false, 0);
    assert_eq!(
        sessions.begin(request(7, 2, &[]), 0).unwrap_err(),
        SessionError::WrongEpoch
    );
    let by_id = SessionRequest {
        uses_topic_ids: true,
        ..request(7, 1, &[])
    };
    assert_eq!(
        sessions.begin(by_id, 0).unwrap_err(),
        SessionError::TopicIds
    );
    // The same session used by another connection while this one was parked.
    sessions.begin(request(7, 1, &[]), 0).unwrap();
    sessions.begin(request(7, 2, &[]), 0).unwrap();
    assert_eq!(
        sessions.changed(7, 2, &[]).unwrap_err(),
        SessionError::WrongEpoch
    );
}

#[test]
fn closing() {
    let sessions = FetchSessions::new(10);
    create(&sessions, 7, 1, false, 0);
    let context = sessions.begin(request(7, FINAL_EPOCH, &[]), 0).unwrap();
    assert!(matches!(context, Context::Sessionless(_)));
    assert!(sessions.is_empty());
    // All partitions forgotten closes it too.
    create(&sessions, 8, 1, false, 0);
    let mut all = request(8, 1, &[]);
    all.forgotten.push(key(0));
    assert!(matches!(
        sessions.begin(all, 0).unwrap(),
        Context::Sessionless(_)
    ));
    assert!(sessions.is_empty());
    // A new full request with the old id replaces it.
    create(&sessions, 9, 1, false, 0);
    sessions
        .begin(request(9, INITIAL_EPOCH, &[(0, 0)]), 0)
        .unwrap();
    assert!(sessions.is_empty());
}

#[test]
fn room_is_made_by_age_then_by_size() {
    let sessions = FetchSessions::new(2);
    assert_eq!(create(&sessions, 1, 3, false, 0), 1);
    assert_eq!(create(&sessions, 2, 5, false, 0), 2);
    // Nobody has existed for two minutes.
    assert_eq!(create(&sessions, 3, 9, false, 60_000), NO_SESSION);
    // A follower takes a consumer's, the smallest.
    assert_eq!(create(&sessions, 3, 9, true, 60_000), 3);
    // The other is used, but old: a larger one takes it, a smaller one does not.
    sessions.begin(request(2, 1, &[]), 100_000).unwrap();
    assert_eq!(create(&sessions, 4, 4, false, 121_000), NO_SESSION);
    assert_eq!(create(&sessions, 4, 6, false, 121_000), 4);
    // The follower's has not been used for two minutes.
    assert_eq!(create(&sessions, 5, 1, false, 181_000), 5);
    assert_eq!(sessions.len(), 2);
}

#[test]
fn epochs_wrap_without_the_special_ones() {
    assert_eq!(next_epoch(i32::MAX), 1);
    assert_eq!(next_epoch(0), 1);
    assert_eq!(next_epoch(-1), -1);
}
